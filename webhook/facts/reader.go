// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// Peers has what is known of the other members of the clusterset.
type Peers interface {
	// Members lists the peers, without this cluster.
	Members() []model.Member
	// Namespace is what each peer publishes about the namespace of that name; nothing of one
	// that was not read.
	Namespace(name string) map[model.ClusterID]decision.PeerNamespace
}

// Readers set the type of an object or do not; a policy sees it always.
var (
	namespaceType = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
	serviceType   = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
)

var withoutCopy = &client.GetOptions{UnsafeDisableDeepCopy: ptr.To(true)}

// Reader reads facts. Client and Peers are required and safe for concurrent use.
type Reader struct {
	// Client reads Services and Namespaces, from a cache as a rule.
	Client client.Reader
	// Live, if set, is read at admission for what Client does not have: with
	// "kubectl apply" of one file, the Service or Namespace is often newer than the
	// cache. Audits are repeated when the cache catches up instead.
	Live client.Reader
	// Cluster is the id of this cluster.
	Cluster model.ClusterID
	Peers   Peers
	// PeerCache keeps what Peers gave; when nil, they are read for each request.
	PeerCache *PeerCache
	// Published is what is known of an export in the exchange; when nil, nothing is there.
	Published func(ctx context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error)
	// ImportInputs lists the imports, for a preview of policies; when nil, there are none.
	ImportInputs func(ctx context.Context) ([]decision.ImportInput, error)
}

// Input is everything that a policy may use for a request, which has Object and, as the case may be,
// Operation (decision.Audit when empty), Subject (decision.SubjectServiceExport when empty),
// UserInfo, OldObject, and Service (when nil, the stored one is read). An error names the
// object that could not be read. A missing Service is no error, as an export may be
// created before its Service; a missing Namespace is one, because its limit on the
// scope would be ignored.
func (r Reader) Input(ctx context.Context, in decision.Input) (decision.Input, error) {
	view := r.PeerCache.view(r.Peers, in.Object.Namespace)
	in.APIVersion, in.Cluster, in.Peers = decision.InputVersion, string(r.Cluster), view.peers
	in.Operation, in.Subject = cmp.Or(in.Operation, decision.Audit), cmp.Or(in.Subject, decision.SubjectServiceExport)
	// Where it is not known whether the export is published, an audit fails, because a
	// policy might withdraw what is published; a request is answered as if it were not,
	// which spares nothing: it must not depend on the hub.
	if r.Published != nil && in.Operation != decision.Create {
		published, err := r.Published(ctx, in.Object)
		switch {
		case err == nil:
			in.Published, in.Kept = published.Published, published.Kept
		case in.Operation == decision.Audit:
			return decision.Input{}, fmt.Errorf("read whether it is published: %w", err)
		}
	}

	namespace := &corev1.Namespace{}
	err := r.get(ctx, in.Operation, types.NamespacedName{Name: in.Object.Namespace}, namespace)
	if err != nil {
		return decision.Input{}, fmt.Errorf("read Namespace %s: %w", in.Object.Namespace, err)
	}
	if namespace.Name == "" {
		return decision.Input{}, fmt.Errorf("namespace %s is not known here (yet), so the limits that it may set are not known either", in.Object.Namespace)
	}
	namespace.TypeMeta = namespaceType
	in.Namespace = namespace
	in.NamespaceScope = inputScope(model.ScopeOfNamespace(namespace))
	if in.Service, err = r.service(ctx, in); err != nil {
		return decision.Input{}, err
	}
	describe(&in, view)
	if in.Operation == decision.Update && in.Subject == decision.SubjectServiceExport && in.Published && in.OldObject != nil {
		was := in
		was.Operation, was.UserInfo, was.Object, was.OldObject = decision.Audit, nil, in.OldObject, nil
		describe(&was, view)
		in.Before = &was
	}
	return in, nil
}

