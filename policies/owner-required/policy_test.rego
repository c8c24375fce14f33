# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.owner_required_test

import data.comity.policies.owner_required

# base is a request that the policy allows, with every field of the input.
base := {
	"apiVersion": "policy.comity.dev/v1alpha1",
	"operation": "CREATE",
	"subject": "ServiceExport",
	"userInfo": {"username": "jane", "groups": ["shop"]},
	"object": {
		"apiVersion": "multicluster.x-k8s.io/v1beta1",
		"kind": "ServiceExport",
		"metadata": {"name": "db", "namespace": "shop", "annotations": {"example.com/owner": "team-db"}},
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

# params are those of policy.yaml.
params := {"keys": ["example.com/owner"]}

# denied is what the policy answers to the request.
denied(request) := violations if {
	violations := owner_required.deny with input as request with data.comity.params.owner_required as params
}

# bare is the request without the owner, with these labels and annotations instead.
bare(export, namespace) := object.union(base, {
	"object": {"metadata": object.union({"annotations": {"example.com/owner": ""}}, export)},
	"namespace": {"metadata": namespace},
})

test_an_owner_on_the_export_is_fine if {
	count(denied(base)) == 0
}

test_an_export_without_an_owner_is_refused if {
	violation := the_only(denied(bare({}, {})))
	violation.field == `metadata.annotations["example.com/owner"]`
	contains(violation.msg, "neither it nor namespace shop has the label or annotation example.com/owner")
	contains(violation.remedy, "Set annotation example.com/owner")
}

test_a_label_or_the_namespace_will_do if {
	owner := {"example.com/owner": "team-db"}
	every request in [
		bare({"labels": owner}, {}),
		bare({}, {"labels": owner}),
		bare({}, {"annotations": owner}),
	] {
		count(denied(request)) == 0
	}
}

test_an_empty_value_names_nobody if {
	count(denied(bare({"labels": {"example.com/owner": ""}}, {}))) == 1
}

test_another_label_names_nobody if {
	count(denied(bare({"labels": {"owner": "team-db"}}, {}))) == 1
}

test_each_key_is_required if {
	violations := owner_required.deny with input as base
		with data.comity.params.owner_required as {"keys": ["example.com/owner", "example.com/on-call"]}
	contains(the_only(violations).msg, "example.com/on-call")
}

test_what_is_stored_is_evaluated_too if {
	count(denied(object.union(bare({}, {}), {"operation": "AUDIT"}))) == 1
}

test_a_namespace_that_is_gone_names_nobody if {
	count(denied(object.union(bare({}, {}), {"namespace": null}))) == 1
}

test_a_request_on_the_service_is_not_this_policys if {
	count(denied(object.union(bare({}, {}), {"operation": "UPDATE", "subject": "Service"}))) == 0
}
