// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/promquery"
)

// ruleFile is a file of rules of Prometheus, and the spec of a PrometheusRule.
type ruleFile struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const monitoring = `metrics={"prometheusRule":{"enabled":true},"dashboard":{"enabled":true}}`

// alerts are those of the PrometheusRule as the chart renders it.
func alerts(t *testing.T) ruleFile {
	t.Helper()
	spec, _, err := unstructured.NestedMap(find(t, rendered(t, monitoring), "PrometheusRule", release).Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var rules ruleFile
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// promtool fails the test if promtool does.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	stdout, stderr, err := run(t, binaries.Promtool, args...)
	if err != nil {
		t.Errorf("promtool %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
}

func TestEachAlertFiresAndClears(t *testing.T) {
	file := filepath.Join(root, "config", "prometheus", "rules_test.yaml")
	promtool(t, "test", "rules", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range alerts(t).Groups[0].Rules {
		if !strings.Contains(string(text), fmt.Sprintf("alertname=%q", rule.Alert)) {
			t.Errorf("%s has no test of alert %s", file, rule.Alert)
		}
	}
}

func TestEachAlertSaysWhatToDoFirst(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	rules := alerts(t).Groups[0].Rules
	for _, rule := range rules {
		if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s has severity %q", rule.Alert, severity)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has annotations %v; expected a summary and a description", rule.Alert, rule.Annotations)
		}
		want := "https://github.com/comity-mcs/comity/blob/main/docs/alerts.md#" + strings.ToLower(rule.Alert)
		if rule.Annotations["runbook_url"] != want {
			t.Errorf("%s has runbook_url %s; expected %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(sections[rule.Alert], "kubectl ") {
			t.Errorf("docs/alerts.md has no section ## %s with a first command", rule.Alert)
		}
	}
	if len(sections) != len(rules) {
		t.Errorf("docs/alerts.md has %d sections; expected one for each of %d alerts", len(sections), len(rules))
	}
}

func TestEachQueryParsesAndNamesADocumentedMetric(t *testing.T) {
	documented := map[string]bool{}
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(comity_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		if row[2] != "histogram" {
			documented[row[1]] = true
			continue
		}
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			documented[row[1]+suffix] = true
		}
	}
	queries, err := promquery.All(filepath.Join(root, "config", "prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) < 40 {
		t.Fatalf("found only %d queries", len(queries))
	}
	parsed := group{Name: "queries"}
	for i, query := range queries {
		parsed.Rules = append(parsed.Rules, rule{Record: fmt.Sprintf("query:%d", i), Expr: query})
		names := promquery.Metrics(query)
		if len(names) == 0 {
			t.Errorf("%s names no metric", query)
		}
		for _, name := range names {
			if !documented[name] {
				t.Errorf("%s names metric %s, which docs/metrics.md does not have", query, name)
			}
		}
	}
	text, err := yaml.Marshal(ruleFile{Groups: []group{parsed}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", file)
}

func TestTheDashboardIsThatOfTheFile(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedString(find(t, rendered(t, monitoring), "ConfigMap", release+"-dashboard").Object, "data", "comity.json")
	if err != nil || got != string(want) {
		t.Errorf("the dashboard is not what the file has (%v):\n%s", err, got)
	}
}
