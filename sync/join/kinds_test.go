// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

func TestDefinitionsThatAreMissingOrTooOldAreNamed(t *testing.T) {
	all := []string{"ExportRecord", "ImportRecord", "MemberRecord", "NamespaceRecord", "Peer"}
	type row struct {
		name    string
		lacking string
		hub     bool
		want    string
	}
	rows := []row{
		{name: "all are served"},
		{name: "one was added by a later version of Comity", lacking: "NamespaceRecord",
			want: "the API server does not serve NamespaceRecord of exchange.comity.dev/v1alpha1; apply config/crd"},
		{name: "no Peer", lacking: "Peer", want: "helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity --namespace comity-system "},
		{name: "a hub without Peer", lacking: "Peer", hub: true},
	}
	for _, kind := range all[:4] {
		rows = append(rows, row{name: "a hub without " + kind, lacking: kind, hub: true, want: "does not serve " + kind + " of"})
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			mapper := apimeta.NewDefaultRESTMapper(nil)
			for _, kind := range slices.DeleteFunc(slices.Clone(all), func(kind string) bool { return kind == c.lacking }) {
				mapper.Add(v1alpha1.GroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
			}
			m := &member{Cluster: Cluster{ID: "b", Namespace: "comity-system", isHub: c.hub}, client: fake.NewClientBuilder().WithRESTMapper(mapper).Build()}
			if err := m.checkKinds(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}
