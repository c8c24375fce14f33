# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: What policies share
# description: >-
#   The engine offers this package to every policy as data.comity.lib. What is in this file
#   reads no input, so policies of every stage may use it.
package comity.lib

# The path of the annotation that names the clusters of an export, or limits
# those of a namespace.
export_to := `metadata.annotations["comity.dev/export-to"]`

# Whether a scope has the cluster in it.
within(scope, _) if scope.all

within(scope, id) if id in scope.clusters

# How many ids list has at most: a message must stay readable in a clusterset of hundreds.
listed := 20

# The ids as a reader expects them: in order, separated by commas, or "none".
list(ids) := "none" if count(ids) == 0

list(ids) := concat(", ", sort(ids)) if {
	count(ids) > 0
	count(ids) <= listed
}

list(ids) := sprintf("%s and %d more", [concat(", ", array.slice(sort(ids), 0, listed)), count(ids) - listed]) if {
	count(ids) > listed
}

# The ids with the word before them: "cluster b", or "clusters b, c".
clusters(ids) := sprintf("cluster %s", [list(ids)]) if count(ids) == 1

clusters(ids) := sprintf("clusters %s", [list(ids)]) if count(ids) != 1
