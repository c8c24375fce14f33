// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

func TestDefinitionsThatAreMissingOrTooOldAreNamed(t *testing.T) {
	for _, c := range []struct {
		name string
		keep func(schema.GroupVersionKind) bool
		want string
	}{
		{"all are served", func(schema.GroupVersionKind) bool { return true }, ""},
		{"one was added by a later version of Comity", func(k schema.GroupVersionKind) bool { return k.Kind != "NamespaceRecord" },
			"context \"b\": the API server does not serve exchange.comity.dev/v1alpha1 NamespaceRecord; the CustomResourceDefinitions are missing or too old"},
		{"no Peer", func(k schema.GroupVersionKind) bool { return k.Kind != "Peer" },
			"exchange.comity.dev/v1alpha1 Peer; the CustomResourceDefinitions are missing or too old; install them: helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity --kube-context b --namespace comity-system "},
		{"an MCS API without v1beta1", func(k schema.GroupVersionKind) bool { return k.Group != "multicluster.x-k8s.io" },
			"multicluster.x-k8s.io/v1beta1 ServiceExport, multicluster.x-k8s.io/v1beta1 ServiceImport"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, kind := range kinds() {
				if c.keep(kind) {
					mapper.Add(kind, meta.RESTScopeNamespace)
				}
			}
			err := checkKinds(&command.Target{Context: "b", Client: fake.NewClientBuilder().WithRESTMapper(mapper).Build()}, "comity-system")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}
