# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Namespace sameness
# description: >-
#   In a clusterset a namespace of one name has one owner everywhere (KEP-1645, namespace
#   sameness). The identity labels of the export's Namespace must agree with those that
#   the clusters in its scope publish: every label that a peer publishes, and those in the
#   parameter keys, on both sides. A stored export is only warned of, because otherwise the
#   edit of a label in one cluster would take down exports of another. So is one whose
#   scope names a cluster without the namespace; a peer not read yet is passed over.
# custom:
#   reason: NamespaceMismatch
#   severity: high
package comity.policies.namespace_sameness

import data.comity.lib

deny contains violation if {
	not lib.audit
	some violation in complaints
}

warn contains violation if {
	lib.audit
	some violation in complaints
}

warn contains {
	"msg": sprintf("cluster %s has no namespace %s; nothing is imported there until it has one", [id, name]),
	"field": lib.export_to,
	"remedy": sprintf("Create namespace %s in cluster %s, or remove %s from the list.", [name, id, id]),
} if {
	lib.about_export
	some id in lib.reached
	id in input.scope.clusters
	input.peers[id].namespace.presence == "absent"
}

complaints contains {
	"msg": sprintf("namespace %s is not the same here and in cluster %s: label %s is %s here and %s there", [
		name,
		id,
		key,
		show(ours, key),
		show(theirs, key),
	]),
	"field": sprintf("Namespace %s, metadata.labels[%q]", [name, key]),
	"remedy": sprintf("Give the namespaces the same value of %s, or leave %s out of the scope (%s).", [key, id, lib.export_to]),
} if {
	lib.about_export
	is_array(keys)
	some id in lib.reached
	input.peers[id].namespace.presence == "present"
	theirs := input.peers[id].namespace.labels
	some key in identity(theirs)
	object.get(ours, key, null) != object.get(theirs, key, null)
}

complaints contains {
	"msg": "the parameter keys of this policy is no list, so namespaces cannot be compared",
	"field": "ExportPolicy, spec.parameters.keys",
	"remedy": "Make it a list of label keys, such as [\"comity.dev/identity\"].",
} if {
	lib.about_export
	not is_array(keys)
}

name := input.object.metadata.namespace

ours := object.get(input, ["namespace", "metadata", "labels"], {})

default keys := ["comity.dev/identity"]

keys := data.comity.params.namespace_sameness.keys

identity(theirs) := {key | some key in keys} | {key | some key, _ in theirs}

show(labels, key) := sprintf("%q", [labels[key]])

show(labels, key) := "not set" if not labels[key]
