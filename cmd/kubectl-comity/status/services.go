// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
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
		p.unread("services", mcsv1beta1.GroupVersion.String(), p.Target.Errorf("%w", err))
	}
	for i := range exports.Items {
		e := &exports.Items[i]
		s, notWell := p.addService(mcsv1beta1.ServiceExportKindName, e.ObjectMeta, e.Status.Conditions)
		isRefused := slices.ContainsFunc(notWell, func(c metav1.Condition) bool {
			return c.Type == condition.TypeValid || c.Type == condition.TypeAdmitted
		})
		for _, c := range notWell {
			if isRefused && (c.Type == condition.TypeReady || c.Reason == condition.ReasonNotPublished) {
				continue // follows from that
			}
			p.note(s, c, p.behind(c, model.List{}))
		}
	}
	for i := range imports.Items {
		p.addImport(&imports.Items[i])
	}
	p.objects.Exports, p.objects.Imports = exports.Items, imports.Items
}

// addImport notes the conditions of an import.
func (p *part) addImport(imported *mcsv1beta1.ServiceImport) {
	// Other implementations write no list. One that cannot be read is reported by the agent.
	list, _ := model.ParseList(imported.Annotations[model.AnnotationList])
	s, notWell := p.addService(mcsv1beta1.ServiceImportKindName, imported.ObjectMeta, imported.Status.Conditions)
	for _, c := range notWell {
		absent, _ := model.Find(list.Entries, func(e model.Entry) bool { return e.Absent != "" })
		clusters := []model.ClusterID{cmp.Or(p.behind(c, list), absent.Cluster)}
		switch waiting := confirm.Waiting(imported); {
		case c.Type == condition.TypeTakeoverHeld && len(waiting) > 0:
			clusters = slices.Sorted(maps.Keys(waiting))
		case c.Type == condition.TypeFrozen && len(list.Entries) > 0:
			clusters[0] = list.Entries[0].Cluster
		}
		for _, id := range clusters {
			p.note(s, c, id)
		}
	}
}

// group is the problem that several exports, or imports, have because of one cluster.
type group struct {
	problem *finding.Finding
	first   string
	count   int
}

// note reports a condition that is not as it should be. because is the cluster because of
// which it is so; empty if none is known. Of one cause there is one problem.
func (p *part) note(s Service, c metav1.Condition, because model.ClusterID) {
	if silent := p.silent[because]; silent != nil && slices.Contains(effects, c.Reason) {
		silent.Affects++
		return
	}
	state := fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason)
	cause := s.Kind + " " + state + " " + string(because)
	g := p.groups[cause]
	if g == nil {
		name := s.Namespace + "/" + s.Name
		p.groups[cause] = &group{p.problem(s.Kind+" "+name, "%s%s", state, after(c.Message)), name, 1}
		return
	}
	g.count++
	g.problem.Object = fmt.Sprintf("%d %ss, such as %s", g.count, s.Kind, g.first)
	if c.Type == condition.TypeTakeoverHeld && because != "" {
		g.problem.Message = fmt.Sprintf("%s: an export of cluster %s waits to decide them; kubectl comity confirm takeover --all --from %s --context %s",
			state, because, because, p.cluster.Context)
	}
}

// addService shows an export or an import, and gives the conditions that are not as they
// should be.
func (p *part) addService(kind string, object metav1.ObjectMeta, conditions []metav1.Condition) (s Service, notWell []metav1.Condition) {
	s = Service{Context: p.cluster.Context, Cluster: p.cluster.ID, Kind: kind, Namespace: object.Namespace, Name: object.Name, Conditions: conditions}
	p.services = append(p.services, s)
	return s, model.Without(conditions, func(c metav1.Condition) bool { return !bad(c) })
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

// behind is the silent peer that a condition of an export or import waits for; empty if it
// waits for none. list is that of an import.
func (p *part) behind(c metav1.Condition, list model.List) model.ClusterID {
	if !slices.Contains(effects, c.Reason) {
		return ""
	}
	ids := slices.Sorted(maps.Keys(p.silent))
	if len(ids) == 1 {
		return ids[0]
	}
	for _, id := range ids { // "Lost in b, c: …" is what an export says
		if _, isListed := list.Find(id); isListed || len(list.Entries) == 0 && regexp.MustCompile(`( in |, )`+string(id)+`\b`).MatchString(c.Message) {
			return id
		}
	}
	return ""
}

// causes are the problems of all parts: one for each cause, those of clusters and peers
// first. A peer whose agent does not run is an effect of that, and one that is silent to
// several clusters is one cause.
func causes(parts []*part) []finding.Finding {
	stopped := map[string]*finding.Finding{}
	for _, p := range parts {
		if p.cluster.State == NotRunning {
			stopped[p.cluster.ID] = p.problems[0] // that of the agent
		}
	}
	type key struct{ peer, reason string }
	silent := map[key]*finding.Finding{}
	var found []*finding.Finding
	for _, p := range parts {
		for _, problem := range p.problems {
			k := key{strings.TrimPrefix(problem.Object, "Peer "), problem.Reason}
			is := p.silent[model.ClusterID(k.peer)] == problem
			isHeartbeat := slices.Contains([]string{condition.ReasonLost, remote.ReasonHeartbeatMissing}, k.reason)
			switch same := silent[k]; {
			case is && isHeartbeat && stopped[k.peer] != nil:
				stopped[k.peer].Affects += 1 + problem.Affects
				continue
			case is && same != nil:
				same.Cluster += ", " + problem.Cluster
				same.Affects += problem.Affects
				continue
			case is:
				silent[k] = problem
			}
			// An import that two clusters may wait for has two causes.
			if !slices.ContainsFunc(found, func(f *finding.Finding) bool { return *f == *problem }) {
				found = append(found, problem)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *finding.Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Affects, a.Affects))
	})
	return append([]finding.Finding{}, model.Map(found, func(problem *finding.Finding) finding.Finding { return *problem })...)
}

// rank orders clusters before peers, and both before exports and imports, which have
// their causes elsewhere.
func rank(p *finding.Finding) int {
	switch {
	case strings.Contains(p.Object, mcsv1beta1.ServiceExportKindName) || strings.Contains(p.Object, mcsv1beta1.ServiceImportKindName):
		return 2
	case strings.HasPrefix(p.Object, "Peer "):
		return 1
	}
	return 0
}
