// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// checker asks of every single write whether it may be made. It goes by what it
// saw happen since the world began, not by what objects say of themselves.
type checker struct {
	world     *World
	origins   map[types.UID]*origin
	processes map[string]process // by actor
	// vanished is when records of exports were deleted, by whoever did it.
	vanished map[exportedBy][]time.Time
	// out are sources that the list of an import has as withdrawn or refused, and of which the
	// process that wrote so had read that.
	out map[sourceOf]bool
	// written are the ServiceImports that a reconcile wrote, as it found and left them.
	written map[written][2]*mcsv1beta1.ServiceImport
}

// origin is where an object came from.
type origin struct {
	ours bool
	// Of an imported object: what it was made for.
	key     types.NamespacedName
	cluster model.ClusterID
	source  string
	// meddled is true once a user took off or changed what says so.
	meddled bool
}

type process struct {
	*agent.Process
	cluster *Cluster
}

func newChecker(w *World) *checker {
	return &checker{world: w, origins: map[types.UID]*origin{}, processes: map[string]process{}, vanished: map[exportedBy][]time.Time{}, out: map[sourceOf]bool{}, written: map[written][2]*mcsv1beta1.ServiceImport{}}
}

func (k *checker) process(actor string, c *Cluster, p *agent.Process) {
	k.processes[actor] = process{p, c}
}

func (k *checker) wrote(c *Cluster, write apiserver.Write) {
	k.gone(c, write)
	p, byAgent := k.processes[write.Actor]
	if !byAgent {
		k.byOthers(write)
		return
	}
	k.lists(p, write)
	if p.cluster != c {
		k.world.fail("I4: %s wrote %s in cluster %s", write.Actor, write.Ref, c.ID)
	}
	if write.Before == nil {
		if strings.HasPrefix(write.Ref.Namespace, "kube-") || write.Ref.Namespace == "comity-system" {
			k.world.fail("I1: %s created %s", write.Actor, write.Ref)
		}
		k.mayImport(p, write)
		k.origins[write.After.GetUID()] = &origin{ours: true, key: p.Seen.Key}
		k.made(write)
		k.writes(write)
		return
	}
	from := k.origins[write.Before.GetUID()]
	if !from.ours {
		k.world.fail("I1: %s wrote %s (%s), which is not Comity's", write.Actor, write.Ref, write.Verb())
	}
	switch {
	case strings.HasPrefix(write.Ref.Namespace, "comity-"):
		k.mayWithdraw(p, write)
	case !from.meddled && !write.Status:
		k.mayGo(p, write, from)
	}
	k.made(write)
	k.writes(write)
}

// mayImport is I6: what import policies deny, or could not evaluate, is not newly
// imported.
func (k *checker) mayImport(p process, write apiserver.Write) {
	s, is := write.After.(*discoveryv1.EndpointSlice)
	if !is || strings.HasPrefix(write.Ref.Namespace, "comity-") {
		return
	}
	if outcome := verdictOn(p, clusterOf(s)); outcome != decision.Allowed {
		k.world.fail("I6: %s created %s, but import policies say %s of cluster %s", write.Actor, write.Ref, outcome, clusterOf(s))
	}
}

// made notes what an agent made an imported slice for.
func (k *checker) made(write apiserver.Write) {
	if s, is := write.After.(*discoveryv1.EndpointSlice); is {
		o := k.origins[s.UID]
		o.cluster, o.source, o.meddled = clusterOf(s), s.Annotations[model.AnnotationSourceSlice], false
	}
}

// byOthers notes what a user did.
func (k *checker) byOthers(write apiserver.Write) {
	switch {
	case write.Before == nil:
		k.origins[write.After.GetUID()] = &origin{}
	case write.After != nil:
		o := k.origins[write.After.GetUID()]
		o.ours = o.ours && model.IsManaged(write.After)
		for _, label := range []string{model.LabelServiceName, model.LabelSourceCluster} {
			o.meddled = o.meddled || write.Before.GetLabels()[label] != write.After.GetLabels()[label]
		}
		o.meddled = o.meddled || write.Before.GetAnnotations()[model.AnnotationSourceSlice] != write.After.GetAnnotations()[model.AnnotationSourceSlice]
	}
}

