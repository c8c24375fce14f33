# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.namespace_sameness_test

import data.comity.policies.namespace_sameness

all := {"all": true, "clusters": []}

only(ids) := {"all": false, "clusters": ids}

present(labels) := {"namespace": {"presence": "present", "labels": labels}}

# asked is a request in cluster a from namespace shop, labelled as ours.
asked(ours, scope, peers) := {
	"operation": "CREATE",
	"subject": "ServiceExport",
	"object": {"metadata": {"name": "db", "namespace": "shop"}},
	"namespace": {"metadata": {"name": "shop", "labels": ours}},
	"cluster": "a",
	"scope": scope,
	"namespaceScope": all,
	"peers": peers,
}

shop := {"comity.dev/identity": "shop-1"}

other := {"comity.dev/identity": "shop-2"}

the_only(violations) := violation if [violation] := [v | some v in violations]

test_the_same_identity_is_fine if {
	request := asked(shop, all, {"b": present(shop)})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}

test_two_namespaces_without_identity_are_the_same if {
	deny := namespace_sameness.deny with input as asked({"color": "blue"}, all, {"b": present({})})
	count(deny) == 0
}

test_another_identity_is_refused if {
	violation := the_only(namespace_sameness.deny) with input as asked(shop, all, {"b": present(other)})
	violation.field == `Namespace shop, metadata.labels["comity.dev/identity"]`
	contains(violation.msg, `is "shop-1" here and "shop-2" there`)
	contains(violation.msg, "cluster b")
	contains(violation.remedy, "leave b out of the scope")
}

test_an_identity_on_one_side_only_is_refused if {
	theirs := the_only(namespace_sameness.deny) with input as asked({}, all, {"b": present(shop)})
	contains(theirs.msg, `is not set here and "shop-1" there`)
	ours := the_only(namespace_sameness.deny) with input as asked(shop, all, {"b": present({})})
	contains(ours.msg, `is "shop-1" here and not set there`)
}

test_a_namespace_without_labels_is_compared_too if {
	request := object.union(
		object.remove(asked({}, all, {"b": present(shop)}), ["namespace"]),
		{"namespace": {"metadata": {"name": "shop"}}},
	)
	deny := namespace_sameness.deny with input as request
	count(deny) == 1
}

test_every_label_that_a_peer_publishes_counts if {
	violation := the_only(namespace_sameness.deny) with input as asked(shop, all, {"b": present(object.union(shop, {"team": "x"}))})
	violation.field == `Namespace shop, metadata.labels["team"]`
}

test_a_parameter_names_the_labels if {
	request := asked({"team": "x"}, all, {"b": present({})})
	deny := namespace_sameness.deny with input as request
		with data.comity.params.namespace_sameness as {"keys": ["team"]}
	count(deny) == 1
	none := namespace_sameness.deny with input as request
		with data.comity.params.namespace_sameness as {"keys": ["comity.dev/identity"]}
	count(none) == 0
}

test_a_parameter_that_is_no_list_is_not_a_way_out if {
	violation := the_only(namespace_sameness.deny) with input as asked(shop, all, {"b": present(other)})
		with data.comity.params.namespace_sameness as {"keys": "comity.dev/identity"}
	contains(violation.msg, "is no list")
}

test_a_cluster_outside_the_scope_does_not_matter if {
	peers := {"b": present(shop), "c": present(other)}
	deny := namespace_sameness.deny with input as asked(shop, only(["b"]), peers)
	count(deny) == 0
}

test_a_cluster_outside_the_namespaces_limit_does_not_matter if {
	peers := {"b": present(shop), "c": present(other)}
	deny := namespace_sameness.deny with input as object.union(asked(shop, all, peers), {"namespaceScope": only(["b"])})
	count(deny) == 0
}

test_what_is_stored_is_only_warned_of if {
	request := object.union(asked(shop, all, {"b": present(other)}), {"operation": "AUDIT"})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 1
}

test_a_named_cluster_without_the_namespace_is_warned_of if {
	request := asked(shop, only(["b"]), {"b": {"namespace": {"presence": "absent", "labels": {}}}})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	violation := the_only(namespace_sameness.warn) with input as request
	contains(violation.msg, "cluster b has no namespace shop")
	contains(violation.remedy, "Create namespace shop in cluster b")
}

test_a_cluster_that_nobody_named_needs_no_namespace if {
	warn := namespace_sameness.warn with input as asked(shop, all, {"b": {"namespace": {"presence": "absent", "labels": {}}}})
	count(warn) == 0
}

test_a_peer_not_read_yet_is_passed_over if {
	request := asked(shop, only(["b"]), {"b": {"namespace": {"presence": "unknown", "labels": {}}}})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}
