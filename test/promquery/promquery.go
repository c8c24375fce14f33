// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package promquery reads the queries of the alerts and of the dashboard, and the names of
// the metrics in them.
//
// It takes config/prometheus and gives the queries as Prometheus would get them. It does not
// parse them: promtool does, in the tests of the chart.
package promquery

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// All are the queries of rules.yaml and dashboard.json in a folder.
func All(folder string) ([]string, error) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Expr string `json:"expr"`
			} `json:"rules"`
		} `json:"groups"`
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "rules.yaml"))
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		return nil, fmt.Errorf("rules.yaml: %w", err)
	}
	if text, err = os.ReadFile(filepath.Join(folder, "dashboard.json")); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, fmt.Errorf("dashboard.json: %w", err)
	}
	var out []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			out = append(out, r.Expr)
		}
	}
	for _, p := range dashboard.Panels {
		for _, t := range p.Targets {
			out = append(out, strings.ReplaceAll(t.Expr, "$__rate_interval", "5m"))
		}
	}
	return out, nil
}

var (
	// beside are the parts of a query in which no metric is named.
	beside = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b[0-9][0-9a-z.]*|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	word   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// operators are the words of PromQL that look like a metric.
var operators = []string{"and", "or", "unless", "bool", "offset", "by", "without"}

// Metrics are the names of the metrics in a query, each once.
func Metrics(query string) []string {
	var out []string
	for _, found := range word.FindAllString(beside.ReplaceAllString(query, " "), -1) {
		if name := strings.TrimSpace(found); !strings.HasSuffix(name, "(") && !slices.Contains(operators, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
