// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

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

// minExpiry is the shortest lifetime that an API server grants a token.
const minExpiry = 10 * time.Minute

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

// CheckMembers refuses what cannot be one clusterset.
func CheckMembers(members []Cluster) error {
	_, _, err := checked(nil, members)
	return err
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
				return nil, nil, fmt.Errorf("both clusters have the id %q; ids are unique in a clusterset, give one of them another", m.ID)
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
	if err != nil {
		err = fmt.Errorf("the hub: %w", err)
	}
	return &at, all, err
}

// Options adjust Connect and Disconnect. The zero value is fit for use.
type Options struct {
	// Expiry is how long a new credential is valid: DefaultExpiry if zero, at
	// least ten minutes. An API server may grant less.
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

func (o Options) withDefaults() (Options, error) {
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	if o.Expiry < minExpiry {
		return o, fmt.Errorf("expiry %s is too short; API servers grant no token of less than %s", o.Expiry, minExpiry)
	}
	if o.Progress == nil {
		o.Progress = func(Step) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// withDefaults fills in what is known without a request and validates the
// rest. It does not need RESTConfig.
func (c Cluster) withDefaults() (Cluster, error) {
	if _, err := model.ParseClusterID(string(c.ID)); err != nil {
		return c, err
	}
	if c.Set == "" {
		return c, fmt.Errorf("cluster %s: the clusterset is empty; expected the name that all members share, such as \"production\"", c.ID)
	}
	if problems := validation.IsValidLabelValue(c.Set); len(problems) > 0 {
		return c, fmt.Errorf("cluster %s: clusterset %q is not a valid label value: %s", c.ID, c.Set, strings.Join(problems, "; "))
	}
	c.Namespace, c.ServiceAccount = cmp.Or(c.Namespace, DefaultNamespace), cmp.Or(c.ServiceAccount, DefaultServiceAccount)
	if problems := validation.IsDNS1123Label(c.Namespace); len(problems) > 0 {
		return c, fmt.Errorf("cluster %s: %q is not a valid namespace name: %s", c.ID, c.Namespace, strings.Join(problems, "; "))
	}
	return c, nil
}
