// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart_test renders the chart and config/overlays/example and checks
// what neither a schema nor a single template says: that every flag of the agent
// is a value, that every value is documented, and that both ways to install
// Comity give the same objects.
//
// It takes the chart as it is in the repository, and helm, kubectl and promtool from the
// tools of the tests. It needs no cluster and changes no file.
package chart_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
)

const (
	root      = "../.."
	chart     = root + "/charts/comity"
	release   = "comity"
	namespace = "comity-system"
	// kubernetes is the version to render for: without a cluster, helm assumes an old one.
	kubernetes = "1.36.3"
	// toolTimeout bounds a build of helm from a cold cache; runTimeout one rendering.
	toolTimeout = 20 * time.Minute
	runTimeout  = time.Minute
)

// tools are the paths of helm, kubectl and promtool, found or built once.
var tools = sync.OnceValues(func() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	provider, err := binaries.New()
	if err != nil {
		return nil, err
	}
	return provider.Ensure(ctx, binaries.Helm, binaries.Kubectl, binaries.Promtool)
})

// run gives what a tool prints.
func run(t *testing.T, tool string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	paths, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, paths[tool], args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	// A cluster that happens to be configured must not be asked.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// template renders the chart with values as for --set-json.
func template(t *testing.T, values ...string) (string, string, error) {
	t.Helper()
	args := []string{"template", release, chart, "--namespace", namespace,
		"--kube-version", kubernetes, "--set-json", `clusterID="cluster-1",clusterset="example"`}
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	return run(t, binaries.Helm, args...)
}

// rendered gives the objects of the chart.
func rendered(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	stdout, stderr, err := template(t, values...)
	if err != nil {
		t.Fatalf("helm template %v: %v: %s", values, err, stderr)
	}
	return decode(t, stdout)
}

func decode(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := clusters.Decode([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// find gives the one object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}
