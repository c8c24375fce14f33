# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.no_external_name_test

import data.comity.policies.no_external_name

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

with_type(type) := object.union(base, {"service": {"spec": {"type": type}}})

external := with_type("ExternalName")

test_external_name_is_refused if {
	violation := the_only(no_external_name.deny) with input as external
	violation.field == "metadata.name"
	contains(violation.msg, "Service shop/db is of type ExternalName")
	contains(violation.remedy, "ClusterIP")
}

test_a_service_turning_external_name_is_refused_in_its_own_words if {
	violation := the_only(no_external_name.deny) with input as object.union(external, {"subject": "Service", "operation": "UPDATE"})
	violation.field == "spec.type"
	contains(violation.remedy, "delete ServiceExport shop/db first")
}

test_external_name_is_refused_in_an_audit_too if {
	deny := no_external_name.deny with input as object.union(external, {"operation": "AUDIT", "published": true})
	count(deny) == 1
}

test_every_other_type_is_fine if {
	every type in ["ClusterIP", "NodePort", "LoadBalancer"] {
		every subject in ["ServiceExport", "Service"] {
			deny := no_external_name.deny with input as object.union(with_type(type), {"subject": subject})
			count(deny) == 0
		}
	}
}

test_an_export_may_come_before_its_service if {
	deny := no_external_name.deny with input as object.union(base, {"service": null, "ports": []})
	count(deny) == 0
}
