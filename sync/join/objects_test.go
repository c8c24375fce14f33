// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/model"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestObjectsAreExactlyThese(t *testing.T) {
	_, all, err := Objects(nil, Cluster{ID: "a", Set: "prod"}, Cluster{ID: "b", Set: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, object := range all[0] {
		u := (&member{client: withObjects(t)}).toApply(object)
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(text)
	}
	const golden = "testdata/a-for-b.yaml"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("objects differ from %s (-want +got); run with -update if that is meant:\n%s", golden, diff)
	}
}

// clusterIDs draws ids, those that look like other names' parts more often.
func clusterIDs() *rapid.Generator[model.ClusterID] {
	return rapid.Custom(func(t *rapid.T) model.ClusterID {
		text := rapid.OneOf(
			rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`),
			rapid.StringMatching(`[ab](-to-[ab]){0,12}`),
			rapid.StringMatching(`[a]{55,63}`),
		).Draw(t, "id")
		return model.ClusterID(text)
	})
}

func TestEveryGrantIsNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		local, peer := clusterIDs().Draw(t, "local"), clusterIDs().Draw(t, "peer")
		if local == peer {
			t.Skip("one id twice is refused")
		}
		_, all, err := Objects(nil, Cluster{ID: local, Set: "s"}, Cluster{ID: peer, Set: "s"})
		if err != nil && (local == "system" || peer == "system") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		exchanges := []string{model.ExchangeNamespace(local), model.ScopedExchangeNamespace(local, peer)}
		for _, object := range all[0] {
			if problems := validation.IsDNS1123Subdomain(object.GetName()); len(problems) > 0 || len(object.GetName()) > 63 {
				t.Errorf("%T has the name %q: %v", object, object.GetName(), problems)
			}
			switch object := object.(type) {
			case *rbacv1.Role:
				checkRole(t, object, peer, exchanges)
			case *rbacv1.RoleBinding:
				if len(object.Subjects) != 1 || object.Subjects[0].Kind != rbacv1.ServiceAccountKind {
					t.Errorf("RoleBinding %s binds %v", client.ObjectKeyFromObject(object), object.Subjects)
				}
			}
		}
	})
}

func checkRole(t *rapid.T, role *rbacv1.Role, peer model.ClusterID, exchanges []string) {
	for _, rule := range role.Rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
				t.Errorf("Role %s grants by wildcard or by nothing: %v", client.ObjectKeyFromObject(role), rule)
			}
		}
		if slices.Contains(rule.Resources, "secrets") {
			t.Errorf("Role %s reaches Secrets", client.ObjectKeyFromObject(role))
		}
		if role.Namespace == DefaultNamespace && !slices.Equal(rule.ResourceNames, []string{model.PeerName(peer)}) {
			t.Errorf("Role %s is not limited to the peer's own account: %v", client.ObjectKeyFromObject(role), rule)
		}
		if role.Namespace != DefaultNamespace && !slices.Contains(exchanges, role.Namespace) {
			t.Errorf("Role %s lies outside the two exchange namespaces", client.ObjectKeyFromObject(role))
		}
	}
}

func TestNoTwoPeersShareAName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := clusterIDs().Draw(t, "one"), clusterIDs().Draw(t, "other")
		if one != other && model.PeerName(one) == model.PeerName(other) {
			t.Errorf("%q and %q are both called %q", one, other, model.PeerName(one))
		}
	})
}

func TestBadInputIsRefusedInOneSentence(t *testing.T) {
	good := func(id model.ClusterID) Cluster { return Cluster{ID: id, Set: "prod"} }
	cases := []struct {
		name        string
		local, peer Cluster
		want        string
	}{
		{"an id with a dot", good("a.example"), good("b"), "is not one RFC 1123 label"},
		{"no id", good(""), good("b"), "a cluster id is empty"},
		{"a peer's id with an upper-case letter", good("a"), good("B"), "is not one RFC 1123 label"},
		{"the same id twice", good("a"), good("a"), "two clusters have the id \"a\"; ids are unique"},
		{"two clustersets", good("a"), Cluster{ID: "b", Set: "test"}, "belongs to clusterset \"prod\" and cluster b to \"test\""},
		{"an id whose exchange is Comity's own namespace", Cluster{ID: "a", Set: "prod", Namespace: "comity-a"}, good("b"), "which is Comity's own"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Objects(nil, c.local, c.peer)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}

func TestCIDRsAreListedInOrderAndOnce(t *testing.T) {
	prefixes := []netip.Prefix{
		netip.MustParsePrefix("fd00::/48"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.1.0.0/16"),
	}
	if diff := cmp.Diff([]string{"10.1.0.0/16", "fd00::/48"}, formatCIDRs(prefixes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInTheHubNobodyWritesWhatIsAnothers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		member := clusterIDs().Filter(func(id model.ClusterID) bool { return id != HubID }) // which is refused
		ids := rapid.SliceOfNDistinct(member, 2, 5, rapid.ID[model.ClusterID]).Draw(t, "ids")
		var members []Cluster
		for _, id := range ids {
			members = append(members, Cluster{ID: id, Set: "s"})
		}
		_, all, err := Objects(&Cluster{}, members...)
		if err != nil {
			t.Fatal(err)
		}
		writers, readers := map[string][]string{}, map[string][]string{}
		for _, object := range all[0] {
			if problems := validation.IsDNS1123Subdomain(object.GetName()); len(problems) > 0 || len(object.GetName()) > 63 {
				t.Errorf("%T has the name %q: %v", object, object.GetName(), problems)
			}
			switch object := object.(type) {
			case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
				t.Errorf("%T %s reaches the whole hub", object, object.GetName())
			case *rbacv1.Role:
				checkHubRole(t, object, ids)
			case *rbacv1.RoleBinding:
				into := readers
				if object.RoleRef.Name == writerRole {
					into = writers
				}
				for _, s := range object.Subjects {
					into[object.Namespace] = append(into[object.Namespace], s.Name)
				}
			}
		}
		for _, from := range ids {
			var others []string
			for _, to := range ids {
				if to == from {
					continue
				}
				others = append(others, model.MemberName(to))
				scoped := model.ScopedExchangeNamespace(from, to)
				if diff := cmp.Diff([]string{model.MemberName(to)}, readers[scoped]); diff != "" {
					t.Errorf("readers of %s (-want +got):\n%s", scoped, diff)
				}
				if diff := cmp.Diff([]string{model.MemberName(from)}, writers[scoped]); diff != "" {
					t.Errorf("writers of %s (-want +got):\n%s", scoped, diff)
				}
			}
			shared := model.ExchangeNamespace(from)
			if diff := cmp.Diff([]string{model.MemberName(from)}, writers[shared]); diff != "" {
				t.Errorf("writers of %s (-want +got):\n%s", shared, diff)
			}
			if diff := cmp.Diff(others, readers[shared]); diff != "" {
				t.Errorf("readers of %s (-want +got):\n%s", shared, diff)
			}
		}
	})
}

// checkHubRole demands that a Role names what it grants, and grants verbs of
// writing in its own namespace or on its own account alone.
func checkHubRole(t *rapid.T, role *rbacv1.Role, ids []model.ClusterID) {
	for _, rule := range role.Rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
				t.Errorf("Role %s grants by wildcard or by nothing: %v", client.ObjectKeyFromObject(role), rule)
			}
		}
		switch {
		case slices.Contains(rule.Resources, "secrets"):
			t.Errorf("Role %s reaches Secrets", client.ObjectKeyFromObject(role))
		case slices.Contains(rule.Resources, "namespaces"):
			if !slices.Equal(rule.ResourceNames, []string{role.Namespace}) || !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("Role %s reaches more than its own namespace: %v", client.ObjectKeyFromObject(role), rule)
			}
		case role.Namespace == DefaultNamespace:
			if !slices.Equal(rule.ResourceNames, []string{role.Name}) || !slices.Equal(rule.Resources, []string{"serviceaccounts/token"}) {
				t.Errorf("Role %s is not limited to its member's own account: %v", client.ObjectKeyFromObject(role), rule)
			}
		}
	}
	if role.Namespace != DefaultNamespace || slices.ContainsFunc(ids, func(id model.ClusterID) bool { return model.MemberName(id) == role.Name }) {
		return
	}
	t.Errorf("Role %s is no member's", client.ObjectKeyFromObject(role))
}

func TestMembersOfAHubAreCheckedTogether(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []Cluster
		want    string
	}{
		{"nobody", nil, "every cluster that uses the hub, found 0"},
		{"one with the id of the hub", []Cluster{{ID: "a", Set: "s"}, {ID: HubID, Set: "s"}}, "which is that of the hub"},
		{"one id twice, not side by side", []Cluster{{ID: "a", Set: "s"}, {ID: "b", Set: "s"}, {ID: "a", Set: "s"}}, "two clusters have the id \"a\""},
		{"two sets", []Cluster{{ID: "a", Set: "s"}, {ID: "b", Set: "t"}}, "belongs to clusterset \"s\" and cluster b to \"t\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Objects(&Cluster{}, c.members...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}
