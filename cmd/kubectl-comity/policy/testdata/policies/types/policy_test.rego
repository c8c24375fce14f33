package comity.policies.types_test

import data.comity.policies.types

test_another_type_is_allowed if {
	deny := types.deny with input as data.fixtures.cluster_ip.input
	count(deny) == 0
}

test_a_forbidden_type_is_refused if {
	deny := types.deny with input as object.union(data.fixtures.cluster_ip.audit, {"service": {"spec": {"type": "ExternalName"}}})
	[violation] := [v | some v in deny]
	violation.field == "metadata.name"
}
