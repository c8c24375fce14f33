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

// Peers has what is known of the other members of the clusterset.
type Peers interface {
	// Members lists the peers, without this cluster.
	Members() []model.Member
	// Namespace lists what each peer publishes about the namespace of that name.
	Namespace(name string) []model.MemberNamespace
}

// Request is what the policies decide on. Export is required; a Request with only
// an Export is an audit of it.
type Request struct {
	// Operation is decision.Audit when empty.
	Operation decision.Operation
	// Subject is decision.SubjectServiceExport when empty.
	Subject decision.Subject
	// User made the request; nil in an audit.
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
	// Live, if set, is read at admission for what Client does not have: with
	// "kubectl apply" of one file, the Service or Namespace is often newer than the
	// cache. Audits are repeated when the cache catches up instead.
	Live client.Reader
	// Cluster is the id of this cluster.
	Cluster model.ClusterID
	Peers   Peers
}

// Input is everything that a policy may use for the request. An error names the
// object that could not be read. A missing Service is no error, as an export may be
// created before its Service; a missing Namespace is one, because its limit on the
// scope would be ignored.
func (r Reader) Input(ctx context.Context, req Request) (decision.Input, error) {
	in := decision.Input{
		APIVersion: decision.InputVersion,
		Operation:  req.Operation,
		Subject:    req.Subject,
		UserInfo:   req.User,
		Object:     inputExport(req.Export),
		OldObject:  inputExport(req.OldExport),
		Service:    req.Service,
		Cluster:    string(r.Cluster),
		Scope:      inputScope(model.ScopeOfExport(req.Export)),
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
	in.NamespaceScope = inputScope(model.ScopeOfNamespace(namespace))

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

// peers describes the members by id. A member whose namespaces were not read is
// included as unknown: its id is a valid target too.
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
			continue // The peer was removed between the two calls.
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

// inputScope is a scope as policies see it. A scope that cannot be parsed has no
// cluster and a problem; it is never taken for a wider one.
func inputScope(parsed model.Scope, err error) decision.Scope {
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

// inputExport is the export as policies see it: in the one version that they know,
// whichever version it was written in, without managedFields.
func inputExport(export *mcsv1beta1.ServiceExport) *mcsv1beta1.ServiceExport {
	if export == nil {
		return nil
	}
	out := *export
	out.APIVersion = mcsv1beta1.GroupVersion.String()
	out.Kind = mcsv1beta1.ServiceExportKindName
	out.ManagedFields = nil
	return &out
}

// get reads from first and, if the object does not exist there, from second unless that is nil.
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
