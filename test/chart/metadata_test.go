// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import "testing"

func TestEveryObjectHasTheCommonLabelsAndAnnotations(t *testing.T) {
	for _, values := range [][]string{
		{`metrics.serviceMonitor.enabled=true`, `networkPolicy.apiServerCIDRs=["10.0.0.1/32"]`, `serviceAccount.annotations={"example.com/own":"yes"}`},
		{`metrics.serviceMonitor.enabled=true`, `webhook.certificate={"existingSecret":"web","caBundle":"-----BEGIN CERTIFICATE-----"}`},
	} {
		for _, object := range rendered(t, append(values, `commonLabels={"example.com/team":"net"}`, `commonAnnotations={"example.com/ticket":"42"}`)...) {
			if object.GetLabels()["example.com/team"] != "net" {
				t.Errorf("%s %s has labels %v; expected those in commonLabels", object.GetKind(), object.GetName(), object.GetLabels())
			}
			if object.GetAnnotations()["example.com/ticket"] != "42" {
				t.Errorf("%s %s has annotations %v; expected those in commonAnnotations", object.GetKind(), object.GetName(), object.GetAnnotations())
			}
		}
	}
}
