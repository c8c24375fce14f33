// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

// aFilter accepts 10.0.0.0/8 and fd00::/8 from the peer; 10.9.0.0/16 and
// fd09::/16 are this cluster's pods, 10.10.0.0/16 its Services.
func aFilter() Filter {
	return Filter{
		Accepted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		LocalCluster: model.LocalCluster{
			PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd09::/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")},
		},
	}
}

func addressesOf(slice *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range slice.Endpoints {
		out = append(out, e.Addresses...)
	}
	return out
}

func TestOneBadPartDoesNotCostTheSlice(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1", "127.0.0.1"))
	s.Endpoints = append(s.Endpoints,
		discoveryv1.Endpoint{Addresses: []string{"169.254.169.254"}},
		discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}, Hostname: ptr.To("Not_A_Label"), Zone: ptr.To(strings.Repeat("z", 64))},
		discoveryv1.Endpoint{},
		discoveryv1.Endpoint{Addresses: make([]string, 101)},
		discoveryv1.Endpoint{Addresses: []string{"10.9.0.1", "10.10.0.1", "192.0.2.1"}},
	)
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("http")}, discoveryv1.EndpointPort{Name: ptr.To("big"), Port: ptr.To[int32](70000)},
		discoveryv1.EndpointPort{Name: ptr.To("zero"), Port: ptr.To[int32](0)})
	s.Labels["not a label"], s.Labels["tier"] = "x", "front"
	before := s.DeepCopy()

	clean, report := CleanSlice(s, aFilter())
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("the original was changed:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.1.0.1"}, addressesOf(clean)); diff != "" {
		t.Error(diff)
	}
	if _, kept := clean.Labels["not a label"]; kept || clean.Labels["tier"] != "front" {
		t.Errorf("labels are %v", clean.Labels)
	}
	want := Report{
		"InvalidEndpoints":   {9, `"not a label" (shop.web-x1, metadata.labels)`},
		"AddressOverlap":     {2, `"10.9.0.1" (shop.web-x1, endpoints[5].addresses[0])`},
		"AddressNotAccepted": {1, `"192.0.2.1" (shop.web-x1, endpoints[5].addresses[2])`},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}

// FAULT 15: good addresses and every kind of bad ones in one slice.
func TestGoodAndTwelveKindsOfBadAddressesInOneSlice(t *testing.T) {
	bad := []struct{ address, reason string }{
		{"10.1.0", "InvalidEndpoints"}, {"010.1.0.1", "InvalidEndpoints"}, {"example.com", "InvalidEndpoints"}, {"fd00::1", "InvalidEndpoints"}, {"::ffff:10.1.0.1", "InvalidEndpoints"},
		{"0.0.0.0", "InvalidEndpoints"}, {"127.0.0.1", "InvalidEndpoints"}, {"169.254.169.254", "InvalidEndpoints"}, {"224.0.0.1", "InvalidEndpoints"},
		{"255.255.255.255", "InvalidEndpoints"}, {"10.9.1.1", "AddressOverlap"}, {"10.10.0.1", "AddressOverlap"}, {"192.0.2.1", "AddressNotAccepted"},
	}
	s := copyOf(t, aSlice("10.1.0.1"))
	for i, b := range bad {
		s.Endpoints = append(s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{b.address}},
			discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.1.%d", i)}})
	}
	clean, report := CleanSlice(s, aFilter())
	want := []string{"10.1.0.1"}
	for i := range bad {
		want = append(want, fmt.Sprintf("10.1.1.%d", i))
	}
	if diff := cmp.Diff(want, addressesOf(clean)); diff != "" {
		t.Error(diff)
	}
	told := ""
	for _, p := range report.Problems("b", aFilter()) {
		told += p.Reason + ": " + p.Message + "\n"
	}
	for _, b := range bad {
		if alone := report[b.reason].Count == 1; !strings.Contains(told, b.reason) || alone && !strings.Contains(told, `"`+b.address+`"`) {
			t.Errorf("%s (%s) is not told in:\n%s", b.address, b.reason, told)
		}
	}
}

func TestWhatIsWrongIsToldBeforeWhereItLies(t *testing.T) {
	f := aFilter()
	f.PodCIDRs = append(f.PodCIDRs, netip.MustParsePrefix("127.0.0.0/8"))
	for address, want := range map[string]string{
		"127.0.0.1": "InvalidEndpoints", "10.9.0.1": "AddressOverlap", "192.0.2.1": "AddressNotAccepted", "10.1.0.1": "",
	} {
		if got := f.CheckAddress(discoveryv1.AddressTypeIPv4, address); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
	if got := f.CheckAddress(discoveryv1.AddressTypeIPv6, "fd09::1"); got != "AddressOverlap" {
		t.Errorf("fd09::1: got %q", got)
	}
	if got := (&Filter{}).CheckAddress(discoveryv1.AddressTypeIPv4, "10.1.0.1"); got != "AddressNotAccepted" {
		t.Errorf("no filter: got %q", got)
	}
}

func TestOneReasonDoesNotHideAnother(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1"))
	for i := range maxEndpoints - 2 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("127.0.%d.%d", i/250, i%250)}})
	}
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.0.7"}})
	_, report := CleanSlice(s, aFilter())
	want := Report{
		"InvalidEndpoints": {maxEndpoints - 2, `"127.0.0.0" (shop.web-x1, endpoints[1].addresses[0])`},
		"AddressOverlap":   {1, `"10.9.0.7" (shop.web-x1, endpoints[99].addresses[0])`},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}

