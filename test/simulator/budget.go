// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// I8: of a member that publishes more than the limits, no more than the limits is held;
// what was held and still exists stays; the limit is named; and what others export is
// imported as it was read. What is counted here is what the API servers hold.

// annotationExcess marks, and fills, what only floods.
const annotationExcess = "excess"

// payload is more than the bytes that Limits allow, by itself.
const payload = 150_000

// tight is how many ExportRecords are read where users export more.
const tight = 1

// Limits are those of which each cluster of a random world has one for its peers: the
// defaults; some that hold whatever users export, and not what floods; and some that
// hold less than users export.
func Limits() []budget.Limits {
	return []budget.Limits{{}, {Exports: 5, Slices: 14, Bytes: payload - 1}, {Exports: tight, Slices: 2}}
}

// flood publishes what nobody needs in the exchange of a cluster, or takes it back.
func (w *World) flood(c *Cluster) {
	if w.n(3, "takes it back") == 0 {
		w.endFlood(c)
		return
	}
	mark := func(o client.Object, text string) {
		o.SetNamespace(model.ExchangeNamespace(c.ID))
		o.SetAnnotations(map[string]string{annotationExcess: text})
		_ = c.Server.Put("hostile", o) // refused in a namespace that is not there
	}
	slice := func(name string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		s.APIVersion, s.Kind, s.Name = "discovery.k8s.io/v1", "EndpointSlice", name
		s.Labels = map[string]string{discoveryv1.LabelManagedBy: model.ManagedBy}
		return s
	}
	switch count := 1 + w.n(5, "how much"); w.n(3, "of what") {
	case 0:
		for i := range count {
			o := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: model.RecordName("nowhere", fmt.Sprint("excess-", i))}}
			o.APIVersion, o.Kind = exchangev1alpha1.GroupVersion.String(), "ExportRecord"
			mark(o, "yes")
		}
	case 1:
		for i := range 4 * count {
			mark(slice(fmt.Sprint("excess-", i)), "yes")
		}
	default:
		mark(slice("excess-large"), strings.Repeat("x", payload))
	}
}

// endFlood takes back what floods.
func (w *World) endFlood(c *Cluster) {
	for _, kind := range []string{"ExportRecord", "EndpointSlice"} {
		for _, o := range c.Server.List(kind, "") {
			if isExcess(o) {
				c.Server.Remove("hostile", apiserver.RefOf(o))
			}
		}
	}
}

func isExcess(o client.Object) bool { return o.GetAnnotations()[annotationExcess] != "" }

// beyond names a limit that objects exceed; empty if they are within the limits.
func beyond(limits budget.Limits, objects []client.Object) string {
	limits.SetDefaults()
	counts, bytes := map[string]int{}, 0
	for _, o := range objects {
		counts[apiserver.RefOf(o).Kind]++
		bytes += len(o.GetAnnotations()[annotationExcess])
	}
	switch {
	case counts["ExportRecord"] > limits.Exports:
		return fmt.Sprintf("%d ExportRecords", limits.Exports)
	case counts["EndpointSlice"] > limits.Slices:
		return fmt.Sprintf("%d EndpointSlices", limits.Slices)
	case int64(bytes) > limits.Bytes:
		return fmt.Sprintf("%d bytes", limits.Bytes)
	}
	return ""
}

// published is what a cluster lets another one read.
func (w *World) published(from, to *Cluster) (out []client.Object) {
	for _, space := range []string{model.ExchangeNamespace(from.ID), model.ScopedExchangeNamespace(from.ID, to.ID)} {
		for _, kind := range exchangeKinds {
			out = append(out, from.Server.List(kind, space)...)
		}
	}
	return out
}

