# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Protected ports
# description: >-
#   The ports in the parameters, such as those of databases and of administration, are
#   shared with the clusters that the parameters name for them, and with no other. An
#   export that is stored loses the other clusters alone. A Service is exported without a
#   port by the annotation comity.dev/export-ports.
# custom:
#   reason: ProtectedPort
#   severity: high
package comity.policies.protected_ports

import data.comity.lib

deny contains {
	"msg": sprintf("port %d (%s) of Service %s/%s is protected, and would be shared with %s", [
		port.port,
		protocol(port),
		input.object.metadata.namespace,
		input.object.metadata.name,
		lib.clusters(others),
	]),
	"field": sprintf("Service %s, spec.ports", [input.object.metadata.name]),
	"remedy": sprintf("Share other ports only (annotation comity.dev/export-ports), or export to other clusters (%s); those that may have this port: %s.", [
		lib.export_to,
		lib.list(allowed(rule)),
	]),
	"clusters": others,
} if {
	lib.about_export
	some port in input.ports
	some rule in data.comity.params.protected_ports.ports
	port.port == rule.port
	object.get(rule, "protocol", protocol(port)) == protocol(port)
	others := sort(lib.reached - {id | some id in allowed(rule)})
	count(others) > 0
}

protocol(port) := object.get(port, "protocol", "TCP")

allowed(rule) := object.get(rule, "clusters", [])
