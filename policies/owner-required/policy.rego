# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Every export has an owner
# description: >-
#   Whoever imports a Service must be able to find those who run it. Each of the parameter
#   keys has a value, as a label or an annotation of the ServiceExport or of its Namespace.
# custom:
#   reason: OwnerMissing
#   severity: low
package comity.policies.owner_required

import data.comity.lib

deny contains {
	"msg": sprintf("the export names no owner: neither it nor namespace %s has the label or annotation %s", [
		input.object.metadata.namespace,
		key,
	]),
	"field": sprintf("metadata.annotations[%q]", [key]),
	"remedy": sprintf("Set annotation %s of the ServiceExport, or of its Namespace, to the team that runs the Service.", [key]),
} if {
	lib.about_export
	some key in data.comity.params.owner_required.keys
	not named(key)
}

named(key) if {
	some values in places
	values[key] != ""
}

places := [object.get(input, path, {}) | some path in [
	["object", "metadata", "annotations"],
	["object", "metadata", "labels"],
	["namespace", "metadata", "annotations"],
	["namespace", "metadata", "labels"],
]]