func TestProblemsNameWhatToEdit(t *testing.T) {
	all := Report{}
	for range 2 { // two slices of one import
		_, report := CleanSlice(copyOf(t, aSlice("10.1.0.1", "10.9.0.1", "192.0.2.1", "127.0.0.1")), aFilter())
		all.Add(report)
	}
	got := all.Problems("b", aFilter())
	want := []model.Problem{
		{Reason: "AddressNotAccepted", Cluster: "b", Message: "2 endpoint addresses of cluster b are left out, because those accepted are 10.0.0.0/8,fd00::/8; " +
			"if they are of its pods, add their CIDR to spec.acceptedCIDRs of Peer b; the first is " +
			`"192.0.2.1" (shop.web-x1, endpoints[0].addresses[2])`},
		{Reason: "AddressOverlap", Cluster: "b", Message: "2 endpoint addresses of cluster b are left out, because they are in ranges of this cluster " +
			"(pods 10.9.0.0/16,fd09::/16; Services 10.10.0.0/16); give one of the two other ranges; the first is " +
			`"10.9.0.1" (shop.web-x1, endpoints[0].addresses[1])`},
		{Reason: "InvalidEndpoints", Cluster: "b", Message: "2 parts of the EndpointSlices of cluster b are left out, because they are not valid, or no Pod can have such an address; " +
			`correct them there; the first is "127.0.0.1" (shop.web-x1, endpoints[0].addresses[3])`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, none := CleanSlice(copyOf(t, aSlice("10.1.0.1")), Filter{})
	if p := none.Problems("b", Filter{}); len(p) != 1 || !strings.Contains(p[0].Message, "1 endpoint addresses of cluster b are left out, because those accepted are none; if they are of its pods, add their CIDR to spec.acceptedCIDRs of Peer b") {
		t.Errorf("without accepted ranges: %v", p)
	}
	if p := Report(nil).Problems("b", Filter{}); p != nil {
		t.Errorf("nothing was left out, but told: %v", p)
	}
}

func TestProblemsAreBoundedAndFitForATerminal(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1"))
	s.Name = strings.Repeat("x\x1b", 200)
	for i := range maxEndpoints - 1 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{
			strings.Repeat("\x1b[2J\u202e\n", i), "127.0.0.1", "169.254.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "10.9.0.1", "192.0.2.1",
		}})
	}
	f := aFilter()
	for i := range 200 {
		f.Accepted = append(f.Accepted, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i), 0, 0}), 16))
	}
	_, report := CleanSlice(s, f)
	problems := report.Problems("b", f)
	if len(problems) != 3 {
		t.Errorf("%d problems", len(problems))
	}
	for _, p := range problems {
		if len(p.Message) > 1024 || strings.ContainsAny(p.Message, "\x1b\u202e\n") {
			t.Errorf("%d bytes: %q", len(p.Message), p.Message)
		}
	}
}

func TestACleanSliceIsNotCopied(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1"))
	if clean, report := CleanSlice(s, aFilter()); clean != s || report != nil {
		t.Errorf("got another slice, or a report: %v", report)
	}
}

func TestGoodAddressesMakeNoGarbage(t *testing.T) {
	small, large := sliceOf(t, 1), sliceOf(t, 1000)
	f := aFilter()
	allocations := func(s *discoveryv1.EndpointSlice) float64 {
		return testing.AllocsPerRun(10, func() { CleanSlice(s, f) })
	}
	if a, b := allocations(small), allocations(large); b > a+10 { // the race detector adds a few
		t.Errorf("%v allocations for 1 endpoint, %v for 1000", a, b)
	}
}

func sliceOf(t testing.TB, n int) *discoveryv1.EndpointSlice {
	t.Helper()
	s := aSlice()
	s.AddressType = discoveryv1.AddressTypeIPv6
	s.Endpoints = nil
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("fd00::1:%x", i+1)}, Zone: ptr.To("zone-1")})
	}
	out, _ := CopySlice(web, s, model.AllPorts())
	return out
}

func BenchmarkCleanSlice(b *testing.B) {
	s, f := sliceOf(b, 1000), aFilter()
	b.ReportAllocs()
	for b.Loop() {
		CleanSlice(s, f)
	}
}

func TestASliceThatCannotBeImportedAtAll(t *testing.T) {
	for name, spoil := range map[string]func(*discoveryv1.EndpointSlice){
		"host names":           func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
		"too many endpoints":   func(s *discoveryv1.EndpointSlice) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) },
		"a namespace injected": func(s *discoveryv1.EndpointSlice) { s.Labels[model.LabelExportNamespace] = "../kube-system" },
		"no export":            func(s *discoveryv1.EndpointSlice) { delete(s.Labels, model.LabelExportName) },
		"no source":            func(s *discoveryv1.EndpointSlice) { delete(s.Annotations, model.AnnotationSourceSlice) },
	} {
		s := copyOf(t, aSlice("10.1.0.1"))
		spoil(s)
		if clean, report := CleanSlice(s, aFilter()); clean != nil || report == nil {
			t.Errorf("%s: imported, or not told", name)
		}
	}
}
