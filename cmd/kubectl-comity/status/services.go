// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// readServices reads exports and imports, and which of them are not well.
func (p *part) readServices(ctx context.Context, namespace string) {
	var exports mcsv1beta1.ServiceExportList
	var imports mcsv1beta1.ServiceImportList
	within := client.InNamespace(namespace)
	if err := cmp.Or(p.Target.Client.List(ctx, &exports, within), p.Target.Client.List(ctx, &imports, within)); err != nil {
		p.unread("services", p.Target.Errorf("%w", err))
	}
	for i := range exports.Items {
		p.addService(mcsv1beta1.ServiceExportKindName, &exports.Items[i], exports.Items[i].Status.Conditions)
	}
	for i := range imports.Items {
		p.addService(mcsv1beta1.ServiceImportKindName, &imports.Items[i], imports.Items[i].Status.Conditions)
	}
	p.objects.Exports, p.objects.Imports = exports.Items, imports.Items
}

// addService shows an export or an import, and as problems the conditions that are not as they
// should be.
func (p *part) addService(kind string, object client.Object, conditions []metav1.Condition) {
	// Other implementations write no list. One that cannot be read is reported by the agent.
	list, _ := model.ParseList(object.GetAnnotations()[model.AnnotationList])
	p.services = append(p.services, Service{p.cluster.Context, p.cluster.ID, kind, object.GetNamespace(), object.GetName(), conditions})
	isRefused := slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return bad(c) && (c.Type == condition.TypeValid || c.Type == condition.TypeAdmitted)
	})
	for _, c := range conditions {
		if !bad(c) || isRefused && (c.Type == condition.TypeReady || c.Reason == condition.ReasonNotPublished) {
			continue // the latter follows from that
		}
		state := fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason)
		because := p.because(c, list, conditions)
		noted := p.problem(kind+" "+client.ObjectKeyFromObject(object).String(), "%s%s", state, after(c.Message))
		noted.Reason, noted.cause = c.Reason, cause{p.cluster.Context + " " + kind + " " + string(because), state}
		if silent, is := p.silent[because]; is && slices.Contains(effects, c.Reason) {
			noted.cause = silent
		}
		if c.Type == condition.TypeTakeoverHeld && because != "" {
			noted.Fix = fmt.Sprintf("kubectl comity confirm takeover --all --from %s --context %s", because, p.cluster.Context)
		}
	}
}

// bad is true for a condition that says that something is wrong, not for one
// that is not decided yet.
func bad(c metav1.Condition) bool {
	return (c.Status == metav1.ConditionTrue) == condition.BadWhenTrue(c.Type) && c.Reason != model.ReasonPending
}

// effects are the reasons of exports and imports that wait for a peer which is not connected.
var effects = []string{
	condition.ReasonLost, condition.ReasonWithdrawn, model.ReasonUnreachable, model.ReasonFrozen, string(model.SourceNotRead),
}

// because is the cluster because of which a condition of an export or import is not as it
// should be; empty if none is known. list is that of an import.
func (p *part) because(c metav1.Condition, list model.List, conditions []metav1.Condition) model.ClusterID {
	if waiting := slices.Sorted(maps.Keys(confirm.Waiting(list, conditions))); c.Type == condition.TypeTakeoverHeld && len(waiting) > 0 {
		return waiting[0]
	}
	if c.Type == condition.TypeFrozen && len(list.Entries) > 0 {
		return list.Entries[0].Cluster
	}
	if silent := slices.Sorted(maps.Keys(p.silent)); slices.Contains(effects, c.Reason) && len(silent) > 0 {
		named := slices.IndexFunc(silent, func(id model.ClusterID) bool { return strings.Contains(c.Message, " "+string(id)) })
		return silent[max(named, 0)]
	}
	absent, _ := model.Find(list.Entries, func(e model.Entry) bool { return e.Absent != "" })
	return absent.Cluster
}

// problem is what is wrong. Those with the same cause are shown as one.
type problem struct {
	finding.Finding
	cause cause
}

// cause is an object with its state, or several objects with the same state.
type cause struct{ object, state string }

// causes are the problems of all parts: one for each cause, those of clusters and peers
// first. A peer whose agent does not run is an effect of that, and one that is silent to
// several clusters is one cause.
func causes(parts []*part) []finding.Finding {
	all := slices.Concat(model.Map(parts, func(p *part) []*problem { return p.problems })...)
	byRank := func(a, b *problem) int { return cmp.Compare(rank(a), rank(b)) }
	slices.SortStableFunc(all, byRank)
	known := map[cause]*problem{}
	var found []*problem
	for _, p := range all {
		stopped := known[agentOf(strings.TrimPrefix(p.cause.object, "Peer "))]
		if stopped != nil && slices.Contains([]string{condition.ReasonLost, remote.ReasonHeartbeatMissing}, p.cause.state) {
			p.cause = stopped.cause
		}
		switch same := known[p.cause]; {
		case same == nil:
			known[p.cause], found = p, append(found, p)
		case same.Object == p.Object && same.Cluster != p.Cluster:
			same.Cluster += ", " + p.Cluster
		default:
			same.Affects++
		}
	}
	slices.SortStableFunc(found, func(a, b *problem) int { return cmp.Or(byRank(a, b), cmp.Compare(b.Affects, a.Affects)) })
	return append([]finding.Finding{}, model.Map(found, func(p *problem) finding.Finding { return p.Finding })...)
}

// agentOf is the cause of what follows from an agent that does not run.
func agentOf(cluster string) cause { return cause{"agent of cluster " + cluster, ""} }

// rank orders clusters before peers, and both before exports and imports, which have
// their causes elsewhere.
func rank(p *problem) int {
	switch kind, _, _ := strings.Cut(p.Object, " "); kind {
	case mcsv1beta1.ServiceExportKindName, mcsv1beta1.ServiceImportKindName:
		return 2
	case "Peer":
		return 1
	}
	return 0
}
