// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// Peers is what is known of the other members of the clusterset.
type Peers interface {
	// Members lists the peers, without this cluster.
	Members() []model.Member
	// Namespace tells what each peer publishes about the namespace of that name.
	Namespace(name string) []model.MemberNamespace
}

// Request is what is to be decided. The zero value of every field but Export
// is usable, and a Request of an Export alone is an audit of it.
type Request struct {
	// Operation is decision.Audit when empty.
	Operation decision.Operation
	// Subject is decision.SubjectServiceExport when empty.
	Subject decision.Subject
	// User is who asks; nil in an audit.
	User *decision.UserInfo
	// Export is the ServiceExport as it would be stored, or is.
	Export *mcsv1beta1.ServiceExport
	// OldExport is the ServiceExport that an update replaces.
	OldExport *mcsv1beta1.ServiceExport
	// Service is the Service as it would be stored. When nil, the stored one is read.
	Service *corev1.Service
}

// Reader reads facts. Client and Peers are required and safe for concurrent use.
type Reader struct {
	// Client reads Services and Namespaces, from a cache as a rule.
	Client client.Reader
	// Live, if set, is asked at admission for what Client does not have: with
	// "kubectl apply" of one file, the Service or Namespace is often younger
	// than the cache. Audits are repeated when the cache catches up instead.
	Live client.Reader
	// Cluster is the id of this cluster.
	Cluster model.ClusterID
	Peers   Peers
}

// Input is everything that a policy may look at for the request. An error
// names the object that could not be read. A missing Service is no error, as an
// export may come before its Service; a missing Namespace is one, because its
// limit on the scope would go unheard.
func (r Reader) Input(ctx context.Context, req Request) (decision.Input, error) {
	in := decision.Input{
		APIVersion: decision.InputVersion,
		Operation:  req.Operation,
		Subject:    req.Subject,
		UserInfo:   req.User,
		Object:     presentable(req.Export),
		OldObject:  presentable(req.OldExport),
		Service:    req.Service,
		Cluster:    string(r.Cluster),
		Scope:      shown(model.ScopeOfExport(req.Export)),
		Peers:      r.peers(req.Export.Namespace),
	}
	if in.Operation == "" {
		in.Operation = decision.Audit
	}
	if in.Subject == "" {
		in.Subject = decision.SubjectServiceExport
	}
	live := r.Live
	if in.Operation == decision.Audit {
		live = nil
	}

	namespace := &corev1.Namespace{}
	found, err := get(ctx, r.Client, live, types.NamespacedName{Name: req.Export.Namespace}, namespace)
	if err != nil {
		return decision.Input{}, fmt.Errorf("read Namespace %s: %w", req.Export.Namespace, err)
	}
	if !found {
		return decision.Input{}, fmt.Errorf("namespace %s is not known here (yet), so the limits that it may set are not known either", req.Export.Namespace)
	}
	in.Namespace = namespace
	in.NamespaceScope = shown(model.ScopeOfNamespace(namespace))

	if in.Service == nil {
		service := &corev1.Service{}
		key := client.ObjectKeyFromObject(req.Export)
		found, err := get(ctx, r.Client, live, key, service)
		if err != nil {
			return decision.Input{}, fmt.Errorf("read Service %s: %w", key, err)
		}
		if found {
			in.Service = service
		}
	}
	return in, nil
}

// peers describes the members by id. One whose namespaces were not read is
// there too, as unknown: its id is a legal target all the same.
func (r Reader) peers(namespace string) map[string]decision.Peer {
	members := r.Peers.Members()
	peers := make(map[string]decision.Peer, len(members))
	for _, member := range members {
		peers[string(member.ID)] = decision.Peer{Namespace: decision.PeerNamespace{
			Presence: decision.Unknown, Labels: map[string]string{},
		}}
	}
	for _, ns := range r.Peers.Namespace(namespace) {
		if _, known := peers[string(ns.Cluster)]; !known {
			continue // The peer went between the two calls.
		}
		labels := ns.Labels
		if labels == nil {
			labels = map[string]string{}
		}
		peers[string(ns.Cluster)] = decision.Peer{Namespace: decision.PeerNamespace{
			Presence: presence(ns.Presence), Labels: labels,
		}}
	}
	return peers
}

func presence(p model.NamespacePresence) decision.Presence {
	switch p {
	case model.NamespacePresent:
		return decision.Present
	case model.NamespaceAbsent:
		return decision.Absent
	default:
		return decision.Unknown
	}
}

// shown is a scope as policies see it. What cannot be read is a scope of no
// cluster with a problem, never a wider one.
func shown(parsed model.Scope, err error) decision.Scope {
	if err != nil {
		return decision.Scope{Clusters: []string{}, Problem: err.Error()}
	}
	if parsed.All() {
		return decision.Scope{All: true, Clusters: []string{}}
	}
	clusters := make([]string, 0, len(parsed.Clusters()))
	for _, id := range parsed.Clusters() {
		clusters = append(clusters, string(id))
	}
	return decision.Scope{Clusters: clusters}
}

// presentable is the export as policies see it: in the one version that they
// know, whichever it was written through, and without the bookkeeping of field
// managers, which is most of a small object and no policy's business.
func presentable(export *mcsv1beta1.ServiceExport) *mcsv1beta1.ServiceExport {
	if export == nil {
		return nil
	}
	out := *export
	out.APIVersion = mcsv1beta1.GroupVersion.String()
	out.Kind = mcsv1beta1.ServiceExportKindName
	out.ManagedFields = nil
	return &out
}

// get reads from first and, if the object is not there, from second unless that is nil.
func get(ctx context.Context, first, second client.Reader, key types.NamespacedName, into client.Object) (found bool, err error) {
	err = first.Get(ctx, key, into)
	if apierrors.IsNotFound(err) && second != nil {
		err = second.Get(ctx, key, into)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
