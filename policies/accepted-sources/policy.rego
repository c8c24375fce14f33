# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Accepted sources of imports
# description: >-
#   Who may export into a cluster is decided by the exporters. This policy decides it here: a
#   member contributes to imports if the parameters name it, or if its Peer in this cluster
#   has the label in them. A Namespace may be open to every member by a label of its own.
# custom:
#   reason: SourceNotAccepted
#   severity: high
package comity.policies.accepted_sources

deny contains {
	"msg": sprintf("cluster %s is no accepted source of imports into namespace %s of cluster %s", [
		input.source.cluster,
		input.export.namespace,
		input.cluster,
	]),
	"field": sprintf("Peer %s, metadata.labels[%q]", [input.source.cluster, params.label]),
	"remedy": sprintf("Ask the administrator of cluster %s to accept the member, or to label the Namespace %s=true.", [
		input.cluster,
		params.openLabel,
	]),
} if {
	not accepted
}

params := data.comity.params.accepted_sources

# What this cluster exports itself passed its export policies.
accepted if input.source.cluster == input.cluster

accepted if input.source.cluster in params.clusters

accepted if input.source.labels[params.label] in params.values

accepted if input.namespace.metadata.labels[params.openLabel] == "true"
