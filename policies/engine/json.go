// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"strings"
)

// plain are the Go values of a text that json.Marshal wrote, which share it: encoding/json
// allocates three times as often, for every request.
func plain(text []byte) any {
	r := &jsonReader{text: string(text)}
	return r.value()
}

// jsonReader reads JSON without white space that is valid.
type jsonReader struct {
	text string
	at   int
}

func (r *jsonReader) value() any {
	switch r.text[r.at] {
	case '{':
		object := map[string]any{}
		for r.next('}') {
			key := r.quoted()
			r.at++ // the colon
			object[key] = r.value()
		}
		return object
	case '[':
		list := []any{}
		for r.next(']') {
			list = append(list, r.value())
		}
		return list
	case '"':
		return r.quoted()
	}
	end := strings.IndexAny(r.text[r.at:], ",]}")
	word := r.text[r.at : r.at+end]
	r.at += end
	switch word {
	case "null":
		return nil
	case "true", "false":
		return word == "true"
	}
	return json.Number(word)
}

// next goes to the next value of an object or a list; false at its end.
func (r *jsonReader) next(end byte) bool {
	if r.text[r.at] != end { // but the bracket at the beginning, or a comma
		r.at++
	}
	if r.text[r.at] == end {
		r.at++
		return false
	}
	return true
}

func (r *jsonReader) quoted() string {
	begin, escaped := r.at, false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	text := r.text[begin:r.at]
	if !escaped {
		return text[1 : len(text)-1]
	}
	var plain string
	_ = json.Unmarshal([]byte(text), &plain) // it is valid
	return plain
}
