// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy"
	"github.com/comity-mcs/comity/policies/engine/authoring"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
)

// TestMain is the program that compiles policies for a command that is tested.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.Argument {
		os.Exit(app.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write the expected outputs in testdata/golden")

// result is what a command printed, and its exit code.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := app.Run(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, append([]string{"policy"}, args...))
	return result{code, out.String(), errOut.String()}
}

// write makes files in a new folder, which it gives.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestOutputs(t *testing.T) {
	const manifests, policies = "testdata/manifests", "testdata/policies"
	for _, tc := range []struct {
		name string
		code int
		args []string
	}{
		{"check", 0, []string{"check", policies}},
		{"test", 0, []string{"test", policies}},
		{"test-coverage", 1, []string{"test", policies, "--coverage", "80"}},
		{"test-json", 0, []string{"test", policies, "-o", "json"}},
		{"test-junit", 1, []string{"test", policies, "--coverage", "80", "-o", "junit"}},
		{"eval", 1, []string{"eval", "-f", manifests, "--policies", policies}},
		{"eval-json", 1, []string{"eval", "-f", manifests, "--policies", policies, "-o", "json"}},
		{"eval-junit", 1, []string{"eval", "-f", manifests, "--policies", policies, "-o", "junit"}},
		{"eval-audit", 1, []string{"eval", "-f", manifests, "--policies", policies, "--operation", "audit"}},
		{"eval-import", 1, []string{"eval", "-f", "testdata/import.yaml"}},
		{"explain", 1, []string{"eval", "-f", manifests, "--policies", policies, "--explain"}},
		{"explain-import-json", 1, []string{"eval", "-f", "testdata/import.yaml", "--explain", "-o", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := run(t, tc.args...)
			if got.code != tc.code || got.err != "" {
				t.Errorf("exit code %d, expected %d; error output: %s", got.code, tc.code, got.err)
			}
			switch {
			case strings.HasSuffix(tc.name, "json") && !json.Valid([]byte(got.out)):
				t.Error("the output is no JSON")
			case strings.HasSuffix(tc.name, "junit") && xml.Unmarshal([]byte(got.out), new(struct {
				XMLName xml.Name `xml:"testsuites"`
			})) != nil:
				t.Error("the output is no JUnit XML")
			}
			path := filepath.Join("testdata", "golden", tc.name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got.out), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.out); diff != "" {
				t.Errorf("%s (-want +got); write it again with -update:\n%s", path, diff)
			}
		})
	}
}

// namespaceAndExport are manifests that are evaluated.
const namespaceAndExport = `apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata:
  namespace: shop
  name: db
`

