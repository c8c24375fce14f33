// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestParseContacts(t *testing.T) {
	text := `# HELP comity_peer_contact 1 for the state that the peer is in
# TYPE comity_peer_contact gauge
comity_peer_contact{peer="b",state="Connected"} 1
comity_peer_contact{peer="b",state="Lost"} 0
comity_peer_contact{peer="c",state="Connected"} 0
comity_peer_contact{peer="c",state="Lost"} 1
comity_peer_synced{peer="b"} 1
comity_peer_synced{peer="d"} 0
`
	contacts, members := parseContacts(text)
	if diff := cmp.Diff(map[string]State{"b": Connected, "c": Lost}, contacts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b", "d"}, members); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func event(secret, kind, reason string, minute int) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Name: secret}, Type: kind, Reason: reason, Message: "because of " + reason,
		EventTime: metav1.NewMicroTime(noon.Add(time.Duration(minute) * time.Minute)),
	}
}

func TestStoryOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []corev1.Event
		want   story
	}{
		{"nothing is kept", nil, story{}},
		{"what is wrong began with the first warning", []corev1.Event{
			event("s", "Warning", "Lost", 9), event("s", "Normal", "Connected", 1), event("s", "Warning", "Stale", 4),
		}, story{since: noon.Add(4 * time.Minute), reason: "Lost", message: "because of Lost", warning: true}},
		{"a normal event ends it", []corev1.Event{event("s", "Warning", "Lost", 2), event("s", "Normal", "Connected", 5)},
			story{since: noon.Add(5 * time.Minute), reason: "Connected"}},
		{"a hold is no state", []corev1.Event{event("s", "Normal", "Connected", 1), event("s", "Warning", "DeletionHeld", 2)},
			story{since: noon.Add(time.Minute), reason: "Connected"}},
		{"another Secret's", []corev1.Event{event("other", "Warning", "Lost", 2)}, story{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := storyOf(test.events, "s"); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestBad(t *testing.T) {
	for _, test := range []struct {
		kind   string
		status metav1.ConditionStatus
		reason string
		want   bool
	}{
		{"Ready", "True", "Exported", false}, {"Ready", "False", "Pending", false}, {"Ready", "False", "Failed", true},
		{"Conflict", "False", "NoConflicts", false}, {"Conflict", "True", "PortConflict", true},
		{"Available", "Unknown", "Pending", false}, {"Available", "Unknown", "Stale", true}, {"DeletionHeld", "True", "DeletionHeld", true},
	} {
		if got := bad(metav1.Condition{Type: test.kind, Status: test.status, Reason: test.reason}); got != test.want {
			t.Errorf("%s %s (%s) is bad: %v", test.kind, test.status, test.reason, got)
		}
	}
}

func sample() Report {
	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)}
	}
	is := func(status metav1.ConditionStatus, reason string) Condition {
		return Condition{Status: status, Reason: reason, Since: *at(-5)}
	}
	return Report{
		Clusters: []Cluster{
			{Context: "prod-a", ID: "a", ClusterSet: "example", Version: "v0.2.0", Exchange: "mesh", State: Running, Since: at(-90),
				Certificate: &Certificate{Name: "comity-webhook", Ready: true, Expires: at(60 * 24 * 30)},
				Peers: []Peer{
					{ID: "b", State: Connected, Since: at(-30), TokenExpires: at(600)},
					{ID: "c", State: Expired, Since: at(-10), TokenExpires: at(-10), Message: "run kubectl comity join"},
				}},
			{Context: "prod-b", State: Unreachable, Message: "no route"},
		},
		Services: []Service{
			{Context: "prod-a", Cluster: "a", Kind: kindExport, Namespace: "shop", Name: "web", Conditions: map[string]Condition{
				"Valid": is("True", "Valid"), "Ready": is("True", "Exported"), "Conflict": is("False", "NoConflicts"),
				"Admitted": is("True", "Admitted"), "Available": is("False", "NamespaceMissing"),
			}},
			{Context: "prod-a", Cluster: "a", Kind: kindImport, Namespace: "shop", Name: "web", Conditions: map[string]Condition{"Ready": is("True", "Ready")}},
		},
		Problems: []Problem{
			{Context: "prod-a", Object: "peer c", Message: "Expired: run kubectl comity join"},
			{Context: "prod-b", Object: "cluster", Message: "context \"prod-b\": no route"},
			{Object: "versions", Message: "they differ"},
		},
	}
}

func TestPrint(t *testing.T) {
	const want = `CONTEXT   CLUSTER   CLUSTERSET   COMITY   EXCHANGE   AGENT         SINCE   CERTIFICATE
prod-a    a         example      v0.2.0   mesh       Running       90m     ends in 30d
prod-b    -         -            -        -          Unreachable   -       -

CLUSTER   PEER   STATE       SINCE   TOKEN
a         b      Connected   30m     ends in 10h
a         c      Expired     10m     expired

NAMESPACE   NAME   KIND            CLUSTER   VALID   READY   CONFLICT   ADMITTED   AVAILABLE
shop        web    ServiceExport   a         True    True    False      True       False (NamespaceMissing)
shop        web    ServiceImport   a         -       True    -          -          -

Problems:
  prod-a: peer c: Expired: run kubectl comity join
  prod-b: cluster: no route
  versions: they differ
`
	var out bytes.Buffer
	if err := (printer{out: &out, now: noon}).print(sample()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestChanges(t *testing.T) {
	before, after := sample(), sample()
	if got := changes(before, after); got != nil {
		t.Errorf("nothing changed and it gives %q", got)
	}
	after.Clusters[0].Peers[1].State = Connected
	after.Services[0].Conditions["Available"] = Condition{Status: "True", Reason: "Imported"}
	after.Services = after.Services[:1]
	after.Problems = after.Problems[1:]
	want := []string{
		"cluster a, ServiceExport shop/web, Available: False (NamespaceMissing) -> True (Imported)",
		"cluster a, ServiceImport shop/web: there -> absent",
		"cluster a, ServiceImport shop/web, Ready: True (Ready) -> absent",
		"cluster a, peer c: Expired -> Connected",
		"problem: prod-a: peer c: Expired: run kubectl comity join: there -> absent",
	}
	if diff := cmp.Diff(want, changes(before, after)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
