// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// fill sets a value, whatever its type, to one that is not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("x"))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(3)
	}
}

// changesOf are, by field, what becomes of a value that somebody else set: "applied" over,
// "stripped", or "left".
func changesOf[S any](desired *S, compare func(current, desired *S) (bool, map[string]any)) map[string]string {
	out := map[string]string{}
	for i := range reflect.TypeFor[S]().NumField() {
		current, name := *desired, strings.Split(reflect.TypeFor[S]().Field(i).Tag.Get("json"), ",")[0]
		fill(reflect.ValueOf(&current).Elem().Field(i))
		hasAll, strip := compare(&current, desired)
		out[name] = "left"
		if !hasAll {
			out[name] = "applied"
		}
		if _, strips := strip[name]; strips {
			out[name] = strings.TrimPrefix(out[name]+" and stripped", "left and ")
		}
	}
	return out
}

// A field that a new version of the API has is to be decided.
func TestEveryFieldOfTheAPI(t *testing.T) {
	const applied, stripped, left, both = "applied", "stripped", "left", "applied and stripped"
	p := &importer{
		ImportInput: ImportInput{Desired: &model.Import{ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP}}}, existing: &corev1.Service{},
		families: []corev1.IPFamily{"IPv4"}, ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
	}
	service := p.serviceSpec()
	if diff := cmp.Diff(map[string]string{
		"type": both, "ports": both, "selector": stripped, "clusterIP": left, "clusterIPs": left, "ipFamilies": applied, "ipFamilyPolicy": applied,
		"sessionAffinity": applied, "sessionAffinityConfig": stripped, "internalTrafficPolicy": left, "trafficDistribution": stripped,
		"externalIPs": stripped, "externalName": stripped, "loadBalancerIP": stripped, "loadBalancerSourceRanges": stripped,
		"loadBalancerClass": stripped, "allocateLoadBalancerNodePorts": stripped, "publishNotReadyAddresses": stripped,
		"externalTrafficPolicy": left, "healthCheckNodePort": left,
	}, changesOf(&service, compareService)); diff != "" {
		t.Errorf("Service (-want +got):\n%s", diff)
	}
	imported := p.importSpec()
	if diff := cmp.Diff(map[string]string{
		"type": applied, "ports": applied, "ips": stripped, "ipFamilies": stripped, "sessionAffinity": stripped,
		"sessionAffinityConfig": stripped, "internalTrafficPolicy": stripped, "trafficDistribution": stripped,
	}, changesOf(&imported, func(current, desired *mcsv1beta1.ServiceImportSpec) (bool, map[string]any) {
		return compareSpec(current, desired)
	})); diff != "" {
		t.Errorf("ServiceImport (-want +got):\n%s", diff)
	}
}
