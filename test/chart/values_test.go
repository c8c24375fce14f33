// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/comity-mcs/comity/policies/source"
)

// leaf is a value that an administrator sets: not a group of values.
type leaf struct {
	path    string
	comment string
}

// leaves are the values of values.yaml. helm-docs takes a comment that begins
// with "# --"; a group without one has values of its own.
func leaves(t *testing.T) []leaf {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var all []leaf
	var walk func(prefix string, node *yaml.Node)
	walk = func(prefix string, node *yaml.Node) {
		for i := 0; i < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			path := prefix + key.Value
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 && !strings.Contains(key.HeadComment, "# -- ") {
				walk(path+".", value)
				continue
			}
			all = append(all, leaf{path, key.HeadComment})
		}
	}
	walk("", document.Content[0])
	return all
}

func TestEveryValueIsDocumented(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := leaves(t)
	if len(all) < 60 {
		t.Fatalf("only %d values found", len(all))
	}
	documented := regexp.MustCompile(`(?m)^# -- \S.{10,}`)
	for _, value := range all {
		if !documented.MatchString(value.comment) {
			t.Errorf("values.yaml: %s has no comment that begins with \"# -- \" and says what it sets", value.path)
		}
		name := strings.ReplaceAll(value.path, "\\.", ".")
		// helm-docs drops a description that has " --" in it.
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \|(?:[^|]*\|){2} \S.*\|$`).Match(readme) {
			t.Errorf("README.md of the chart does not list %s with a description: run make generate", value.path)
		}
	}
}

// schema is the part of JSON Schema that values.schema.json uses.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Enum                 []any             `json:"enum"`
}

func valuesSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all schema
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheSchemaKnowsEveryValueAndNoOther(t *testing.T) {
	all := valuesSchema(t)
	known, isLeaf := map[string]bool{}, map[string]bool{}
	for _, value := range leaves(t) {
		at, path := all, strings.Split(value.path, ".")
		for i, key := range path {
			next, found := at.Properties[key]
			if !found {
				t.Errorf("values.schema.json does not know %s", value.path)
				break
			}
			known[strings.Join(path[:i+1], ".")] = true
			at = next
		}
		isLeaf[value.path] = true
	}
	var walk func(prefix string, s schema)
	walk = func(prefix string, s schema) {
		for key, property := range s.Properties {
			path := prefix + key
			if !known[path] {
				t.Errorf("values.schema.json knows %s, which is no value", path)
			}
			// Other charts read values of global, too.
			if len(property.Properties) > 0 && string(property.AdditionalProperties) != "false" && path != "global" {
				t.Errorf("values.schema.json: a misspelled key of %s would be accepted: additionalProperties is not false", path)
			}
			if !isLeaf[path] { // values.yaml documents a map such as resources as one value
				walk(path+".", property)
			}
		}
	}
	if string(all.AdditionalProperties) != "false" {
		t.Error("values.schema.json: a misspelled value would be accepted: additionalProperties is not false")
	}
	walk("", all)
}

func TestEveryBaselinePolicyIsAValue(t *testing.T) {
	baselines, err := source.Read("../../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	known := valuesSchema(t).Properties["policies"].Properties["baseline"].Properties
	for _, baseline := range baselines {
		if _, found := known[baseline.Name()]; !found {
			t.Errorf("policy %s is no value: add policies.baseline.%s.enabled and .enforcement", baseline.Name(), baseline.Name())
		}
		if _, found := known[baseline.Name()].Properties["parameters"]; found != (baseline.Object.Spec.Parameters != nil) {
			t.Errorf("policies.baseline.%s.parameters: is a value: %t; the policy has parameters: %t", baseline.Name(), found, baseline.Object.Spec.Parameters != nil)
		}
	}
	if len(known) != len(baselines) {
		t.Errorf("policies.baseline has %d policies; expected %d", len(known), len(baselines))
	}
}

func TestAMisspelledValueIsRefusedByName(t *testing.T) {
	for value, want := range map[string]string{
		`clusterId="a"`:                                 "additional properties 'clusterId' not allowed",
		`sync.stale_after="1m"`:                         "additional properties 'stale_after' not allowed",
		`webhook.failurePolicy="Closed"`:                "value must be one of 'Fail', 'Ignore'",
		`policies.baseline.none={}`:                     "additional properties 'none' not allowed",
		`resources.limit.memory="1Gi"`:                  "additional properties 'limit' not allowed",
		`metrics.serviceMonitor.enabled=""`:             "got string, want boolean",
		`enabled="yes"`:                                 "got string, want boolean",
		`nameOverride="My"`:                             "does not match pattern",
		`extraArgs={"v":"2"}`:                           "got object, want array",
		`extraEnv=["A=b"]`:                              "got string, want object",
		`livenessProbe.successThreshold=2`:              "additional properties 'successThreshold' not allowed",
		`readinessProbe.httpGet={}`:                     "additional properties 'httpGet' not allowed",
		`podDisruptionBudget={"maxUnavailable":"half"}`: "does not match pattern",
		`podDisruptionBudget={"minAvailable":-1}`:       "minimum: got -1, want 0",
		`revisionHistoryLimit=-1`:                       "minimum: got -1, want 0",
		`global.imagePullSecrets=[{"secret":"a"}]`:      "additional properties 'secret' not allowed",
		`commonAnnotations={"a":1}`:                     "got number, want string",
	} {
		_, stderr, err := template(t, value)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v, %q; expected %q", value, err, stderr, want)
		}
	}
}

func TestTheSchemaAcceptsWhatUsersOfChartsSet(t *testing.T) {
	for _, value := range []string{
		`global={"storageClass":"fast","imagePullSecrets":["a",{"name":"b"}]}`, // another chart's value, and both forms of a Secret
		`podSecurityContext={"runAsUser":1000,"fsGroup":1000}`,
		`podSecurityContext=null`,
		`podDisruptionBudget={"minAvailable":"50%"}`,
		`podDisruptionBudget={"maxUnavailable":"100%"}`,
		`readinessProbe={"initialDelaySeconds":0,"successThreshold":2}`,
		`extraEnv=[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"status.hostIP"}}}]`,
	} {
		if _, stderr, err := template(t, value); err != nil {
			t.Errorf("%s: %v, %s; expected no error", value, err, stderr)
		}
	}
}
