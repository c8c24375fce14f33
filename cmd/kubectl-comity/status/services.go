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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// The kinds of a Service.
const (
	kindExport = "ServiceExport"
	kindImport = "ServiceImport"
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
		notWell := p.addService(kindExport, e.ObjectMeta, e.Status.Conditions)
		isRefused := slices.ContainsFunc(notWell, func(c metav1.Condition) bool {
			return c.Type == string(mcsv1beta1.ServiceExportConditionValid) || c.Type == condition.TypeAdmitted
		})
		for _, c := range notWell {
			if isRefused && (c.Type == string(mcsv1beta1.ServiceExportConditionReady) || c.Reason == condition.ReasonNotPublished) {
				continue // follows from that
			}
			p.note(kindExport, client.ObjectKeyFromObject(e), c, p.behind(c, model.List{}))
		}
	}
	for i := range imports.Items {
		p.addImport(&imports.Items[i])
	}
	p.objects.Exports, p.objects.Imports = exports.Items, imports.Items
	p.reportWaiting()
}

// cause is what problems of many exports, or imports, have in common: the kind of object,
// the condition, and the cluster because of which it is as it is; empty if none is known.
type cause struct {
	object, condition, reason string
	cluster                   model.ClusterID
}

// waiting is a condition of one export or import that is not as it should be.
type waiting struct {
	key       types.NamespacedName
	condition metav1.Condition
}

// addImport notes the conditions of an import.
func (p *part) addImport(imported *mcsv1beta1.ServiceImport) {
	list, _ := model.ParseList(imported.Annotations[model.AnnotationList]) // none of another implementation; or the agent reports it
	for _, c := range p.addService(kindImport, imported.ObjectMeta, imported.Status.Conditions) {
		clusters := []model.ClusterID{p.behind(c, list)}
		if waiting := confirm.Waiting(imported); c.Type == condition.TypeTakeoverHeld && len(waiting) > 0 {
			clusters = sortedKeys(waiting)
		} else if c.Type == condition.TypeFrozen && len(list.Entries) > 0 {
			clusters[0] = list.Entries[0].Cluster
		} else if at := slices.IndexFunc(list.Entries, func(e model.Entry) bool { return clusters[0] == "" && e.Absent != model.SourcePublished }); at >= 0 {
			clusters[0] = list.Entries[at].Cluster
		}
		for _, id := range clusters {
			p.note(kindImport, client.ObjectKeyFromObject(imported), c, id)
		}
	}
}

// note keeps a condition that is not as it should be until all are known.
func (p *part) note(object string, key types.NamespacedName, c metav1.Condition, because model.ClusterID) {
	of := cause{object, c.Type + " is " + string(c.Status), c.Reason, because}
	p.waiting[of] = append(p.waiting[of], waiting{key, c})
}

// reportWaiting reports the problems of exports and imports: one line for each cause.
func (p *part) reportWaiting() {
	causes := slices.SortedFunc(maps.Keys(p.waiting), func(a, b cause) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.condition, b.condition), cmp.Compare(a.reason, b.reason), cmp.Compare(a.cluster, b.cluster))
	})
	for _, of := range causes {
		found := p.waiting[of]
		if silent := p.silent[of.cluster]; silent != nil && slices.Contains(effects, of.reason) {
			silent.Affects += len(found)
			continue
		}
		object, message := of.object+" "+found[0].key.String(), found[0].condition.Message
		if len(found) > 1 {
			object = fmt.Sprintf("%d %ss, such as %s", len(found), of.object, found[0].key)
		}
		if strings.HasPrefix(of.condition, condition.TypeTakeoverHeld) && of.cluster != "" && len(found) > 1 {
			message = fmt.Sprintf("an export of cluster %s waits to decide them; kubectl comity confirm takeover --all --from %s --context %s", of.cluster, of.cluster, p.cluster.Context)
		}
		message = fmt.Sprintf("%s (%s)%s", of.condition, of.reason, after(message))
		// An import that two clusters may wait for has two causes.
		if !slices.ContainsFunc(p.problems, func(f *finding.Finding) bool { return f.Object == object && f.Message == message }) {
			p.problem(object, "%s", message)
		}
	}
}

// addService shows an export or an import, and gives the conditions that are not as they
// should be.
func (p *part) addService(kind string, object metav1.ObjectMeta, conditions []metav1.Condition) []metav1.Condition {
	p.services = append(p.services, Service{
		Context: p.cluster.Context, Cluster: p.cluster.ID, Kind: kind, Namespace: object.Namespace, Name: object.Name, Conditions: conditions,
	})
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return !bad(c) })
}

// bad is true for a condition that says that something is wrong, not for one
// that is not decided yet.
func bad(c metav1.Condition) bool {
	if condition.BadWhenTrue(c.Type) {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status != metav1.ConditionTrue && c.Reason != "Pending"
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
	ids := sortedKeys(p.silent)
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
			found = append(found, problem)
		}
	}
	slices.SortStableFunc(found, func(a, b *finding.Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Affects, a.Affects))
	})
	all := []finding.Finding{}
	for _, problem := range found {
		all = append(all, *problem)
	}
	return all
}

// rank orders clusters before peers, and both before exports and imports, which have
// their causes elsewhere.
func rank(p *finding.Finding) int {
	switch {
	case strings.Contains(p.Object, kindExport) || strings.Contains(p.Object, kindImport):
		return 2
	case strings.HasPrefix(p.Object, "Peer "):
		return 1
	}
	return 0
}
