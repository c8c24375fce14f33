# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.service_kinds_test

import data.comity.policies.service_kinds

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

denied(request, kinds) := violations if {
	violations := service_kinds.deny with input as request with data.comity.params.service_kinds as {"allowed": kinds}
}

of(spec) := object.union(object.remove(base, ["service"]), {"service": {
	"apiVersion": "v1",
	"kind": "Service",
	"metadata": {"name": "db", "namespace": "shop"},
	"spec": spec,
}})

kinds := {
	"ClusterIP": {"type": "ClusterIP", "clusterIP": "10.0.0.1"},
	"Headless": {"type": "ClusterIP", "clusterIP": "None"},
	"NodePort": {"type": "NodePort", "clusterIP": "10.0.0.1"},
	"LoadBalancer": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"},
	"ExternalName": {"type": "ExternalName", "externalName": "example.com"},
}

test_each_kind_is_fine_where_it_is_allowed if {
	every kind, spec in kinds {
		count(denied(of(spec), [kind])) == 0
	}
}

test_each_kind_is_refused_where_it_is_not if {
	every kind, spec in kinds {
		violation := the_only(denied(of(spec), [other | some other, _ in kinds; other != kind]))
		violation.field == "Service db, spec.type"
		contains(violation.msg, sprintf("Service shop/db is of kind %s", [kind]))
	}
}

test_the_refusal_names_what_is_allowed if {
	contains(the_only(denied(of(kinds.NodePort), ["Headless", "ClusterIP"])).remedy, "one of these kinds: ClusterIP, Headless.")
}

test_a_manifest_without_type_is_a_cluster_ip if {
	count(denied(of({"ports": []}), ["ClusterIP"])) == 0
	count(denied(of({"ports": []}), ["Headless"])) == 1
}

test_an_export_may_come_before_its_service if {
	count(denied(object.union(base, {"service": null}), [])) == 0
}

test_what_is_stored_is_evaluated_too if {
	count(denied(object.union(of(kinds.Headless), {"operation": "AUDIT"}), ["ClusterIP"])) == 1
}

test_a_request_on_the_service_is_not_this_policys if {
	request := object.union(of(kinds.ExternalName), {"operation": "UPDATE", "subject": "Service"})
	count(denied(request, ["ClusterIP"])) == 0
}
