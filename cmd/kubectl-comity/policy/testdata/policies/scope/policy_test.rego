package comity.policies.scope_test

import data.comity.policies.scope

test_all_clusters_need_no_warning if {
	count(scope.warn) == 0 with input as {"effectiveScope": {"all": true}, "published": true}
}
