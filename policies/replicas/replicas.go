// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package replicas lets each replica of Comity state which policies it enforces, and
// the leader count the replicas that enforce one.
//
// A replica states that in an annotation of one Lease, which all replicas share, and
// renews it. It removes the annotation when it ends; one that was not renewed counts no
// more, and the leader removes it later. The package takes digests and compares them; it
// knows nothing else of policies, and has no timer: whoever loads policies calls it.
//
// The agent needs get and patch on the Lease, and create on leases where it does not
// exist.
package replicas

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// LeaseName is the name of the Lease, in Comity's namespace.
	LeaseName = "comity-replicas"
	// annotationPrefix is followed by the name of the replica. The value is the time of
	// the renewal, a space, and the short digests, sorted and separated by commas.
	annotationPrefix = "replica.comity.dev/"
	// renewInterval is how often an unchanged statement is renewed, and freshFor how long
	// one counts: a renewal may fail for a while.
	renewInterval = 20 * time.Second
	freshFor      = 70 * time.Second
	// forgetAfter is when the leader removes the statement of a replica that is gone.
	forgetAfter = 10 * time.Minute
	// removeTimeout bounds the last write.
	removeTimeout = 2 * time.Second
	// maxName is the limit of Kubernetes on the name of an annotation.
	maxName = 63
)

// Options of New; all are required but Clock.
type Options struct {
	// Namespace is Comity's.
	Namespace string
	// Name names this replica; no two that run at once have the same. See Name.
	Name string
	// Reader reads without a cache, because nothing else watches Leases.
	Reader client.Reader
	Writer client.Writer
	// Clock is the real one when nil.
	Clock clock.PassiveClock
}

// Name makes the name of a replica of that of its host and a port that it serves there.
// So it is the same after a restart: a replica that was killed is not counted beside the
// one in its place. The beginning is cut off, since the names of Pods differ at their end.
func Name(host string, port int) string {
	name := fmt.Sprintf("%s-%d", host, port)
	return strings.TrimLeft(name[max(0, len(name)-maxName):], "-._")
}

// Replicas states what this replica enforces, and reads what the others do. Add it to
// the manager. State and Read are for one goroutine.
type Replicas struct {
	Options
	digests string // as the Lease has them
	renewed time.Time
}

// New returns Replicas that state nothing.
func New(o Options) *Replicas {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	return &Replicas{Options: o}
}

// State states what this replica enforces: the digests of policies by name. It writes that
// if it changed or is to be renewed, and returns when to call it again.
func (r *Replicas) State(ctx context.Context, policies map[string]string) (again time.Duration, _ error) {
	all := sets.New[string]()
	for name, digest := range policies {
		all.Insert(short(name, digest))
	}
	digests, now := strings.Join(sets.List(all), ","), r.Clock.Now()
	if left := renewInterval - now.Sub(r.renewed); r.digests == digests && left > 0 && left <= renewInterval {
		return left, nil
	}
	if err := r.write(ctx, now.UTC().Format(time.RFC3339)+" "+digests); err != nil {
		return 0, err
	}
	r.digests, r.renewed = digests, now
	return renewInterval, nil
}

// short identifies one state of one policy in few characters.
func short(policy, digest string) string {
	sum := sha256.Sum256([]byte(policy + "\n" + digest))
	return hex.EncodeToString(sum[:6])
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica states
// what it enforces.
func (*Replicas) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it removes the statement of this replica when ctx ends.
// One that cannot be removed counts no more soon.
func (r *Replicas) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_ = r.patch(ctx, map[string]*string{r.Name: nil})
	return nil
}

// write writes the statement of this replica.
func (r *Replicas) write(ctx context.Context, statement string) error {
	err := r.patch(ctx, map[string]*string{r.Name: &statement})
	if !apierrors.IsNotFound(err) {
		return err
	}
	lease := r.lease()
	lease.Annotations = map[string]string{annotationPrefix + r.Name: statement}
	if err := r.Writer.Create(ctx, lease); err != nil {
		return fmt.Errorf("create Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return nil
}

// patch sets the annotations of replicas by name; nil removes one.
func (r *Replicas) patch(ctx context.Context, values map[string]*string) error {
	annotations := make(map[string]*string, len(values))
	for name, value := range values {
		annotations[annotationPrefix+name] = value
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}}) // maps of strings
	lease := r.lease()
	if err := r.Writer.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return nil
}

func (r *Replicas) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: LeaseName}}
}

// Statements are what replicas stated, by name; only those that count.
type Statements map[string]sets.Set[string]

// Read reads what the replicas state, and removes what replicas stated that are long
// gone. It is for the leader, after State: otherwise the count would be wrong.
func (r *Replicas) Read(ctx context.Context) (Statements, error) {
	lease := r.lease()
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return nil, fmt.Errorf("read Lease %s/%s: %w", r.Namespace, LeaseName, err)
	}
	now, statements, gone := r.Clock.Now(), Statements{}, map[string]*string{}
	for key, value := range lease.Annotations {
		name, is := strings.CutPrefix(key, annotationPrefix)
		if !is {
			continue
		}
		at, digests, _ := strings.Cut(value, " ")
		renewed, err := time.Parse(time.RFC3339, at)
		switch age := now.Sub(renewed); {
		case err != nil || age > forgetAfter:
			gone[name] = nil
		case age <= freshFor:
			statements[name] = sets.New(strings.Split(digests, ",")...)
		}
	}
	if len(gone) > 0 {
		if err := r.patch(ctx, gone); err != nil {
			return nil, err
		}
	}
	return statements, nil
}

// Lagging are the replicas that do not enforce a policy of this name and digest, sorted.
func (s Statements) Lagging(policy, digest string) []string {
	wanted := short(policy, digest)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return s[name].Has(wanted) })
}
