// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// exchangeKinds are those of what a cluster publishes.
var exchangeKinds = []string{"ExportRecord", "EndpointSlice", "NamespaceRecord", "MemberRecord"}

// slip deletes in the exchange what nobody meant to delete: a namespace, all of one
// kind, as with its definition, or one object.
func (w *World) slip(c *Cluster) {
	var spaces []string
	for _, o := range c.Server.List("Namespace", "") {
		if _, is := o.GetLabels()[model.LabelExchangeFrom]; is {
			spaces = append(spaces, o.GetName())
		}
	}
	if len(spaces) == 0 {
		return
	}
	space, kind := spaces[w.n(len(spaces), "exchange")], exchangeKinds[w.n(len(exchangeKinds), "kind")]
	switch w.n(4, "slip") {
	case 0:
		w.deleteExchange(c, space)
		if w.n(2, "joined again") == 0 {
			w.rejoin(c)
		}
	case 1:
		for _, o := range c.Server.List(kind, "") {
			if strings.HasPrefix(o.GetNamespace(), "comity-") {
				c.Server.Remove("slip", apiserver.RefOf(o))
			}
		}
	default:
		if all := c.Server.List(kind, space); len(all) > 0 {
			c.Server.Remove("slip", apiserver.RefOf(all[w.n(len(all), "object")]))
		}
	}
}

// deleteExchange is kubectl delete namespace, to its end.
func (w *World) deleteExchange(c *Cluster, name string) {
	w.log("%s: namespace %s is deleted", c.ID, name)
	c.Server.Remove("slip", apiserver.Ref{Kind: "Namespace", Name: name})
	for c.Server.Finalize(name) {
	}
}

// rejoin makes the exchange namespaces of a cluster that are not there.
func (w *World) rejoin(c *Cluster) {
	w.namespace(c, model.ExchangeNamespace(c.ID), string(c.ID))
	for _, other := range w.ids {
		if other != c.ID {
			w.namespace(c, model.ScopedExchangeNamespace(c.ID, other), string(c.ID))
		}
	}
}

// hostile publishes by hand, in a cluster's own exchange, what another may export:
// with a creation time in the past and properties of its own.
func (w *World) hostile(c *Cluster) {
	key := w.key()
	if w.n(3, "takes it back") == 0 {
		w.forgetForged(c)
		return
	}
	kind := []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless}[w.n(2, "type")]
	uid := forgedBy(c.ID)
	if other := find[mcsv1beta1.ServiceExport](w.cluster(), "ServiceExport", key); other != nil && w.n(4, "UID of another export") == 0 {
		uid = other.UID
	}
	w.forge(c, key, uid, kind, []corev1.ServicePort{port("x", 80), port("http", 80), port("http", 81)}[w.n(3, "port")])
}

// forgedBy is the UID of what a cluster forges.
func forgedBy(id model.ClusterID) types.UID { return types.UID("forged-by-" + string(id)) }

// forge puts a forged record in the place of the cluster's own, if there is one.
func (w *World) forge(c *Cluster, key types.NamespacedName, uid types.UID, kind mcsv1beta1.ServiceImportType, port corev1.ServicePort) {
	name := model.RecordName(key.Namespace, key.Name)
	spec := exchange.Record(model.Export{
		Key:               key,
		SourceExport:      model.SourceExport{UID: uid, CreatedAt: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)},
		ServiceProperties: model.ServiceProperties{Type: kind, Ports: []mcsv1beta1.ServicePort{{Name: port.Name, Protocol: port.Protocol, Port: port.Port}}, SessionAffinity: "None"},
	})
	o := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace(c.ID), Name: name}, Spec: spec}
	o.APIVersion, o.Kind = exchangev1alpha1.GroupVersion.String(), "ExportRecord"
	c.Server.Remove("hostile", apiserver.RefOf(o)) // what it published itself
	_ = c.Server.Put("hostile", o)                 // refused in a namespace that is not there
}

// forgetForged takes back what forge made.
func (w *World) forgetForged(c *Cluster) {
	for _, o := range c.Server.List("ExportRecord", "") {
		if !model.IsManaged(o) && !isExcess(o) {
			c.Server.Remove("hostile", apiserver.RefOf(o))
		}
	}
}
