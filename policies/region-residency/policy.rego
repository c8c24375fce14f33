# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# title: Exports stay in their regions
# description: >-
#   An export goes to members in the regions of the parameters only. The region of a member
#   is a label of its Peer in this cluster, which the administrator of this cluster sets: a
#   member cannot choose it. A member without the label is in none of them. An export that is
#   stored loses the members elsewhere alone.
# custom:
#   reason: OutsideRegion
#   severity: high
package comity.policies.region_residency

import data.comity.lib

deny contains {
	"msg": sprintf("the export would reach %s; it is limited to: %s", [place(region, ids), lib.list(params.regions)]),
	"field": lib.export_to,
	"remedy": sprintf("Name the clusters that are to import it (%s), without %s; or label the Peer of a member with its region (%s).", [
		lib.export_to,
		lib.list(ids),
		params.label,
	]),
	"clusters": sort(ids),
} if {
	some region, ids in elsewhere
}

# elsewhere has the members that the export reaches by a region that is not allowed; the
# region of those without the label is "".
elsewhere[region] contains id if {
	lib.about_export
	some id in lib.reached
	region := object.get(input.peers, [id, "labels", params.label], "")
	not region in params.regions
}

place(region, ids) := sprintf("region %s (%s)", [region, lib.clusters(ids)]) if region != ""

place("", ids) := sprintf("%s, without label %s on the Peer here", [lib.clusters(ids), params.label])

params := data.comity.params.region_residency
