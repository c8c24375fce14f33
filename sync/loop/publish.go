// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/loop/internal/wake"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// publisher keeps the exchange in line with the local ServiceExports.
type publisher struct{ *base }

func setupPublish(mgr ctrl.Manager, b *base) error {
	p := &publisher{b}
	members, known := make(chan struct{}, 1), memory.NewMembers()
	all := &wake.Keys{
		Ready: []<-chan struct{}{b.Peers.Listed(), b.PolicyLoaded},
		Wakes: []<-chan struct{}{b.policies.Listen(), b.exchanges.Listen(), members, b.pass.Restarted()},
		List:  p.restart,
		Before: func(ctx context.Context, _ wake.Queue) {
			// A new member may be what a scope was waiting for.
			cancel := b.Peers.Subscribe(func(types.NamespacedName) {}, func(id model.ClusterID) {
				if !known.LostSight(id, b.Peers.Members()) {
					wake.Kick(members)
				}
			})
			context.AfterFunc(ctx, cancel)
		},
	}
	isCopy := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, is := model.LabeledExport(o.GetLabels())
		return is
	})
	return ctrl.NewControllerManagedBy(mgr).Named("publish").
		Watches(&mcsv1beta1.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, mapped(b.exportedService)).
		Watches(&discoveryv1.EndpointSlice{}, mapped(b.exportedSlice)).
		Watches(&corev1.Namespace{}, mapped(p.namespaceChanged), builder.WithPredicates(notInitial)).
		WatchesRawSource(watchExchange(b, &discoveryv1.EndpointSlice{}, mapped(exchangeObject), isCopy)).
		WatchesRawSource(watchExchange(b, &exchangev1alpha1.ExportRecord{}, mapped(exchangeObject))).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(p)
}

// restart lists all exports and makes each count for the first pass.
func (p *publisher) restart(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := p.exports(ctx)
	if err == nil {
		p.pass.Seed(memory.Exports, keys)
	}
	return keys, err
}

// namespaceChanged names the exports whose scope or audience may have changed.
func (p *publisher) namespaceChanged(ctx context.Context, o client.Object) []types.NamespacedName {
	var opts []client.ListOption
	if o.GetLabels()[model.LabelExchangeFrom] != string(p.Self) {
		opts = append(opts, client.InNamespace(o.GetName()))
	}
	keys, err := p.exports(ctx, opts...)
	if err != nil {
		return nil
	}
	return keys
}

// Reconcile brings the records and slice copies of one export up to date.
func (p *publisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	local, err := p.read(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what is published of %s: %w", key, err)
	}
	duplicate, err := p.duplicate(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the MemberRecord: %w", err)
	}
	if duplicate != "" {
		p.tell(ctx, local, memory.Published{Publication: model.PublicationFailed, Detail: duplicate}, nil)
		return reconcile.Result{}, nil // the end of it starts everything anew
	}
	in, found := p.decide(ctx, local)
	planned := plan.Publish(in)
	_, err = p.publishing.Apply(ctx, planned.Actions)
	switch {
	case err != nil:
		found.Publication, found.Detail = model.PublicationFailed, err.Error()
	case len(planned.Problems) > 0:
		found.Publication, found.Detail = model.PublicationFailed, planned.Problems[0].Message
	}
	p.tell(ctx, local, found, err)
	if err != nil {
		return p.retry(ctx, req, err)
	}
	p.settled(req)
	return reconcile.Result{RequeueAfter: again(found)}, nil
}

// tell stores what was found and counts the attempt for the first pass.
func (p *publisher) tell(ctx context.Context, local *localExport, found memory.Published, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil || apply.ClassOf(err) != apply.Conflict && apply.ClassOf(err) != apply.NameTaken {
		now := &found
		if local.export == nil {
			now = nil
			if memory, has := p.Admitter.(interface{ Forget(types.NamespacedName) }); has {
				memory.Forget(local.key)
			}
		}
		p.observations.Publish(local.key, now)
	}
	settled := found.Publication != model.PublicationPending && found.Publication != model.PublicationFailed
	p.pass.Attempted(memory.Exports, local.key, local.export == nil || settled)
}

