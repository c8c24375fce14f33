// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// Limits on one response or event, besides its size: an empty object takes two bytes
// there, and some hundred in memory. Lists have pages of recordPage objects at most. A
// page of slices of 1,000 endpoints with one address each, which is about as large as a
// response may be, has 200,000 elements.
const (
	maxItems    = 2 * recordPage
	maxElements = 250_000
)

// countingCodecs decode JSON and protobuf, and nothing of which the elements exceed a
// limit.
type countingCodecs struct {
	runtime.NegotiatedSerializer
	// exceeded is set with the first data that is refused: a watch passes on no more than
	// the text of an error.
	exceeded *atomic.Pointer[budget.Exceeded]
}

// SupportedMediaTypes leaves out YAML, which an API server sends only if asked for.
func (c countingCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType != runtime.ContentTypeJSON && info.MediaType != runtime.ContentTypeProtobuf
	})
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c countingCodecs) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return countingDecoder{c.NegotiatedSerializer.DecoderToVersion(decoder, version), c.exceeded}
}

type countingDecoder struct {
	runtime.Decoder
	exceeded *atomic.Pointer[budget.Exceeded]
}

// Decode implements runtime.Decoder.
func (d countingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if limit := checkElements(data, into != nil && apimeta.IsListType(into)); limit != nil {
		d.exceeded.Store(limit)
		return nil, nil, limit
	}
	return d.Decoder.Decode(data, defaults, into)
}

// checkElements counts the elements of lists in encoded data. What cannot be parsed is for
// the decoder to refuse, which stops there, too.
func checkElements(data []byte, isList bool) *budget.Exceeded {
	items, elements := 0, 0
	if raw, is := bytes.CutPrefix(data, protobufPrefix); is {
		items, elements = countProtobuf(raw)
	} else {
		items, elements = countJSON(data)
	}
	switch {
	case isList && items > maxItems:
		return &budget.Exceeded{Limit: fmt.Sprintf("%d objects in one page of a list", maxItems)}
	case elements > maxElements:
		return &budget.Exceeded{Limit: fmt.Sprintf("%d elements of lists in one response or event", maxElements)}
	}
	return nil
}

// countJSON counts the elements of arrays; items are those of an array that is a field of
// the outermost object.
func countJSON(data []byte) (items, elements int) {
	var arrays []bool // whether each open bracket is that of an array
	element := func() {
		if elements++; len(arrays) == 2 {
			items++
		}
	}
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{':
			arrays = append(arrays, false)
		case '[':
			arrays = append(arrays, true)
			element() // an empty array counts as one element
		case '}', ']':
			arrays = arrays[:max(0, len(arrays)-1)]
		case ',':
			if len(arrays) > 0 && arrays[len(arrays)-1] {
				element()
			}
		}
	}
	return items, elements
}

// protobufPrefix begins what Kubernetes encodes as protobuf: a runtime.Unknown, of which
// field 2 is the object.
var protobufPrefix = []byte("k8s\x00")

// countProtobuf counts the fields of an object and its elements. Items are those of a
// list: its field 2, as also the endpoints of a slice are.
func countProtobuf(unknown []byte) (items, elements int) {
	eachField(unknown, func(number protowire.Number, object []byte) {
		if number != 2 {
			return
		}
		eachField(object, func(number protowire.Number, item []byte) {
			elements++
			if number == 2 {
				items++
			}
			eachField(item, func(outer protowire.Number, element []byte) {
				elements++
				if outer > 3 {
					return // neither metadata, endpoints nor ports, but a string
				}
				eachField(element, func(inner protowire.Number, _ []byte) {
					if outer == 1 || inner == 1 { // all of the metadata, and the addresses of an endpoint
						elements++
					}
				})
			})
		})
	})
	return items, elements
}

// eachField calls do with each field of a message, and the content of those that have a
// length, until something is not a field.
func eachField(message []byte, do func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return
		}
		var content []byte
		if kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(message[n:])
		}
		do(number, content)
		message = message[n+size:]
	}
}