// reading is I8 of one read of a peer by a process.
func (w *World) reading(c *Cluster, p *agent.Process, id model.ClusterID, read func()) {
	if c.Limits == (budget.Limits{}) {
		read()
		return
	}
	held := p.Peers[id].Objects()
	read()
	now, all := p.Peers[id].Objects(), []client.Object(nil)
	for _, o := range now {
		all = append(all, o)
	}
	if limit := beyond(c.Limits, all); limit != "" {
		w.fail("I8: cluster %s holds %d objects of cluster %s, more than %s", c.ID, len(all), id, limit)
	}
	for ref, o := range held {
		_, has := now[ref]
		still := w.clusters[id].Server.Get(ref)
		if !has && still != nil && still.GetUID() == o.GetUID() && p.Peers[id].IsOver(ref) {
			w.fail("I8: cluster %s dropped %s of cluster %s, which exists, when that published too much", c.ID, ref, id)
		}
	}
}

// follows lets a process read all of a peer. What exceeded a limit is listed again.
func (w *World) follows(c *Cluster, p *agent.Process, id model.ClusterID) {
	for range 2 {
		w.reading(c, p, id, func() { p.Follow(id, func() int { return 1 << 30 }) })
		if p.Peers[id].Exceeded() == nil {
			return
		}
	}
}

// leaveExcess asks what limits do while members exceed them, and lets all come back
// within the limits: floods end, and where users export too much the limits are those
// of another version.
func (w *World) leaveExcess() {
	if len(w.opts.Limits) == 0 {
		return
	}
	for _, id := range w.ids {
		w.compareLimited(w.clusters[id])
	}
	for _, id := range w.ids {
		c := w.clusters[id]
		w.endFlood(c)
		if c.Limits.Exports == tight {
			c.Limits, c.Agents = budget.Limits{}, nil
			w.start(c)
		}
	}
	w.rounds()
	w.confirmMissing()
}

// compareLimited asks that a cluster names every peer that exceeds its limits, and no
// other, and that an import is what was read of all of them.
func (w *World) compareLimited(c *Cluster) {
	p := c.Agents[0]
	for _, id := range p.Members() {
		limit, over := beyond(c.Limits, w.published(w.clusters[id], c)), p.Peers[id].Exceeded()
		if (limit != "") != (over != nil) {
			w.fail("I8: cluster %s publishes more than the limits of cluster %s: %q, and is found to exceed %v", id, c.ID, limit, over)
		}
	}
	for _, key := range w.opts.Keys {
		namespace := find[corev1.Namespace](c, "Namespace", types.NamespacedName{Name: key.Namespace})
		if namespace == nil || w.inTheWay(c, key) {
			continue
		}
		err, saw := p.Import(key), process{p, c}
		if err != nil || len(unread(saw)) > 0 {
			continue // what stands depends on what was read before
		}
		want, standing := expected(seen(saw)), w.imports(c, key)
		for _, e := range p.Seen.View.Peers {
			if e.Export == nil || p.Peers[e.ID].Exceeded() == nil {
				continue
			}
			if !w.namesLimit(c, key, e.ID) {
				w.fail("I8: ServiceImport %s in cluster %s does not say that cluster %s exceeds a limit", key, c.ID, e.ID)
			}
			for _, side := range []*wanted{want, standing} {
				forget(side, e.ID)
			}
		}
		if diff := cmp.Diff(want, standing); diff != "" {
			w.fail("I8: %s in cluster %s is not as it was read, while members exceed limits (-expected +standing):\n%s", key, c.ID, diff)
		}
	}
}

// forget leaves out the slices of a cluster: some may be of copies that are gone while the
// record that says so cannot be read.
func forget(side *wanted, id model.ClusterID) {
	if side == nil {
		return
	}
	for name := range side.Slices {
		if strings.HasPrefix(name, string(id)+"/") {
			delete(side.Slices, name)
		}
	}
}

// namesLimit reports whether a condition of a ServiceImport says that a cluster exceeds a
// limit.
func (w *World) namesLimit(c *Cluster, key types.NamespacedName, id model.ClusterID) bool {
	imported := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
	if imported == nil {
		return false
	}
	for _, of := range imported.Status.Conditions {
		if of.Reason == model.ReasonLimitExceeded || strings.Contains(of.Message, model.ReasonLimitExceeded+" in "+string(id)) {
			return true
		}
	}
	return false
}
