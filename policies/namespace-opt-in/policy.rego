# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Namespaces opt in to exports
# description: >-
#   What is in a namespace is exported only if the Namespace has the label of the
#   parameters. Those who may label Namespaces, usually the administrators of the cluster,
#   so decide which teams export.
# custom:
#   reason: NamespaceNotOptedIn
#   severity: medium
package comity.policies.namespace_opt_in

import data.comity.lib

deny contains {
	"msg": sprintf("namespace %s may not export: its label %s is %s, not %q", [
		input.object.metadata.namespace,
		params.label,
		shown,
		params.value,
	]),
	"field": sprintf("Namespace %s, metadata.labels[%q]", [input.object.metadata.namespace, params.label]),
	"remedy": sprintf("Have an administrator label the Namespace %s=%s, or export from one that is.", [params.label, params.value]),
} if {
	lib.about_export
	given != params.value
}

params := data.comity.params.namespace_opt_in

given := object.get(input, ["namespace", "metadata", "labels", params.label], null)

shown := "not set" if given == null

shown := sprintf("%q", [given]) if given != null