// mayWithdraw is I2 in the exchange: while policies could not be evaluated, an
// export that goes to every member is not withdrawn, unless it shares no port any more.
func (k *checker) mayWithdraw(p process, write apiserver.Write) {
	record, is := write.Before.(*exchangev1alpha1.ExportRecord)
	own, exports := ownExport(p)
	if !is || !withdraws(write) || !exports || record.Spec.ExportUID != own.UID || record.Namespace != model.ExchangeNamespace(p.ID) {
		return
	}
	_, scoped := p.Seen.Local.Export.Annotations[model.AnnotationExportTo]
	if p.Seen.Local.Verdict.Outcome == decision.NotEvaluated && !scoped && k.stillShared(p, record) {
		k.world.fail("I2: %s withdrew %s, but policies could not be evaluated", write.Actor, write.Ref)
	}
}

// stillShared reports whether an export shares a port of its record, and of its Service.
func (k *checker) stillShared(p process, record *exchangev1alpha1.ExportRecord) bool {
	published := &corev1.Service{}
	for _, port := range record.Spec.Ports {
		published.Spec.Ports = append(published.Spec.Ports, corev1.ServicePort{Name: port.Name})
	}
	return sharedOf(p.Seen.Local.Export, published) != nil && sharedOf(p.Seen.Local.Export, p.Seen.Local.Service) != nil
}

// withdraws reports whether a write of a record ends what it published.
func withdraws(write apiserver.Write) bool {
	after, is := write.After.(*exchangev1alpha1.ExportRecord)
	return !is || after.Spec.Withdrawn
}

// mayGo is I2: what came from a cluster is changed or deleted only by a process
// that has read that cluster since it started, and deleted only if the cluster
// does not publish it, or is no peer any more.
func (k *checker) mayGo(p process, write apiserver.Write, from *origin) {
	bad := ""
	switch o := write.Before.(type) {
	case *discoveryv1.EndpointSlice:
		switch {
		case slices.Contains(unread(p), from.cluster) && !renamesPorts(o, write.After) && !marksLost(p, o, write.After):
			bad = fmt.Sprintf("cluster %s was not read", from.cluster)
		case write.After == nil && k.published(p, o, from):
			bad = fmt.Sprintf("cluster %s publishes it", from.cluster)
		}
	case *mcsv1beta1.ServiceImport:
		if write.After == nil {
			bad = k.importMayGo(p, o)
		}
	case *corev1.Service:
		if write.After == nil && !k.replaced(p, o, from) {
			bad = k.importMayGo(p, nil)
		}
	}
	if _, is := write.Before.(*discoveryv1.EndpointSlice); is && bad == "" {
		if lost := k.mayLose(p, write, from); lost != "" {
			k.world.fail("%s: %s wrote %s (%s)", lost, write.Actor, write.Ref, write.Verb())
		}
	}
	if bad != "" {
		k.world.fail("I2: %s wrote %s (%s), but %s", write.Actor, write.Ref, write.Verb(), bad)
	}
}

// unread are the clusters of which what exists must stay: those that the process had not
// read, whose export is missing and was not confirmed, or of which import policies could
// not be evaluated; and its own while policies could not be evaluated for its export, or a
// cache is behind the API server. Of one
// that was removed, that import policies deny, or that the list has as withdrawn or
// refused, nothing has to stay; of one that states a withdrawal, the policies are not asked.
func unread(p process) (out []model.ClusterID) {
	list := storedIn(p)
	for i := range p.Seen.View.Peers {
		v := &p.Seen.View.Peers[i]
		entry, listed := list.Find(v.ID)
		if v.Removed || verdictOn(p, v.ID) == decision.Denied || entry.Absent.IsOut() {
			continue
		}
		withdrawn := isWithdrawn(v)
		undecided := verdictOn(p, v.ID) == decision.NotEvaluated && !withdrawn && v.Export != nil
		isConfirmed := entry.Absent == model.SourceMissing && !entry.Since.After(v.ConfirmMissingBefore)
		missing := listed && v.Synced && v.Export == nil && !isConfirmed && (!withdrawn || withdrawsEarlier(v, entry))
		if !v.Synced || undecided || missing {
			out = append(out, v.ID)
		}
	}
	own, _ := list.Find(p.ID)
	_, exports := ownExport(p)
	undecided := exports && p.Seen.Local.Verdict.Outcome == decision.NotEvaluated && !own.Absent.IsOut()
	if undecided || p.Seen.View.Own.State == model.SourceNotRead && own.Cluster != "" && !own.Absent.IsOut() {
		out = append(out, p.ID)
	}
	slices.Sort(out)
	return out
}

