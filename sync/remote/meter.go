// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protowire"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// readSize bounds one read of a response, so that no read asks for more than a burst.
const readSize = 256 << 10

// meter counts what is read of the response to one request, at the speed of flow. That of a
// watch counts from the last event that was delivered, because client-go reads a whole event
// of JSON into memory, however long it is.
type meter struct {
	limit int64
	what  string
	flow  *flow
	read  atomic.Int64
	// exceed, if not nil, is called with each read beyond the limit.
	exceed func(*budget.Exceeded)
}

type meterKey struct{}

// meteredBody reads a body at the speed, and up to the size, that the limits allow.
type meteredBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc // ends the deadline of the request
	meter  *meter
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Read implements io.Reader. The error for a body that is too long, or cannot be read in
// time at that speed, is a *budget.Exceeded.
func (b *meteredBody) Read(p []byte) (int, error) {
	m := b.meter
	n, err := b.ReadCloser.Read(p[:min(len(p), readSize)])
	if m.read.Add(int64(n)) > m.limit {
		limit := &budget.Exceeded{Limit: fmt.Sprintf("%d bytes in %s", m.limit, m.what)}
		if m.exceed != nil {
			m.exceed(limit)
		}
		return 0, limit
	}
	if n > 0 {
		if slow := m.flow.wait(b.ctx, n); slow != nil {
			return n, slow
		}
	}
	return n, err
}

// exceed has f report a limit that a response exceeded, and accept no event until a list is
// within the limits again.
func (f *feed) exceed(limit *budget.Exceeded) {
	f.exceeded.Store(limit)
	f.result(f.connection.ctx, limit)
}

// follow counts an event of the watch. The watch ends with the first one that is beyond a limit:
// the reflector would go on. One of another kind is none, and counts with the next one.
func (f *feed) follow(what watch.EventType, object any) error {
	if over := f.accept(watch.Event{Type: what, Object: object.(runtime.Object)}, f.meter); over != nil {
		f.watching.Stop()
		return over
	}
	return nil
}

// accept counts one event, whose bytes m counted, and returns the limit that it is beyond; nil if
// it is not.
func (f *feed) accept(event watch.Event, m *meter) *budget.Exceeded {
	over := f.exceeded.Load()
	if over == nil {
		m.read.Store(0)
		if over = f.budget.Event(event); over != nil {
			f.exceed(over)
		}
	}
	return over
}

// smallBytes is how many bytes a second are read of responses with Leases, and the most that
// are read of a response with one object. A Lease or a token has less than a few kilobytes.
const smallBytes = 64 << 10

// slowReported is for how long a limit on the speed is reported after it was exceeded.
const slowReported = time.Minute

// flow is how fast responses are read.
type flow struct {
	tokens *rate.Limiter
	limit  string
	// slowed is when a response had to wait last, in Unix seconds.
	slowed atomic.Int64
}

func newFlow(perSecond, burst int64, what string) *flow {
	return &flow{tokens: rate.NewLimiter(rate.Limit(perSecond), int(max(burst, readSize))), limit: fmt.Sprintf("%d bytes%s per second", perSecond, what)}
}

// wait waits until n bytes more may be read. The error is a *budget.Exceeded if the
// response would not be read before its deadline.
func (f *flow) wait(ctx context.Context, n int) error {
	now := time.Now()
	if f.tokens.AllowN(now, n) {
		return nil
	}
	f.slowed.Store(now.Unix())
	err := f.tokens.WaitN(ctx, n)
	if err != nil && ctx.Err() == nil { // the deadline is too early
		return &budget.Exceeded{Limit: f.limit}
	}
	return err
}

// exceeded is the limit that has slowed down in the last minute what is read; empty if it has not.
func (f *flow) exceeded() string {
	if time.Since(time.Unix(f.slowed.Load(), 0)) > slowReported {
		return ""
	}
	return f.limit
}

// SlowedBy is the limit that slows down what is read of the peer; empty if none does.
func (c *Connection) SlowedBy() string { return c.transport.flow.exceeded() }

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
	// exceed is called when data is refused: a watch passes on no more than the text of an error.
	exceed func(*budget.Exceeded)
}

// SupportedMediaTypes leaves out YAML, which an API server sends only if asked for.
func (c countingCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	return model.Without(c.NegotiatedSerializer.SupportedMediaTypes(), func(info runtime.SerializerInfo) bool {
		return info.MediaType != runtime.ContentTypeJSON && info.MediaType != runtime.ContentTypeProtobuf
	})
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c countingCodecs) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return countingDecoder{c.NegotiatedSerializer.DecoderToVersion(decoder, version), c.exceed}
}

type countingDecoder struct {
	runtime.Decoder
	exceed func(*budget.Exceeded)
}

// Decode implements runtime.Decoder.
func (d countingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if limit := checkElements(data, into != nil && apimeta.IsListType(into)); limit != nil {
		d.exceed(limit)
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