// localExport is everything that this cluster holds about one export.
type localExport struct {
	key       types.NamespacedName
	export    *mcsv1beta1.ServiceExport // nil if there is none
	service   *corev1.Service           // nil if there is none
	namespace *corev1.Namespace         // nil if there is none
	sources   []*discoveryv1.EndpointSlice
	records   []*exchangev1alpha1.ExportRecord
	copies    []*discoveryv1.EndpointSlice
}

func (p *publisher) read(ctx context.Context, key types.NamespacedName) (*localExport, error) {
	local, err := p.readExport(ctx, key)
	if err != nil {
		return nil, err
	}
	var records exchangev1alpha1.ExportRecordList
	name := model.RecordName(key.Namespace, key.Name)
	if err := p.Exchange.Client.List(ctx, &records, client.MatchingFields{indexExport: name}); err != nil {
		return nil, err
	}
	local.records = pointers(records.Items)
	local.copies, err = listSlices(ctx, p.Exchange.Client, client.MatchingFields{indexExport: key.String()})
	return local, err
}

// readExport reads the export, its Service, the Service's slices and the namespace.
func (b *base) readExport(ctx context.Context, key types.NamespacedName) (*localExport, error) {
	local := &localExport{key: key}
	var err error
	if local.export, err = get[mcsv1beta1.ServiceExport](ctx, b.client, key); err != nil {
		return nil, err
	}
	if local.export != nil && terminating(local.export) {
		local.export = nil
	}
	if local.namespace, err = get[corev1.Namespace](ctx, b.client, types.NamespacedName{Name: key.Namespace}); err != nil {
		return nil, err
	}
	if local.export == nil {
		return local, nil
	}
	if local.service, err = get[corev1.Service](ctx, b.client, key); err != nil {
		return nil, err
	}
	local.sources, err = listSlices(ctx, b.client, client.InNamespace(key.Namespace), client.MatchingFields{indexService: key.Name})
	return local, err
}

// get reads an object; nil if it does not exist.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key types.NamespacedName) (P, error) {
	object := P(new(T))
	if err := c.Get(ctx, key, object); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return object, nil
}

// decide works out what is to stand in the exchange, and what to say of it.
func (p *publisher) decide(ctx context.Context, local *localExport) (plan.PublishInput, memory.Published) {
	in := plan.PublishInput{Key: local.key, CurrentRecords: local.records, CurrentSlices: local.copies}
	if local.export == nil {
		return in, memory.Published{Publication: model.PublicationNone}
	}
	export, err := p.localExport(local)
	if err != nil {
		return in, memory.Published{Publication: model.PublicationNone, Detail: err.Error()}
	}
	if exchange.ReservedNamespace(local.key.Namespace) {
		return in, memory.Published{Publication: model.PublicationWithheld, Detail: fmt.Sprintf(
			"Namespace %s belongs to the cluster itself, and no member imports into it; export from another namespace", local.key.Namespace)}
	}
	scope, err := effectiveScope(local, p.Peers.Members())
	if err != nil {
		return in, memory.Published{Publication: model.PublicationWithheld, Detail: err.Error()}
	}
	for _, source := range local.sources {
		if slice, ok := exchange.CopySlice(local.key, source); ok {
			in.Slices = append(in.Slices, slice)
		}
	}
	switch verdict := p.Admitter.Admit(ctx, local.export); verdict.Outcome {
	case decision.Allowed:
	case decision.Denied:
		in.Slices = nil
		return in, memory.Published{Publication: model.PublicationWithheld, Detail: violations(verdict)}
	default:
		return leave(in, local), memory.Published{Publication: model.PublicationPending, Scope: scope,
			Detail: "policies could not be evaluated, so what is published stays as it is: " + verdict.Problem}
	}
	record := exchange.Record(export)
	in.Record = &record
	audience, troubled, problem := p.audience(ctx, scope)
	in.Audience = audience
	// What stands where nothing can be written now stays: it is still meant for
	// those who read it there.
	in.CurrentRecords = outside(troubled, in.CurrentRecords)
	in.CurrentSlices = outside(troubled, in.CurrentSlices)
	if problem != "" {
		return in, memory.Published{Publication: model.PublicationFailed, Detail: problem, Scope: scope}
	}
	return in, memory.Published{Publication: model.Published, Scope: scope}
}

