# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: No ExternalName Services
# description: >-
#   An ExternalName Service has neither address nor endpoints to share, and KEP-1645
#   forbids to export it. An export before its Service is fine: with GitOps, objects
#   come in any order.
# custom:
#   reason: InvalidServiceType
#   severity: high
package comity.policies.no_external_name

deny contains {
	"msg": sprintf("Service %s is of type ExternalName, which cannot be exported: it has no endpoints in this cluster", [service]),
	"field": "metadata.name",
	"remedy": "Export a Service of type ClusterIP, NodePort or LoadBalancer (a headless one, too), or change the type of this one first.",
} if {
	input.subject == "ServiceExport"
	input.service.spec.type == "ExternalName"
}

deny contains {
	"msg": sprintf("Service %s is exported, and a Service of type ExternalName cannot be", [service]),
	"field": "spec.type",
	"remedy": sprintf("Keep the type, or delete ServiceExport %s first.", [service]),
} if {
	input.subject == "Service"
	input.service.spec.type == "ExternalName"
}

service := sprintf("%s/%s", [input.object.metadata.namespace, input.object.metadata.name])
