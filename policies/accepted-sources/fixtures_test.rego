# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.accepted_sources_fixtures_test

import data.comity.policies.accepted_sources

# The fixtures are manifests, which `kubectl comity policy test` makes into inputs.
test_of_two_members_the_accepted_one_contributes if {
	accepted := accepted_sources.deny with input as data.fixtures.members.imports["b/shop/db"]
	count(accepted) == 0
	refused := accepted_sources.deny with input as data.fixtures.members.imports["c/shop/db"]
	count(refused) == 1
}
