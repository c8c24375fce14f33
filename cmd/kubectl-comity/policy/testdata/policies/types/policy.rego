# METADATA
# title: Types of Services that are exported
# custom:
#   reason: InvalidServiceType
package comity.policies.types

import data.comity.lib

deny contains {
	"msg": sprintf("Service %s has type %s", [input.object.metadata.name, type]),
	"field": "metadata.name",
	"remedy": "Export another Service.",
} if {
	lib.about_export
	some type in forbidden
	type == input.service.spec.type
}

forbidden := data.comity.params.types.forbidden
