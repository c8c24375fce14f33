// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// view is what the product reads.
func (w *world) view() decide.ImportView {
	v := decide.ImportView{
		Self: self, ComityNamespace: "comity-system", FormsAt: at(w.formsAt), Now: at(w.now), Current: w.current(),
		LocalCluster: model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol}},
		Local:        decide.LocalExport{Key: key},
	}
	v.Local.Namespace, _ = w.server.Get(apiserver.Ref{Kind: "Namespace", Name: key.Namespace}).(*corev1.Namespace)
	for _, c := range w.order() {
		switch {
		case c.id == self:
			w.viewOwn(&v, c)
		case c.removed:
			v.Peers = append(v.Peers, exchange.Published{Member: model.Member{ID: model.ClusterID(c.id)}, Removed: true})
		case c.member:
			v.Peers = append(v.Peers, c.view())
		}
	}
	decide.ReadList(&v)
	return v
}

func (w *world) viewOwn(v *decide.ImportView, c *cluster) {
	v.Own = decide.OwnSource{State: map[string]model.SourceState{
		"Published": model.SourcePublished, "Ended": model.SourceEnded, "Suspended": model.SourceSuspended, "NotRead": model.SourceNotRead,
	}[c.own()]}
	if c.export == nil || c.own() == "Ended" {
		return
	}
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(c.export.UID), CreationTimestamp: metav1.NewTime(at(c.export.Created))}
	v.Local.Export = &mcsv1beta1.ServiceExport{ObjectMeta: meta}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.IPFamilies = corev1.ServiceTypeClusterIP, "10.96.0.1", []corev1.IPFamily{corev1.IPv4Protocol}
	if c.export.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	s.Spec.SessionAffinity = affinity(c.export.Properties)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: int32(c.export.Port), Protocol: corev1.ProtocolTCP}}
	v.Local.Service, v.Local.Slices = s, []*discoveryv1.EndpointSlice{c.slice()}
}

func affinity(p Properties) corev1.ServiceAffinity {
	if p.Affinity {
		return corev1.ServiceAffinityClientIP
	}
	return corev1.ServiceAffinityNone
}

func (c *cluster) view() exchange.Published {
	id := model.ClusterID(c.id)
	p := exchange.Published{Known: true, NotAccepted: c.refused, Verdict: &decision.Verdict{Outcome: decision.Allowed}}
	p.Member = model.Member{ID: id, Synced: c.read, Liveness: model.Liveness{State: model.Connected}, ConfirmMissingBefore: at(c.confirmed)}
	switch {
	case c.denied:
		p.Verdict.Outcome = decision.Denied
	case c.undecided:
		p.Verdict.Outcome = decision.NotEvaluated
	}
	if !c.read {
		return p
	}
	for _, s := range c.statements {
		p.Withdrawals = append(p.Withdrawals, model.Withdrawal{UID: types.UID(s.UID), CreatedAt: at(s.Created), Suspended: s.Suspended, Narrowed: s.Narrowed})
	}
	if e := c.published(); e != nil {
		p.Export = &model.Export{
			SourceExport:      model.SourceExport{Cluster: id, UID: types.UID(e.UID), CreatedAt: at(e.Created), Scoped: e.Scoped},
			Key:               key,
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: int32(e.Port), Protocol: corev1.ProtocolTCP}}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: affinity(e.Properties)},
			Slices:            []string{"web-0"},
		}
		if e.Headless {
			p.Export.Type = mcsv1beta1.Headless
		}
		p.Slices = []*discoveryv1.EndpointSlice{c.slice()}
	}
	return p
}
