// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const header = "package comity.policies.p\n\n"

// rule is a module whose deny has this body.
func rule(body string) string {
	return header + "deny contains {\"msg\": \"no\"} if {\n\t" + body + "\n}\n"
}

func TestWhatDoesNotCompileIsSaidWhere(t *testing.T) {
	tests := map[string]struct{ module, message string }{
		// What OPA would take for "no objection".
		"a misspelled rule":                  {header + "dney contains {\"msg\": \"no\"} if true\n", "p.rego:1:1: the module has neither deny nor warn"},
		"a misspelled rule beside a warning": {rule("true") + "\nwran contains {\"msg\": \"no\"} if true\n", "p.rego:7:1: neither deny nor warn uses rule wran"},
		"a misspelled input":                 {rule(`input.srevice.spec.type == "ExternalName"`), "p.rego:4:2: undefined ref: input.srevice.spec.type; have: \"srevice\"; want (one of): [\"apiVersion\""},
		"a misspelled field far below":       {rule(`input.service.spec.tpye == "ExternalName"`), "p.rego:4:2: undefined ref: input.service.spec.tpye"},
		"a misspelled field of a list":       {rule(`input.service.spec.ports[_].prot == 80`), "p.rego:4:2: undefined ref: input.service.spec.ports[_].prot"},
		"a field of what is a string":        {rule(`input.cluster.id == "a"`), "p.rego:4:2: undefined ref: input.cluster.id"},
		"deny as a value":                    {header + "deny := {{\"msg\": \"no\"}}\n", "p.rego:3:1: deny is no set"},
		"deny as a function":                 {header + "deny(x) := x\n", "p.rego:3:1: deny is no set"},
		"deny with a default":                {header + "default deny := false\n", "p.rego:3:1: deny is no set"},
		"a string in place of an object":     {header + "deny contains \"text\"\n", `p.rego:3:1: deny contains what is of type string; expected objects {"msg": ..., "field": ..., "remedy": ..., "clusters": [...]}, with strings`},
		"a string beside an object":          {rule("true") + "\nwarn contains \"text\" if true\n", "p.rego:7:1: warn contains what is of type string"},
		"the second rule has a string":       {rule("true") + "\ndeny contains \"text\" if true\n", "p.rego:7:1: deny contains what is of type string"},
		"a string by way of another rule":    {header + "deny contains x if some x in complaints\n\ncomplaints contains \"text\"\n", "p.rego:3:1: deny contains what is of type string"},
		"a list in place of an object":       {header + "deny contains [\"text\"]\n", "p.rego:3:1: deny contains what is of type array<string>"},
		"no msg":                             {header + "deny contains {\"message\": \"no\"}\n", "p.rego:3:1: deny contains an object without msg"},
		"a key that entries do not have":     {header + "deny contains {\"msg\": \"no\", \"cluster\": [\"b\"]}\n", "p.rego:3:1: deny contains an object with cluster; expected objects"},
		"a reason of an entry's own":         {header + "deny contains {\"msg\": \"no\", \"reason\": \"Forged\"}\n", "p.rego:3:1: deny contains an object with reason; expected objects"},
		"a policy of an entry's own":         {header + "deny contains {\"msg\": \"no\", \"policy\": \"forged\"}\n", "p.rego:3:1: deny contains an object with policy; expected objects"},
		"a key that a warning does not have": {header + "warn contains {\"msg\": \"no\", \"severity\": 7} if input.published\n", "p.rego:3:1: warn contains an object with severity; expected objects"},
		"a msg that is no string":            {header + "deny contains {\"msg\": [1]}\n", "p.rego:3:1: deny contains an object whose msg is of type array<number>"},
		"a field that may be null":           {header + "deny contains {\"msg\": \"no\", \"field\": field}\n\nfield := null if input.cluster == \"a\"\n\nfield := \"x\" if input.cluster != \"a\"\n", "p.rego:3:1: deny contains an object whose field is of type any<null, string>"},
		"a remedy that is no string":         {header + "deny contains {\"msg\": \"no\", \"remedy\": input.scope.clusters}\n", "p.rego:3:1: deny contains an object whose remedy is of type array[string]"},
		"clusters as a string":               {header + "deny contains {\"msg\": \"no\", \"clusters\": \"b\"}\n", "p.rego:3:1: deny contains an object whose clusters is of type string; expected objects"},
		"clusters as a set":                  {header + "deny contains {\"msg\": \"no\", \"clusters\": {\"b\"}}\n", "p.rego:3:1: deny contains an object whose clusters is of type set[string]; expected objects"},
		"clusters that are no strings":       {header + "deny contains {\"msg\": \"no\", \"clusters\": [\"b\", 7]}\n", "p.rego:3:1: deny contains an object whose clusters is of type array<string, number>"},
		"computed clusters, no strings":      {header + "deny contains {\"msg\": \"no\", \"clusters\": [p.port | some p in input.ports]}\n", "p.rego:3:1: deny contains an object whose clusters is of type array[number]"},
		"no clusters":                        {header + "deny contains {\"msg\": \"no\", \"clusters\": []}\n", "p.rego:3:1: deny contains an object whose clusters is of type array"},
		"a user, who is absent in audits": {header + "deny contains {\"msg\": \"no\"} if not platform\n\nplatform if \"platform\" in input.userInfo.groups\n",
			"p.rego:5:33: input.userInfo is absent when a stored export is evaluated again (an audit), so a rule that needs it would withdraw what it has admitted, " +
				"and no rule reads input.operation; expected input.operation != \"AUDIT\" in the rules that are for requests only"},
		"an old object, which is absent in audits": {rule(`input.oldObject.metadata.name != "x"`), "p.rego:4:8: input.oldObject is absent"},
		"a user by another way":                    {rule(`object.get(input, ["userInfo", "username"], "") != "x"`), "p.rego:4:21: input.userInfo is absent"},
		"a user by the name of input":              {rule("i := input\n\ti.userInfo.username != \"x\""), "p.rego:5:4: input.userInfo is absent"},
		"a user by way of a function":              {rule(`name(input) != "x"`) + "\nname(i) := i.userInfo.username\n", "p.rego:7:14: input.userInfo is absent"},
		"a user, with the operation in a test": {rule(`input.userInfo.username != "x"`) + "\ntest_x if input.operation == \"AUDIT\"\n",
			"p.rego:4:8: input.userInfo is absent"},
		"a parameter that is not set": {rule(`data.comity.params.p.keys[_] == "x"`), "p.rego:4:2: data.comity.params.p.keys[_] is not set"},

		// What reaches out, differs from call to call, or cannot be stopped.
		"the network":       {rule(`http.send({"method": "get", "url": "http://x"}).status_code == 200`), "p.rego:4:2: undefined function http.send"},
		"the resolver":      {rule(`count(net.lookup_ip_addr("x")) > 0`), "undefined function net.lookup_ip_addr"},
		"a long shift":      {rule(`bits.lsh(1, 1000000000) > 0`), "p.rego:4:2: undefined function bits.lsh"},
		"the time":          {rule(`time.now_ns() > 0`), "undefined function time.now_ns: policies may not call it, since its answer differs from one call, or replica, to the next"},
		"chance":            {rule(`rand.intn("x", 2) == 1`), "undefined function rand.intn"},
		"the environment":   {rule(`opa.runtime().env.HOME != ""`), "undefined function opa.runtime"},
		"a parser":          {rule(`rego.parse_module("x", "package x").rules`), "undefined function rego.parse_module"},
		"a schema by URL":   {rule(`json.match_schema({}, {"$ref": "http://x"})[0]`), "undefined function json.match_schema"},
		"a template":        {rule(`strings.render_template("{{.}}", {}) == ""`), "undefined function strings.render_template"},
		"all paths":         {rule(`count(graph.reachable_paths({}, [])) > 0`), "undefined function graph.reachable_paths"},
		"the engine itself": {rule(`comity.asked("p")`), "undefined function comity.asked"},

		// What would make policies depend on one another.
		"another policy's rules":      {rule(`count(data.comity.policies.other.deny) > 0`), "p.rego:4:8: data.comity.policies.other.deny is not this policy's to read"},
		"another policy's parameters": {rule(`data.comity.params.other.x`), "data.comity.params.other.x is not this policy's to read"},
		"all data":                    {rule(`count(data.comity) > 0`), "rule data.comity.policies.p.deny is recursive"},
		"data.params":                 {rule(`data.params.x`), "data.params.x is not this policy's to read; expected data.comity.lib, data.comity.params.p or"},
		"another package":             {"package shop\n\ndeny contains {\"msg\": \"no\"} if true\n", "p.rego:1:1: package shop; expected comity.policies.<name>"},
		"a package too deep":          {"package comity.policies.a.b\n\ndeny contains {\"msg\": \"no\"} if true\n", "p.rego:1:1: package comity.policies.a.b; expected"},
		"the library's package":       {"package comity.lib\n\ndeny contains {\"msg\": \"no\"} if true\n", "package comity.lib; expected"},

		// Fault 16.
		"malformed":             {rule("this is not rego"), "p.rego:4:"},
		"Rego v0":               {header + "deny[x] { x := 1 }\n", "p.rego:3:1: `if` keyword is required"},
		"empty":                 {"", "rego_parse_error: empty module"},
		"only space":            {" \n\t\n", "rego_parse_error: empty module"},
		"only a comment":        {"# nothing\n", "p.rego:1:1: "},
		"only a package":        {header, "p.rego:1:1: the module has neither deny nor warn"},
		"a byte order mark":     {"\ufeff" + rule("true"), "p.rego:1:1: the module begins with a byte order mark"},
		"NUL":                   {rule("true\x00"), "p.rego:4:2: illegal null character"},
		"not UTF-8":             {rule("\"\xff\" == \"x\""), "illegal utf-8 character"},
		"deep nesting":          {rule(strings.Repeat("[", 100000)), "p.rego:4:"},
		"an unused assignment":  {rule("x := 1"), "p.rego:4:2: assigned var x unused"},
		"a reason of two words": {"# METADATA\n# custom:\n#   reason: Not Allowed\n" + rule("true"), "p.rego:1:1: METADATA custom.reason is Not Allowed; expected one word"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{})
			results := e.Load([]engine.Policy{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: test.module}}, denying("fine", "fine", "true")})
			if results[0].Err == nil || results[0].Digest != "" || !strings.Contains(results[0].Err.Error(), test.message) {
				t.Errorf("got %v\nexpected %q", results[0], test.message)
			}
			if results[1].Err != nil || results[1].Digest == "" {
				t.Errorf("the other policy: %v", results[1])
			}
			if verdict := e.Evaluate(t.Context(), request()); len(verdict.Violations) != 1 {
				t.Errorf("the other policy answers %+v", verdict)
			}
			if err := e.Check(engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: test.module}}); err == nil || err.Error() != results[0].Err.Error() {
				t.Errorf("Check says %v, Load said %v", err, results[0].Err)
			}
		})
	}
}

