# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.lib_test

import data.comity.lib

numbered(n) := {sprintf("c%d", [i]) | some i in numbers.range(101, 100 + n)}

test_a_list_is_sorted_and_never_empty if {
	lib.list({"b", "a"}) == "a, b"
	lib.list(["b", "a"]) == "a, b"
	lib.list([]) == "none"
}

test_a_list_has_twenty_ids_at_most if {
	endswith(lib.list(numbered(20)), ", c119, c120")
	endswith(lib.list(numbered(21)), ", c119, c120 and 1 more")
	count(lib.list(numbered(1000))) < 200
}

test_clusters_are_one_or_many if {
	lib.clusters(["b"]) == "cluster b"
	lib.clusters({"c", "b"}) == "clusters b, c"
}

test_a_scope_of_all_has_every_cluster if {
	lib.within({"all": true, "clusters": []}, "b")
	lib.within({"all": false, "clusters": ["b"]}, "b")
	not lib.within({"all": false, "clusters": ["b"]}, "c")
	not lib.within({"all": false, "clusters": [], "problem": "it cannot be read"}, "b")
}

test_reached_are_the_members_of_all_groups if {
	reached := lib.reached with input.destinations as [{"clusters": ["b", "d"]}, {"clusters": ["c"]}]
	reached == {"b", "c", "d"}
}

test_an_audit_is_no_request if {
	lib.audit with input.operation as "AUDIT"
	not lib.audit with input.operation as "CREATE"
}
