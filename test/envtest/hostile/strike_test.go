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

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// attack is what b stores and what comes of it. Key is a Service, called web,
// in a namespace of its own that exists in a.
type attack struct {
	forged func(key types.NamespacedName) []forged
	// then is stored once the attack is named.
	then func(key types.NamespacedName) []forged
	// named are the parts of one text that a user of a reads; none if the
	// attack is no more than a lie that KEP-1645 lets a peer tell.
	named []string
	// stands are the backends that a has in the end; none: nothing at all.
	stands func() []string
	// unreadable: the attack makes b itself unreadable, and nobody else.
	unreadable bool
	// before prepares a.
	before func(ctx context.Context, key types.NamespacedName)
}

// maxWrites is far beyond what an attack needs, and far below a storm.
const maxWrites = 40

// strike does the attack and asserts what must hold after every one.
func strike(ctx context.Context, a attack) {
	GinkgoHelper()
	key := types.NamespacedName{Namespace: fmt.Sprintf("shop-%d", number.Add(1)), Name: "web"}
	victim.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
	reconnect(ctx)
	if a.before != nil {
		a.before(ctx, key)
	}
	since := time.Now()
	objects := a.forged(key)
	put(ctx, objects...)
	DeferCleanup(func(ctx SpecContext) { retreat(ctx, key, objects) })
	if len(a.named) > 0 {
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(ContainElement(containAll(a.named)), "the attack is named")
	}
	if a.then != nil {
		more := a.then(key)
		put(ctx, more...)
		objects = append(objects, more...)
	}
	want := []string{}
	if a.stands != nil {
		want = a.stands()
	}
	Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(want))
	everythingElseWorks(ctx, !a.unreadable)

	Eventually(func(g Gomega) {
		from := time.Now()
		g.Consistently(func() any { return writes(from) }, quiet, quiet/5).Should(BeEmpty())
	}).Should(Succeed(), "the state is final: an attack causes no retry storm")
	Expect(len(writes(since))).To(BeNumerically("<", maxWrites), "%+v", writes(since))
	Expect(victim.backends(key.Namespace, key.Name)(NewGomega(Fail), ctx)).To(Equal(want), "it stays so")
	Expect(traces(ctx, NewGomega(Fail))).To(BeEmpty(), "nothing of the attack is written")
	Expect(strayWrites(since, key.Namespace)).To(BeEmpty(), "I1: no write outside of what is Comity's")
	Expect(writtenElsewhere(since)).To(BeEmpty(), "I4: no write in another cluster")
}

// retreat takes back what an attack stored, and waits until nothing of it is
// left. So many attacks in a row look like an accident to a, so its
// administrator confirms each time.
func retreat(ctx context.Context, key types.NamespacedName, objects []forged) {
	GinkgoHelper()
	withdraw(ctx, objects...)
	put(ctx, memberRecord()) // some attacks replace it
	exported := serviceExport(key.Namespace, key.Name)
	Expect(client.IgnoreNotFound(victim.client.Delete(ctx, exported))).To(Succeed())
	Eventually(func(g Gomega) {
		patchSecret(ctx, func(s *corev1.Secret) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, model.AnnotationConfirmDeletions, time.Now().UTC().Format(time.RFC3339))
		})
		g.Expect(made(key.Namespace, key.Name)(g, ctx)).To(BeEmpty())
	}).WithPolling(500*time.Millisecond).WithContext(ctx).Should(Succeed(), "what b no longer publishes")
}

func containAll(parts []string) OmegaMatcher {
	all := make([]OmegaMatcher, len(parts))
	for i, part := range parts {
		all[i] = ContainSubstring(part)
	}
	return And(all...)
}

// reconnect makes a connect to b anew, so that it tells of bad records again:
// what is told over one connection is bounded.
func reconnect(ctx context.Context) {
	GinkgoHelper()
	patchSecret(ctx, func(s *corev1.Secret) {
		kubeconfig, _, _ := strings.Cut(string(s.Data[join.KubeconfigKey]), "\n# ")
		s.Data[join.KubeconfigKey] = fmt.Appendf(nil, "%s\n# %d\n", kubeconfig, number.Add(1))
	})
}

// patchSecret changes a's Secret of b.
func patchSecret(ctx context.Context, change func(*corev1.Secret)) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(victim.client.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: join.PeerName("b")}, secret)).To(Succeed())
	patched := secret.DeepCopy()
	change(patched)
	Expect(victim.client.Patch(ctx, patched, client.MergeFrom(secret))).To(Succeed())
}
