# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.protected_ports_test

import data.comity.policies.protected_ports

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

denied(request, ports) := violations if {
	violations := protected_ports.deny with input as request with data.comity.params.protected_ports as {"ports": ports}
}

postgres := [{"port": 5432, "protocol": "TCP", "clusters": ["b"]}]

# sharing is a request to export these ports.
sharing(ports) := object.union(base, {"ports": ports})

database := sharing([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "sql", "port": 5432, "protocol": "TCP"}])

reaching(request, ids) := object.union(request, {
	"scope": {"all": false, "clusters": ids},
	"effectiveScope": {"all": false, "clusters": ids},
	"destinations": [{"clusters": ids, "namespace": {"presence": "present", "labels": {}}}],
})

test_other_ports_are_fine if {
	count(denied(base, postgres)) == 0
}

test_a_protected_port_is_refused_with_the_clusters_that_may_not_have_it if {
	violation := the_only(denied(database, postgres))
	violation.clusters == ["c"]
	violation.field == "Service db, spec.ports"
	contains(violation.msg, "port 5432 (TCP) of Service shop/db is protected, and would be shared with cluster c")
	contains(violation.remedy, "comity.dev/export-ports")
	contains(violation.remedy, "those that may have this port: b.")
}

test_a_port_that_nobody_may_have_is_refused_for_all if {
	violation := the_only(denied(database, [{"port": 5432}]))
	violation.clusters == ["b", "c"]
	contains(violation.remedy, "may have this port: none.")
}

test_the_clusters_that_may_have_it_get_it if {
	count(denied(reaching(database, ["b"]), postgres)) == 0
}

test_a_port_that_is_not_exported_is_not_shared if {
	request := object.union(database, {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
	count(denied(request, postgres)) == 0
}

test_the_protocol_counts_where_it_is_given if {
	udp := sharing([{"name": "sql", "port": 5432, "protocol": "UDP"}])
	count(denied(udp, postgres)) == 0
	count(denied(udp, [{"port": 5432}])) == 1
}

test_a_port_without_a_protocol_is_tcp if {
	count(denied(sharing([{"name": "sql", "port": 5432}]), postgres)) == 1
}

test_an_export_that_reaches_nobody_shares_nothing if {
	count(denied(object.union(database, {"destinations": []}), postgres)) == 0
}

test_what_is_stored_is_evaluated_too if {
	violation := the_only(denied(object.union(database, {"operation": "AUDIT", "published": true}), postgres))
	violation.clusters == ["c"]
}

test_a_request_on_the_service_is_not_this_policys if {
	count(denied(object.union(database, {"operation": "UPDATE", "subject": "Service"}), postgres)) == 0
}
