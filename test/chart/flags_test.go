// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/comity-mcs/comity/cmd/comity/app"
)

// value is what an administrator writes to set a flag.
type value struct {
	// json is for --set-json.
	json string
	// want is the flag's value then; its own default is another.
	want string
}

// values has an entry for every flag that is a value of the chart.
var values = map[string]value{
	"cluster-id":                {`clusterID="other"`, "other"},
	"clusterset":                {`clusterset="others"`, "others"},
	"cluster-labels":            {`clusterLabels={"region":"eu","example.com/tier":"1"}`, "[example.com/tier=1,region=eu]"},
	"exchange-kubeconfig":       {`exchange.hub=true`, "/etc/comity/exchange/kubeconfig"},
	"namespace-identity-labels": {`sync.namespaceIdentityLabels=["example.com/a","example.com/b"]`, "[example.com/a,example.com/b]"},
	"publish-namespaces":        {`sync.publishNamespaces="clusterset in (shared, all),team!=test"`, "clusterset in (shared, all),team!=test"},
	"require-policies":          {`policies.required=["export-scope","owner"]`, "[export-scope,owner]"},
	"pod-cidrs":                 {`sync.podCIDRs=["10.1.0.0/16","fd00:1::/56"]`, "[10.1.0.0/16,fd00:1::/56]"},
	"service-cidrs":             {`sync.serviceCIDRs=["10.2.0.0/16"]`, "[10.2.0.0/16]"},
	"import":                    {`sync.import=false`, "false"},
	"selectors":                 {`sync.selectors="maintain"`, "maintain"},
	"takeover":                  {`sync.takeover="sveltos"`, "sveltos"},
	"heartbeat-interval":        {`sync.heartbeatInterval="20s"`, "20s"},
	"lost-after":                {`sync.lostAfter="1m30s"`, "1m30s"},
	"workers":                   {`sync.workers=3`, "3"},
	"webhook-bind-address":      {`webhook.port=10443`, ":10443"},
	"cert-dir":                  {`webhook.certDir="/certs"`, "/certs"},
	"webhook-client-ca-file":    {`webhook.client.caSecret="api-server"`, "/etc/comity/webhook-client/ca.crt"},
	"webhook-client-names":      {`webhook.client={"caSecret":"api-server","names":["a","b"]}`, "[a,b]"},
	"health-probe-bind-address": {`health.port=10081`, ":10081"},
	"metrics-bind-address":      {`metrics.enabled=false`, "0"},
	"metrics-secure":            {`metrics.secure=false`, "false"},
	"leader-elect":              {`leaderElect=false,replicaCount=1`, "false"},
	"shutdown-delay":            {`shutdownDelay="1m"`, "1m0s"},
	"shutdown-timeout":          {`shutdownTimeout="1m"`, "1m0s"},
	"verbosity":                 {`verbosity=1`, "1"},
	"log-format":                {`logFormat="text"`, "text"},
}

// notValues are flags that nobody sets in a release, with the reason.
var notValues = map[string]string{
	"kubeconfig": "the agent of a release uses its Pod's service account",
	"namespace":  "it is that of the release",
}

// flags are those of the agent.
func flags() *pflag.FlagSet {
	o := app.DefaultOptions()
	set := pflag.NewFlagSet("comity", pflag.ContinueOnError)
	o.AddFlags(set)
	return set
}

// agentFlags are the flags as the agent of a rendering would see them.
func agentFlags(t *testing.T, objects []*unstructured.Unstructured) *pflag.FlagSet {
	t.Helper()
	deployment := typed[appsv1.Deployment](t, find(t, objects, "Deployment", release))
	container := deployment.Spec.Template.Spec.Containers[0]
	env := map[string]string{"COMITY_EXCHANGE_KUBECONFIG": "", "POD_NAMESPACE": deployment.Namespace}
	config, _, err := unstructured.NestedStringMap(find(t, objects, "ConfigMap", container.EnvFrom[0].ConfigMapRef.Name).Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(env, config)
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			env[variable.Name] = variable.Value
		}
	}
	for name, text := range env {
		t.Setenv(name, text)
	}
	set := flags()
	if err := set.Parse(container.Args); err != nil {
		t.Fatalf("the agent refuses its arguments: %v", err)
	}
	return set
}

// typed reads an object strictly: an unknown field is an error.
func typed[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return into
}

func TestEveryFlagIsAValue(t *testing.T) {
	var names []string
	defaults := map[string]string{} // before a rendering sets the environment
	flags().VisitAll(func(f *pflag.Flag) { names, defaults[f.Name] = append(names, f.Name), f.DefValue })
	if len(names) < 20 {
		t.Fatalf("only %d flags found: %v", len(names), names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if notValues[name] != "" {
				return
			}
			set, known := values[name]
			if !known {
				t.Fatalf("--%s is no value: add one to charts/comity/values.yaml, pass it in templates/deployment.yaml and name it here", name)
			}
			flag := agentFlags(t, rendered(t, set.json)).Lookup(name)
			if got := flag.Value.String(); got != set.want {
				t.Errorf("with %s, --%s is %q; expected %q", set.json, name, got, set.want)
			}
			if set.want == defaults[name] {
				t.Errorf("%q is the default of --%s, so this shows nothing", set.want, name)
			}
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(values)), slices.Collect(maps.Keys(notValues))) {
		if !slices.Contains(names, name) {
			t.Errorf("--%s is no flag any more", name)
		}
	}
}

// Who installs the chart without a value gets what the agent does without a flag.
func TestDefaultsAreThoseOfTheAgent(t *testing.T) {
	got, want := map[string]string{}, map[string]string{}
	agentFlags(t, rendered(t)).VisitAll(func(f *pflag.Flag) { got[f.Name] = f.Value.String() })
	t.Setenv("COMITY_CLUSTER_ID", "cluster-1")
	t.Setenv("COMITY_CLUSTERSET", "example")
	flags().VisitAll(func(f *pflag.Flag) { want[f.Name] = f.DefValue })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of the chart's defaults (-agent +chart):\n%s", diff)
	}
}

func TestTheAgentAcceptsTheDefaults(t *testing.T) {
	objects := rendered(t)
	deployment := typed[appsv1.Deployment](t, find(t, objects, "Deployment", release))
	agentFlags(t, objects) // sets the environment
	o := app.DefaultOptions()
	set := pflag.NewFlagSet("comity", pflag.ContinueOnError)
	o.AddFlags(set)
	if err := set.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Error(fmt.Errorf("the chart's defaults: %w", err))
	}
}
