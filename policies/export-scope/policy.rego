# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: The scope of an export
# description: >-
#   The annotation comity.dev/export-to names the clusters that an export goes to: other
#   members of the clusterset, within what the same annotation on the Namespace allows. A
#   scope that cannot be read is published nowhere, whatever this policy says.
# custom:
#   reason: ScopeNotAllowed
#   severity: high
package comity.policies.export_scope

import data.comity.lib

# Rules of other files come last: the input alone excludes most exports, at less cost.

deny contains {
	"msg": sprintf("the scope of this export cannot be read: %s", [input.scope.problem]),
	"field": lib.export_to,
	"remedy": sprintf("Name clusters separated by commas (known here: %s), or remove the annotation to export to every cluster.", [lib.list(known)]),
} if {
	input.scope.problem != ""
	lib.about_export
}

deny contains {
	"msg": sprintf("the limit that the namespace sets on its exports cannot be read: %s", [input.namespaceScope.problem]),
	"field": lib.namespace_export_to,
	"remedy": "Correct the annotation of the Namespace, or remove it to set no limit.",
} if {
	input.namespaceScope.problem != ""
	lib.about_export
}

deny contains {
	"msg": sprintf("the scope names %q, which is this cluster itself; an export goes to other clusters", [input.cluster]),
	"field": lib.export_to,
	"remedy": sprintf("Remove %q from the list; without the annotation the export goes to every other cluster.", [input.cluster]),
} if {
	input.cluster in input.scope.clusters
	narrowed
}

# One violation for each cluster: an update that removes one of two makes nothing worse.
deny contains {
	"msg": sprintf("the scope names %s, no member of the clusterset that this cluster knows", [id]),
	"field": lib.export_to,
	"remedy": sprintf("Correct the list (known clusters: %s), or join the cluster first.", [lib.list(known)]),
} if {
	some id in input.scope.clusters
	id != input.cluster
	not input.peers[id]
	narrowed
}

deny contains {
	"msg": sprintf("the scope names %s, but namespace %s limits its exports to: %s", [
		id,
		input.object.metadata.namespace,
		lib.list(input.namespaceScope.clusters),
	]),
	"field": lib.export_to,
	"remedy": sprintf("Remove %s from the list, or have the limit of the namespace widened (%s).", [id, lib.namespace_export_to]),
} if {
	some id in input.scope.clusters
	not input.namespaceScope.problem
	not lib.within(input.namespaceScope, id)
	input.peers[id] # another rule refuses the others
	narrowed
}

# narrowed: the export names clusters.
narrowed if {
	lib.about_export
	not input.scope.all
}

# known is for messages alone: no rule needs all peers to decide.
known := object.keys(input.peers)
