# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.export_scope_test

import data.comity.policies.export_scope

all := {"all": true, "clusters": []}

only(ids) := {"all": false, "clusters": ids}

annotated(to) := {"metadata": {"name": "db", "namespace": "shop", "annotations": {"comity.dev/export-to": to}}}

# asked is a request in cluster a, whose peers are b and c.
asked(scope, limit) := {
	"operation": "CREATE",
	"subject": "ServiceExport",
	"object": annotated("the scope"),
	"cluster": "a",
	"scope": scope,
	"namespaceScope": limit,
	"peers": {
		"b": {"namespace": {"presence": "present", "labels": {}}},
		"c": {"namespace": {"presence": "unknown", "labels": {}}},
	},
}

audited(scope, limit) := object.union(asked(scope, limit), {"operation": "AUDIT"})

the_only(violations) := violation if [violation] := [v | some v in violations]

test_no_scope_is_fine if {
	deny := export_scope.deny with input as asked(all, all)
	count(deny) == 0
}

test_a_scope_of_peers_is_fine_even_of_one_not_read_yet if {
	deny := export_scope.deny with input as asked(only(["b", "c"]), all)
	count(deny) == 0
}

test_an_unknown_cluster_is_refused_with_the_known_ones if {
	violation := the_only(export_scope.deny) with input as asked(only(["b", "d"]), all)
	violation.field == `metadata.annotations["comity.dev/export-to"]`
	contains(violation.msg, "the scope names d,")
	contains(violation.remedy, "known clusters: b, c")
}

test_with_no_peers_none_is_known if {
	lonely := object.union(object.remove(asked(only(["b"]), all), ["peers"]), {"peers": {}})
	violation := the_only(export_scope.deny) with input as lonely
	contains(violation.remedy, "known clusters: none")
}

test_itself_is_refused_and_not_as_unknown if {
	violation := the_only(export_scope.deny) with input as asked(only(["a", "b"]), all)
	contains(violation.msg, "this cluster itself")
	contains(violation.remedy, "Remove \"a\"")
}

test_a_scope_that_cannot_be_read_is_refused if {
	scope := {"all": false, "clusters": [], "problem": "item 2 of \"b,,c\" is empty"}
	every request in [asked(scope, all), audited(scope, all)] {
		violation := the_only(export_scope.deny) with input as request
		violation.field == `metadata.annotations["comity.dev/export-to"]`
		contains(violation.msg, "item 2")
		contains(violation.remedy, "b, c")
	}
}

test_a_limit_that_cannot_be_read_names_the_namespace if {
	limit := {"all": false, "clusters": [], "problem": "the list names no cluster"}
	every request in [asked(only(["b"]), limit), audited(all, limit)] {
		violation := the_only(export_scope.deny) with input as request
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

test_what_is_stored_is_warned_of_and_not_torn_down if {
	every request in [
		audited(only(["b", "gone"]), all),
		audited(only(["b", "c"]), only(["b"])),
		audited(only(["a", "b"]), all),
	] {
		deny := export_scope.deny with input as request
		count(deny) == 0
		warn := export_scope.warn with input as request
		count(warn) == 1
	}
}

test_an_update_that_leaves_the_scope_alone_is_warned if {
	request := object.union(asked(only(["b", "gone"]), all), {"operation": "UPDATE", "oldObject": annotated("the scope")})
	deny := export_scope.deny with input as request
	count(deny) == 0
	warn := export_scope.warn with input as request
	count(warn) == 1
}

test_an_update_that_changes_the_scope_is_refused if {
	request := object.union(asked(only(["b", "gone"]), all), {"operation": "UPDATE", "oldObject": annotated("b")})
	deny := export_scope.deny with input as request
	count(deny) == 1
}

test_a_request_on_the_service_is_not_this_policys if {
	request := object.union(asked(only(["gone"]), all), {"operation": "UPDATE", "subject": "Service"})
	deny := export_scope.deny with input as request
	count(deny) == 0
}

test_each_complaint_stands_alone if {
	deny := export_scope.deny with input as asked(only(["a", "c", "d"]), only(["b"]))
	count(deny) == 3
}
