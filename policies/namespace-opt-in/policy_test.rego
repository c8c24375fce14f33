# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.namespace_opt_in_test

import data.comity.policies.namespace_opt_in

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
	"namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"example.com/exports": "allowed"}}},
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

params := {"label": "example.com/exports", "value": "allowed"}

denied(request) := violations if {
	violations := namespace_opt_in.deny with input as request with data.comity.params.namespace_opt_in as params
}

unlabelled := object.union(base, {"namespace": {"metadata": {"labels": {"example.com/exports": ""}}}})

test_a_namespace_that_opted_in_exports if {
	count(denied(base)) == 0
}

test_another_value_is_refused_and_shown if {
	violation := the_only(denied(object.union(base, {"namespace": {"metadata": {"labels": {"example.com/exports": "pending"}}}})))
	violation.field == `Namespace shop, metadata.labels["example.com/exports"]`
	contains(violation.msg, `is "pending", not "allowed"`)
	contains(violation.remedy, "example.com/exports=allowed")
}

test_a_namespace_without_the_label_is_refused if {
	every namespace in [
		{"metadata": {"name": "shop", "labels": {"team": "x"}}},
		{"metadata": {"name": "shop"}},
		null,
	] {
		request := object.union(object.remove(base, ["namespace"]), {"namespace": namespace})
		contains(the_only(denied(request)).msg, "is not set, not \"allowed\"")
	}
}

test_an_empty_value_is_refused if {
	count(denied(unlabelled)) == 1
}

test_a_label_of_the_export_is_no_way_in if {
	count(denied(object.union(unlabelled, {"object": {"metadata": {"labels": {"example.com/exports": "allowed"}}}}))) == 1
}

test_what_is_stored_is_evaluated_too if {
	count(denied(object.union(unlabelled, {"operation": "AUDIT", "published": true}))) == 1
}

test_a_request_on_the_service_is_not_this_policys if {
	count(denied(object.union(unlabelled, {"operation": "UPDATE", "subject": "Service"}))) == 0
}
