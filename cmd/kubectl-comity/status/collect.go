// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Read reads all sites side by side: of exports and imports those of a namespace, or all if
// it is empty. What cannot be read is a problem in the report, so there is always one. The
// Objects of each site are what it is of.
func Read(ctx context.Context, sites []*agent.Site, namespace string, now time.Time) (Report, []Objects) {
	parts := make([]*part, len(sites))
	command.InParallel(sites, func(i int, site *agent.Site) {
		parts[i] = newPart(site, now)
		parts[i].read(ctx, namespace)
	})
	report := Report{Clusters: []Cluster{}, Services: []Service{}, Problems: causes(parts)}
	for _, p := range parts {
		report.Clusters = append(report.Clusters, p.cluster)
		report.Services = append(report.Services, p.services...)
	}
	if skew := agent.Skew(sites); skew != "" {
		report.Problems = append(report.Problems, finding.Finding{Severity: finding.Error, Object: "versions", Message: skew})
	}
	slices.SortStableFunc(report.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	report.Healthy = len(report.Problems) == 0
	return report, model.Map(parts, func(p *part) Objects { return p.objects })
}

// Objects are what one cluster has.
type Objects struct {
	// ID is that of the cluster, or else the context.
	ID        string
	Peers     []v1alpha1.Peer
	Exports   []mcsv1beta1.ServiceExport
	Imports   []mcsv1beta1.ServiceImport
	Published []confirm.Record
	// Err is why something was not read, but for what the API server does not serve.
	Err error
}

// part is what one site contributes.
type part struct {
	*agent.Site
	agent    finding.Finding
	cluster  Cluster
	objects  Objects
	services []Service
	problems []*problem
	// silent are the peers that are not connected, as causes of others.
	silent map[model.ClusterID]cause
	now    time.Time
}

func newPart(site *agent.Site, now time.Time) *part {
	p := &part{Site: site, agent: Agent(site), now: now, silent: map[model.ClusterID]cause{}}
	p.cluster = Cluster{Context: site.Context, State: State(p.agent.Reason), Since: p.agent.Since, Message: p.agent.Message}
	if a := site.Agent; p.cluster.State != NotInstalled {
		p.cluster.ID, p.cluster.ClusterSet, p.cluster.Version, p.cluster.Exchange, p.cluster.Namespace = string(a.ID), a.Set, a.Version, string(a.Mode), a.Namespace
	}
	p.objects.ID = p.cluster.Name()
	return p
}

func (p *part) problem(object, format string, args ...any) *problem {
	f := finding.Finding{Severity: finding.Error, Cluster: p.cluster.Context, Object: object, Message: fmt.Sprintf(format, args...)}
	added := &problem{f, cause{f.Cluster + " " + object, f.Message}}
	p.problems = append(p.problems, added)
	return added
}

// unread notes why objects were not read. Kinds that the API server does not serve are a
// problem only where an agent is installed.
func (p *part) unread(object string, err error) {
	switch {
	case meta.IsNoMatchError(err) && p.cluster.State == NotInstalled: // which is a problem already
	case meta.IsNoMatchError(err):
		p.problem("definitions", "%v; the chart installs it (crds.enabled, crds.mcs.enabled), see docs/install.md", err)
	default:
		p.objects.Err = errors.Join(p.objects.Err, err)
		p.problem(object, "%v", err)
	}
}

// siteTimeout bounds reading one cluster, so that one that ceases to answer is
// shown as such.
const siteTimeout = 45 * time.Second

func (p *part) read(ctx context.Context, namespace string) {
	if p.Target == nil {
		p.unread("cluster", p.Err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, siteTimeout)
	defer cancel()
	if p.Err == nil {
		p.certificate(ctx)
	}
	p.peers(ctx)
	p.readServices(ctx, namespace)
	p.strangers()
	if p.lost(ctx) && p.cluster.State == NotInstalled {
		p.cluster.State, p.cluster.Message = Hub, ""
	} else if p.agent.Severity != finding.OK {
		added := p.problem("agent", "%s", p.agent.Message)
		added.Fix, added.cause = p.agent.Fix, agentOf(p.cluster.Name())
	}
}

// certificate reads the one that the webhook serves, in the Secret that the agent's Pod
// mounts.
func (p *part) certificate(ctx context.Context) {
	secret, chain, err := agent.Certificate(ctx, p.Target, p.Agent.Pod)
	if err != nil {
		p.problem("certificate "+secret.Name, "%v", err)
	}
	if len(chain) == 0 {
		return
	}
	ends := chain[0].NotAfter
	p.cluster.CertificateExpires = timeOf(ends)
	if !ends.After(p.now) {
		p.problem("certificate "+secret.Name, "it expired at %s; the webhook refuses every export until it is renewed", ends.UTC().Format(time.RFC3339))
	}
}

// peerConditions are those that should be true of a Peer, in the order in which they are shown.
var peerConditions = []string{
	v1alpha1.PeerAccepted, v1alpha1.PeerConnected, v1alpha1.PeerRecordsValid, v1alpha1.PeerWithinLimits, v1alpha1.PeerComplete,
}

// connectTime is how long it is no problem that the agent connects to a peer.
const connectTime = time.Minute

// peers reads the Peers and their conditions.
func (p *part) peers(ctx context.Context) {
	var found v1alpha1.PeerList
	if err := p.Target.Client.List(ctx, &found); err != nil {
		p.unread("peers", p.Target.Errorf("read the Peers: %w", err))
	}
	p.objects.Peers = found.Items
	slices.SortFunc(found.Items, func(a, b v1alpha1.Peer) int { return cmp.Compare(a.Name, b.Name) })
	for i := range found.Items {
		p.addPeer(&found.Items[i])
	}
}

// addPeer shows a Peer, and as problems what is not as it should be.
func (p *part) addPeer(peer *v1alpha1.Peer) {
	state, why := p.stateOfPeer(peer)
	p.cluster.Peers = append(p.cluster.Peers, Peer{
		ID: peer.Name, State: state, Since: timeOf(why.LastTransitionTime.Time), Message: why.Message,
		Version: peer.Status.Version, TokenExpires: peer.Status.TokenExpires, Exports: peer.Status.Exports,
	})
	object := "Peer " + peer.Name
	switch {
	case peer.Spec.Removed:
		p.problem(object, "%s%s", Leaving, after(why.Message)).Fix = p.leave("when it is done, repeat: ", peer.Name)
		return
	case state == Unknown && p.Agent.Pod != nil && p.now.Sub(peer.CreationTimestamp.Time) > connectTime:
		p.problem(object, "the agent has not set condition %s of the Peer yet", v1alpha1.PeerConnected)
	}
	for _, kind := range peerConditions {
		c := meta.FindStatusCondition(peer.Status.Conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		isEffect := kind == v1alpha1.PeerConnected && state == NotUsed // what is not accepted is not connected
		isPending := c.Status == metav1.ConditionUnknown && p.now.Sub(c.LastTransitionTime.Time) < connectTime
		if !isEffect && !isPending {
			added := p.problem(object, "%s is %s (%s)%s", c.Type, c.Status, c.Reason, after(c.Message))
			added.Reason, added.cause = c.Reason, cause{object, c.Reason}
			if id := model.ClusterID(peer.Name); state != Connected && state != Drained {
				p.silent[id] = cmp.Or(p.silent[id], added.cause)
			}
		}
	}
}

// stateOfPeer is the state of the connection to a peer as one word: Connected, or why it is
// not; and the condition that says so, empty if there is none.
func (p *part) stateOfPeer(peer *v1alpha1.Peer) (State, metav1.Condition) {
	find := func(kind string) metav1.Condition {
		return ptr.Deref(meta.FindStatusCondition(peer.Status.Conditions, kind), metav1.Condition{})
	}
	accepted, connected, drained := find(v1alpha1.PeerAccepted), find(v1alpha1.PeerConnected), find(v1alpha1.PeerDrained)
	switch {
	case p.Agent.Pod == nil: // nobody has brought the status up to date
		return Unknown, metav1.Condition{}
	case peer.Spec.Removed:
		return Leaving, find(v1alpha1.PeerRemoved)
	case connected.Status == metav1.ConditionTrue && drained.Type != "":
		return Drained, drained
	case connected.Status == metav1.ConditionTrue: // a refused change of the Peer leaves the former in use
		return Connected, metav1.Condition{LastTransitionTime: connected.LastTransitionTime}
	case accepted.Status == metav1.ConditionFalse:
		return NotUsed, accepted
	}
	return State(cmp.Or(connected.Reason, string(Unknown))), connected
}

// leave is the advice to remove a cluster here.
func (p *part) leave(advice, id string) string {
	return finding.Fill(advice+"kubectl comity leave --id "+id+" {here}", p.Agent.Mode, "{here}", p.cluster.Context)
}

// strangers reports the clusters that lists of imports name and that have no Peer: they
// are not read, and what was imported from them stays.
func (p *part) strangers() {
	for i := range p.objects.Imports {
		imported := &p.objects.Imports[i]
		for _, id := range model.Listed(imported) {
			// Without an agent, it is not known which of them is the cluster itself.
			if p.cluster.ID == "" || string(id) == p.cluster.ID || slices.ContainsFunc(p.cluster.Peers, func(peer Peer) bool { return peer.ID == string(id) }) {
				continue
			}
			added := p.problem("Peer "+string(id), "there is no Peer; what is imported from the cluster stays, such as %s", client.ObjectKeyFromObject(imported))
			added.Fix, added.cause = p.leave("join it again, or: ", string(id)), cause{p.cluster.Context + " " + added.Object, "no Peer"}
		}
	}
}

// lost reports the exports that a restore lost, as one problem for each cluster that publishes
// here. It reports whether the cluster is a hub, in which several members publish.
func (p *part) lost(ctx context.Context) (isHub bool) {
	published, isHub, err := confirm.Published(ctx, p.Target.Client)
	if err != nil {
		p.unread("exports", p.Target.Errorf("%w", err))
	}
	p.objects.Published = published
	reported := sets.New[string]()
	for _, record := range published {
		export := fmt.Sprintf("%s of cluster %s", record.Service(), record.From)
		if !record.IsLost() || reported.Has(export) {
			continue
		}
		reported.Insert(export)
		added := p.problem("exports of cluster "+string(record.From), "Lost: their ServiceExports disappeared with a restore, and they stay published, such as %s", record.Service())
		added.Fix = "create these again, or: kubectl comity confirm lost --all --context " + p.cluster.Context
		added.cause = cause{p.cluster.Context + " " + added.Object, "Lost"}
	}
	return isHub
}

// after is a text behind a colon; empty if there is none.
func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