// leave keeps the records as they are, and lets the endpoints of what is
// published follow: a policy engine that cannot answer must not stop traffic
// from finding the pods that exist now.
func leave(in plan.PublishInput, local *localExport) plan.PublishInput {
	for _, record := range local.records {
		if model.IsManaged(record) && record.Spec.ExportUID == local.export.UID {
			in.Record = &record.Spec
			in.Audience = append(in.Audience, record.Namespace)
		}
	}
	if in.Record == nil { // nothing of this export is published; touch nothing
		in.CurrentRecords, in.CurrentSlices, in.Slices = nil, nil, nil
	}
	return in
}

// effectiveScope is what the export asks for and its namespace allows. A scope
// that cannot be read is never taken for a wider one.
func effectiveScope(local *localExport, members []model.Member) (model.Scope, error) {
	const unread = "%s, annotation %s: %w; it is exported nowhere until that is corrected"
	export, namespace := "ServiceExport "+local.key.String(), "Namespace "+local.key.Namespace
	scope, err := model.ScopeOfExport(local.export)
	if err != nil {
		return model.Scope{}, fmt.Errorf(unread, export, model.AnnotationExportTo, err)
	}
	if text, set := local.export.Annotations[model.AnnotationExportToSelector]; set {
		selected, err := model.ScopeOfSelector(text, members)
		if err != nil {
			return model.Scope{}, fmt.Errorf(unread, export, model.AnnotationExportToSelector, err)
		}
		both := scope.Intersect(selected)
		if both.Empty() {
			return both, fmt.Errorf("%s, annotation %s: %q selects %s of the members, annotation %s allows %s, and no cluster is in both; "+
				"change the selector, or the labels of a peer's Secret", export, model.AnnotationExportToSelector, text, named(selected), model.AnnotationExportTo, scope)
		}
		scope = both
	}
	if local.namespace == nil {
		return scope, nil
	}
	limit, err := model.ScopeOfNamespace(local.namespace)
	if err != nil {
		return model.Scope{}, fmt.Errorf(unread, namespace, model.AnnotationExportTo, err)
	}
	both := scope.Intersect(limit)
	if both.Empty() {
		return both, fmt.Errorf("%s: names %s, annotation %s of its Namespace allows %s, and no cluster is in both; change one of the two",
			export, scope, model.AnnotationExportTo, limit)
	}
	return both, nil
}

// named is a scope in a sentence, in which no cluster has to be a word.
func named(scope model.Scope) string {
	if scope.Empty() {
		return "none"
	}
	return scope.String()
}

// audience lists the exchange namespaces for a scope that are there, and says
// what is missing. One missing namespace must not keep the others empty.
func (p *publisher) audience(ctx context.Context, scope model.Scope) (namespaces, troubled []string, problem string) {
	wanted := []string{model.ExchangeNamespace(p.Self)}
	var problems []string
	if !scope.All() {
		wanted = nil
		members := map[model.ClusterID]bool{}
		for _, m := range p.Peers.Members() {
			members[m.ID] = true
		}
		for _, id := range scope.Clusters() {
			switch {
			case id == p.Self: // one's own export needs no exchange
			case !members[id]:
				problems = append(problems, fmt.Sprintf("cluster %s in annotation %s is no member of the clusterset; join it, or take it off the list", id, model.AnnotationExportTo))
			default:
				wanted = append(wanted, model.ScopedExchangeNamespace(p.Self, id))
			}
		}
	}
	for _, name := range wanted {
		if problem := p.Exchange.Problem(ctx, name); problem != "" {
			problems, troubled = append(problems, problem), append(troubled, name)
			continue
		}
		namespaces = append(namespaces, name)
	}
	return namespaces, troubled, strings.Join(problems, "; ")
}

// outside leaves out the objects in some namespaces.
func outside[T client.Object](namespaces []string, objects []T) []T {
	return slices.DeleteFunc(slices.Clone(objects), func(o T) bool { return slices.Contains(namespaces, o.GetNamespace()) })
}

func violations(v decision.Verdict) string {
	lines := make([]string, len(v.Violations))
	for i, violation := range v.Violations {
		lines[i] = violation.String()
	}
	return strings.Join(lines, "; ")
}

// again is how soon to look again at what no event may tell of.
func again(f memory.Published) time.Duration {
	if f.Publication == model.PublicationFailed || f.Publication == model.PublicationPending {
		return missingRetry
	}
	return 0
}
