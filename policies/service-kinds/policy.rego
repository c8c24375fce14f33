# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Kinds of Services
# description: >-
#   Only Services of the kinds in the parameters are exported. Clients of a headless Service
#   connect to its Pods by their names, which some networks between clusters do not carry; a
#   NodePort or LoadBalancer is open to others than the clusterset already. An export before
#   its Service is fine: with GitOps, objects come in any order.
# custom:
#   reason: ServiceKindNotAllowed
#   severity: medium
package comity.policies.service_kinds

import data.comity.lib

deny contains {
	"msg": sprintf("Service %s/%s is of kind %s, which is not exported from this cluster", [
		input.object.metadata.namespace,
		input.object.metadata.name,
		given,
	]),
	"field": sprintf("Service %s, spec.type", [input.object.metadata.name]),
	"remedy": sprintf("Export a Service of one of these kinds: %s.", [lib.list(allowed)]),
} if {
	lib.about_export
	given := kind
	not given in allowed
}

allowed := data.comity.params.service_kinds.allowed

# kind is undefined without a Service.
kind := "Headless" if input.service.spec.clusterIP == "None"

else := object.get(input.service.spec, "type", "ClusterIP")
