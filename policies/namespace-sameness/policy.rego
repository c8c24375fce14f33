# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Namespace sameness
# description: >-
#   In a clusterset a namespace of one name has one owner everywhere (KEP-1645, namespace
#   sameness). The labels in the parameter keys of the export's Namespace must agree with
#   those that the clusters in its scope publish, whether either side has them or not. An
#   export whose scope names a cluster where they differ is refused; one for all clusters is
#   warned of, since that cluster does not import it, and no member can keep the others from
#   an export by what it publishes. So is an export whose scope names a cluster that
#   publishes no such namespace; a peer not read yet is passed over.
# custom:
#   reason: NamespaceMismatch
#   severity: high
package comity.policies.namespace_sameness

import data.comity.lib

# Rules of other files come last: the input alone excludes most exports, at less cost.

# The export names the clusters. One violation for each of them: an update that removes
# one of two makes nothing worse.
deny contains {
	"msg": difference([id], group, key),
	"field": field(key),
	"remedy": sprintf("Give the namespaces the same value of %s, or leave %s out of the scope (%s).", [key, id, lib.export_to]),
} if {
	not input.scope.all
	some [group, key] in mismatches
	some id in group.clusters
}

warn contains {
	"msg": sprintf("%s will not import it: %s", [lib.clusters(group.clusters), difference(group.clusters, group, key)]),
	"field": field(key),
	"remedy": sprintf("Give the namespaces the same value of %s, or name the clusters that are to import it (%s).", [key, lib.export_to]),
} if {
	input.scope.all
	some [group, key] in mismatches
}

warn contains {
	"msg": sprintf("%s %s no namespace %s; nothing is imported there unless there is one", [
		lib.clusters(group.clusters),
		publish(group.clusters),
		name,
	]),
	"field": lib.export_to,
	"remedy": sprintf("Create namespace %s in %s, or remove %s from the list.", [
		name,
		lib.clusters(group.clusters),
		lib.list(group.clusters),
	]),
} if {
	not input.scope.all
	lib.about_export
	some group in input.destinations
	group.namespace.presence == "absent"
}

# The groups of clusters that the export is published to, each with the keys of which the
# values differ. What else a peer publishes of its namespace is not compared: it must not
# be able to choose by what it is compared.
mismatches contains [group, key] if {
	some group in input.destinations
	group.namespace.presence == "present"
	some key in keys
	object.get(ours, key, null) != object.get(group.namespace.labels, key, null)
	lib.about_export
}

difference(ids, group, key) := sprintf("namespace %s is not the same here and in %s: label %s is %s here and %s there", [
	name,
	lib.clusters(ids),
	key,
	show(ours, key),
	show(group.namespace.labels, key),
])

field(key) := sprintf("Namespace %s, metadata.labels[%q]", [name, key])

publish(ids) := "publishes" if count(ids) == 1

publish(ids) := "publish" if count(ids) != 1

name := input.object.metadata.namespace

default ours := {}

ours := input.namespace.metadata.labels

default keys := ["comity.dev/identity"]

keys := data.comity.params.namespace_sameness.keys

show(labels, key) := sprintf("%q", [labels[key]])

show(labels, key) := "not set" if not labels[key]
