# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: What policies share
# description: The engine offers this package to every policy as data.comity.lib.
package comity.lib

# The path of the annotation that names the clusters of an export, or limits
# those of a namespace.
export_to := `metadata.annotations["comity.dev/export-to"]`

# The same annotation of the export's Namespace, as a violation's field.
namespace_export_to := sprintf("Namespace %s, %s", [input.object.metadata.namespace, export_to])

# A policy on the export itself has nothing to say of a request on its Service:
# whoever changes a Service cannot mend the export by it.
about_export if input.subject == "ServiceExport"

# Nobody asks for anything: what is stored is looked at again.
audit if input.operation == "AUDIT"

# The peers that the export reaches: those in its scope, as far as its namespace
# lets it. This is the scope that Comity publishes to.
reached contains id if {
	some id, _ in input.peers
	within(input.scope, id)
	within(input.namespaceScope, id)
}

within(scope, _) if scope.all

within(scope, id) if id in scope.clusters

# The ids as a reader expects them: in order, separated by commas, or "none".
list(ids) := concat(", ", sort(ids)) if count(ids) > 0

list(ids) := "none" if count(ids) == 0
