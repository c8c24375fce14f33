# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.export_scope_test

import data.comity.policies.export_scope

# base is a request that the policy allows, with every field of the input.
base := {
	"apiVersion": "policy.comity.dev/v1alpha1",
	"operation": "CREATE",
	"subject": "ServiceExport",
	"userInfo": {"username": "jane", "groups": ["shop"]},
	"object": {
		"apiVersion": "multicluster.x-k8s.io/v1beta1",
		"kind": "ServiceExport",
		"metadata": {"name": "db", "namespace": "shop"},
	},
	"published": false,
	"service": {
		"apiVersion": "v1",
		"kind": "Service",
		"metadata": {"name": "db", "namespace": "shop"},
		"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
	},
	"ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
	"namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
	"cluster": "a",
	"scope": {"all": true, "clusters": []},
	"namespaceScope": {"all": true, "clusters": []},
	"effectiveScope": {"all": true, "clusters": []},
	"destinations": [{"clusters": ["b", "c"], "namespace": {"presence": "present", "labels": {}}}],
	"peers": {
		"b": {"labels": {}, "namespace": {"presence": "present", "labels": {}}},
		"c": {"labels": {}, "namespace": {"presence": "present", "labels": {}}},
	},
}

the_only(violations) := violation if [violation] := [v | some v in violations]

all := {"all": true, "clusters": []}

only(ids) := {"all": false, "clusters": ids}

# asked is a request in cluster a, whose peers are b and c.
asked(scope, limit) := object.union(base, {
	"object": {"metadata": {"annotations": {"comity.dev/export-to": "the scope"}}},
	"scope": scope,
	"namespaceScope": limit,
})

test_no_scope_is_fine if {
	deny := export_scope.deny with input as asked(all, all)
	count(deny) == 0
}

test_a_scope_of_peers_is_fine_even_of_one_not_read_yet if {
	request := object.union(asked(only(["b", "c"]), all), {"peers": {"c": {"namespace": {"presence": "unknown"}}}})
	deny := export_scope.deny with input as request
	count(deny) == 0
}

test_an_unknown_cluster_is_refused_with_the_known_ones if {
	violation := the_only(export_scope.deny) with input as asked(only(["b", "d"]), all)
	violation.field == `metadata.annotations["comity.dev/export-to"]`
	contains(violation.msg, "the scope names d,")
	contains(violation.remedy, "known clusters: b, c")
}

# An update that removes one of them makes nothing worse, so each is a violation of its own.
test_each_unknown_cluster_is_a_violation_of_its_own if {
	both := export_scope.deny with input as asked(only(["d", "e"]), all)
	one := export_scope.deny with input as asked(only(["e"]), all)
	count(both) == 2
	count(one) == 1
	{v.msg | some v in one} & {v.msg | some v in both} == {v.msg | some v in one}
}

test_with_no_peers_none_is_known if {
	lonely := object.union(object.remove(asked(only(["b"]), all), ["peers"]), {"peers": {}})
	violation := the_only(export_scope.deny) with input as lonely
	contains(violation.remedy, "known clusters: none")
}

test_of_hundreds_of_known_clusters_twenty_are_named if {
	many := {id: base.peers.b | some i in numbers.range(100, 399); id := sprintf("c%d", [i])}
	violation := the_only(export_scope.deny) with input as object.union(asked(only(["d"]), all), {"peers": many})
	contains(violation.remedy, "known clusters: b, c, c100, c101, ")
	contains(violation.remedy, "c117 and 282 more)")
}

test_itself_is_refused_and_not_as_unknown if {
	violation := the_only(export_scope.deny) with input as asked(only(["a", "b"]), all)
	contains(violation.msg, "this cluster itself")
	contains(violation.remedy, "Remove \"a\"")
}

test_a_scope_that_cannot_be_read_is_refused if {
	scope := {"all": false, "clusters": [], "problem": "item 2 of \"b,,c\" is empty"}
	violation := the_only(export_scope.deny) with input as asked(scope, all)
	violation.field == `metadata.annotations["comity.dev/export-to"]`
	contains(violation.msg, "item 2")
	contains(violation.remedy, "b, c")
}

test_a_limit_that_cannot_be_read_names_the_namespace if {
	limit := {"all": false, "clusters": [], "problem": "the list names no cluster"}
	every scope in [all, only(["b"])] {
		violation := the_only(export_scope.deny) with input as asked(scope, limit)
		violation.field == `Namespace shop, metadata.annotations["comity.dev/export-to"]`
		contains(violation.msg, "names no cluster")
	}
}

test_a_scope_outside_the_limit_is_refused if {
	violation := the_only(export_scope.deny) with input as asked(only(["b", "c"]), only(["b"]))
	contains(violation.msg, "the scope names c, but namespace shop limits its exports to: b")
	contains(violation.remedy, "Remove c")
}

test_no_scope_in_a_limited_namespace_is_fine if {
	deny := export_scope.deny with input as asked(all, only(["b"]))
	count(deny) == 0
}

# What is published stays by existing: Keep in policy.yaml, which is the engine's.
test_an_audit_answers_as_a_request_does if {
	every request in [
		asked(only(["b", "gone"]), all),
		asked(only(["b", "c"]), only(["b"])),
		asked(only(["a", "b"]), all),
	] {
		asking := export_scope.deny with input as request
		audited := export_scope.deny with input as object.union(request, {"operation": "AUDIT", "published": true})
		count(audited) == 1
		asking == audited
	}
}

test_a_request_on_the_service_is_not_this_policys if {
	unreadable := {"all": false, "clusters": [], "problem": "it cannot be read"}
	every request in [asked(only(["a", "c", "gone"]), only(["b"])), asked(unreadable, all), asked(all, unreadable)] {
		refused := export_scope.deny with input as request
		count(refused) > 0
		deny := export_scope.deny with input as object.union(request, {"operation": "UPDATE", "subject": "Service"})
		count(deny) == 0
	}
}

test_a_scope_within_the_limit_is_fine if {
	deny := export_scope.deny with input as asked(only(["b"]), only(["b"]))
	count(deny) == 0
}

test_each_problem_stands_alone if {
	deny := export_scope.deny with input as asked(only(["a", "c", "d"]), only(["b"]))
	count(deny) == 3
}
