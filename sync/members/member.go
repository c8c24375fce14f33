// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// member is one peer: the connection that is read, and the one that replaces it once it
// is synced, after a change of the Secret.
type member struct {
	id        model.ClusterID
	claim     claim
	active    *remote.Connection
	next      *remote.Connection
	heartbeat heartbeat
	probes    probes
	restored  time.Time // when its store was last restored from a backup
	// rejected counts records that are not valid, and reconnects how often connections were ended
	// because their watches brought nothing any more.
	rejected   atomic.Int64
	reconnects int
}

// heartbeat is what is known about the Lease of a peer. All times are those of this cluster; no
// clock of a peer is compared with another. Its methods read no clock.
type heartbeat struct {
	// lostAfter is how long the Lease may lack a renewal.
	lostAfter time.Duration
	// since is the start of the time without a renewal: the last renewal, or,
	// before the first, when the peer became a member or was first read.
	since       time.Time
	lastRenewal time.Time // zero if none was seen
	liveness    model.Liveness
	renewal     string    // the last one that was read
	requesting  bool      // requestLease is running
	requested   time.Time // when it last started
	// failure is why there was no renewal when it last ended.
	failure remote.Failure
}

// newHeartbeat is that of a peer whose Lease is watched from now on. The peer is
// Connected at first, and has as long as any other to renew its Lease.
func newHeartbeat(lostAfter time.Duration, now time.Time) heartbeat {
	return heartbeat{lostAfter: lostAfter, since: now, liveness: model.Liveness{State: model.Connected}}
}

// probes is what is known of the endpoints of a peer.
type probes struct {
	// answered is when each of those answered last that did lately, while the peer was Connected.
	answered map[netip.AddrPort]time.Time
	sampling bool      // sample is running
	sampled  time.Time // when it last started
}

// synced reports whether what the peer publishes is used.
func (m *member) synced() bool { return m.active != nil && m.active.Verified() }

// fails reports whether something is known to keep the peer from being read.
func (m *member) fails() bool {
	return !m.synced() && (m.claim.refused != remote.Failure{} || slices.ContainsFunc(m.connections(), func(l *remote.Connection) bool { return l.State().Problem != remote.Failure{} }))
}

// limited says which limit the peer exceeds; the zero value if none.
func (m *member) limited() remote.Failure {
	for _, l := range m.connections() {
		if problem := l.State().Problem; problem.Reason == model.ReasonLimitExceeded {
			return problem
		}
		if limit := l.SlowedBy(); limit != "" {
			return because(model.ReasonLimitExceeded, "cluster %[1]s: the limit of %[2]s is exceeded, so that its state is imported later; remedy: find out what changes so often there", m.id, limit)
		}
	}
	return remote.Failure{}
}

// drains are those of its Peer and of itself.
func (m *member) drains() []model.Drain {
	self := ""
	if m.active != nil {
		self = m.active.State().Drained
	}
	return exchange.Drains(&m.claim.peer.Spec, self)
}

func (m *member) connections() []*remote.Connection {
	return slices.DeleteFunc([]*remote.Connection{m.active, m.next}, func(l *remote.Connection) bool { return l == nil })
}

// inUse is the connection whose Lease counts: the active one, because the next one
// may lead to another cluster. Before the first is synced it is the next one.
func (m *member) inUse() *remote.Connection {
	return cmp.Or(m.active, m.next)
}

// isReadBy reports whether c is a connection of m, and was not replaced.
func (m *member) isReadBy(c *remote.Connection) bool { return m.active == c || m.next == c }

// stateChanged is the State hook: a new connection replaces the active one once it is synced and
// follows the peer. Else what was read would go back to when the new one listed it.
func (s *Set) stateChanged(c *remote.Connection) {
	s.update(c.ID(), func(m *member) model.MemberChanged {
		if !m.isReadBy(c) {
			return nothing
		}
		problem, verified := c.State().Problem, c.Verified()
		if m.next == c && verified && (!m.synced() || c.Current()) {
			if m.active == nil {
				m.heartbeat.reached(s.opts.Clock.Now())
			}
			s.retire(m.active)
			m.active, m.next = m.next, nil
		}
		switch {
		case problem.Reason != "":
			s.logFailure(m, "peer cannot be read", problem)
		case verified:
			s.opts.Log.Info("peer can be read", "peer", m.id)
		}
		return model.MemberOther
	})
}

// logFailure logs why a member is not read. The leader does that with the status of its Peer.
func (s *Set) logFailure(m *member, text string, why remote.Failure) {
	if !s.leads.Load() {
		s.opts.Log.Error(errors.New(why.Message), text, "peer", m.id, "reason", why.Reason)
	}
}

// nothing of a member changed.
const nothing model.MemberChanged = -1

// update notifies of a member if there is one and do, which runs under mu, changes it.
func (s *Set) update(id model.ClusterID, do func(*member) model.MemberChanged) {
	s.mu.Lock()
	changed := nothing
	if m := s.members[id]; m != nil {
		changed = do(m)
	}
	if changed != nothing {
		s.updateView(*s.view.Load())
	}
	s.mu.Unlock()
	if changed == nothing {
		return
	}
	s.changes.Publish(model.MemberChange{ID: id, What: changed})
	s.statuses.Publish(string(id))
}

// restored is the Restored hook. Each informer detects a restore by itself; one event of
// the leader reports it.
func (s *Set) restored(c *remote.Connection, found error) {
	s.mu.Lock()
	m, now := s.members[c.ID()], s.opts.Clock.Now()
	if m == nil || !m.isReadBy(c) || now.Sub(m.restored) < listwatch.Pause {
		s.mu.Unlock()
		return
	}
	m.restored = now
	peer := m.claim.peer
	s.mu.Unlock()
	if !s.leads.Load() {
		return
	}
	s.event(peer, metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonStoreRestored, Message: fmt.Sprintf(
		"cluster %s: %v; everything that it shares is read again; remedy: what was exported there since the backup must be exported again", peer.Name, found)})
}