func TestBadInputIsRefusedWithOneMessage(t *testing.T) {
	const module = "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if input.cluster == \"z\"\n"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string // the folder of the files follows
		code  int
		want  []string
	}{
		"no such path":                 {nil, []string{"check", "nowhere"}, 2, []string{"nowhere: no such file or directory; expected a folder of a policy"}},
		"no such manifests":            {nil, []string{"eval", "--policies", "testdata/policies", "-f", "nowhere"}, 2, []string{"nowhere: no such file"}},
		"an empty folder":              {map[string]string{"x/readme.txt": ""}, []string{"check"}, 2, []string{"no policy is here, and no manifest; expected a folder with policy.rego"}},
		"an empty folder of manifests": {map[string]string{"x/readme.txt": ""}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"no policy is here, and no manifest"}},
		"a folder without a module":    {map[string]string{"p/policy_test.rego": "package x\n"}, []string{"test"}, 2, []string{"the folder has Rego and no policy.rego; expected the module of policy p"}},
		"a file that is no policy":     {map[string]string{"x.txt": ""}, []string{"check"}, 2, []string{"no policy is here"}},
		"a manifest with a field that does not exist": {
			map[string]string{"p.yaml": "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\nmetadata: {name: p}\nspec: {rego: x, enforcment: Deny}\n"},
			[]string{"check"}, 2, []string{"p.yaml: ExportPolicy:", `unknown field "spec.enforcment"`},
		},
		"a manifest of another version": {
			map[string]string{"p.yaml": "apiVersion: policy.comity.dev/v1\nkind: ExportPolicy\nmetadata: {name: p}\n"},
			[]string{"check"}, 2, []string{`apiVersion of an ExportPolicy is "policy.comity.dev/v1"; expected policy.comity.dev/v1alpha1`},
		},
		"a field of the spec that does not exist": {
			map[string]string{"p/policy.rego": module, "p/policy.yaml": "stge: Import\n"}, []string{"check"}, 2, []string{"policy.yaml:", `unknown field "stge"`},
		},
		"parameters in the wrong file": {
			map[string]string{"p/policy.rego": module, "p/policy.yaml": "parameters: {a: 1}\n"}, []string{"check"}, 2, []string{"these are in policy.rego and params.yaml"},
		},
		"a parameter twice": {
			map[string]string{"p/policy.rego": module, "p/params.yaml": "a: 1\na: 2\n"}, []string{"check"}, 2, []string{"params.yaml:", `"a" already set`},
		},
		"a module that does not compile": {
			map[string]string{"p/policy.rego": strings.ReplaceAll(module, "input.cluster", "input.clutser")}, []string{"check"}, 1, []string{"policy.rego:3:32: undefined ref: input.clutser"},
		},
		"a module nested 10,000 deep": {
			map[string]string{"p/policy.rego": module + "\ntest_x := " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "\n"},
			[]string{"check"}, 1, []string{"policy.rego:5:507: max parsing recursion depth exceeded"},
		},
		"a module that is not formatted": {
			map[string]string{"p/policy.rego": strings.ReplaceAll(module, "if input", "if  input")}, []string{"check"}, 1, []string{"policy.rego: it is not formatted as opa fmt formats it"},
		},
		"a test that cannot be parsed": {
			map[string]string{"p/policy.rego": module, "p/policy_test.rego": "package x\n\ntest_x if {"}, []string{"check"}, 1, []string{"policy_test.rego:3:11: unexpected eof"},
		},
		"a test that does not compile": {
			map[string]string{"p/policy.rego": module, "p/policy_test.rego": "package x\n\ntest_x if y\n"}, []string{"test"}, 2, []string{"policy_test.rego:3:11: var y is unsafe"},
		},
		"a policy that calls what it may not": {
			map[string]string{"p/policy.rego": module + "\ntest_x if time.now_ns() > 0\n"}, []string{"check"}, 1, []string{"policy.rego:5:11: undefined function time.now_ns"},
		},
		"two policies with one package": {
			map[string]string{"p/policy.rego": module, "q/policy.rego": module}, []string{"check"}, 1, []string{"package comity.policies.p is that of policy p already"},
		},
		"a test that fails": {
			map[string]string{"p/policy.rego": module, "p/policy_test.rego": "package x\n\ntest_x if count(data.fixtures) == 1\n"}, []string{"test"}, 1, []string{"test_x: Failed (", "policy_test.rego:3)", "policy_test.rego:3 does not hold", "count(data.fixtures) == 1"},
		},
		"a test that fails with characters that nobody sees": {
			map[string]string{"p/policy.rego": module, "p/policy_test.rego": "package x\n\nf(x) := {\"v\": x}\n\ntest_x if f(\"\\u202e\").v == concat(\"\", [`\u202e`, \"\\u001b[2J\", f(\"z\").v])\n"},
			[]string{"test"}, 1, []string{"policy_test.rego:5 does not hold", `f("\u202e").v: "\u202e"`, "`\\u202e`"},
		},
		"a policy without tests": {map[string]string{"p/policy.rego": module}, []string{"test"}, 1, []string{"p: Failed (", "it has no tests"}},
		"a manifest to test":     {map[string]string{"p.yaml": "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\nmetadata: {name: p}\n"}, []string{"test"}, 2, []string{"a manifest has no tests"}},
		"a fixture with a field that does not exist": {
			map[string]string{"p/policy.rego": module, "p/fixtures/web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: db}\nspec: {typ: ClusterIP}\n"},
			[]string{"test"}, 2, []string{"fixtures/web.yaml: Service:", `unknown field "spec.typ"`},
		},
		"a fixture without a Namespace": {
			map[string]string{"p/policy.rego": module, "p/fixtures/web.yaml": namespaceAndExport[strings.Index(namespaceAndExport, "---"):]}, []string{"test"}, 2, []string{"expected the Namespace in the same file"},
		},
		"a fixture with two exports": {
			map[string]string{"p/policy.rego": module, "p/fixtures/web.yaml": namespaceAndExport + namespaceAndExport[strings.Index(namespaceAndExport, "---"):strings.LastIndex(namespaceAndExport, "db")] + "web\n"},
			[]string{"test"}, 2, []string{"the file has 2 ServiceExports; expected one"},
		},
		"a manifest with a field twice": {
			map[string]string{"x.yaml": namespaceAndExport + "  name: web\n"}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{`x.yaml, document 2:`, `"name" already set`},
		},
		"an object twice": {
			map[string]string{"x.yaml": namespaceAndExport, "y.yaml": strings.Replace(namespaceAndExport, "name: db", "name: db\n  labels: {a: b}", 1)}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"y.yaml, document 2: ServiceExport shop/db is in", "x.yaml, document 2 already, with other content; expected each object once, or the same"},
		},
		"a Namespace with two contents": {
			map[string]string{"x.yaml": namespaceAndExport, "y.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: other}}\n"},
			[]string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"y.yaml: Namespace shop is in", "x.yaml already, with other content; expected each object once, or the same"},
		},
		"a Service with two contents": {
			map[string]string{"x.yaml": namespaceAndExport + "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: db}\n", "y.yaml": "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: db}\nspec: {type: ExternalName, externalName: x}\n"},
			[]string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"y.yaml: Service shop/db is in", "x.yaml, document 3 already, with other content; expected each object once, or the same"},
		},
		"an export without a namespace": {
			map[string]string{"x.yaml": strings.ReplaceAll(namespaceAndExport, "  namespace: shop\n", "")}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"metadata.name or metadata.namespace is not set"},
		},
		"an export whose Namespace is missing": {
			map[string]string{"x.yaml": namespaceAndExport[strings.Index(namespaceAndExport, "---"):]}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"namespace shop is not known here"},
		},
		"no export":               {map[string]string{"x.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"the manifests have no ServiceExport"}},
		"no policy":               {map[string]string{"x.yaml": namespaceAndExport}, []string{"eval", "-f"}, 2, []string{"no policies are given"}},
		"no Kubernetes object":    {map[string]string{"x.yaml": "a: b\n"}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{"x.yaml: apiVersion or kind is not set"}},
		"a misspelled Clusterset": {map[string]string{"x.yaml": namespaceAndExport + "---\napiVersion: cli.comity.dev/v1alpha1\nkind: Clusterset\nmembres: []\n"}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{`unknown field "membres"`}},
		"a member that decides":   {map[string]string{"x.yaml": namespaceAndExport + "---\napiVersion: cli.comity.dev/v1alpha1\nkind: Clusterset\ncluster: b\nmembers: [{id: b}]\n"}, []string{"eval", "--policies", "testdata/policies", "-f"}, 2, []string{`members[0].id is "b"; expected the id of a cluster other than the one that decides (b)`}},
		"a policy that fails and denies nothing": {
			map[string]string{"x.yaml": namespaceAndExport + `---
apiVersion: policy.comity.dev/v1alpha1
kind: ExportPolicy
metadata: {name: two}
spec:
  enforcement: Audit
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}
  rego: |
    package comity.policies.two

    tier := "a" if input.object.metadata.name
    tier := "b" if input.object.metadata.namespace
    deny contains {"msg": tier}
`}, []string{"eval", "--operation", "AUDIT", "-f"}, 0, []string{"AUDIT       Allowed", "failed, and denies nothing: [two] ", ", spec.rego:4:1: ", "conflicting values"},
		},
		"an operation that does not exist": {
			map[string]string{"x.yaml": namespaceAndExport}, []string{"eval", "--policies", "testdata/policies", "--operation", "DELETE", "-f"}, 2, []string{`flag --operation is "DELETE"; expected one of: CREATE, UPDATE, AUDIT`},
		},
		"a policy that cannot be used": {
			map[string]string{"x.yaml": namespaceAndExport, "p/policy.rego": strings.ReplaceAll(module, "input.cluster", "input.clutser")}, []string{"eval", "-f", "testdata/manifests", "--policies"}, 2, []string{"the policies cannot be used:", "policy.rego:3:32: undefined ref"},
		},
		"an output that does not exist": {nil, []string{"eval", "-o", "xml"}, 2, []string{`expected one of: json, yaml, junit`}},
		"a threshold above all":         {nil, []string{"test", "--coverage", "120", "x"}, 2, []string{"flag --coverage is 120"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := tc.args
			if tc.files != nil {
				args = append(args, write(t, tc.files))
			}
			got := run(t, args...)
			if got.code != tc.code {
				t.Errorf("exit code %d, expected %d", got.code, tc.code)
			}
			said := got.out + got.err
			for _, want := range tc.want {
				if !strings.Contains(said, want) {
					t.Errorf("it lacks %q:\n%s%s", want, got.out, got.err)
				}
			}
			if tc.code == 2 && tc.want != nil && strings.Count(got.err, "Error: ") > 1 {
				t.Errorf("more than one message:\n%s", got.err)
			}
		})
	}
}

