# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.region_residency_test

import data.comity.policies.region_residency

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
		"b": {"labels": {"topology.kubernetes.io/region": "eu-1"}, "namespace": {"presence": "present", "labels": {}}},
		"c": {"labels": {"topology.kubernetes.io/region": "eu-2"}, "namespace": {"presence": "present", "labels": {}}},
	},
}

the_only(violations) := violation if [violation] := [v | some v in violations]

params := {"label": "topology.kubernetes.io/region", "regions": ["eu-1", "eu-2"]}

denied(request) := violations if {
	violations := region_residency.deny with input as request with data.comity.params.region_residency as params
}

in_region(region) := {"labels": {"topology.kubernetes.io/region": region}, "namespace": {"presence": "present", "labels": {}}}

# wider is a request that reaches d and e, in us-1, and f, of which no region is known, too.
wider := object.union(base, {
	"destinations": [
		{"clusters": ["b", "d"], "namespace": {"presence": "present", "labels": {}}},
		{"clusters": ["c", "e", "f"], "namespace": {"presence": "absent", "labels": {}}},
	],
	"peers": {
		"d": in_region("us-1"),
		"e": in_region("us-1"),
		"f": {"labels": {"example.com/region": "eu-1"}, "namespace": {"presence": "absent", "labels": {}}},
	},
})

test_members_in_the_regions_are_fine if {
	count(denied(base)) == 0
}

test_each_other_region_is_refused_with_its_clusters if {
	denied(wider)[one]
	one.clusters == ["d", "e"]
	one.field == `metadata.annotations["comity.dev/export-to"]`
	one.msg == "the export would reach region us-1 (clusters d, e); it is limited to: eu-1, eu-2"
	contains(one.remedy, "without d, e;")
	count(denied(wider)) == 2
}

test_a_member_of_no_region_is_in_none if {
	denied(wider)[one]
	one.clusters == ["f"]
	one.msg == "the export would reach cluster f, without label topology.kubernetes.io/region on the Peer here; it is limited to: eu-1, eu-2"
}

test_a_member_that_the_export_does_not_reach_does_not_matter if {
	request := object.union(wider, {"destinations": base.destinations})
	count(denied(request)) == 0
}

test_what_a_member_publishes_of_its_namespace_is_no_region if {
	request := object.union(base, {"peers": {"b": {
		"labels": {"topology.kubernetes.io/region": "us-1"},
		"namespace": {"labels": {"topology.kubernetes.io/region": "eu-1"}},
	}}})
	the_only(denied(request)).clusters == ["b"]
}

test_what_is_stored_is_evaluated_too if {
	count(denied(object.union(wider, {"operation": "AUDIT", "published": true}))) == 2
}

test_a_request_on_the_service_is_not_this_policys if {
	count(denied(object.union(wider, {"operation": "UPDATE", "subject": "Service"}))) == 0
}