// isWithdrawn reports whether a member was read to publish nothing but statements of
// withdrawal.
func isWithdrawn(v *exchange.Published) bool {
	return v.Synced && v.Export == nil && len(v.Withdrawals) > 0
}

// withdrawsEarlier reports whether the statements of a member are only of an export before
// that of an entry, or of other members' access to it.
func withdrawsEarlier(v *exchange.Published, e model.Entry) bool {
	return !slices.ContainsFunc(v.Withdrawals, func(w model.Withdrawal) bool {
		same := e.UID == "" || w.UID == e.UID
		return same && (!w.Narrowed || !e.Scoped || e.UID == "") || !same && w.CreatedAt.After(e.CreatedAt)
	})
}

// storedIn is the list that the process had read; the zero value if there is none.
func storedIn(p process) model.List { return plan.StoredList(p.Seen.View.Current, p.Seen.Key) }

// peerSeen is what the process saw of a cluster; nil if nothing.
func peerSeen(p process, id model.ClusterID) *exchange.Published {
	for i := range p.Seen.View.Peers {
		if p.Seen.View.Peers[i].ID == id {
			return &p.Seen.View.Peers[i]
		}
	}
	return nil
}

// ownExport is what the process saw of its own cluster's export; false if there
// is nothing that can be exported.
func ownExport(p process) (model.Export, bool) {
	if p.Seen.Local.Export == nil {
		return model.Export{}, false
	}
	export, err := exchange.LocalExport(p.ID, p.Seen.Local.Export, p.Seen.Local.Service, false)
	return export, err == nil
}

// verdictOn is what the import policies said of a cluster.
func verdictOn(p process, id model.ClusterID) decision.Outcome {
	if v := peerSeen(p, id); v != nil && v.Verdict != nil {
		return v.Verdict.Outcome
	}
	return decision.Allowed
}

// exportsSeen are the exports of all clusters that the process saw and that count.
func exportsSeen(p process) []model.Export {
	var out []model.Export
	for i := range p.Seen.View.Peers {
		if v := &p.Seen.View.Peers[i]; v.Export != nil && verdictOn(p, v.ID) == decision.Allowed {
			out = append(out, *v.Export)
		}
	}
	if own, exports := ownExport(p); exports && p.Seen.View.Own.State == model.SourcePublished {
		out = append(out, own)
	}
	return out
}

// slicesSeen are the slices that the process saw of one cluster.
func slicesSeen(p process, cluster model.ClusterID) []*discoveryv1.EndpointSlice {
	if v := peerSeen(p, cluster); v != nil {
		return v.Slices
	}
	return slices.DeleteFunc(slices.Clone(p.Seen.Local.Slices), func(s *discoveryv1.EndpointSlice) bool {
		return s.AddressType == discoveryv1.AddressTypeFQDN
	})
}

