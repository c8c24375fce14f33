// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/coredns"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// cluster is what one cluster has of the Service. The steps are derived from it alone.
type cluster struct {
	*agent.Site
	// ID is that of the agent, or else the name of the context.
	ID  model.ClusterID
	key types.NamespacedName

	// The objects of these kinds that have the name of the Service; nil if there is none.
	namespace *corev1.Namespace
	service   *corev1.Service
	export    *mcsv1beta1.ServiceExport
	imported  *mcsv1beta1.ServiceImport
	// derived are the Services with a name that a derived one can have.
	derived []corev1.Service
	// slices are those of the namespace, records and reports those of the Service.
	slices      []discoveryv1.EndpointSlice
	records     []exchangev1alpha1.ExportRecord
	reports     []exchangev1alpha1.ImportRecord
	policies    []policyv1alpha1.ExportPolicy
	peers       []exchangev1alpha1.Peer
	deployments []appsv1.Deployment
	networks    []networkingv1.NetworkPolicy
	dns         []finding.Finding
	// refused are the clusters that refuse the credential in the Secret of their Peer. The
	// agent notices it only once a watch ends.
	refused []model.ClusterID
	// unread is why objects of a kind were not read.
	unread map[string]error
}

// read reads one cluster. What cannot be read is in unread.
func read(ctx context.Context, site *agent.Site, key types.NamespacedName) *cluster {
	c := &cluster{Site: site, ID: cmp.Or(site.Agent.ID, model.ClusterID(site.Context)), key: key, unread: map[string]error{}}
	if site.Target == nil {
		return c
	}
	list := func(kind string, into client.ObjectList, options ...client.ListOption) {
		c.unread[kind] = site.Target.Client.List(ctx, into, options...)
	}
	in, called := client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}
	record := client.MatchingFields{metav1.ObjectNameField: model.RecordName(key.Namespace, key.Name)}
	var (
		namespaces  corev1.NamespaceList
		services    corev1.ServiceList
		exports     mcsv1beta1.ServiceExportList
		imports     mcsv1beta1.ServiceImportList
		slices      discoveryv1.EndpointSliceList
		records     exchangev1alpha1.ExportRecordList
		reports     exchangev1alpha1.ImportRecordList
		policies    policyv1alpha1.ExportPolicyList
		peers       exchangev1alpha1.PeerList
		deployments appsv1.DeploymentList
		networks    networkingv1.NetworkPolicyList
	)
	list("Namespace", &namespaces, client.MatchingFields{metav1.ObjectNameField: key.Namespace})
	list("Service", &services, in)
	list("ServiceExport", &exports, in, called)
	list("ServiceImport", &imports, in, called)
	list("EndpointSlice", &slices, in)
	list("ExportRecord", &records, record)
	list("ImportRecord", &reports, record)
	list("ExportPolicy", &policies)
	list("Peer", &peers)
	list("NetworkPolicy", &networks, in)
	list("Deployment", &deployments, client.InNamespace(site.Agent.Namespace), agent.Labels)
	c.dns, c.unread["DNS"] = coredns.Check(ctx, site.Target, true)
	c.namespace, c.export, c.imported = first(namespaces.Items), first(exports.Items), first(imports.Items)
	for i, s := range services.Items {
		if s.Name == key.Name {
			c.service = &services.Items[i]
		} else if s.Name == model.DerivedName(key.Name) || s.Name == model.AlternateDerivedName(key.Name) {
			c.derived = append(c.derived, s)
		}
	}
	c.slices, c.records, c.reports = slices.Items, records.Items, reports.Items
	c.policies, c.peers, c.deployments, c.networks = policies.Items, peers.Items, deployments.Items, networks.Items
	return c
}

func first[T any](items []T) *T {
	if len(items) == 0 {
		return nil
	}
	return &items[0]
}

// notRead is the step of what was not read in a cluster.
func (c *cluster) notRead(check string, kinds ...string) (Step, bool) {
	s := Step{Finding: finding.Finding{Severity: finding.NotRead, Check: check, Cluster: c.Context}}
	if c.Context == "" {
		s.Message = "cluster " + string(c.ID) + " was not read; name its context, too"
		return s, true
	}
	err := c.Err
	if c.Target != nil {
		err = nil
		for _, kind := range kinds {
			err = errors.Join(err, c.unread[kind])
		}
	}
	if err != nil {
		s.Message = err.Error()
	}
	return s, err != nil
}

// peer is the Peer of that id; nil if there is none.
func (c *cluster) peer(id model.ClusterID) *exchangev1alpha1.Peer {
	return first(slices.DeleteFunc(slices.Clone(c.peers), func(p exchangev1alpha1.Peer) bool { return p.Name != string(id) }))
}

// derivedService is that of the import; nil if there is none.
func (c *cluster) derivedService() *corev1.Service {
	return first(slices.DeleteFunc(slices.Clone(c.derived), func(s corev1.Service) bool {
		return !model.IsManaged(&s) || s.Labels[model.LabelServiceName] != c.key.Name
	}))
}

// list is that of the import; the zero value if there is none.
func (c *cluster) list() model.List {
	text := ""
	if s := c.derivedService(); s != nil {
		text = s.Annotations[model.AnnotationList]
	} else if c.imported != nil {
		text = c.imported.Annotations[model.AnnotationList]
	}
	found, _ := model.ParseList(text) // one that cannot be read is none
	return found
}

// clusters are those that were read.
type clusters struct {
	all []*cluster
	key types.NamespacedName
}

// of is the cluster of an id, or one that was not read.
func (s clusters) of(id model.ClusterID) *cluster {
	for _, c := range s.all {
		if c.ID == id {
			return c
		}
	}
	return &cluster{Site: &agent.Site{}, ID: id, key: s.key}
}

// credentials asks each cluster whether it accepts what the others have for it.
func (s clusters) credentials(ctx context.Context) {
	command.InParallel(s.all, func(_ int, c *cluster) {
		for _, p := range c.peers {
			id, secret := model.ClusterID(p.Name), &corev1.Secret{}
			other := s.exchange(s.of(id))
			if other.Target == nil || c.Target.Get(ctx, c.Agent.Namespace, p.Spec.KubeconfigSecret, secret) != nil {
				continue
			}
			config, fault := kubeconfig.Sanitize(secret.Data[kubeconfig.SecretKey])
			if fault != nil { // a condition of the Peer says it
				continue
			}
			if user, err := join.Authenticate(ctx, other.Target.Client, config.BearerToken); err == nil && user == "" {
				c.refused = append(c.refused, id)
			}
		}
	})
}

// exchange is where c publishes: its own API server, or the hub.
func (s clusters) exchange(c *cluster) *cluster {
	if c.Agent.Mode != model.ExchangeHub {
		return c
	}
	for _, other := range s.all {
		if s.isHub(other) {
			return other
		}
	}
	return &cluster{Site: &agent.Site{}, ID: "of the hub", key: s.key}
}

// isHub reports whether c has no agent, and others publish in a hub.
func (s clusters) isHub(c *cluster) bool {
	return errors.Is(c.Err, agent.ErrNotInstalled) && slices.ContainsFunc(s.all, func(c *cluster) bool { return c.Agent.Mode == model.ExchangeHub })
}
