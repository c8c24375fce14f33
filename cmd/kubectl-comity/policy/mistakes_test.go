// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const (
	header    = "package comity.policies.p\n\n"
	someDeny  = "deny contains {\"msg\": \"no\"} if input.cluster == \"z\"\n"
	itsSchema = "parametersSchema:\n  type: object\n  properties:\n    max: {type: integer, default: 3}\n" +
		"    tiers: {type: array, items: {type: string}, default: [gold]}\n" +
		"    owner: {type: object, properties: {name: {type: string}}, default: {name: x}}\n" +
		"    labels: {type: object, additionalProperties: {type: string}, default: {a: b}}\n" +
		"    note: {type: string, nullable: true, default: x}\n"
)

// when is a module whose deny has this body, from row 4.
func when(body string) string {
	return header + "deny contains {\"msg\": \"no\"} if {\n\t" + body + "\n}\n"
}

// mistake is one kind of bad Rego.
type mistake struct {
	module, test, spec string
	// place is file:row in the folder of the policy.
	place string
	// what is wrong, and the remedy, both on the line of the place.
	what, remedy string
	// alone is one that ends the process in which it is compiled.
	alone bool
}

// mistakes are the kinds of bad Rego that nobody has to store in a cluster to learn of.
func mistakes() map[string]mistake {
	const form = `objects {"msg": ..., "field": ..., "remedy": ..., "clusters": [...]}, with strings`
	parameters := func(body string) string {
		return header + "import data.comity.params.p as params\n\ndeny contains {\"msg\": \"no\"} if {\n\tinput.cluster == \"z\"\n\t" + body + "\n\tparams.max > 3\n}\n"
	}
	all := map[string]mistake{
		"syntax":                   {module: when("this is not rego"), place: "policy.rego:4", what: "unexpected identifier token", remedy: `expected \n or ; or }`},
		"syntax of a test":         {module: header + someDeny, test: "package x\n\ntest_x if {", place: "p_test.rego:3", what: "unexpected eof token", remedy: "test_x if {"},
		"an undefined field":       {module: when(`input.srevice.spec.type == "ExternalName"`), place: "policy.rego:4", what: `undefined ref: input.srevice.spec.type; have: "srevice"`, remedy: `want (one of): ["apiVersion" "cluster"`},
		"an undefined function":    {module: when(`startwith(input.cluster, "z")`), place: "policy.rego:4", what: "undefined function startwith", remedy: "expected a builtin in policies/capabilities.json, or a function of the module"},
		"an undefined rule":        {module: when("helper"), place: "policy.rego:4", what: "var helper is unsafe", remedy: "or a rule of that name: is it misspelled?"},
		"an unsafe variable":       {module: when("not input.ports[i].port == 80\n\ti > 3"), place: "policy.rego:4", what: "var i is unsafe", remedy: "expected it to get a value in the same body"},
		"an unsafe one of a test":  {module: header + someDeny, test: "package x\n\ntest_x if y\n", place: "p_test.rego:3", what: "var y is unsafe", remedy: "expected it to get a value"},
		"a type error":             {module: when("input.cluster == 7"), place: "policy.rego:4", what: "match error; left : string; right : number", remedy: "expected both sides to be of one type"},
		"a type error in a call":   {module: when(`startswith(input.published, "a")`), place: "policy.rego:4", what: "startswith: invalid argument(s); have: (boolean, string)", remedy: "want: (search: string, base: string"},
		"a field in a test":        {module: header + someDeny, test: "package x\n\ntest_x if input.clutser == \"a\"\n", place: "p_test.rego:3", what: "undefined ref: input.clutser", remedy: "want (one of): "},
		"too few arguments":        {module: when("startswith(input.cluster)"), place: "policy.rego:4", what: "startswith: arity mismatch; have: (string)", remedy: "want: (search: string, base: string)"},
		"recursion":                {module: when("a") + "\na if b\n\nb if a\n", place: "policy.rego:7", what: "rule data.comity.policies.p.a is recursive", remedy: "expected rules that do not use themselves"},
		"Rego v0":                  {module: header + "deny[msg] { msg := \"x\" }\n", place: "policy.rego:3", what: "`if` keyword is required", remedy: "expected Rego v1: deny contains {"},
		"deny contains a string":   {module: header + "deny contains \"text\"\n", place: "policy.rego:3", what: "deny contains what is of type string", remedy: "expected " + form},
		"deny is an object":        {module: header + "deny := {\"msg\": \"no\"}\n", place: "policy.rego:3", what: "deny is no set", remedy: "expected deny contains {"},
		"a msg that is no string":  {module: header + "deny contains {\"msg\": [1]}\n", place: "policy.rego:3", what: "deny contains an object whose msg is of type array<number>", remedy: "expected " + form},
		"an unknown key":           {module: header + "deny contains {\"msg\": \"no\", \"cluster\": [\"b\"]}\n", place: "policy.rego:3", what: "deny contains an object with cluster", remedy: "expected " + form},
		"no package":               {module: someDeny, place: "policy.rego:1", what: "package expected", remedy: "expected package comity.policies.<name>"},
		"the wrong package":        {module: "package shop\n\n" + someDeny, place: "policy.rego:1", what: "package shop", remedy: "expected comity.policies.<name>"},
		"no rules":                 {module: strings.TrimSpace(header) + "\n", place: "policy.rego:1", what: "the module has neither deny nor warn", remedy: "expected deny contains {"},
		"a rule that nothing uses": {module: header + someDeny + "\ndney contains {\"msg\": \"no\"} if input.published\n", place: "policy.rego:5", what: "neither deny nor warn uses rule dney", remedy: "is it misspelled?"},
		"a rule hides an import":   {module: header + "import data.comity.lib as all\n\ndeny contains {\"msg\": \"no\"} if all\n\nall if input.published\n", place: "policy.rego:7", what: "neither deny nor warn uses rule all", remedy: "is it misspelled?"},
		"a variable hides input":   {module: when("input := {\"a\": 1}\n\tinput.a == 1"), place: "policy.rego:4", what: "variables must not shadow input", remedy: "use a different variable name"},

		"a parameter that is not set":      {module: when("data.comity.params.p.max > 3"), place: "policy.rego:4", what: "data.comity.params.p.max is not set", remedy: "expected it in spec.parameters, or a default"},
		"a parameter of another name":      {module: header + "default most := 3\n\nmost := data.comity.params.p.maximum\n\ndeny contains {\"msg\": \"no\"} if most > 3\n", spec: itsSchema, place: "policy.rego:5", what: `undefined ref: data.comity.params.p.maximum; have: "maximum"`, remedy: `want (one of): ["labels" "max" "note" "owner" "tiers"]`},
		"the same by way of an import":     {module: parameters("params.maximum > 3"), spec: itsSchema, place: "policy.rego:7", what: "undefined ref: data.comity.params.p.maximum", remedy: `want (one of): ["labels" "max"`},
		"a property of another name":       {module: parameters("params.owner.nam == \"x\""), spec: itsSchema, place: "policy.rego:7", what: `undefined ref: data.comity.params.p.owner.nam; have: "nam"`, remedy: `want (one of): ["name"]`},
		"a parameter of another type":      {module: parameters("params.max == \"3\""), spec: itsSchema, place: "policy.rego:7", what: "match error", remedy: "left : number; right : string"},
		"an item of another type":          {module: parameters("some tier in params.tiers\n\ttier.name == \"gold\""), spec: itsSchema, place: "policy.rego:8", what: "undefined ref: tier.name", remedy: "have: string"},
		"a message of another type":        {module: header + "deny contains {\"msg\": data.comity.params.p.max} if input.cluster == \"z\"\n", spec: itsSchema, place: "policy.rego:3", what: "deny contains an object whose msg is of type number", remedy: "expected " + form},
		"a parameter in a test":            {module: header + someDeny, test: "package comity.policies.p_test\n\ntest_x if data.comity.params.p.maximum == 3\n", spec: itsSchema, place: "p_test.rego:3", what: "undefined ref: data.comity.params.p.maximum", remedy: "want (one of): "},
		"a default that contradicts":       {module: header + someDeny, spec: strings.Replace(itsSchema, "default: 3", "default: x", 1), place: "params.yaml", what: "spec.parameters.max", remedy: "must be of type integer"},
		"what the definition refuses":      {module: header + someDeny, spec: "enforcement: Never\n", place: "policy.yaml", what: `spec.enforcement: Unsupported value: "Never"`, remedy: `supported values: "Deny", "Warn", "Audit"`},
		"characters that nobody sees":      {module: when("\u202e"), place: "policy.rego:4", what: "illegal token", remedy: `\u202e`},
		"nested deeper than is compiled":   {module: header + someDeny + "\ntest_x := " + strings.Repeat("[y | y := ", 20) + "1" + strings.Repeat("]", 20) + "\n", place: "policy.rego:1", what: "compiling the module: ", remedy: "more than 1s of CPU time; expected a module that compiles with less: nest less", alone: true},
		"what is absent without a request": {module: when(`input.userInfo.username == "eve"`), place: "policy.rego:4", what: "input.userInfo is absent when a stored export is evaluated again", remedy: `expected input.operation != "AUDIT"`},
	}
	for call, remedy := range map[string]string{
		`http.send({"method": "get", "url": "http://x"})`:                "expected what it would read in spec.parameters",
		`net.lookup_ip_addr("x")`:                                        "expected what it would read in spec.parameters, and net.cidr_contains",
		`opa.runtime()`:                                                  "expected a rule that decides by input and spec.parameters alone",
		`rand.intn("x", 2)`:                                              "expected a rule that decides by input and spec.parameters alone",
		`uuid.rfc4122("x")`:                                              "expected a rule that decides by input and spec.parameters alone",
		`time.now_ns()`:                                                  "or spec.exceptions, which end with a day",
		`io.jwt.encode_sign({}, {}, {})`:                                 "expected io.jwt.decode and io.jwt.verify_es256",
		`io.jwt.encode_sign_raw("", "", "")`:                             "expected io.jwt.decode and io.jwt.verify_es256",
		`io.jwt.decode_verify("", {})`:                                   "expected io.jwt.decode and io.jwt.verify_es256",
		`crypto.x509.parse_and_verify_certificates("")`:                  "or crypto.x509.parse_certificates",
		`crypto.x509.parse_and_verify_certificates_with_options("", {})`: "or crypto.x509.parse_certificates",
		`strings.render_template("", {})`:                                "expected sprintf, ",
		`graph.reachable_paths({}, [])`:                                  "graph.reachable, ",
		`bits.lsh(1, 2)`:                                                 "a multiplication",
		`rego.parse_module("x", "package x")`:                            "or data in spec.parameters",
		`json.match_schema({}, {})`:                                      "expected spec.parametersSchema",
		`json.verify_schema({})`:                                         "expected spec.parametersSchema",
	} {
		name, _, _ := strings.Cut(call, "(")
		all[name] = mistake{module: when(call), place: "policy.rego:4", what: fmt.Sprintf("undefined function %s: policies may not call it, since ", name), remedy: remedy}
	}
	return all
}

