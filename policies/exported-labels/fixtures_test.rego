# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.exported_labels_fixtures_test

import data.comity.policies.exported_labels

# The fixtures are manifests, which `kubectl comity policy test` makes into inputs.
test_the_allowed_manifests_are_allowed if {
	every request in [data.fixtures.allowed.input, data.fixtures.allowed.audit] {
		deny := exported_labels.deny with input as request
		count(deny) == 0
	}
}

test_the_denied_manifests_are_refused_and_found_by_an_audit if {
	every request in [data.fixtures.denied.input, data.fixtures.denied.audit] {
		deny := exported_labels.deny with input as request
		count(deny) == 1
	}
}
