// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Reader reads clusters. The zero value is fit for use.
type Reader struct {
	// Namespace limits exports and imports; all if empty.
	Namespace string
	// Later is added to the time.
	Later time.Duration
}

// Read reads all sites side by side. What cannot be read is a problem in the
// report, so there is always one. The Objects of each site are what it is of.
func (r Reader) Read(ctx context.Context, sites []*agent.Site) (Report, []Objects) {
	parts := make([]part, len(sites))
	command.InParallel(sites, func(i int, site *agent.Site) { parts[i] = r.site(ctx, site) })
	report, objects := Report{Clusters: []Cluster{}, Services: []Service{}}, []Objects{}
	for _, p := range parts {
		objects = append(objects, p.objects)
		report.Clusters = append(report.Clusters, p.cluster)
		report.Services = append(report.Services, p.services...)
	}
	report.Problems = causes(parts)
	if skew := agent.Skew(command.Version, sites); skew != "" {
		report.Problems = append(report.Problems, finding.Finding{Severity: finding.Error, Object: "versions", Message: skew})
	}
	slices.SortStableFunc(report.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	report.Healthy = len(report.Problems) == 0
	return report, objects
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

// siteTimeout bounds reading one cluster, so that one that ceases to answer is
// shown as such.
const siteTimeout = 45 * time.Second

// part is what one site contributes.
type part struct {
	cluster  Cluster
	objects  Objects
	agent    agent.Agent
	services []Service
	problems []*finding.Finding
	// listed are the imports by the clusters of which their lists have an export.
	listed map[model.ClusterID][]types.NamespacedName
	// waiting are the problems of exports and imports, those of one cause together.
	waiting map[cause][]waiting
	// silent are the problems of the peers that are not connected.
	silent map[model.ClusterID]*finding.Finding
	now    time.Time
}

func (p *part) problem(object, format string, args ...any) *finding.Finding {
	problem := &finding.Finding{Severity: finding.Error, Cluster: p.cluster.Context, Object: object, Message: fmt.Sprintf(format, args...)}
	p.problems = append(p.problems, problem)
	return problem
}

// unread notes why something was not read.
func (p *part) unread(object string, err error) {
	p.objects.Err = errors.Join(p.objects.Err, err)
	p.problem(object, "%v", err)
}

func (p *part) notServed(kinds string) {
	p.problem("definitions", "the API server does not serve %s; the chart installs it (crds.enabled, crds.mcs.enabled), see docs/install.md", kinds)
}

func (r Reader) site(ctx context.Context, site *agent.Site) part {
	p := part{cluster: Cluster{Context: site.Context}, listed: map[model.ClusterID][]types.NamespacedName{}, waiting: map[cause][]waiting{}, silent: map[model.ClusterID]*finding.Finding{}, now: time.Now().Add(r.Later)}
	if site.Target == nil {
		p.cluster.State, p.cluster.Message = Unreachable, site.Err.Error()
		p.objects = Objects{ID: site.Context, Err: site.Err}
		p.problem("cluster", "%v", site.Err)
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, siteTimeout)
	defer cancel()
	if !errors.Is(site.Err, agent.ErrNotInstalled) {
		p.agent = site.Agent
	}
	p.objects.ID = cmp.Or(string(p.agent.ID), site.Context)
	p.cluster.ID, p.cluster.ClusterSet, p.cluster.Version = string(p.agent.ID), p.agent.Set, p.agent.Version
	p.cluster.Exchange, p.cluster.Namespace = string(p.agent.Mode), p.agent.Namespace
	if site.Err != nil {
		p.cluster.State, p.cluster.Message = stateOf(site.Err), site.Err.Error()
		p.cluster.Since = timeOf(p.agent.Renewed)
		p.problem("agent", "%v", site.Err)
	} else {
		p.replicas(ctx, site.Target)
	}
	p.peers(ctx, site.Target)
	p.readServices(ctx, site.Target, r.Namespace)
	p.strangers()
	if p.lost(ctx, site.Target) && p.cluster.State == NotInstalled {
		p.cluster.State, p.cluster.Message = Hub, ""
		p.problems = slices.DeleteFunc(p.problems, func(problem *finding.Finding) bool { return problem.Object == "agent" })
	}
	return p
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// stateOf names what keeps the agent from being found.
func stateOf(err error) State {
	switch {
	case errors.Is(err, agent.ErrNotInstalled):
		return NotInstalled
	case errors.Is(err, agent.ErrNotRunning):
		return NotRunning
	}
	return Failed
}

// replicas says whether all replicas run, and since when the leader does.
func (p *part) replicas(ctx context.Context, target *command.Target) {
	p.cluster.State = Running
	for _, c := range p.agent.Pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.cluster.Since = timeOf(c.LastTransitionTime.Time)
		}
	}
	p.certificate(ctx, target)
	deployments, err := agent.Deployments(ctx, target, p.agent.Namespace)
	if err != nil {
		p.problem("agent", "%v", err)
		return
	}
	for _, d := range deployments {
		if available, want := d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1); available < want {
			p.cluster.State = Degraded
			p.cluster.Since = nil
			p.cluster.Message = fmt.Sprintf("%d of %d replicas are available", available, want)
			p.problem("agent", "Deployment %s/%s: %s; see kubectl --context %s -n %s describe pods -l %s",
				d.Namespace, d.Name, p.cluster.Message, p.cluster.Context, d.Namespace, agent.NameLabel)
		}
	}
}

// certificate reads the one that the webhook serves, in the Secret that the agent's Pod
// mounts.
func (p *part) certificate(ctx context.Context, target *command.Target) {
	secret, chain, err := agent.Certificate(ctx, target, p.agent.Pod)
	if err != nil {
		p.problem("certificate "+secret.Name, "%v", err)
	}
	if len(chain) == 0 {
		return
	}
	ends := chain[0].NotAfter
	p.cluster.Certificate = &Certificate{Name: secret.Name, Expires: timeOf(ends)}
	if !ends.After(p.now) {
		p.problem("certificate "+secret.Name, "it expired at %s; the webhook refuses every export until it is renewed", ends.UTC().Format(time.RFC3339))
	}
}