// service is the Service of the request, or else the stored one; nil if there is none.
func (r Reader) service(ctx context.Context, in decision.Input) (*corev1.Service, error) {
	service, key := corev1.Service{}, client.ObjectKeyFromObject(in.Object)
	if in.Service != nil {
		service = *in.Service
	} else if err := r.get(ctx, in.Operation, key, &service); err != nil {
		return nil, fmt.Errorf("read Service %s: %w", key, err)
	} else if service.Name == "" {
		return nil, nil //nolint:nilnil // An export may come before its Service.
	}
	service.TypeMeta = serviceType
	return &service, nil
}

// describe writes into the input of an export what depends on its own annotations: where
// it goes, and with which of the ports of its Service; none if that cannot be read.
func describe(in *decision.Input, view *peerView) {
	in.Ports = nil
	if selection, err := model.PortsOfExport(in.Object); err == nil {
		in.Ports = selection.Exported(in.Service)
	}
	in.Scope = inputScope(model.ScopeOfExport(in.Object))
	in.EffectiveScope = inputScope(model.EffectiveScope(client.ObjectKeyFromObject(in.Object), in.Object, in.Namespace, view.members))
	in.Destinations = view.of(in.EffectiveScope)
}

// inputScope is a scope as policies see it. A scope that cannot be parsed has no
// cluster and a problem; it is never taken for a wider one.
func inputScope(parsed model.Scope, err error) decision.Scope {
	if err != nil {
		return decision.Scope{Problem: err.Error()}
	}
	return decision.Scope{All: parsed.All(), Clusters: model.Map(parsed.Clusters(), func(id model.ClusterID) string { return string(id) })}
}

// get reads from Client and, if the object does not exist there, from Live, unless that is
// nil or the operation is an audit. If it does not exist at all, into stays without a name. What
// the object points to may be shared with a cache, and is not to be changed.
func (r Reader) get(ctx context.Context, operation decision.Operation, key types.NamespacedName, into client.Object) error {
	err := r.Client.Get(ctx, key, into, withoutCopy)
	if apierrors.IsNotFound(err) && r.Live != nil && operation != decision.Audit {
		err = r.Live.Get(ctx, key, into)
	}
	return client.IgnoreNotFound(err)
}

// Exports lists all stored ServiceExports. Nobody may change what they refer to.
func (r Reader) Exports(ctx context.Context) ([]mcsv1beta1.ServiceExport, error) {
	var list mcsv1beta1.ServiceExportList
	err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// Imports lists all imports, one for each source cluster.
func (r Reader) Imports(ctx context.Context) ([]decision.ImportInput, error) {
	if r.ImportInputs == nil {
		return nil, nil
	}
	return r.ImportInputs(ctx)
}

// Evaluator evaluates all policies together.
type Evaluator interface {
	Evaluate(ctx context.Context, in decision.Input) decision.Verdict
}

// Reviewer reads the facts about an export and has the policies evaluate them.
// Webhook, publisher and status use the same Reviewer, so that they cannot come to
// different verdicts on one export.
type Reviewer struct {
	Reader    Reader
	Evaluator Evaluator
}

// Review is the verdict on the request; see Reader.Input. If the facts could not be read it is
// NotEvaluated, with the cause as its Problem.
func (r Reviewer) Review(ctx context.Context, request decision.Input) decision.Verdict {
	if request.Operation != decision.Audit {
		requested.Store(time.Now().UnixNano())
	}
	in, err := r.Reader.Input(ctx, request)
	if err != nil {
		return decision.Verdict{Problem: fmt.Sprintf("the facts about ServiceExport %s/%s could not be read: %v", request.Object.Namespace, request.Object.Name, err)}
	}
	verdict := r.Evaluator.Evaluate(ctx, in)
	verdict.Ratchet(in)
	verdict.Publication = decision.Publication{Published: in.Published, Kept: in.Kept}
	return verdict
}

// Admit is the verdict on an export as it is stored now (an audit). See InBackground.
func (r Reviewer) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	return InBackground(ctx, func() decision.Verdict {
		return r.Review(ctx, decision.Input{Operation: decision.Audit, Object: export})
	})
}
