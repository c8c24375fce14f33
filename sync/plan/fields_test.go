// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// fill sets a value, whatever its type, to one that is not empty. Two fills of
// one type differ by n.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf(strings.Repeat("x", n)))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.String:
		v.SetString(strings.Repeat("x", n))
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	default:
		v.SetInt(int64(n))
	}
}

func jsonNames(spec any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(spec)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return slices.Sorted(slices.Values(names))
}

// filled is a spec of which only the field called name is set.
func filled[S any](name string, n int) *S {
	spec := new(S)
	for i := range reflect.TypeFor[S]().NumField() {
		if tag, _, _ := strings.Cut(reflect.TypeFor[S]().Field(i).Tag.Get("json"), ","); tag == name {
			fill(reflect.ValueOf(spec).Elem().Field(i), n)
		}
	}
	if s, is := any(spec).(*corev1.ServiceSpec); is && len(s.Ports) > 0 {
		s.Ports[0].NodePort = 0 // never desired
	}
	return spec
}

// rule is what each field of a kind has to do, written down a second time.
type rule struct {
	applied bool     // set where the exports ask for it
	signed  []string // names in the digest
	left    bool     // another value is left alone where none is desired
	strips  bool     // another value is removed where none is desired
}

func checkFields[S any](t *testing.T, fields []field[S], rules map[string]rule, everything *importer) {
	t.Helper()
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
		want := rules[f.name]
		one, other, none := filled[S](f.name, 1), filled[S](f.name, 3), new(S)
		desired := new(S)
		f.set(everything, desired)
		if got := !cmp.Equal(desired, none); got != want.applied {
			t.Errorf("%s: applied: %t", f.name, got)
		}
		if got := f.names(one); !slices.Equal(got, want.signed) || len(f.names(none)) > 0 {
			t.Errorf("%s: names in the digest: %v", f.name, got)
		}
		if !f.asDesired(one, one) || !f.asDesired(none, none) || want.applied && f.asDesired(other, one) {
			t.Errorf("%s: as desired: same %t, none %t, other %t", f.name, f.asDesired(one, one), f.asDesired(none, none), f.asDesired(other, one))
		}
		value, strips := f.strip(one, none)
		_, stripsDesired := f.strip(one, one)
		if strips != want.strips || stripsDesired || value != nil && isSet(value) {
			t.Errorf("%s: strips: %t (%v), its own value: %t", f.name, strips, value, stripsDesired)
		}
		if left := f.asDesired(one, none) && !strips; left != want.left {
			t.Errorf("%s: a value that is not desired is left alone: %t", f.name, left)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(jsonNames(*new(S)), names); diff != "" {
		t.Errorf("the table and the fields of the API differ: decide what happens to each (-API +table):\n%s", diff)
	}
	if len(rules) != len(fields) {
		t.Errorf("%d fields, %d rules", len(fields), len(rules))
	}
}

// TestEveryFieldOfTheAPIIsInTheTable fails also when a new version of the API
// brings a field that is not in the table.
func TestEveryFieldOfTheAPIIsInTheTable(t *testing.T) {
	p := &importer{
		ImportInput: ImportInput{MaintainSelectors: true, Desired: &model.Import{Type: mcsv1beta1.Headless, Targets: []model.Target{{Target: intstr.FromInt32(1)}}}},
		existing:    &corev1.Service{},
		families:    []corev1.IPFamily{"IPv4"}, ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
	}
	fill(reflect.ValueOf(p.Desired).Elem().FieldByName("Selector"), 1)
	for _, name := range []string{"SessionAffinity", "SessionAffinityConfig", "InternalTrafficPolicy", "TrafficDistribution"} {
		fill(reflect.ValueOf(p.Desired).Elem().FieldByName(name), 1)
	}
	fill(reflect.ValueOf(&p.existing.Spec).Elem(), 1)
	applied, left, stripped := rule{applied: true}, rule{left: true}, rule{strips: true}
	signed := func(name string, left, strips bool) rule {
		return rule{applied: true, signed: []string{name}, left: left, strips: strips}
	}
	checkFields(t, serviceFields, map[string]rule{
		"type": {applied: true, strips: true}, "clusterIP": {applied: true, left: true}, "clusterIPs": left, "ipFamilies": {applied: true, left: true},
		"ipFamilyPolicy": applied, "sessionAffinity": applied,
		"ports":                 {applied: true, signed: []string{"port 1/x", "appProtocol of 1/x"}, strips: true},
		"selector":              signed("selector", false, false),
		"sessionAffinityConfig": signed("sessionAffinityConfig", false, true),
		"internalTrafficPolicy": signed("internalTrafficPolicy", true, false),
		"trafficDistribution":   signed("trafficDistribution", false, true),
		"externalIPs":           stripped, "externalName": stripped, "loadBalancerIP": stripped, "loadBalancerSourceRanges": stripped,
		"loadBalancerClass": stripped, "allocateLoadBalancerNodePorts": stripped, "publishNotReadyAddresses": stripped,
		"externalTrafficPolicy": left, "healthCheckNodePort": left,
	}, p)
	optional := func(name string) rule { return signed(name, false, true) }
	checkFields(t, importFields, map[string]rule{
		"type": applied, "ports": applied, "ips": optional("ips"), "ipFamilies": optional("ipFamilies"),
		"sessionAffinity": optional("sessionAffinity"), "sessionAffinityConfig": optional("sessionAffinityConfig"),
		"internalTrafficPolicy": optional("internalTrafficPolicy"), "trafficDistribution": optional("trafficDistribution"),
	}, p)
}