// Every mistake is found before the cluster, where it is, with what to do. Those in policies are
// checked together, as those of a repository are, and one does not hide another.
func TestEveryMistakeIsFoundWithItsPlaceAndRemedy(t *testing.T) {
	folders, check := map[string]string{}, []string{"check"}
	for name, m := range mistakes() {
		files := map[string]string{"p/policy.rego": m.module, "p/policy.yaml": m.spec}
		if m.test != "" {
			files["p/p_test.rego"] = m.test
		}
		if folders[name] = filepath.Join(write(t, files), "p"); m.test == "" && !m.alone {
			check = append(check, folders[name])
		}
	}
	checked := run(t, check...)
	for name, m := range mistakes() {
		t.Run(name, func(t *testing.T) {
			got := checked
			switch {
			case m.test != "":
				got = run(t, "test", folders[name])
			case m.alone:
				got = run(t, "check", folders[name])
			}
			if got.code == 0 {
				t.Error("the exit code is 0")
			}
			for line := range strings.Lines(got.out + got.err) {
				if strings.Contains(line, filepath.Join(folders[name], m.place)+":") && strings.Contains(line, m.what) && strings.Contains(line, m.remedy) {
					return
				}
			}
			t.Errorf("expected a line with %s, %q and %q, got\n%s%s", filepath.Join(folders[name], m.place), m.what, m.remedy, got.out, got.err)
		})
	}
}

// What a schema leaves open is open.
func TestAnOpenSchemaRefusesNothing(t *testing.T) {
	module := header + "import data.comity.params.p as params\n\ndeny contains {\"msg\": params.note} if {\n\tparams.labels.a == \"b\"\n\tparams.note != null\n\tparams.max > 3\n}\n"
	test := "package comity.policies.p_test\n\nimport data.comity.policies.p\n\ntest_x if count(p.deny) == 0 with input as {\"cluster\": \"a\"} with data.comity.params.p.max as 2\n"
	folder := filepath.Join(write(t, map[string]string{"p/policy.rego": module, "p/policy.yaml": itsSchema, "p/p_test.rego": test}), "p")
	for _, command := range []string{"check", "test"} {
		if got := run(t, command, folder); got.code != 0 {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