func TestANewPolicyIsGoodAndOverwritesNothing(t *testing.T) {
	folder := t.TempDir()
	got := run(t, "new", "owner-required-2", "--dir", folder)
	if got.code != 0 || !strings.Contains(got.out, "policy.rego") {
		t.Fatalf("%+v", got)
	}
	made := filepath.Join(folder, "owner-required-2")
	for _, args := range [][]string{{"check", made}, {"test", made, "--coverage", "100"}} {
		if got := run(t, args...); got.code != 0 {
			t.Errorf("%s: %+v", args[0], got)
		}
	}
	fixture := filepath.Join(made, "fixtures", "unlabeled.yaml")
	if got := run(t, "eval", "-f", fixture, "--policies", made, "--operation", "AUDIT"); got.code != 0 || !strings.Contains(got.out, "would be refused") {
		t.Errorf("eval of a policy with enforcement Audit: %+v", got)
	}
	module := filepath.Join(made, "policy.rego")
	if err := os.WriteFile(module, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(t, "new", "owner-required-2", "--dir", folder); got.code != 2 || !strings.Contains(got.err, "nothing is overwritten") {
		t.Errorf("a second time: %+v", got)
	}
	if text, err := os.ReadFile(module); err != nil || string(text) != "mine" {
		t.Errorf("the module is %q (%v)", text, err)
	}
	for _, name := range []string{"", "A", "a_b", "1a", "a--b", "a-", "../a", "a/b", strings.Repeat("a", 254)} {
		if got := run(t, "new", name, "--dir", folder); got.code != 2 || !strings.Contains(got.err, "expected lower-case letters") {
			t.Errorf("name %q: %+v", name, got)
		}
	}
}

func TestCheckWritesTheFormat(t *testing.T) {
	folder := write(t, map[string]string{
		"p/policy.rego":      "package comity.policies.p\ndeny contains   {\"msg\": \"no\"} if input.cluster == \"z\"\n",
		"p/policy_test.rego": "package x\ntest_x if {",
	})
	if got := run(t, "check", folder, "--write"); got.code != 1 || !strings.Contains(got.out, "formatted") || strings.Contains(got.out, "opa fmt") {
		t.Errorf("%+v", got)
	}
	text, err := os.ReadFile(filepath.Join(folder, "p", "policy.rego"))
	if want := "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if input.cluster == \"z\"\n"; err != nil || string(text) != want {
		t.Errorf("got %q (%v), want %q", text, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "p", "policy_test.rego")); err != nil || string(text) != "package x\ntest_x if {" {
		t.Errorf("a file that cannot be read is %q now (%v)", text, err)
	}
}

func TestTheUserIsThatOfTheFlags(t *testing.T) {
	folder := write(t, map[string]string{
		"m/x.yaml": namespaceAndExport,
		"p/policy.rego": "package comity.policies.p\n\ndeny contains {\"msg\": sprintf(\"%s in %v\", [input.userInfo.username, input.userInfo.groups])} if {\n" +
			"\tinput.operation != \"AUDIT\"\n}\n",
	})
	got := run(t, "eval", "-f", filepath.Join(folder, "m"), "--policies", filepath.Join(folder, "p"), "--as", "eve", "--as-group", "devs")
	if got.code != 1 || !strings.Contains(got.out, `eve in ["devs"]`) {
		t.Errorf("%+v", got)
	}
	if one := run(t, "eval", "-f", folder, "--as", "eve", "--as-group", "devs"); one != got {
		t.Errorf("of one folder with policies and manifests: %+v", one)
	}
}

func TestAnUpdateReplacesWhatWasBefore(t *testing.T) {
	folder := write(t, map[string]string{
		"now/x.yaml":    namespaceAndExport,
		"before/x.yaml": strings.ReplaceAll(namespaceAndExport, "  name: db\n", "  name: db\n  labels: {team: storage}\n"),
		"p/policy.rego": "package comity.policies.p\n\ndeny contains {\"msg\": \"the label was removed\"} if {\n\tinput.operation == \"UPDATE\"\n" +
			"\tinput.oldObject.metadata.labels.team\n\tnot input.object.metadata.labels.team\n}\n",
	})
	at := func(name string) string { return filepath.Join(folder, name) }
	args := []string{"eval", "-f", at("now"), "--policies", at("p"), "--operation", "UPDATE"}
	if got := run(t, args...); got.code != 0 {
		t.Errorf("without --before: %+v", got)
	}
	if got := run(t, append(args, "--before", at("before"))...); got.code != 1 || !strings.Contains(got.out, "the label was removed") {
		t.Errorf("with --before: %+v", got)
	}
	if got := run(t, "eval", "-f", at("now"), "--policies", at("p"), "--before", at("before")); got.code != 2 {
		t.Errorf("--before of a CREATE: %+v", got)
	}
}

// TestThePoliciesOfThisRepository are checked and tested as those of anybody else.
func TestThePoliciesOfThisRepository(t *testing.T) {
	const folder = "../../../policies"
	policies, err := source.Read(folder, "../../../config/policies")
	if err != nil {
		t.Fatal(err)
	}
	checked, err := policy.Check(policies, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range checked.Findings {
		t.Error(finding)
	}
	tested, results, err := policy.Test(t.Context(), time.Minute, 95, folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(tested) < 4 {
		t.Errorf("%d folders were tested, expected at least four policies", len(tested))
	}
	for _, result := range results {
		if result.Outcome != authoring.Passed {
			t.Errorf("%s: %s: %v", result.Place, result.Name, result.Messages)
		}
	}
}

// What the cluster would refuse or stop, the local tools do, too.
func TestTheClusterSaysNothingNew(t *testing.T) {
	const slow = "package comity.policies.p\n\ndeny contains {\"msg\": \"many\"} if {\n\tsome i in numbers.range(1, 2000)\n\tsome j in numbers.range(1, 2000)\n\ti + j == 0\n}\n"
	const test = "package comity.policies.p_test\n\nimport data.comity.policies.p\n\ntest_p if count(p.deny) == 0\n"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string
		code  int
		want  string
	}{
		"check: what the definition refuses": {
			map[string]string{"p/policy.rego": quick, "p/policy.yaml": "grace: 1000h\n"}, []string{"check"}, 1,
			`p/policy.yaml: spec.grace: Invalid value: "1000h0m0s": expected a duration from 0s to 720h, such as 10m`,
		},
		"check: what takes the compiler too long": {
			map[string]string{"p/policy.rego": quick + "\ntest_x := " + strings.Repeat("[y | y := ", 30) + "1" + strings.Repeat("]", 30) + "\n"}, []string{"check"}, 1,
			"it takes more than 1s of CPU time; expected a module that compiles with less: nest less",
		},
		"test: the same": {
			map[string]string{"p/policy.rego": quick, "p/p_test.rego": test, "p/policy.yaml": "stage: Import\ngrace: 1h\n"}, []string{"test"}, 2,
			"a policy with stage Import has no grace period",
		},
		"eval: what takes longer than the agent waits": {
			map[string]string{"p/policy.rego": slow}, []string{"eval", "-f", "testdata/repeated.yaml", "--policies"}, 2,
			"policy p: it took too long and was stopped",
		},
		"test: the same of a test": {
			map[string]string{"p/policy.rego": slow, "p/p_test.rego": test}, []string{"test"}, 1, "p_test.rego:5",
		},
		"eval: characters that reorder others": {
			map[string]string{"p/policy.rego": strings.Replace(quick, "no", `\u202eno\u001b[2J`, 1)}, []string{"eval", "-f", "testdata/repeated.yaml", "--policies"}, 1,
			`[p] \u202eno\u001b[2J.`,
		},
		"eval: a message of 2 MB": {
			map[string]string{"p/policy.rego": strings.Replace(quick, `"no"`, `concat("", [s | some i in numbers.range(1, 20000); s := sprintf("%0100d", [i])])`, 1)},
			[]string{"eval", "--timeout", "1m", "-f", "testdata/repeated.yaml", "--policies"}, 1, "…",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, append(tc.args, filepath.Join(write(t, tc.files), "p"))...)
			if all := got.out + got.err; got.code != tc.code || !strings.Contains(all, tc.want) || len(all) > 10_000 {
				t.Errorf("exit code %d, expected %d; %d bytes: %.2000s", got.code, tc.code, len(all), all)
			}
		})
	}
}

const quick = "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if input.cluster\n"
