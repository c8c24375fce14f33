# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.owner_required_fixtures_test

import data.comity.policies.owner_required

# The fixtures are manifests, which `kubectl comity policy test` makes into inputs.
test_the_allowed_manifests_are_allowed if {
	every request in [data.fixtures.allowed.input, data.fixtures.allowed.audit] {
		deny := owner_required.deny with input as request
		count(deny) == 0
	}
}

test_the_denied_manifests_are_refused_and_found_by_an_audit if {
	every request in [data.fixtures.denied.input, data.fixtures.denied.audit] {
		deny := owner_required.deny with input as request
		count(deny) == 1
	}
}
