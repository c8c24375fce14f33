// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"strings"
	"unicode/utf8"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// MaxMessages is the limit, in bytes, on all messages of one Resolve together,
// joined with separators of up to separatorSize bytes.
const MaxMessages = 1024

const separatorSize = 3

// finding is everything that the exports disagree about under one reason.
type finding struct {
	reason        mcsv1beta1.ServiceExportConditionReason
	disagreements []disagreement
}

// detail limits how much of a finding a message shows.
type detail struct {
	disagreements, values, clusters, runes int
}

// render writes the messages with the most detail with which they are not too long
// together. If they are with the least, each is cut to an equal share.
func render(found []finding) []model.Conflict {
	room := MaxMessages - separatorSize*(len(found)-1)
	var written []model.Conflict
	for _, limit := range []detail{
		{disagreements: 8, values: 8, clusters: 12, runes: 80},
		{disagreements: 3, values: 3, clusters: 3, runes: 40},
		{disagreements: 1, values: 2, clusters: 1, runes: 20},
	} {
		size := 0
		written = nil
		for _, f := range found {
			written = append(written, model.Conflict{Reason: f.reason, Message: f.write(limit)})
			size += len(written[len(written)-1].Message)
		}
		if size <= room {
			return written
		}
	}
	for i := range written {
		written[i].Message = model.Bound(written[i].Message, room/len(written))
	}
	return written
}

// write returns sentences such as:
//
//	port "http": 80/TCP in a, b (used: a has the oldest export); 8080/TCP in c.
func (f finding) write(limit detail) string {
	var sentences []string
	for i, d := range f.disagreements {
		if i == limit.disagreements {
			sentences = append(sentences, fmt.Sprintf("Further differences: %d.", len(f.disagreements)-i))
			break
		}
		sentences = append(sentences, d.write(limit))
	}
	return strings.Join(sentences, " ")
}

func (d disagreement) write(limit detail) string {
	var parts []string
	for i, v := range d.values {
		if i == limit.values {
			parts = append(parts, fmt.Sprintf("further values: %d", len(d.values)-i))
			break
		}
		part := cut(v.text, limit.runes) + " in " + clusterList(v.clusters, limit.clusters)
		if v.text == d.used {
			part += " (" + d.note + ")"
		}
		parts = append(parts, part)
	}
	return d.title + ": " + strings.Join(parts, "; ") + "."
}

// clusterList is "a, b", or "a, b and 98 more".
func clusterList(ids []model.ClusterID, most int) string {
	names := make([]string, 0, most)
	for _, id := range ids[:min(most, len(ids))] {
		names = append(names, string(id))
	}
	list := strings.Join(names, ", ")
	if len(ids) > most {
		list += fmt.Sprintf(" and %d more", len(ids)-most)
	}
	return list
}

// cut shortens text to at most that many runes.
func cut(text string, runes int) string {
	if utf8.RuneCountInString(text) <= runes {
		return text
	}
	return string([]rune(text)[:runes-1]) + "…"
}
