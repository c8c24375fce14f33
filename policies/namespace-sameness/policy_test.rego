# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.namespace_sameness_test

import data.comity.policies.namespace_sameness

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

# group is one group of clusters to which the export is published.
group(ids, presence, labels) := {"clusters": ids, "namespace": {"presence": presence, "labels": labels}}

# asked is a request for all clusters from namespace shop, labelled as ours.
asked(ours, destinations) := object.union(base, {"namespace": {"metadata": {"labels": ours}}, "destinations": destinations})

# named is a request for clusters by name.
named(ours, destinations) := object.union(asked(ours, destinations), {
	"scope": {"all": false, "clusters": ids},
	"effectiveScope": {"all": false, "clusters": ids},
}) if {
	ids := sort([id | some one in destinations; some id in one.clusters])
}

shop := {"comity.dev/identity": "shop-1"}

other := {"comity.dev/identity": "shop-2"}

test_the_same_identity_is_fine if {
	request := asked(shop, [group(["b"], "present", shop)])
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}

test_two_namespaces_without_identity_are_the_same if {
	deny := namespace_sameness.deny with input as named({"color": "blue"}, [group(["b"], "present", {})])
	count(deny) == 0
}

test_another_identity_in_a_cluster_that_is_named_is_refused if {
	request := named(shop, [group(["b"], "present", other)])
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
	violation := the_only(namespace_sameness.deny) with input as request
	violation.field == `Namespace shop, metadata.labels["comity.dev/identity"]`
	contains(violation.msg, `is "shop-1" here and "shop-2" there`)
	contains(violation.msg, "cluster b")
	contains(violation.remedy, "leave b out of the scope")
}

# An update that removes one of them makes nothing worse, so each is a violation of its own.
test_each_cluster_that_is_named_is_a_violation_of_its_own if {
	both := namespace_sameness.deny with input as named(shop, [group(["b", "c"], "present", other)])
	one := namespace_sameness.deny with input as named(shop, [group(["c"], "present", other)])
	count(both) == 2
	count(one) == 1
	{v.msg | some v in one} & {v.msg | some v in both} == {v.msg | some v in one}
}

test_an_identity_on_one_side_only_is_refused if {
	theirs := the_only(namespace_sameness.deny) with input as named({}, [group(["b"], "present", shop)])
	contains(theirs.msg, `is not set here and "shop-1" there`)
	ours := the_only(namespace_sameness.deny) with input as named(shop, [group(["b"], "present", {})])
	contains(ours.msg, `is "shop-1" here and not set there`)
}

test_a_namespace_without_labels_is_compared_too if {
	request := object.union(
		object.remove(named({}, [group(["b"], "present", shop)]), ["namespace"]),
		{"namespace": {"metadata": {"name": "shop"}}},
	)
	deny := namespace_sameness.deny with input as request
	count(deny) == 1
}

# FAULT 35: what one member publishes of its namespaces keeps nobody else from an export.
test_another_identity_in_clusters_that_nobody_named_is_warned_of_once if {
	request := asked(shop, [group(["b", "d"], "present", other), group(["c"], "present", shop)])
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	violation := the_only(namespace_sameness.warn) with input as request
	startswith(violation.msg, "clusters b, d will not import it: namespace shop is not the same here and in clusters b, d")
	contains(violation.remedy, "name the clusters that are to import it")
}

test_a_cluster_that_the_namespace_names_is_not_named_by_the_export if {
	request := object.union(asked(shop, [group(["b"], "present", other)]), {
		"namespaceScope": {"all": false, "clusters": ["b"]},
		"effectiveScope": {"all": false, "clusters": ["b"]},
	})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 1
}

test_what_else_a_peer_publishes_does_not_count if {
	request := named(shop, [group(["b"], "present", object.union(shop, {"team": "x"}))])
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}

test_a_parameter_names_the_labels if {
	request := named({"team": "x"}, [group(["b"], "present", {})])
	deny := namespace_sameness.deny with input as request
		with data.comity.params.namespace_sameness as {"keys": ["team"]}
	count(deny) == 1
	none := namespace_sameness.deny with input as request
		with data.comity.params.namespace_sameness as {"keys": ["comity.dev/identity"]}
	count(none) == 0
}

test_each_label_is_compared if {
	request := named({"team": "x", "env": "y"}, [group(["b"], "present", {})])
	deny := namespace_sameness.deny with input as request
		with data.comity.params.namespace_sameness as {"keys": ["team", "env"]}
	count(deny) == 2
}

test_a_peer_that_the_export_does_not_reach_does_not_matter if {
	request := object.union(named(shop, [group(["b"], "present", shop)]), {"peers": {"c": {"namespace": {"labels": other}}}})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}

# What is published stays by existing: Keep in policy.yaml, which is the engine's.
test_an_audit_answers_as_a_request_does if {
	request := named(shop, [group(["b"], "present", other)])
	asking := namespace_sameness.deny with input as request
	audited := namespace_sameness.deny with input as object.union(request, {"operation": "AUDIT", "published": true})
	count(audited) == 1
	asking == audited
}

test_a_named_cluster_without_the_namespace_is_warned_of if {
	request := named(shop, [group(["b"], "absent", {})])
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	violation := the_only(namespace_sameness.warn) with input as request
	contains(violation.msg, "cluster b publishes no namespace shop")
	contains(violation.remedy, "Create namespace shop in cluster b")
}

test_several_without_it_are_one_warning if {
	violation := the_only(namespace_sameness.warn) with input as named(shop, [group(["b", "c"], "absent", {})])
	contains(violation.msg, "clusters b, c publish no namespace shop")
}

test_a_cluster_that_nobody_named_needs_no_namespace if {
	warn := namespace_sameness.warn with input as asked(shop, [group(["b"], "absent", {})])
	count(warn) == 0
}

test_a_peer_not_read_yet_is_passed_over if {
	request := named(shop, [group(["b"], "unknown", {})])
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}

test_a_request_on_the_service_is_not_this_policys if {
	request := object.union(named(shop, [group(["b"], "present", other), group(["c"], "absent", {})]), {"operation": "UPDATE", "subject": "Service"})
	deny := namespace_sameness.deny with input as request
	count(deny) == 0
	warn := namespace_sameness.warn with input as request
	count(warn) == 0
}
