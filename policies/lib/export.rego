# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# What follows reads the input of policies with stage Export, and is for them alone.
package comity.lib

# The annotation export_to of the export's Namespace, as a violation's field.
namespace_export_to := sprintf("Namespace %s, %s", [input.object.metadata.namespace, export_to])

# A policy on the export itself has nothing to say of a request on its Service:
# whoever changes a Service cannot mend the export by it.
about_export if input.subject == "ServiceExport"

# Nobody asks for anything: what is stored is evaluated again. A policy that is to
# spare what is published needs no rule for it, but spec.existing: Keep.
audit if input.operation == "AUDIT"

# The members that the export is published to. There may be hundreds: a rule that needs
# no ids reads input.destinations, in which members that do not differ are one group.
reached contains id if {
	some group in input.destinations
	some id in group.clusters
}
