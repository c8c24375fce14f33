// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// page is a page of slices as an API server sends it, in JSON and in protobuf.
func page(t *testing.T, slices, endpoints int) (asJSON, asProtobuf []byte) {
	t.Helper()
	list := &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
	one := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "web-1", Labels: map[string]string{"a,b": `[{,\"`}, OwnerReferences: make([]metav1.OwnerReference, 2), ManagedFields: make([]metav1.ManagedFieldsEntry, 3),
	}}
	one.Ports = make([]discoveryv1.EndpointPort, 3)
	for i := range endpoints {
		one.Endpoints = append(one.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}, Zone: ptr.To("zone-1"),
		})
	}
	for range slices {
		list.Items = append(list.Items, one)
	}
	asJSON, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	_ = discoveryv1.AddToScheme(scheme)
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &out); err != nil {
		t.Fatal(err)
	}
	return asJSON, out.Bytes()
}

func TestPagesOfTheLargestSlicesAreDecoded(t *testing.T) {
	for _, endpoints := range []int{0, 1, 100, 1000} {
		asJSON, asProtobuf := page(t, slicePage, endpoints)
		for name, data := range map[string][]byte{"JSON": asJSON, "protobuf": asProtobuf} {
			if limit := checkElements(data, true); limit != nil {
				t.Errorf("%d endpoints in %s: %v", endpoints, name, limit)
			}
		}
	}
}

// protobufOf is an object, or a list, as Kubernetes encodes it.
func protobufOf(raw string) string {
	size := len(raw)
	return "k8s\x00" + string([]byte{0x12, byte(size)&0x7f | 0x80, byte(size>>7)&0x7f | 0x80, byte(size>>14)&0x7f | 0x80, byte(size >> 21)}) + raw
}

func TestElementsAreCounted(t *testing.T) {
	many := func(part string) string { return strings.Repeat(part, 400_000) }
	inItem := func(field, content string) string {
		size := len(content)
		return "\x12" + string([]byte{byte(size+6)&0x7f | 0x80, byte((size+6)>>7)&0x7f | 0x80, byte((size+6)>>14)&0x7f | 0x80, byte((size + 6) >> 21)}) +
			field + string([]byte{byte(size)&0x7f | 0x80, byte(size>>7)&0x7f | 0x80, byte(size>>14)&0x7f | 0x80, byte(size>>21)&0x7f | 0x80, 0}) + content
	}
	for name, data := range map[string]string{
		"objects of a list in JSON":        `{"items":[` + strings.Repeat(`{},`, maxItems) + `{}]}`,
		"nulls of a list in JSON":          `{"items":[` + strings.Repeat(`null,`, maxItems) + `null]}`,
		"objects of a list in protobuf":    protobufOf(strings.Repeat("\x12\x00", maxItems+1)),
		"endpoints in JSON":                `{"items":[{"endpoints":[` + many(`{},`) + `{}]}]}`,
		"addresses in JSON":                `{"items":[{"endpoints":[{"addresses":["\"",` + many(`"",`) + `""]}]}]}`,
		"endpoints in protobuf":            protobufOf(inItem("\x12", many("\x0a\x00"))),
		"owners of an object in protobuf":  protobufOf(inItem("\x0a", many("\x6a\x00"))),
		"endpoints of a slice in protobuf": protobufOf(many("\x12\x00")),
	} {
		if limit := checkElements([]byte(data), true); limit == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

// FAULT 31: a list, or an event, that is small as it is sent, and large in memory.
func TestFault31EmptyElementsAreNotDecoded(t *testing.T) {
	const slicesOfB = "comity-b/endpointslices"
	empty := func(n int) string { return strings.Repeat(`{},`, n) + `{}` }
	for name, c := range map[string]struct {
		watch                  bool
		content, answer, named string
	}{
		"a list in JSON":     {false, runtime.ContentTypeJSON, `{"metadata":{"resourceVersion":"10"},"items":[` + empty(100_000) + `]}`, "500 objects in one page of a list"},
		"a list in protobuf": {false, runtime.ContentTypeProtobuf, protobufOf("\x0a\x04\x12\x0210" + strings.Repeat("\x12\x00", 100_000)), "500 objects in one page of a list"},
		"an event": {true, runtime.ContentTypeJSON,
			`{"type":"ADDED","object":{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"x","resourceVersion":"11"},"endpoints":[` + empty(300_000) + `]}}`,
			"250000 elements of lists in one response or event"},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := limited(t, budget.Limits{}, func(w http.ResponseWriter, path string, watch bool) bool {
				if watch != c.watch || path != slicesOfB {
					return false
				}
				w.Header().Set("Content-Type", c.content)
				_, _ = io.WriteString(w, c.answer)
				return true
			})
			exceeds(t, conn, "EndpointSlices", c.named)
		})
	}
}

func TestYAMLIsNotDecoded(t *testing.T) {
	_, c := limited(t, budget.Limits{}, func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != exportsOfB {
			return false
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = io.WriteString(w, "metadata: {resourceVersion: \"10\"}\nitems: []\n")
		return true
	})
	await(t, "the list is refused", func() bool {
		problem, verified := c.State().Problem, c.Verified()
		return problem.Reason == ReasonUnreachable && strings.Contains(problem.Message, "ExportRecords") && !verified
	})
}