// retire stops a connection that is not used any more.
func (s *Set) retire(l *remote.Connection) {
	if l == nil {
		return
	}
	l.Stop()
	s.ending.Go(l.Wait)
}

// updateView makes next the view, with the members as they are now. It needs mu.
func (s *Set) updateView(next view) {
	next.members = make([]snapshot, 0, len(s.members))
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		r := snapshot{accepted: m.claim.accepted, Member: model.Member{
			ID: id, Synced: m.synced(), Failing: m.fails(), Liveness: m.heartbeat.liveness,
			Drains: m.drains(), Labels: m.claim.peer.Labels, ConfirmMissingBefore: ptr.Deref(m.claim.peer.Spec.ConfirmMissingBefore, metav1.Time{}).Time, Added: m.claim.peer.CreationTimestamp.Time,
		}}
		if r.Synced {
			r.from = m.active
		}
		next.members = append(next.members, r)
	}
	s.view.Store(&next)
}

// Reasons for which a Peer is refused; NamespaceReserved is that of a part of it. ReasonInvalidKubeconfig alone
// leaves the connection in use that an earlier kubeconfig made.
const (
	ReasonOwnClusterID      = "OwnClusterID"
	ReasonWrongClusterSet   = "WrongClusterSet"
	ReasonSecretMissing     = "SecretMissing"
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
)

// refusals are the reasons for which nothing is read by the credential of a Peer.
var refusals = []string{ReasonOwnClusterID, ReasonWrongClusterSet, ReasonSecretMissing, ReasonInvalidKubeconfig}

// because is a failure with a message as fmt.Sprintf makes it.
func because(reason, format string, args ...any) remote.Failure {
	return remote.Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// claim is what a Peer and its Secret say.
type claim struct {
	peer *exchangev1alpha1.Peer
	// secret is nil if it is missing.
	secret *corev1.Secret
	// config is nil if the Peer or its kubeconfig is refused.
	config  *rest.Config
	refused remote.Failure
	// ignored is a part of the Peer without effect: an accepted namespace into which nothing
	// is imported all the same.
	ignored  remote.Failure
	accepted accepted
}

// accepted is what the administrator accepts from a peer.
type accepted struct {
	cidrs      []netip.Prefix
	namespaces model.Namespaces
}

// unusable reports whether the peer is not read at all, not even by the connection that
// an earlier kubeconfig made.
func (c claim) unusable() bool {
	return c.refused.Reason != "" && c.refused.Reason != ReasonInvalidKubeconfig
}

// connectsAs reports whether c and other reach the peer in the same way.
func (c claim) connectsAs(other claim) bool {
	return bytes.Equal(c.kubeconfig(), other.kubeconfig()) && c.refused == other.refused && c.isOfSameCluster(other)
}

func (c claim) kubeconfig() []byte {
	if c.secret == nil {
		return nil
	}
	return c.secret.Data[kubeconfig.SecretKey]
}

func (c claim) isOfSameCluster(other claim) bool {
	return other.peer != nil && c.peer.Spec.ClusterUID == other.peer.Spec.ClusterUID
}

// tokenExpires is when the token in the Secret expires; nil if that is not known.
func (c claim) tokenExpires() *metav1.Time {
	if c.config == nil {
		return nil
	}
	token, ok := kubeconfig.ReadToken(c.config.BearerToken)
	if !ok {
		return nil
	}
	return ptr.To(metav1.Unix(token.Expires, 0).Rfc3339Copy())
}

// readPeer reads a Peer that is that of another cluster by its name. The API server has checked
// the form of each field.
func (o *Options) readPeer(peer *exchangev1alpha1.Peer, secret *corev1.Secret) claim {
	out := claim{peer: peer, secret: secret, accepted: accepted{cidrs: model.ReadPrefixes(peer.Spec.AcceptedCIDRs...)}}
	if names := peer.Spec.AcceptedNamespaces; names != nil {
		out.accepted.namespaces = append(model.Namespaces{}, *names...)
	}
	switch {
	case peer.Spec.ClusterSet != o.ClusterSet:
		out.refused = because(ReasonWrongClusterSet, "spec.clusterset is %s; expected %q, the clusterset of this cluster; remedy: correct one of them",
			model.Quote(peer.Spec.ClusterSet), o.ClusterSet)
	case secret == nil:
		out.refused = because(ReasonSecretMissing, "spec.kubeconfigSecret: Secret %s/%s does not exist; remedy: correct the name, or run kubectl comity join again",
			o.Namespace, model.OneLine(peer.Spec.KubeconfigSecret, 64))
	default:
		config, err := kubeconfig.Sanitize(out.kubeconfig())
		if out.config = config; err != nil {
			out.refused = because(ReasonInvalidKubeconfig, "Secret %s/%s, key %s: %s", secret.Namespace, secret.Name, kubeconfig.SecretKey, err)
		}
	}
	if out.refused.Reason != "" {
		out.refused = because(out.refused.Reason, "Peer %[1]s, %[2]s; what was imported from cluster %[1]s is kept meanwhile", peer.Name, out.refused.Message)
	}
	for _, name := range out.accepted.namespaces {
		if exchange.ReservedNamespace(name) || name == o.Namespace {
			out.ignored = because(model.ReasonNamespaceReserved, "Peer %s, spec.acceptedNamespaces: %s is reserved, and nothing is imported into it; remedy: remove it", peer.Name, model.Quote(name))
			break
		}
	}
	return out
}
