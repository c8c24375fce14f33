// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// The checks below are written anew instead of calling what they check.
var (
	aLabel      = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\z`)
	aLabelValue = regexp.MustCompile(`\A([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\z`)
	aLabelKey   = regexp.MustCompile(`\A([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\z`)
)

func checkKeyIsSafe(t *testing.T, key types.NamespacedName) {
	t.Helper()
	if !aLabel.MatchString(key.Namespace) || !aLabel.MatchString(key.Name) || strings.HasPrefix(key.Namespace, "kube-") {
		t.Errorf("accepted %q", key)
	}
}

func FuzzFromRecord(f *testing.F) {
	seed, err := json.Marshal(aRecord(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"service":{"namespace":"b","name":"a"},"type":"Headless","exportUID":"1","exportedAt":"1970-01-01T00:00:00Z"}}`))
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"service":{"namespace":"b","name":"a"},"type":"Headless","exportUID":"1","exportedAt":"2026-01-01T00:00:00.5+23:59",` +
		`"labels":{"comity.dev/x":"y","a":"b"},"tiers":"self; *","selector":{"a":"b"},"ports":[{"port":1}],"targets":[{"port":1,"protocol":"TCP","targetPort":"a-b"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		record := &exchangev1alpha1.ExportRecord{}
		if json.Unmarshal(data, record) != nil {
			return
		}
		before := record.DeepCopy()
		export, err := FromRecord("a", record)
		if diff := cmp.Diff(before, record); diff != "" {
			t.Errorf("the record was changed:\n%s", diff)
		}
		if err != nil {
			fitForATerminal(t, err.Error(), 2048)
			return
		}
		checkExportIsSafe(t, export)
		roundTrip(t, record.Name, export)
	})
}

// roundTrip publishes export as JSON and reads it back.
func roundTrip(t *testing.T, name string, export model.Export) {
	t.Helper()
	namespace := model.ExchangeNamespace("a")
	if export.Scoped {
		namespace = model.ScopedExchangeNamespace("a", "b")
	}
	data, err := json.Marshal(&exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: Record(export)})
	if err != nil {
		t.Fatalf("accepted, but cannot be published: %v", err)
	}
	stored := &exchangev1alpha1.ExportRecord{}
	if err := json.Unmarshal(data, stored); err != nil {
		t.Fatalf("published, but cannot be read: %v", err)
	}
	again, err := FromRecord("a", stored)
	if err != nil {
		t.Fatalf("accepted once, but not again: %v", err)
	}
	if diff := cmp.Diff(withoutEmpty(export), withoutEmpty(again)); diff != "" {
		t.Errorf("changed on the way:\n%s", diff)
	}
}

// withoutEmpty gives what is empty and what is missing one form, as JSON does.
func withoutEmpty(e model.Export) model.Export {
	if len(e.Labels) == 0 {
		e.Labels = nil
	}
	if len(e.Annotations) == 0 {
		e.Annotations = nil
	}
	if len(e.Selector) == 0 {
		e.Selector = nil
	}
	if len(e.IPFamilies) == 0 {
		e.IPFamilies = nil
	}
	return e
}

func checkExportIsSafe(t *testing.T, e model.Export) {
	t.Helper()
	checkKeyIsSafe(t, e.Key)
	if e.Cluster != "a" || e.UID == "" || len(e.UID) > 128 || e.CreatedAt.Year() < 2020 || e.CreatedAt.Year() > 9999 {
		t.Errorf("accepted cluster %q, UID %q, time %v", e.Cluster, e.UID, e.CreatedAt)
	}
	if len(e.Ports) == 0 && e.Type != "Headless" || len(e.Ports) > 1000 || len(e.IPFamilies) > 2 || len(e.Targets) > len(e.Ports) {
		t.Errorf("accepted %d ports, %d targets and %d families for %s", len(e.Ports), len(e.Targets), len(e.IPFamilies), e.Type)
	}
	for _, p := range e.Ports {
		if p.Port < 1 || p.Port > 65535 || p.Name != "" && !aLabel.MatchString(p.Name) || p.Name == "" && len(e.Ports) > 1 {
			t.Errorf("accepted port %+v", p)
		}
	}
	for _, m := range []map[string]string{e.Labels, e.Selector} {
		for key, value := range m {
			if !aLabelKey.MatchString(key) || !aLabelValue.MatchString(value) {
				t.Errorf("accepted label %q=%q", key, value)
			}
		}
	}
	for key := range e.Annotations {
		if strings.HasPrefix(key, "comity.dev/") || strings.ContainsAny(key, "\x00\n\x1b ") {
			t.Errorf("accepted annotation %q", key)
		}
	}
}

func FuzzFromImportRecord(f *testing.F) {
	seed, err := json.Marshal(anImportRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"service":{"namespace":"b","name":"a"},"exportUID":"1","reason":"X","message":"a\u202e\u0000\r\n","since":"0001-01-01T00:00:01Z"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		record := &exchangev1alpha1.ImportRecord{}
		if json.Unmarshal(data, record) != nil {
			return
		}
		key, report, err := FromImportRecord("b", record)
		if err != nil {
			fitForATerminal(t, err.Error(), 2048)
			return
		}
		checkKeyIsSafe(t, key)
		fitForATerminal(t, report.Message, 1024)
		if len(report.Reason) > 64 || strings.ContainsFunc(report.Reason, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) {
			t.Errorf("accepted reason %q", report.Reason)
		}
		again := &exchangev1alpha1.ImportRecord{ObjectMeta: metav1.ObjectMeta{Name: record.Name}, Spec: ImportRecordSpec(key, report)}
		sameKey, same, err := FromImportRecord("b", again)
		if err != nil || sameKey != key {
			t.Fatalf("accepted once, but not again: %v, %v", sameKey, err)
		}
		if diff := cmp.Diff(report, same); diff != "" {
			t.Errorf("changed on the way:\n%s", diff)
		}
	})
}

