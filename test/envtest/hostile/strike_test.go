// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// attack is what b stores and what comes of it. Key is a Service, called web,
// in a namespace of its own that exists in a.
type attack struct {
	title  string
	forged func(key types.NamespacedName) []forged
	// then is stored once the attack is named.
	then func(key types.NamespacedName) []forged
	// named are the parts of one text that a user of a reads; none if the
	// attack is no more than a lie that KEP-1645 lets a peer tell.
	named []string
	// invalid is how many records a refuses, which condition RecordsValid of Peer b counts.
	invalid int
	// reported is the field that a reports to b as not valid; empty if it reports nothing.
	reported string
	// stands are the backends that a has in the end; none: nothing at all.
	stands func() []string
	// unreadable: the attack makes b itself unreadable, and nobody else.
	unreadable bool
	// before prepares a.
	before func(ctx context.Context, key types.NamespacedName)
}

// maxWrites is far beyond what an attack needs, and far below a storm.
const maxWrites = 40

// strike does attacks at once and asserts what must hold after every one.
func strike(ctx context.Context, attacks ...attack) {
	GinkgoHelper()
	keys, namespaces, readable, invalid := make([]types.NamespacedName, len(attacks)), []string{}, true, 0
	for i, a := range attacks {
		keys[i] = types.NamespacedName{Namespace: fmt.Sprintf("shop-%d", number.Add(1)), Name: "web"}
		namespaces = append(namespaces, keys[i].Namespace)
		readable, invalid = readable && !a.unreadable, invalid+a.invalid
		victim.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys[i].Namespace}})
		if a.unreadable {
			reconnect(ctx)
		}
		if a.before != nil {
			a.before(ctx, keys[i])
		}
	}
	since := time.Now()
	var objects []forged
	DeferCleanup(func(ctx SpecContext) { retreat(ctx, objects, keys...) })
	for i, a := range attacks {
		made := a.forged(keys[i])
		objects = append(objects, made...)
		put(ctx, made...)
	}
	if invalid > 0 {
		Eventually(told("", "")).WithContext(ctx).Should(ContainElement(And(
			HavePrefix("condition RecordsValid=False/InvalidRecord: "), ContainSubstring("not valid: %d, such as: ", invalid))), "the records are counted")
	}
	for i, a := range attacks {
		want := []string{}
		if a.stands != nil {
			want = a.stands()
		}
		if len(a.named) > 0 {
			Eventually(told(keys[i].Namespace, keys[i].Name)).WithContext(ctx).Should(ContainElement(containAll(a.named)), "the attack is named: %s", a.title)
		}
		if a.reported != "" {
			Eventually(reportIn(ctx, model.ScopedExchangeNamespace("a", "b"), keys[i])).WithContext(ctx).Should(HaveField("Spec", And(HaveField("Imported", false),
				HaveField("Reason", model.ReasonInvalidRecord), HaveField("Message", ContainSubstring("field "+a.reported+" is not valid")))), a.title)
		}
		if a.then != nil {
			more := a.then(keys[i])
			put(ctx, more...)
			objects = append(objects, more...)
		}
		Eventually(victim.backends(keys[i].Namespace, keys[i].Name)).WithContext(ctx).Should(Equal(want), a.title)
	}
	everythingElseWorks(ctx, readable)

	Eventually(func(g Gomega) {
		from := time.Now()
		g.Consistently(func() any { return writes(from) }, quiet, quiet/5).Should(BeEmpty())
	}).Should(Succeed(), "the state is final: an attack causes no retry storm")
	Expect(len(writes(since))).To(BeNumerically("<", maxWrites*len(attacks)), "%+v", writes(since))
	for i, a := range attacks {
		want := []string{}
		if a.stands != nil {
			want = a.stands()
		}
		Expect(victim.backends(keys[i].Namespace, keys[i].Name)(NewGomega(Fail), ctx)).To(Equal(want), "it stays so: %s", a.title)
	}
	Expect(traces(ctx, NewGomega(Fail))).To(BeEmpty(), "nothing of the attack is written")
	Expect(strayWrites(since, namespaces...)).To(BeEmpty(), "I1: no write outside of what is Comity's")
	Expect(writtenElsewhere(since)).To(BeEmpty(), "I4: no write in another cluster")
}

// retreat takes back what attacks stored, and waits until nothing of it is left. It states
// no withdrawal, so the administrator of a confirms that it is gone.
func retreat(ctx context.Context, objects []forged, keys ...types.NamespacedName) {
	GinkgoHelper()
	withdraw(ctx, objects...)
	put(ctx, memberRecord()) // some attacks replace it
	for _, key := range keys {
		Expect(client.IgnoreNotFound(victim.client.Delete(ctx, serviceExport(key.Namespace, key.Name)))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		now := metav1.Now()
		patchPeer(ctx, func(s *exchangev1alpha1.PeerSpec) { s.ConfirmMissingBefore = &now })
		for _, key := range keys {
			g.Expect(made(key.Namespace, key.Name)(g, ctx)).To(BeEmpty())
		}
	}).WithPolling(500*time.Millisecond).WithContext(ctx).Should(Succeed(), "what b no longer publishes")
}

func containAll(parts []string) OmegaMatcher {
	all := make([]OmegaMatcher, len(parts))
	for i, part := range parts {
		all[i] = ContainSubstring(part)
	}
	return And(all...)
}

// reconnect makes a connect to b anew. Over one connection, a MemberRecord that changes
// between valid and not is soon read only every few minutes.
func reconnect(ctx context.Context) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(victim.client.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: model.PeerName("b")}, secret)).To(Succeed())
	patched := secret.DeepCopy()
	kubeconfig, _, _ := strings.Cut(string(secret.Data[join.KubeconfigKey]), "\n# ")
	patched.Data[join.KubeconfigKey] = fmt.Appendf(nil, "%s\n# %d\n", kubeconfig, number.Add(1))
	Expect(victim.client.Patch(ctx, patched, client.MergeFrom(secret))).To(Succeed())
}

// patchPeer changes a's Peer b.
func patchPeer(ctx context.Context, change func(*exchangev1alpha1.PeerSpec)) {
	GinkgoHelper()
	peer := &exchangev1alpha1.Peer{}
	Expect(victim.client.Get(ctx, types.NamespacedName{Name: "b"}, peer)).To(Succeed())
	patched := peer.DeepCopy()
	change(&patched.Spec)
	Expect(victim.client.Patch(ctx, patched, client.MergeFrom(peer))).To(Succeed())
}
