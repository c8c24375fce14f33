// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// PolicyCache is an Admitter, and an ImportAdmitter, that remembers each answer for as long as
// nothing that it depends on has changed. For an export, that is the export, what is published
// of it, its Service, its Namespace, the policies and the namespaces of the other members; for
// an import from a cluster the policies, the Namespace, the labels of the cluster, and what the
// export is. So a changed endpoint costs no evaluation. It never keeps an answer that was not
// reached. All fields that are exported are required, those for imports only if it is used as an
// ImportAdmitter. All methods may be called from any goroutine.
type PolicyCache struct {
	// Evaluate must read nothing beside the export and what is below, and the
	// objects through Reader.
	Evaluate func(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
	// Reader reads from a cache.
	Reader client.Reader
	// Published is what is known of an export in the exchange.
	Published func(ctx context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error)

	// EvaluateImport evaluates the policies with stage Import. It must read nothing but its input.
	EvaluateImport func(context.Context, decision.ImportInput) decision.Verdict
	// HasImportPolicies reports whether EvaluateImport may give anything but Allowed without a warning.
	HasImportPolicies func() bool

	// Policies names the set of policies in use, as a Verdict does in its Digest;
	// empty while there is none.
	Policies func() string
	// Findings learn each verdict.
	Findings Findings

	mu sync.Mutex
	// kept are verdicts by key and source cluster, which is empty for an export of this cluster.
	kept map[types.NamespacedName]map[string]keptVerdict
	// peers counts the changes of peers, and of what they say of namespaces.
	peers atomic.Uint64
}

// PeersChanged drops every answer: a peer came, went or changed, but for its liveness, or says
// something else of a namespace. Call it before those are notified who evaluate again.
func (c *PolicyCache) PeersChanged() { c.peers.Add(1) }

// Admit is the answer of the policies to an export as it is stored now. The key of
// an answer is read before the policies are evaluated, whatever they read
// themselves: a resourceVersion never comes back, so if an object changed in
// between, nobody asks for that key again. A set of policies does come back, and so does
// what is published, but a Verdict says with which it was reached.
func (c *PolicyCache) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	return c.verdict(client.ObjectKeyFromObject(export), "", c.inputs(ctx, export), func() decision.Verdict { return c.Evaluate(ctx, export) })
}

// Forget drops what is kept, and what was found, of an export that is gone.
func (c *PolicyCache) Forget(key types.NamespacedName) {
	c.forget(key, func(cluster string) bool { return cluster == "" })
}

// inputs are the versions of the objects and what else an answer depends on. They are not
// known if it is not known what is published, or if an object cannot be read or does not
// exist: its absence has no resourceVersion.
func (c *PolicyCache) inputs(ctx context.Context, export *mcsv1beta1.ServiceExport) verdictInputs {
	peers, policies := c.peers.Load(), c.Policies()
	if export.UID == "" || export.ResourceVersion == "" || policies == "" {
		return verdictInputs{}
	}
	withoutCopy := &client.GetOptions{UnsafeDisableDeepCopy: new(true)} // nothing but the version is read of the objects
	service, namespace := &corev1.Service{}, &corev1.Namespace{}
	published, err := c.Published(ctx, export)
	err = errors.Join(err,
		c.Reader.Get(ctx, client.ObjectKeyFromObject(export), service, withoutCopy),
		c.Reader.Get(ctx, types.NamespacedName{Name: export.Namespace}, namespace, withoutCopy))
	if err != nil {
		return verdictInputs{}
	}
	return inputsOf(policies, published, peers, decision.AsWritten(export),
		service.UID, service.ResourceVersion, namespace.UID, namespace.ResourceVersion)
}

// Findings learn what policies find, for the status of the ExportPolicies.
type Findings interface {
	// Record replaces what is known of the import of key from a cluster, or of the export key if
	// that is empty.
	Record(key types.NamespacedName, cluster string, verdict decision.Verdict)
	// Forget drops what is known of the imports of key from some clusters; the export key has an
	// empty one.
	Forget(key types.NamespacedName, from func(cluster string) bool)
}

// AdmitImports gives a verdict for each source cluster of one import. What is remembered of
// clusters that are not among them is dropped.
func (c *PolicyCache) AdmitImports(ctx context.Context, key types.NamespacedName, from []decision.ImportInput) map[model.ClusterID]decision.Verdict {
	out := make(map[model.ClusterID]decision.Verdict, len(from))
	var sources []string
	isActive := c.HasImportPolicies()
	for _, in := range from {
		cluster, verdict := in.Source.Cluster, decision.Verdict{Outcome: decision.Allowed}
		if isActive {
			sources = append(sources, cluster)
			verdict = c.verdict(key, cluster, importInputs(c.Policies(), in), func() decision.Verdict { return c.EvaluateImport(ctx, in) })
		}
		out[model.ClusterID(cluster)] = verdict
	}
	c.forget(key, func(cluster string) bool { return cluster != "" && !slices.Contains(sources, cluster) })
	return out
}

