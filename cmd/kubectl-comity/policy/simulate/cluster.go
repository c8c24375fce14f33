// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// pageSize bounds one answer of the API server.
const pageSize = 500

// Flags of the agent: the policies that must exist, and whether it imports.
const (
	requiredFlag = "--require-policies"
	importFlag   = "--import"
)

// cluster is what was read of one cluster.
type cluster struct {
	target *command.Target
	// agent is that of the cluster; its ID is empty in a hub that is no member.
	agent agent.Agent
	// required are the names of the agent's --require-policies, importing its --import.
	required  []string
	importing bool

	policies   []v1alpha1.ExportPolicy
	exports    []mcsv1beta1.ServiceExport
	services   map[types.NamespacedName]*corev1.Service
	namespaces map[string]*corev1.Namespace
	imports    map[types.NamespacedName]*mcsv1beta1.ServiceImport
	// members are the peers by id, with the labels of their Peers; accepted are the
	// namespaces of which exports are imported from each, nil for all.
	members  []model.Member
	accepted map[model.ClusterID]model.Namespaces
	// exchange is what is published in this API server. That of all clusters together
	// is in shared.
	exchange *exchanged
	shared   *exchanged
}

// readAll reads the clusters side by side. Those that are no members, which a hub may
// be, are read and not returned.
func readAll(ctx context.Context, targets []*command.Target) ([]*cluster, error) {
	clusters, errs := make([]*cluster, len(targets)), make([]error, len(targets))
	var reading sync.WaitGroup
	for i, target := range targets {
		reading.Go(func() { clusters[i], errs[i] = read(ctx, target) })
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	shared := newExchanged()
	for _, c := range clusters {
		shared.add(c.exchange)
	}
	members := slices.DeleteFunc(clusters, func(c *cluster) bool { return c.agent.ID == "" })
	if len(members) == 0 {
		return nil, errors.New("no agent of Comity runs in any of the clusters, so none is a member of a clusterset; " +
			"expected the context of at least one member (see kubectl comity status)")
	}
	for _, c := range members {
		c.shared = shared
	}
	return members, nil
}

// read reads what the policies of one cluster are given.
func read(ctx context.Context, target *command.Target) (*cluster, error) {
	c := &cluster{
		target: target, services: map[types.NamespacedName]*corev1.Service{}, namespaces: map[string]*corev1.Namespace{},
		imports: map[types.NamespacedName]*mcsv1beta1.ServiceImport{},
	}
	err := list(ctx, target, func(page *corev1.NamespaceList) {
		for i := range page.Items {
			c.namespaces[page.Items[i].Name] = &page.Items[i]
		}
	})
	if err != nil {
		return nil, err
	}
	if c.exchange, err = readExchanged(ctx, target, c.namespaces); err != nil {
		return nil, err
	}
	c.agent, err = agent.Find(ctx, target)
	switch {
	case errors.Is(err, agent.ErrNotInstalled) && len(c.exchange.published) > 0:
		return c, nil // a hub
	case errors.Is(err, agent.ErrNotRunning) && c.agent.ID != "":
		// What the last leader stated is enough.
	case err != nil:
		return nil, err
	}
	for _, value := range flagValues(c.agent.Container, requiredFlag) {
		c.required = append(c.required, strings.Split(value, ",")...)
	}
	c.importing = !slices.Contains(flagValues(c.agent.Container, importFlag), "false")
	if c.members, c.accepted, err = readMembers(ctx, target, c.agent); err != nil {
		return nil, err
	}
	return c, c.readObjects(ctx)
}

// readObjects reads policies, exports, imports and Services.
func (c *cluster) readObjects(ctx context.Context) error {
	err := list(ctx, c.target, func(page *v1alpha1.ExportPolicyList) { c.policies = append(c.policies, page.Items...) })
	if err != nil {
		return err
	}
	// As the agent loads them: of two with one package, the older is in use.
	slices.SortFunc(c.policies, func(a, b v1alpha1.ExportPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	err = list(ctx, c.target, func(page *mcsv1beta1.ServiceExportList) { c.exports = append(c.exports, page.Items...) })
	if err != nil {
		return err
	}
	err = list(ctx, c.target, func(page *mcsv1beta1.ServiceImportList) {
		for i := range page.Items {
			c.imports[client.ObjectKeyFromObject(&page.Items[i])] = &page.Items[i]
		}
	})
	if err != nil {
		return err
	}
	return list(ctx, c.target, func(page *corev1.ServiceList) {
		for i := range page.Items {
			c.services[client.ObjectKeyFromObject(&page.Items[i])] = &page.Items[i]
		}
	})
}

// readMembers reads the members from the Peers, and the namespaces accepted from each.
func readMembers(ctx context.Context, target *command.Target, installed agent.Agent) ([]model.Member, map[model.ClusterID]model.Namespaces, error) {
	var members []model.Member
	accepted := map[model.ClusterID]model.Namespaces{}
	err := list(ctx, target, func(page *exchangev1alpha1.PeerList) {
		for i := range page.Items {
			peer := &page.Items[i]
			if peer.Spec.Removed || peer.DeletionTimestamp != nil || peer.Name == string(installed.ID) {
				continue
			}
			member := model.Member{ID: model.ClusterID(peer.Name)}
			if peer.Spec.ClusterSet == installed.Set {
				member.Labels = peer.Labels // those of a Peer that the agent refuses are not used
			}
			if limit := peer.Spec.AcceptedNamespaces; limit != nil {
				accepted[member.ID] = append(model.Namespaces{}, *limit...)
			}
			members = append(members, member)
		}
	})
	slices.SortFunc(members, func(a, b model.Member) int { return cmp.Compare(a.ID, b.ID) })
	return members, accepted, err
}

// flagValues are the values of a flag of the agent, in its container; none if it does
// not run.
func flagValues(container corev1.Container, flag string) (values []string) {
	args := slices.Concat(container.Command, container.Args)
	for i, arg := range args {
		value, found := strings.CutPrefix(arg, flag+"=")
		if arg == flag && i+1 < len(args) {
			value, found = args[i+1], true
		}
		if found && value != "" {
			values = append(values, value)
		}
	}
	return values
}

// list reads all pages of a list and gives each to take, which may keep what is in it.
// A kind that is not served has no objects.
func list[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, target *command.Target, take func(page P)) error {
	for token := ""; ; {
		page := P(new(L))
		err := target.Client.List(ctx, page, client.Limit(pageSize), client.Continue(token))
		switch {
		case meta.IsNoMatchError(err):
			return nil
		case err != nil:
			return target.Errorf("%w", err)
		}
		take(page)
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}
