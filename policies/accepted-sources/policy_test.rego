# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.accepted_sources_test

import data.comity.policies.accepted_sources

# base is an import that the policy allows, with every field of the input.
base := {
	"apiVersion": "policy.comity.dev/v1alpha1",
	"cluster": "a",
	"source": {"cluster": "b", "labels": {"example.com/trust": "full"}},
	"export": {
		"namespace": "shop",
		"name": "db",
		"type": "ClusterSetIP",
		"ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
		"labels": {},
		"annotations": {},
		"tiers": ["self", "*"],
	},
	"namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
}

the_only(violations) := violation if [violation] := [v | some v in violations]

params := {"clusters": ["d"], "label": "example.com/trust", "values": ["full", "some"], "openLabel": "example.com/import-from-any"}

denied(request) := violations if {
	violations := accepted_sources.deny with input as request with data.comity.params.accepted_sources as params
}

# from is the request for another source.
from(id, labels) := object.union(object.remove(base, ["source"]), {"source": {"cluster": id, "labels": labels}})

test_a_member_with_the_label_is_accepted if {
	count(denied(base)) == 0
	count(denied(from("c", {"example.com/trust": "some"}))) == 0
}

test_a_member_that_is_named_is_accepted if {
	count(denied(from("d", {}))) == 0
}

test_what_the_cluster_exports_itself_is_accepted if {
	count(denied(from("a", {}))) == 0
}

test_any_other_member_is_refused if {
	every labels in [{}, {"example.com/trust": "none"}, {"trust": "full"}] {
		violation := the_only(denied(from("c", labels)))
		violation.field == `Peer c, metadata.labels["example.com/trust"]`
		violation.msg == "cluster c is no accepted source of imports into namespace shop of cluster a"
		contains(violation.remedy, "example.com/import-from-any=true")
	}
}

test_a_namespace_may_be_open_to_all if {
	open := object.union(from("c", {}), {"namespace": {"metadata": {"labels": {"example.com/import-from-any": "true"}}}})
	count(denied(open)) == 0
	shut := object.union(from("c", {}), {"namespace": {"metadata": {"labels": {"example.com/import-from-any": "false"}}}})
	count(denied(shut)) == 1
}

test_what_the_exporter_adds_to_the_import_opens_nothing if {
	request := object.union(from("c", {}), {"export": {
		"labels": {"example.com/import-from-any": "true", "example.com/trust": "full"},
		"annotations": {"example.com/import-from-any": "true"},
	}})
	count(denied(request)) == 1
}

test_a_namespace_that_is_gone_is_not_open if {
	count(denied(object.union(from("c", {}), {"namespace": null}))) == 1
}