// importInputs are everything that an answer depends on. They are not known if there are no
// policies yet or the Namespace was never stored, which is named by its version.
func importInputs(policies string, in decision.ImportInput) verdictInputs {
	namespace := in.Namespace
	if policies == "" || namespace == nil || namespace.UID == "" || namespace.ResourceVersion == "" {
		return verdictInputs{}
	}
	in.Namespace = nil
	return inputsOf(policies, decision.Publication{}, namespace.UID, namespace.ResourceVersion, in, in.Imported, in.Unread, in.Source.Unknown)
}

// verdictInputs are everything that a verdict depends on; the zero value if that is not known.
type verdictInputs struct {
	// policies and published are those with which a verdict says that it was reached.
	policies  string
	published decision.Publication
	// others is a digest of the rest.
	others [sha256.Size]byte
}

// inputsOf are inputs of which others can be expressed by JSON.
func inputsOf(policies string, published decision.Publication, others ...any) verdictInputs {
	text, err := json.Marshal(others)
	if err != nil {
		panic(fmt.Sprintf("controllers: write the inputs of a policy as JSON: %v", err)) // strings, numbers and maps of strings
	}
	return verdictInputs{policies, published, sha256.Sum256(text)}
}

type keptVerdict struct {
	inputs  verdictInputs
	verdict decision.Verdict
}

// maxVerdict is the size of the largest verdict that is remembered, in bytes: those on 10,000
// exports are. A larger one is reached again when it is asked for.
const maxVerdict = 8 << 10

// verdict is the one that was reached with the same inputs, or what evaluate returns, which is
// remembered, unless its inputs are not known, it was not reached, or with other policies or
// something else published, or it is too large.
func (c *PolicyCache) verdict(key types.NamespacedName, cluster string, inputs verdictInputs, evaluate func() decision.Verdict) decision.Verdict {
	c.mu.Lock()
	kept, has := c.kept[key][cluster]
	c.mu.Unlock()
	if has && kept.inputs == inputs {
		return kept.verdict
	}
	verdict := evaluate()
	c.Findings.Record(key, cluster, verdict)
	reached := verdict.Outcome == decision.Allowed || verdict.Outcome == decision.Denied
	isSame := verdict.Digest == inputs.policies && verdict.Publication == inputs.published
	if inputs == (verdictInputs{}) || !reached || !isSame || verdict.Size() > maxVerdict {
		return verdict
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[types.NamespacedName]map[string]keptVerdict{}
	}
	if c.kept[key] == nil {
		c.kept[key] = map[string]keptVerdict{}
	}
	c.kept[key][cluster] = keptVerdict{inputs, verdict}
	return verdict
}

// forget drops what is remembered, and what was found, of key and of these clusters.
func (c *PolicyCache) forget(key types.NamespacedName, of func(cluster string) bool) {
	c.Findings.Forget(key, of)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.kept[key], func(cluster string, _ keptVerdict) bool { return of(cluster) })
	if len(c.kept[key]) == 0 {
		delete(c.kept, key)
	}
}

// StoredImports are what the policies with stage Import decide on now, for a preview of policies:
// every export of the other members, and what is imported, in any order. Nobody may change what
// is in them. Reader reads Namespaces and ServiceImports from a cache. It works on every replica.
func StoredImports(ctx context.Context, self model.ClusterID, reader client.Reader, peers Peers) ([]decision.ImportInput, error) {
	imported, err := notify.ListKeys(ctx, reader, &mcsv1beta1.ServiceImportList{}, notify.Itself)
	if err != nil {
		return nil, err
	}
	var out []decision.ImportInput
	for key := range sets.New(imported...).Insert(peers.Keys()...) {
		view := decide.ImportView{Self: self, Peers: peers.Read(key, false), Local: decide.LocalExport{Key: key}}
		if view.Local.Namespace, err = getNamespace(ctx, reader, key.Namespace); err != nil {
			return nil, err
		}
		if view.Current.Import, err = get[mcsv1beta1.ServiceImport](ctx, reader, key); err != nil {
			return nil, err
		}
		decide.ReadList(&view)
		out = append(out, decide.ImportInputs(view)...)
	}
	return out, nil
}
