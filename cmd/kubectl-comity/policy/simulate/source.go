// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/facts"
)

// source gives a preview the facts of the cluster, by the same facts.Reader as in the
// agent.
func (c *cluster) source() preview.Source {
	return facts.Stored{
		Reader:       facts.Reader{Client: objects{c}, Cluster: c.agent.ID, Peers: peers{c}, Published: c.isPublished},
		ImportInputs: c.importInputs,
	}
}

// importInputs are what import policies decide on, as in the agent; imports from
// clusters whose exports were not read are left out.
func (c *cluster) importInputs(context.Context) ([]decision.ImportInput, error) {
	if !c.importing {
		return nil, nil
	}
	views := map[types.NamespacedName]*decide.ImportView{}
	view := func(key types.NamespacedName) *decide.ImportView {
		if views[key] == nil {
			local := decide.LocalExport{Key: key, Namespace: c.namespaces[key.Namespace]}
			views[key] = &decide.ImportView{Self: c.agent.ID, Local: local}
			views[key].Current.Import = c.imports[key]
			for _, m := range c.members {
				views[key].Peers = append(views[key].Peers, decide.PeerView{Member: m, Known: true})
			}
		}
		return views[key]
	}
	read := map[string]bool{}
	for n, member := range c.members {
		exports, ok := c.shared.exports(member.ID, c.agent.ID)
		read[string(member.ID)] = ok
		for key, export := range exports {
			if c.accepted[member.ID].Contains(key.Namespace) {
				view(key).Peers[n].Export = &export
			}
		}
	}
	for key := range c.imports {
		view(key)
	}
	var out []decision.ImportInput
	for _, v := range views {
		out = append(out, decide.ImportInputs(*v)...)
	}
	return slices.DeleteFunc(out, func(in decision.ImportInput) bool { return !read[in.Source.Cluster] }), nil
}

// isPublished reports whether an export is published in the exchange. If the exchange
// was not read, the condition Ready of the export says so.
func (c *cluster) isPublished(_ context.Context, export *mcsv1beta1.ServiceExport) (bool, error) {
	if uids, known := c.shared.published[c.agent.ID]; known {
		return uids[export.UID], nil
	}
	return meta.IsStatusConditionTrue(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)), nil
}

// unknown says what is not known of the cluster, one sentence each.
func (c *cluster) unknown() []string {
	out := []string{}
	if _, known := c.shared.published[c.agent.ID]; !known {
		out = append(out, "what it publishes was not read, so that the condition Ready of each export says whether it is published: give the context of the hub as well")
	}
	for _, member := range c.members {
		where := "the context of that cluster"
		if c.agent.Mode == model.ExchangeHub {
			where = "the context of the hub"
		}
		if c.shared.published[member.ID] == nil {
			out = append(out, fmt.Sprintf("the namespaces of cluster %s are unknown to policies, and imports from there are left out: give %s as well", member.ID, where))
		} else if c.shared.namespaces[member.ID] == nil {
			out = append(out, fmt.Sprintf("the namespaces of cluster %s are unknown to policies, because it has not published all that it shares", member.ID))
		}
	}
	if c.agent.Pod == "" {
		out = append(out, "no replica of the agent leads, so that its flags "+requiredFlag+" and "+importFlag+" are taken to have their defaults")
	}
	return out
}

// peers are the peers of a cluster, for facts.Reader.
type peers struct{ *cluster }

func (p peers) Members() []model.Member { return slices.Clone(p.members) }

// Namespace says of every peer whether it has a namespace called name, as members.Set does.
func (p peers) Namespace(name string) []model.MemberNamespace {
	out := make([]model.MemberNamespace, len(p.members))
	for i, member := range p.members {
		known := p.shared.namespaces[member.ID]
		namespace, has := known[name]
		switch {
		case has:
			out[i] = namespace
		case known != nil:
			out[i] = model.MemberNamespace{Cluster: member.ID, Presence: model.NamespaceAbsent}
		default:
			out[i] = model.MemberNamespace{Cluster: member.ID, Presence: model.NamespaceUnknown}
		}
	}
	return out
}

// objects read what was read of the cluster, without a request for each.
type objects struct{ *cluster }

// Get implements client.Reader for Namespaces and Services.
func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Namespace:
		if found := o.namespaces[key.Name]; found != nil {
			*into = *found
			return nil
		}
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	case *corev1.Service:
		if found := o.services[key]; found != nil {
			*into = *found
			return nil
		}
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	return fmt.Errorf("kubectl comity policy simulate does not read objects of type %T", into)
}

// List implements client.Reader for ServiceExports.
func (o objects) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	exports, ok := into.(*mcsv1beta1.ServiceExportList)
	if !ok {
		return fmt.Errorf("kubectl comity policy simulate does not read lists of type %T", into)
	}
	exports.Items = o.exports
	return nil
}