func TestAModuleThatReadsTheOperationMayReadTheUser(t *testing.T) {
	for name, body := range map[string]string{
		"itself":                "input.operation != \"AUDIT\"\n\tinput.userInfo.username == \"eve\"",
		"in another rule":       "not audit\n\tinput.oldObject.metadata.name != \"x\"\n}\n\naudit if {\n\tinput.operation == \"AUDIT\"",
		"by way of the library": "not data.comity.lib.audit\n\tinput.userInfo.username == \"eve\"",
		"by the name of input":  "i := input\n\ti.operation != \"AUDIT\"\n\ti.userInfo.username == \"eve\"",
	} {
		t.Run(name, func(t *testing.T) {
			if err := newEngine(t, engine.Options{}).Check(engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: rule(body)}}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatIsNotRegoIsCheckedToo(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	tests := map[string]struct {
		change  func(*engine.Policy)
		message string
	}{
		"parameters that are no JSON":   {func(p *engine.Policy) { p.Parameters = &apiextensionsv1.JSON{Raw: []byte("{")} }, "spec.parameters: "},
		"parameters that are a list":    {func(p *engine.Policy) { p.Parameters = &apiextensionsv1.JSON{Raw: []byte("[1]")} }, "expected an object"},
		"an unknown operator (objects)": {func(p *engine.Policy) { p.Match = &v1alpha1.Match{ObjectSelector: bad} }, "spec.match.objectSelector: "},
		"an unknown operator":           {func(p *engine.Policy) { p.Match = &v1alpha1.Match{NamespaceSelector: bad} }, "spec.match.namespaceSelector: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := denying("p", "no", "true")
			test.change(&policy)
			if err := newEngine(t, engine.Options{}).Check(policy); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, expected %q", err, test.message)
			}
		})
	}
}

func TestAReasonComesFromMetadataOrTheName(t *testing.T) {
	tests := map[string]struct{ name, metadata, reason string }{
		"from METADATA":                 {"p", "# METADATA\n# custom:\n#   reason: NotHere\n", "NotHere"},
		"from the name":                 {"no-late.exports", "", "NoLateExports"},
		"from a name that begins badly": {"4-eyes", "", "Policy4Eyes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := loaded(t, engine.Options{}, engine.Policy{Name: test.name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: test.metadata + rule("true")}})
			verdict := e.Evaluate(t.Context(), request())
			if len(verdict.Violations) != 1 || verdict.Violations[0].Reason != test.reason || verdict.Violations[0].Policy != test.name {
				t.Errorf("got %+v, expected reason %s", verdict, test.reason)
			}
		})
	}
}

func TestABrokenLibraryIsSaidWhere(t *testing.T) {
	for _, text := range []string{"package comity.lib\n\nx := y", "no rego"} {
		err := engine.UseLibrary(t, map[string]string{"lib/x.rego": text})
		if err == nil || !strings.Contains(err.Error(), "lib/x.rego:") {
			t.Errorf("got %v", err)
		}
	}
}

func TestADefaultMakesAParameterOptional(t *testing.T) {
	module := rule(`limit < 5`) + "\ndefault limit := 1\n\nlimit := data.comity.params.p.limit\n"
	for params, want := range map[string]decision.Outcome{``: decision.Denied, `{"limit": 9}`: decision.Allowed} {
		e := loaded(t, engine.Options{}, engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: module, Parameters: &apiextensionsv1.JSON{Raw: []byte(params)}}})
		if got := e.Evaluate(t.Context(), request()).Outcome; got != want {
			t.Errorf("with %q: %s, expected %s", params, got, want)
		}
	}
}
