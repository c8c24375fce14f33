// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

func export(cluster string, age int) model.Export {
	return model.Export{
		SourceExport:      model.SourceExport{Cluster: model.ClusterID(cluster), UID: types.UID(cluster), CreatedAt: time.Unix(1_000_000-int64(age), 0)},
		Key:               types.NamespacedName{Namespace: "default", Name: "web"},
		ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func TestNoExportIsNoImport(t *testing.T) {
	if resolved, conflicts := merge.ResolveInOrder(nil); resolved != nil || conflicts != nil {
		t.Errorf("got %v and %v, want nothing", resolved, conflicts)
	}
}

func TestSecondsDecideAndFractionsDoNot(t *testing.T) {
	a, b := export("a", 0), export("b", 0)
	a.CreatedAt = a.CreatedAt.Add(900 * time.Millisecond)
	resolved, _ := merge.ResolveInOrder(merge.OldestFirst([]model.Export{b, a}))
	if got := resolved.Constituents[0].Cluster; got != "a" {
		t.Errorf("%s comes first; an export that was read from a record has lost its fraction of a second, so a must", got)
	}
}

func TestResolveChangesNoInput(t *testing.T) {
	exports := []model.Export{export("a", 1), export("b", 2)}
	before, _ := json.Marshal(exports)
	merge.ResolveInOrder(merge.OldestFirst(exports))
	if after, _ := json.Marshal(exports); string(before) != string(after) {
		t.Errorf("exports changed:\n%s", cmp.Diff(string(before), string(after)))
	}
}

// hundred says how a hundred exports differ.
var hundred = []struct {
	name string
	edit func(e *model.Export, i int)
	want int
}{
	{"each has another affinity timeout", func(e *model.Export, i int) {
		e.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := int32(i + 1)
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}, 1},
	{"each has ports of its own", func(e *model.Export, i int) {
		for p := range 20 {
			e.Ports = append(e.Ports, mcsv1beta1.ServicePort{Name: fmt.Sprintf("p-%d-%d", i, p), Port: int32(1000 + 20*i + p)})
		}
	}, 1},
	{"each has annotations of its own, long and not all ASCII", func(e *model.Export, i int) {
		e.Annotations = map[string]string{"note": strings.Repeat("ü", 5000) + fmt.Sprint(i)}
	}, 1},
	{"half of them differ in everything", func(e *model.Export, i int) {
		if i%2 == 0 {
			return
		}
		local, distribution, seconds := corev1.ServiceInternalTrafficPolicyLocal, "PreferSameZone", int32(i)
		e.InternalTrafficPolicy, e.TrafficDistribution = &local, &distribution
		e.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
		e.Labels, e.Annotations = map[string]string{"a": fmt.Sprint(i)}, map[string]string{"a": fmt.Sprint(i)}
		e.SessionAffinity = corev1.ServiceAffinityClientIP
		if i > 50 {
			e.SessionAffinity = corev1.ServiceAffinityNone
		}
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		e.Ports = append(e.Ports, mcsv1beta1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i)})
		if i == 99 {
			e.Type = mcsv1beta1.Headless
		}
	}, 9},
}

func TestMessagesFitWithAHundredClusters(t *testing.T) {
	for _, c := range hundred {
		t.Run(c.name, func(t *testing.T) {
			var exports []model.Export
			for i := range 100 {
				e := export(fmt.Sprintf("%s-%02d", strings.Repeat("long", 15), i), 100-i)
				e.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
				// The oldest of all has an affinity, so that its timeout counts.
				if i == 0 {
					e.SessionAffinity = corev1.ServiceAffinityClientIP
				}
				c.edit(&e, i)
				exports = append(exports, e)
			}
			_, conflicts := merge.ResolveInOrder(merge.OldestFirst(exports))
			var messages []string
			for _, conflict := range conflicts {
				if conflict.Message == "" || !utf8.ValidString(conflict.Message) {
					t.Errorf("%s: message %q", conflict.Reason, conflict.Message)
				}
				messages = append(messages, conflict.Message)
			}
			if joined := strings.Join(messages, "   "); len(joined) > merge.MaxMessages {
				t.Errorf("%d bytes: %s", len(joined), joined)
			}
			if len(conflicts) < c.want {
				t.Errorf("%d conflicts, want at least %d: %v", len(conflicts), c.want, conflicts)
			}
		})
	}
}

func TestAMessageTellsWhoHasWhatAndWhoseIsUsed(t *testing.T) {
	a, b, c := export("a", 1), export("b", 3), export("c", 2)
	a.Ports = []mcsv1beta1.ServicePort{{Name: "http", Port: 8080}}
	_, conflicts := merge.ResolveInOrder(merge.OldestFirst([]model.Export{a, b, c}))
	want := []model.Conflict{{
		Reason:  mcsv1beta1.ServiceExportReasonPortConflict,
		Message: `port "http": 80/TCP in b, c (used: b has the oldest export); 8080/TCP in a.`,
	}}
	if diff := cmp.Diff(want, conflicts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
