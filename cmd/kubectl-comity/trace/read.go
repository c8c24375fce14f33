// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/coredns"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// cluster is what one cluster has of the Service. The steps are derived from it alone.
type cluster struct {
	*agent.Site
	key types.NamespacedName

	// The objects of these kinds that have the name of the Service; nil if there is none.
	namespace *corev1.Namespace
	service   *corev1.Service
	export    *mcsv1beta1.ServiceExport
	imported  *mcsv1beta1.ServiceImport
	// derived are the Services with a name that a derived one can have.
	derived []*corev1.Service
	// slices are those of the namespace, records and reports those of the Service.
	slices  discoveryv1.EndpointSliceList
	records v1alpha1.ExportRecordList
	reports v1alpha1.ImportRecordList
	peers   v1alpha1.PeerList
	dns     []finding.Finding
	// unread is why objects of a kind were not read.
	unread map[string]error
}

// read reads one cluster. What cannot be read is in unread.
func read(ctx context.Context, site *agent.Site, key types.NamespacedName) *cluster {
	c := &cluster{Site: site, key: key, unread: map[string]error{}}
	if site.Target == nil {
		return c
	}
	c.namespace = get(ctx, c, "Namespace", "", key.Namespace, &corev1.Namespace{})
	c.service = get(ctx, c, "Service", key.Namespace, key.Name, &corev1.Service{})
	c.export = get(ctx, c, "ServiceExport", key.Namespace, key.Name, &mcsv1beta1.ServiceExport{})
	c.imported = get(ctx, c, "ServiceImport", key.Namespace, key.Name, &mcsv1beta1.ServiceImport{})
	for _, name := range []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)} {
		if derived := get(ctx, c, "Service", key.Namespace, name, &corev1.Service{}); derived != nil {
			c.derived = append(c.derived, derived)
		}
	}
	list := func(kind string, into client.ObjectList, options ...client.ListOption) {
		c.unread[kind] = site.Target.Client.List(ctx, into, options...)
	}
	record := client.MatchingFields{metav1.ObjectNameField: model.RecordName(key.Namespace, key.Name)}
	list("EndpointSlice", &c.slices, client.InNamespace(key.Namespace))
	list("ExportRecord", &c.records, record)
	list("ImportRecord", &c.reports, record)
	list("Peer", &c.peers)
	c.dns, c.unread["DNS"] = coredns.Check(ctx, site.Target, true)
	return c
}

// get reads an object of the cluster; nil if there is none.
func get[T client.Object](ctx context.Context, c *cluster, kind, namespace, name string, object T) (none T) {
	err := c.Target.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	c.unread[kind] = cmp.Or(c.unread[kind], client.IgnoreNotFound(err))
	if err != nil {
		return none
	}
	return object
}

// whyUnread is why the cluster, or objects of one of these kinds, were not read.
func (c *cluster) whyUnread(kinds ...string) error {
	switch {
	case c.Context == "":
		return errors.New("cluster " + string(c.ID()) + " was not read; name its context, too")
	case c.Target == nil:
		return c.Err
	}
	return errors.Join(model.Map(kinds, func(kind string) error { return c.unread[kind] })...)
}

// whyImportUnread is why what the cluster imports was not read.
func (c *cluster) whyImportUnread() error {
	return c.whyUnread("Namespace", "Service", "ServiceImport", "EndpointSlice")
}

// peer is the Peer of that id; nil if there is none.
func (c *cluster) peer(id model.ClusterID) *v1alpha1.Peer {
	if found, is := model.Find(c.peers.Items, func(p v1alpha1.Peer) bool { return p.Name == string(id) }); is {
		return &found
	}
	return nil
}

// derivedService is that of the import; nil if there is none.
func (c *cluster) derivedService() *corev1.Service {
	found, _ := model.Find(c.derived, func(s *corev1.Service) bool {
		return model.IsManaged(s) && s.Labels[model.LabelServiceName] == c.key.Name
	})
	return found
}

// list is that of the import, which its derived Service has too; the zero value if there is none.
func (c *cluster) list() (found model.List) {
	if s := c.derivedService(); s != nil {
		found, _ = model.ParseList(s.Annotations[model.AnnotationList]) // one that cannot be read is none
	} else if c.imported != nil {
		found, _ = model.ParseList(c.imported.Annotations[model.AnnotationList])
	}
	return found
}

// clusters are those that were read.
type clusters []*cluster

// of is the cluster of an id, or one that was not read.
func (s clusters) of(id model.ClusterID) *cluster {
	if c, is := model.Find(s, func(c *cluster) bool { return c.ID() == id }); is {
		return c
	}
	return &cluster{Site: &agent.Site{Agent: agent.Agent{AgentInfo: model.AgentInfo{ID: id}}}, key: s[0].key}
}

// exchange is where c publishes: its own API server, or the hub.
func (s clusters) exchange(c *cluster) *cluster {
	if c.Agent.Mode != model.ExchangeHub {
		return c
	}
	if hub, is := model.Find(s, s.isHub); is {
		return hub
	}
	return s.of("of the hub")
}

// isHub reports whether c has no agent, and others publish in a hub.
func (s clusters) isHub(c *cluster) bool {
	return errors.Is(c.Err, agent.ErrNotInstalled) && slices.ContainsFunc(s, func(c *cluster) bool { return c.Agent.Mode == model.ExchangeHub })
}
