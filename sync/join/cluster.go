// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/model"
)

// Defaults of the fields of Cluster and Options.
const (
	// DefaultNamespace is Comity's namespace.
	DefaultNamespace = "comity-system"
	// DefaultServiceAccount is the account that the agent runs as.
	DefaultServiceAccount = "comity"
	// DefaultExpiry is how long a new credential is valid.
	DefaultExpiry = 24 * time.Hour
)

// HubID is what the hub is called in routes, steps, errors and kubeconfigs.
const HubID model.ClusterID = "hub"

// Cluster is a member to be joined, or the hub: the API server that all members use as
// their exchange, of which only Namespace, RESTConfig, Server and CAData are needed. Nothing is
// imported there, and Comity need not run there; but it may be that of a member.
type Cluster struct {
	// ID is the cluster's id: one RFC 1123 label (KEP-2149). Required.
	ID model.ClusterID
	// Set is the clusterset that the cluster belongs to: a label value. Required,
	// and the same on both sides.
	Set string
	// Namespace is Comity's namespace there; DefaultNamespace if empty.
	Namespace string
	// ServiceAccount is the account in Namespace that the agent runs as;
	// DefaultServiceAccount if empty.
	ServiceAccount string
	// RESTConfig is an administrator's access to the cluster.
	RESTConfig *rest.Config
	// Server is the https URL by which the *other* cluster reaches this one's API
	// server; that of RESTConfig if empty.
	Server string
	// CAData is the PEM bundle that verifies Server; that of RESTConfig if empty.
	CAData []byte
	// PodCIDRs and ServiceCIDRs are the address ranges of this cluster's Pods and
	// Services; if nil, what the cluster itself says: kubeadm's pod subnet, the
	// Nodes' podCIDRs, and the ServiceCIDR objects.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	// AcceptedCIDRs are the address ranges that the others accept from this cluster; none
	// at all if empty. nil means the PodCIDRs; while those are nil too, what was accepted
	// before stays.
	AcceptedCIDRs []netip.Prefix
	// AcceptedNamespaces are the namespaces whose exports the others import from this
	// cluster. If nil, what was accepted before stays; at first all namespaces are.
	AcceptedNamespaces []string
	// Unattended is true if no agent runs there, so that Disconnect does not wait for it.
	Unattended bool

	isHub bool
}

// checked fills in defaults and refuses what cannot be one clusterset. A nil hub stays nil.
func checked(hub *Cluster, members []Cluster) (*Cluster, []Cluster, error) {
	all := make([]Cluster, len(members))
	for i, m := range members {
		var err error
		if all[i], err = m.withDefaults(); err != nil {
			return nil, nil, err
		}
		for _, other := range all[:i] {
			switch {
			case other.ID == m.ID:
				return nil, nil, fmt.Errorf("two clusters have the id %q; ids are unique in a clusterset, give one of them another", m.ID)
			case other.Set != m.Set:
				return nil, nil, fmt.Errorf("cluster %s belongs to clusterset %q and cluster %s to %q; only members of one set can be joined", other.ID, other.Set, m.ID, m.Set)
			}
		}
	}
	if hub == nil || len(all) == 0 {
		return hub, all, nil
	}
	at := *hub
	at.ID, at.Set, at.isHub = HubID, members[0].Set, true
	if slices.ContainsFunc(members, func(m Cluster) bool { return m.ID == HubID }) {
		return nil, nil, fmt.Errorf("the hub: a member has the id %q, which is that of the hub; install Comity there with another id", HubID)
	}
	at, err := at.withDefaults()
	return &at, all, err
}

