# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: The scope of an export
# description: >-
#   The annotation comity.dev/export-to names the clusters that an export goes to: other
#   members of the clusterset, within what the same annotation on the Namespace allows.
#   Whoever asks for a scope that is not so is refused. A scope that was admitted and is
#   not asked for anew only warns, because a member that leaves, or a namespace that is
#   limited later, must not take the export from the clusters that remain: it is published
#   to those in both scopes. A scope that cannot be read is refused always, for there is
#   nowhere to publish to.
# custom:
#   reason: ScopeNotAllowed
#   severity: high
package comity.policies.export_scope

import data.comity.lib

deny contains {
	"msg": sprintf("the scope of this export cannot be read: %s", [input.scope.problem]),
	"field": lib.export_to,
	"remedy": sprintf("Name clusters separated by commas (known here: %s), or remove the annotation to export to every cluster.", [lib.list(known)]),
} if {
	lib.about_export
	input.scope.problem != ""
}

deny contains {
	"msg": sprintf("the limit that the namespace sets on its exports cannot be read: %s", [input.namespaceScope.problem]),
	"field": lib.namespace_export_to,
	"remedy": "Correct the annotation of the Namespace, or remove it to set no limit.",
} if {
	lib.about_export
	input.namespaceScope.problem != ""
}

deny contains violation if {
	not settled
	some violation in complaints
}

warn contains violation if {
	settled
	some violation in complaints
}

complaints contains {
	"msg": sprintf("the scope names %q, which is this cluster itself; an export goes to other clusters", [input.cluster]),
	"field": lib.export_to,
	"remedy": sprintf("Remove %q from the list; without the annotation the export goes to every other cluster.", [input.cluster]),
} if {
	lib.about_export
	input.cluster in scope
}

complaints contains {
	"msg": sprintf("the scope names %s, no member of the clusterset that this cluster knows", [lib.list(strangers)]),
	"field": lib.export_to,
	"remedy": sprintf("Correct the list (known clusters: %s), or join the cluster first.", [lib.list(known)]),
} if {
	lib.about_export
	count(strangers) > 0
}

complaints contains {
	"msg": sprintf("the scope names %s, but namespace %s limits its exports to: %s", [
		lib.list(outside),
		input.object.metadata.namespace,
		lib.list(input.namespaceScope.clusters),
	]),
	"field": lib.export_to,
	"remedy": sprintf("Remove %s from the list, or have the limit of the namespace widened (%s).", [
		lib.list(outside),
		lib.namespace_export_to,
	]),
} if {
	lib.about_export
	not input.namespaceScope.problem
	count(outside) > 0
}

# settled: nobody asks for this scope now, it was admitted before.
settled if lib.audit

settled if {
	input.operation == "UPDATE"
	asked := input.object.metadata.annotations["comity.dev/export-to"]
	asked == input.oldObject.metadata.annotations["comity.dev/export-to"]
}

scope := {id | some id in input.scope.clusters}

known := {id | some id, _ in input.peers}

strangers := (scope - known) - {input.cluster}

# outside leaves out whoever is complained of already.
outside := {id |
	some id in (scope & known)
	not lib.within(input.namespaceScope, id)
}