func FuzzCheckAddress(f *testing.F) {
	for _, s := range []string{"10.1.0.1", "::1", "fe80::1%25", "0x7f.1", "::ffff:7f00:1", "::a9fe:a9fe", "64:ff9b::7f00:1", "fd00:1::5", "255.255.255.255", "0.0.0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		_, v4 := parseAddress(discoveryv1.AddressTypeIPv4, address)
		_, v6 := parseAddress(discoveryv1.AddressTypeIPv6, address)
		if want := plainly(address, 4); v4 != want {
			t.Errorf("IPv4 %q: fine is %t, want %t", address, v4, want)
		}
		if want := plainly(address, 16); v6 != want {
			t.Errorf("IPv6 %q: fine is %t, want %t", address, v6, want)
		}
		filter := aFilter()
		problem := filter.CheckAddress(discoveryv1.AddressTypeIPv4, address)
		if fine := v4 && net.ParseIP(address).To4()[0] == 10; (problem == "" || problem == model.ReasonAddressOverlap) != fine {
			t.Errorf("IPv4 %q: %q", address, problem)
		}
	})
}

// plainly says with package net instead of netip whether address, of that many
// bytes, is one that a pod can have.
func plainly(address string, bytes int) bool {
	ip := net.ParseIP(address)
	if ip == nil || ip.String() != address || strings.Contains(address, ":") != (bytes == 16) {
		return false
	}
	if bytes == 4 {
		four := ip.To4()
		return four[0] != 0 && four[0] != 127 && (four[0] != 169 || four[1] != 254) && four[0]>>4 != 14 && !ip.Equal(net.IPv4bcast)
	}
	zeros := 0
	for zeros < 16 && ip[zeros] == 0 {
		zeros++
	}
	nat64 := ip[0] == 0 && ip[1] == 0x64 && ip[2] == 0xff && ip[3] == 0x9b && zerosFrom(ip[4:12])
	return ip.To4() == nil && zeros < 12 && !nat64 && ip[0] != 0xff && (ip[0] != 0xfe || ip[1]&0xc0 != 0x80)
}

func zerosFrom(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func FuzzCleanSlice(f *testing.F) {
	f.Add("10.1.0.1,127.0.0.1;10.9.0.1;;192.0.2.1", "web-0", "z1", "http", int32(80), true)
	f.Add("fd00::1;fd09::1,::1", "Not_A_Label", "zone\x00", "HTTP", int32(0), false)
	f.Fuzz(func(t *testing.T, addresses, hostname, zone, portName string, port int32, ipv4 bool) {
		s := copyOf(t, aSlice())
		s.Endpoints, s.Ports[0].Name, s.Ports[0].Port = nil, &portName, &port
		if !ipv4 {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Labels[portName] = zone
		for _, part := range strings.Split(addresses, ";") {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: strings.Split(part, ","), Hostname: &hostname, Zone: &zone})
		}
		before := s.DeepCopy()
		filter := aFilter()
		clean, report := CleanSlice(s, filter)
		if diff := cmp.Diff(before, s); diff != "" {
			t.Errorf("the original was changed:\n%s", diff)
		}
		if clean == nil {
			if report == nil {
				t.Error("nothing is imported, and nothing told")
			}
			return
		}
		want := wantedAddresses(s, &filter)
		if !isLabel(hostname) || !isLabelValue(zone) {
			want = nil
		}
		if diff := cmp.Diff(want, addressesOf(clean)); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		checkSliceIsSafe(t, clean)
		if again, none := CleanSlice(clean, filter); again != clean || none != nil {
			t.Errorf("clean, but not clean enough: %+v", none)
		}
		for _, p := range report.Problems("b", filter) {
			fitForATerminal(t, p.Message, 1024)
		}
	})
}

func wantedAddresses(s *discoveryv1.EndpointSlice, filter *Filter) []string {
	bytes := 16
	if s.AddressType == discoveryv1.AddressTypeIPv4 {
		bytes = 4
	}
	inside := func(ip netip.Addr, prefixes ...netip.Prefix) bool {
		for _, p := range prefixes {
			if p.Contains(ip) {
				return true
			}
		}
		return false
	}
	var out []string
	for _, e := range s.Endpoints {
		if len(e.Addresses) > 100 {
			continue
		}
		for _, a := range e.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil && plainly(a, bytes) && inside(ip, filter.Accepted...) &&
				!inside(ip, filter.PodCIDRs...) && !inside(ip, filter.ServiceCIDRs...) {
				out = append(out, a)
			}
		}
	}
	return out
}

func checkSliceIsSafe(t *testing.T, s *discoveryv1.EndpointSlice) {
	t.Helper()
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 || e.Hostname != nil && !aLabel.MatchString(*e.Hostname) || e.Zone != nil && !aLabelValue.MatchString(*e.Zone) {
			t.Errorf("kept endpoint %+v", e)
		}
	}
	for _, p := range s.Ports {
		if *p.Port < 1 || *p.Port > 65535 || *p.Name != "" && !aLabel.MatchString(*p.Name) {
			t.Errorf("kept port %q %d", *p.Name, *p.Port)
		}
	}
	for key, value := range s.Labels {
		if !aLabelKey.MatchString(key) || !aLabelValue.MatchString(value) {
			t.Errorf("kept label %q=%q", key, value)
		}
	}
}