// Options adjust Prepare and Disconnect. The zero value is fit for use.
type Options struct {
	// Expiry is how long a new credential is valid: DefaultExpiry if zero. API servers refuse
	// less than ten minutes, and may grant less than what is asked.
	Expiry time.Duration
	// Rotate replaces credentials even if they are valid for long enough, and
	// creates their accounts again, so that no old one is valid.
	Rotate bool
	// ReadOnly leaves out the check of the rights to write: Write is not called.
	ReadOnly bool
	// DryRun reports what would be done and writes nothing.
	DryRun bool
	// AllowOverlap joins clusters although addresses of the one are in a range
	// of the other. Endpoints in such a range are still not imported.
	AllowOverlap bool
	// Replace accepts clusters that were made again: a Peer gets the UID of the cluster
	// that has its id now, and accounts of the cluster before are made again, so that no
	// token of it is valid.
	Replace bool
	// Progress is called for every object, in the order of work; nil calls nothing.
	Progress func(Step)
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	if o.Progress == nil {
		o.Progress = func(Step) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// withDefaults fills in what is known without a request. It does not need RESTConfig.
func (c Cluster) withDefaults() (Cluster, error) {
	c.Namespace, c.ServiceAccount = cmp.Or(c.Namespace, DefaultNamespace), cmp.Or(c.ServiceAccount, DefaultServiceAccount)
	_, err := model.ParseClusterID(string(c.ID))
	return c, err
}

// named is err, if it is not nil, with the name of the cluster.
func (c Cluster) named(err error) error {
	switch {
	case err == nil:
		return nil
	case c.isHub:
		return fmt.Errorf("the hub: %w", err)
	}
	return fmt.Errorf("cluster %s: %w", c.ID, err)
}

// Ranges are the addresses that the Pods and Services of a cluster get.
type Ranges struct {
	Pods, Services []netip.Prefix
	// Source says where Pods come from, for a reader.
	Source string
}

// RangesOf finds out the ranges of a cluster: those given, else what the cluster says of
// itself. There may be no range of Pods. It needs the RESTConfig and an ID for messages.
func RangesOf(ctx context.Context, c Cluster) (Ranges, error) {
	m, err := open(c, Options{})
	if err != nil {
		return Ranges{}, err
	}
	err = m.named(m.learn(ctx))
	return m.ranges, err
}

// learn finds out m's ranges: those given, else what the cluster says of itself.
func (m *member) learn(ctx context.Context) error {
	m.ranges = Ranges{Pods: m.PodCIDRs, Services: m.ServiceCIDRs, Source: "the pod ranges given"}
	if m.PodCIDRs != nil && m.ServiceCIDRs != nil {
		return nil
	}
	config, err := m.kubeadmConfig(ctx)
	if err != nil {
		return err
	}
	if m.PodCIDRs == nil {
		// The range of the whole cluster covers Nodes that are still to come; only kubeadm
		// writes it down. What Nodes have beyond it counts too.
		whole := model.ReadPrefixes(config.Networking["podSubnet"])
		m.ranges.Pods, m.ranges.Source = whole, "the pod subnet of the cluster"
		var nodes corev1.NodeList
		if err := m.client.List(ctx, &nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			for _, prefix := range model.ReadPrefixes(nodes.Items[i].Spec.PodCIDRs...) {
				if !covered(prefix, whole) {
					m.ranges.Pods = append(m.ranges.Pods, prefix)
					m.ranges.Source = "the pod ranges of its nodes; pass --pod-cidrs with the range of the whole cluster if nodes may be added"
				}
			}
		}
	}
	if m.ServiceCIDRs != nil {
		return nil
	}
	var list networkingv1.ServiceCIDRList // which exist from Kubernetes 1.33 on
	err = m.client.List(ctx, &list)
	for i := range list.Items {
		m.ranges.Services = append(m.ranges.Services, model.ReadPrefixes(list.Items[i].Spec.CIDRs...)...)
	}
	if !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return err
	}
	// Else what kubeadm wrote down. Not to know them would skip a check.
	if m.ranges.Services = model.ReadPrefixes(config.Networking["serviceSubnet"]); len(m.ranges.Services) == 0 {
		return fmt.Errorf("the Service range of cluster %s is not known; pass the API server's --service-cluster-ip-range as --service-cidrs %s=10.96.0.0/12", m.ID, m.ID)
	}
	return nil
}

// kubeadmConfig is what kubeadm wrote down of the cluster that it made.
type kubeadmConfig struct {
	ControlPlaneEndpoint string            `json:"controlPlaneEndpoint"`
	Networking           map[string]string `json:"networking"`
}

// kubeadmConfig is empty if another tool made the cluster.
func (m *member) kubeadmConfig(ctx context.Context) (config kubeadmConfig, err error) {
	var stored corev1.ConfigMap
	if err := m.get(ctx, metav1.NamespaceSystem, "kubeadm-config", &stored); err != nil {
		return config, client.IgnoreNotFound(err)
	}
	_ = yaml.Unmarshal([]byte(stored.Data["ClusterConfiguration"]), &config) // it is kubeadm's to read; there are other sources
	return config, nil
}

// Overlap says which ranges of two clusters overlap such that Pods could have the same
// address as a Pod or Service of the other: packets to such a Pod would never leave the
// node's own cluster. It is empty if none do. Service ranges may be the same in both, as
// they are by default in most clusters: no address of a Service is ever given to another
// cluster.
func Overlap(a, b model.ClusterID, ofA, ofB Ranges) string {
	for _, c := range []struct {
		kindA, kindB   string
		rangeA, rangeB []netip.Prefix
	}{
		{"pod", "pod", ofA.Pods, ofB.Pods},
		{"pod", "service", ofA.Pods, ofB.Services},
		{"service", "pod", ofA.Services, ofB.Pods},
	} {
		for _, one := range c.rangeA {
			for _, other := range c.rangeB {
				if one.Overlaps(other) {
					return fmt.Sprintf("the %s range %s of cluster %s overlaps the %s range %s of cluster %s", c.kindA, one, a, c.kindB, other, b)
				}
			}
		}
	}
	return ""
}

// acceptedFrom decides which addresses of peer are accepted, and says so if that is new.
// stored is what the Peer says now.
func acceptedFrom(peer *member, stored []string) (accepted []string, note string, err error) {
	accepted, source := formatCIDRs(peer.ranges.Pods), peer.ranges.Source
	switch {
	case peer.AcceptedCIDRs != nil:
		accepted, source = formatCIDRs(peer.AcceptedCIDRs), "the ranges given"
	case peer.PodCIDRs == nil && len(stored) > 0:
		return stored, "", nil
	case len(accepted) == 0:
		err = fmt.Errorf("no pod range of cluster %s is known; pass the addresses that its Pods have as --pod-cidrs %s=10.20.0.0/16", peer.ID, peer.ID)
	}
	if !slices.Equal(accepted, stored) {
		note = fmt.Sprintf("accepts %s from %s, %s", cmp.Or(strings.Join(accepted, ","), "no address"), peer.ID, source)
	}
	return accepted, note, err
}

// covered reports whether every address of a range is in one of others.
func covered(inner netip.Prefix, others []netip.Prefix) bool {
	return slices.ContainsFunc(others, func(outer netip.Prefix) bool {
		return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
	})
}
