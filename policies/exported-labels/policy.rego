# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Exported labels and annotations
# description: >-
#   Labels and annotations that a ServiceExport gives the import (spec.exportedLabels,
#   spec.exportedAnnotations) are read by controllers in other clusters. Only the keys in
#   the parameters may be among them.
# custom:
#   reason: LabelNotAllowed
#   severity: medium
package comity.policies.exported_labels

import data.comity.lib

deny contains violation("label", "spec.exportedLabels", key, params.labels) if {
	lib.about_export
	some key, _ in input.object.spec.exportedLabels
	not allowed(key, params.labels)
}

deny contains violation("annotation", "spec.exportedAnnotations", key, params.annotations) if {
	lib.about_export
	some key, _ in input.object.spec.exportedAnnotations
	not allowed(key, params.annotations)
}

params := data.comity.params.exported_labels

violation(kind, field, key, keys) := {
	"msg": sprintf("%s %s may not be given to the imports of other clusters", [kind, key]),
	"field": sprintf("%s[%q]", [field, key]),
	"remedy": sprintf("Remove it; allowed are: %s.", [lib.list(keys)]),
}

allowed(key, keys) if key in keys

allowed(key, keys) if {
	some prefix in keys
	endswith(prefix, "*")
	startswith(key, trim_suffix(prefix, "*"))
}
