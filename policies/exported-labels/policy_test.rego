# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

package comity.policies.exported_labels_test

import data.comity.policies.exported_labels

# base is a request that the policy allows, with every field of the input.
base := {
	"apiVersion": "policy.comity.dev/v1alpha1",
	"operation": "CREATE",
	"subject": "ServiceExport",
	"userInfo": {"username": "jane", "groups": ["shop"]},
	"object": {
		"apiVersion": "multicluster.x-k8s.io/v1beta1",
		"kind": "ServiceExport",
		"metadata": {"name": "db", "namespace": "shop"},
	},
	"published": false,
	"service": {
		"apiVersion": "v1",
		"kind": "Service",
		"metadata": {"name": "db", "namespace": "shop"},
		"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
	},
	"ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
	"namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
	"cluster": "a",
	"scope": {"all": true, "clusters": []},
	"namespaceScope": {"all": true, "clusters": []},
	"effectiveScope": {"all": true, "clusters": []},
	"destinations": [{"clusters": ["b", "c"], "namespace": {"presence": "present", "labels": {}}}],
	"peers": {
		"b": {"labels": {}, "namespace": {"presence": "present", "labels": {}}},
		"c": {"labels": {}, "namespace": {"presence": "present", "labels": {}}},
	},
}

the_only(violations) := violation if [violation] := [v | some v in violations]

params := {"labels": ["team", "app.kubernetes.io/*"], "annotations": []}

denied(request) := violations if {
	violations := exported_labels.deny with input as request with data.comity.params.exported_labels as params
}

exporting(spec) := object.union(base, {"object": {"spec": spec}})

test_an_export_without_any_is_fine if {
	count(denied(base)) == 0
}

test_a_key_in_the_list_is_fine if {
	count(denied(exporting({"exportedLabels": {"team": "x", "app.kubernetes.io/name": "db"}}))) == 0
}

test_another_label_is_refused_with_the_list if {
	violation := the_only(denied(exporting({"exportedLabels": {"team": "x", "prometheus.io/scrape": "true"}})))
	violation.field == `spec.exportedLabels["prometheus.io/scrape"]`
	contains(violation.msg, "label prometheus.io/scrape")
	contains(violation.remedy, "allowed are: app.kubernetes.io/*, team.")
}

test_a_key_that_only_contains_one_of_the_list_is_refused if {
	every key in ["team-x", "x-team", "app.kubernetes.io", "x.app.kubernetes.io/name"] {
		count(denied(exporting({"exportedLabels": {key: "x"}}))) == 1
	}
}

test_annotations_have_a_list_of_their_own if {
	violation := the_only(denied(exporting({"exportedAnnotations": {"team": "x"}})))
	violation.field == `spec.exportedAnnotations["team"]`
	contains(violation.remedy, "allowed are: none.")
}

test_every_key_is_named if {
	spec := {"exportedLabels": {"a": "", "b": ""}, "exportedAnnotations": {"c": ""}}
	{v.field | some v in denied(exporting(spec))} == {
		`spec.exportedLabels["a"]`,
		`spec.exportedLabels["b"]`,
		`spec.exportedAnnotations["c"]`,
	}
}

test_a_star_allows_all if {
	violations := exported_labels.deny with input as exporting({"exportedLabels": {"a": ""}, "exportedAnnotations": {"b": ""}})
		with data.comity.params.exported_labels as {"labels": ["*"], "annotations": ["*"]}
	count(violations) == 0
}

test_what_is_stored_is_evaluated_too if {
	count(denied(object.union(exporting({"exportedLabels": {"a": ""}}), {"operation": "AUDIT"}))) == 1
}

test_a_request_on_the_service_is_not_this_policys if {
	request := object.union(
		exporting({"exportedLabels": {"a": ""}, "exportedAnnotations": {"b": ""}}),
		{"operation": "UPDATE", "subject": "Service"},
	)
	count(denied(request)) == 0
}