// published reports whether what the process saw has a place for the slice that
// is being deleted, and no other slice has that place.
func (k *checker) published(p process, s *discoveryv1.EndpointSlice, from *origin) bool {
	want := expected(seen(p))
	if p.Seen.Key != from.key || want == nil || len(unread(p)) > 0 || p.Seen.Frozen || k.strays(p, s) {
		return false // while the import is frozen, its ports decide which slices have a place
	}
	for _, o := range p.cluster.Server.List("EndpointSlice", from.key.Namespace) {
		other := k.origins[o.GetUID()]
		t, is := o.(*discoveryv1.EndpointSlice)
		if is && other.ours && t.AddressType == s.AddressType && other.cluster == from.cluster && other.source == from.source {
			return false
		}
	}
	_, has := want.Slices[fmt.Sprintf("%s/%s/%s", from.cluster, from.source, s.AddressType)]
	return has
}

// strays reports whether a slice leads the clients of a Service that the process
// saw, and that is not the import's, to endpoints that are not its own.
func (k *checker) strays(p process, s *discoveryv1.EndpointSlice) bool {
	into := s.Labels[discoveryv1.LabelServiceName]
	return slices.ContainsFunc(p.Seen.View.Current.Services, func(o *corev1.Service) bool {
		from := k.origins[o.UID]
		return o.Name == into && (!from.ours || from.key != p.Seen.Key)
	})
}

// importMayGo says why an import may not be deleted; empty if it may.
func (k *checker) importMayGo(p process, s *mcsv1beta1.ServiceImport) string {
	if exports := exportsSeen(p); len(exports) > 0 {
		return fmt.Sprintf("cluster %s exports it", exports[0].Cluster)
	}
	if s != nil {
		for _, c := range s.Status.Clusters {
			if slices.Contains(unread(p), model.ClusterID(c.Cluster)) {
				return fmt.Sprintf("cluster %s, which exported it, was not read", c.Cluster)
			}
		}
	}
	for _, t := range p.Seen.View.Current.Slices {
		if from := k.origins[t.UID]; from.ours && !from.meddled && from.key == p.Seen.Key && slices.Contains(unread(p), from.cluster) {
			return fmt.Sprintf("cluster %s, whose endpoints it has, was not read", from.cluster)
		}
	}
	return ""
}

// replaced reports whether a derived Service goes because it is of the wrong
// type, or because there is another.
func (k *checker) replaced(p process, s *corev1.Service, from *origin) bool {
	if len(exportsSeen(p)) == 0 {
		return false
	}
	first := seen(p)[0]
	if !p.Seen.Frozen && (first.service.Spec.ClusterIP == corev1.ClusterIPNone) != (s.Spec.ClusterIP == corev1.ClusterIPNone) {
		return true
	}
	return slices.ContainsFunc(p.Seen.View.Current.Services, func(o *corev1.Service) bool {
		other := k.origins[o.GetUID()]
		return o.GetUID() != s.UID && other.ours && other.key == from.key
	})
}

// seen is what a process saw, in the words of the oracle: in the order of the list that the
// process decided, oldest first without one.
func seen(p process) []constituent {
	var all []constituent
	for _, e := range exportsSeen(p) {
		service := &corev1.Service{Spec: corev1.ServiceSpec{
			IPFamilies: e.IPFamilies, InternalTrafficPolicy: e.InternalTrafficPolicy,
			SessionAffinity: cmp.Or(e.SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityConfig: e.SessionAffinityConfig,
		}}
		if e.Type == mcsv1beta1.Headless {
			service.Spec.ClusterIP = corev1.ClusterIPNone
		}
		for _, port := range e.Ports {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: port.Name, Protocol: port.Protocol, Port: port.Port})
		}
		one := constituent{e.Cluster, e.UID, e.CreatedAt.Unix(), service, e.Labels, map[string]*discoveryv1.EndpointSlice{}}
		for _, s := range slicesSeen(p, e.Cluster) {
			name := s.Name
			if source := s.Annotations[model.AnnotationSourceSlice]; source != "" && e.Cluster != p.ID {
				name = source
			}
			one.slices[name] = s
		}
		all = append(all, one)
	}
	sortConstituents(all)
	inOrderOf(p.Seen.List, all) // I7 asks whether the order may be this one
	return all
}

func clusterOf(s *discoveryv1.EndpointSlice) model.ClusterID {
	return model.ClusterID(s.Labels[model.LabelSourceCluster])
}
