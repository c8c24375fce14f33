# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.no_external_name_test

import data.comity.policies.no_external_name

base := {
	"apiVersion": "policy.comity.dev/v1alpha1",
	"operation": "CREATE",
	"subject": "ServiceExport",
	"object": {"metadata": {"name": "db", "namespace": "shop"}},
	"service": {"spec": {"type": "ExternalName"}},
}

with_type(type) := object.union(base, {"service": {"spec": {"type": type}}})

test_external_name_is_refused if {
	deny := no_external_name.deny with input as base
	[violation] := [v | some v in deny]
	violation.field == "metadata.name"
	contains(violation.msg, "Service shop/db is of type ExternalName")
	contains(violation.remedy, "ClusterIP")
}

test_a_service_turning_external_name_is_refused_in_its_own_words if {
	deny := no_external_name.deny with input as object.union(base, {"subject": "Service", "operation": "UPDATE"})
	[violation] := [v | some v in deny]
	violation.field == "spec.type"
	contains(violation.remedy, "delete ServiceExport shop/db first")
}

test_external_name_is_refused_in_an_audit_too if {
	deny := no_external_name.deny with input as object.union(base, {"operation": "AUDIT"})
	count(deny) == 1
}

test_every_other_type_is_fine if {
	every type in ["ClusterIP", "NodePort", "LoadBalancer"] {
		deny := no_external_name.deny with input as with_type(type)
		count(deny) == 0
	}
}

test_an_export_may_come_before_its_service if {
	deny := no_external_name.deny with input as object.union(base, {"service": null})
	count(deny) == 0
}
