// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const report = "if the agent sent this, report it as a bug; if not, replace its credentials"

var _ = Describe("a stolen token of Comity's account", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = importing(ctx) }, NodeTimeout(time.Minute))

	refused := func(err error, message string) {
		GinkgoHelper()
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring(message), ContainSubstring(report))))
	}

	It("changes no Service but derived ones", func(ctx SpecContext) {
		const message = "writes derived Services only, which are called derived-<number>, not "
		theirs := service(w.ns, "web", nil)
		Expect(alice.Create(ctx, theirs)).To(Succeed())
		refused(agent.Create(ctx, service(w.ns, "api", nil)), message+"api")
		refused(agent.Create(ctx, service(w.ns, "derived-web", nil)), message+"derived-web")
		refused(merge(ctx, agent, theirs, patch{"spec": patch{"selector": patch{"app": "mine"}}}), message+"web")
		refused(agent.Delete(ctx, theirs), message+"web")
	}, SpecTimeout(time.Minute))

	It("gives a derived Service no address of others", func(ctx SpecContext) {
		const message = "a derived Service is of type ClusterIP and gets no externalIPs"
		refused(merge(ctx, agent, w.derived, patch{"spec": patch{"externalIPs": []string{"192.0.2.1"}}}), message)
		refused(merge(ctx, agent, w.derived, patch{"spec": patch{"type": "LoadBalancer"}}), message)
		external := service(w.ns, "derived-12", nil)
		external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		refused(agent.Create(ctx, external), message)
	}, SpecTimeout(time.Minute))

	It("feeds no other Service", func(ctx SpecContext) {
		const message = "writes EndpointSlices only of derived Services"
		theirs, serves := slice(w.ns, "web-1", "web", nil), slice(w.ns, "idle", "", nil)
		Expect(alice.Create(ctx, theirs)).To(Succeed())
		Expect(alice.Create(ctx, serves)).To(Succeed())
		refused(agent.Create(ctx, slice(w.ns, "web-2", "web", nil)), message)
		refused(agent.Create(ctx, slice(w.ns, "derived-1-b", "web", nil)), message)
		refused(agent.Create(ctx, slice(w.ns, "derived-1-b", "", nil)), message)
		refused(agent.Create(ctx, slice(own, "comity-webhook-1", "comity-webhook", nil)), message)
		refused(merge(ctx, agent, theirs, patch{"endpoints": []patch{}}), message)
		refused(merge(ctx, agent, theirs, metadata("labels", patch{discoveryv1.LabelServiceName: "derived-1"})), message)
		refused(merge(ctx, agent, serves, metadata("labels", patch{"team": "x"})), message)
		refused(merge(ctx, agent, w.slice, metadata("labels", patch{discoveryv1.LabelServiceName: "web"})), message)
		refused(agent.Delete(ctx, theirs), message)

		By("also of a user's Service whose name looks like that of a derived one")
		data, sveltos := slice(w.ns, "derived-data-1", "derived-data", nil), slice(w.ns, "derived-7-b", "derived-7", nil)
		Expect(alice.Create(ctx, data)).To(Succeed())
		Expect(alice.Create(ctx, sveltos)).To(Succeed())
		refused(merge(ctx, agent, data, metadata("labels", patch{discoveryv1.LabelServiceName: "derived-1"})), message)
		refused(agent.Delete(ctx, data), message)
		By("but those of an earlier pipeline, of which it takes over the derived Service")
		Expect(merge(ctx, agent, sveltos, metadata("labels", patch{discoveryv1.LabelManagedBy: model.ManagedBy}))).To(Succeed())
		Expect(agent.Delete(ctx, sveltos)).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("makes, changes and removes no Peer, but says what is known of one", func(ctx SpecContext) {
		forbidden := func(err error) {
			GinkgoHelper()
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		}
		peer := func(name string) *exchangev1alpha1.Peer {
			return &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: exchangev1alpha1.PeerSpec{ClusterSet: "set", ClusterUID: "u", KubeconfigSecret: "s"}}
		}
		b := peer("b")
		Expect(alice.Create(ctx, b)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(alice.Delete(ctx, b)).To(Succeed()) })
		forbidden(agent.Create(ctx, peer("x")))
		forbidden(merge(ctx, agent, b, patch{"spec": patch{"removed": true}}))
		forbidden(merge(ctx, agent, b, patch{"spec": patch{"clusterUID": "v"}}))
		forbidden(agent.Delete(ctx, b))
		Expect(agent.SubResource("status").Patch(ctx, b.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"removed":true},"status":{"version":"v1"}}`)))).To(Succeed())
		Expect(agent.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
		Expect(b.Status.Version).To(Equal("v1"))
		Expect(b.Spec.Removed).To(BeFalse(), "status changes no spec")
	}, SpecTimeout(time.Minute))

	It("publishes in no namespace that somebody else made under the name of an exchange", func(ctx SpecContext) {
		fake := namespace("comity-fake")
		fake.Labels = map[string]string{model.LabelExchangeFrom: "fake"}
		Expect(alice.Create(ctx, fake)).To(Succeed())
		refused(agent.Create(ctx, slice("comity-fake", w.ns+".web-1", "", sliceManagedBy)), "in exchange namespaces that kubectl comity join made")
	}, SpecTimeout(time.Minute))

	It("but it publishes in exchange namespaces", func(ctx SpecContext) {
		joined(ctx, "e", nil)
		published := slice("comity-a", w.ns+".web-1", "", sliceManagedBy)
		Expect(agent.Create(ctx, published)).To(Succeed())
		Expect(merge(ctx, agent, published, patch{"endpoints": []patch{}})).To(Succeed())
		refused(merge(ctx, agent, published, metadata("labels", patch{discoveryv1.LabelServiceName: "web"})), "copies without that label in exchange namespaces")
		Expect(agent.Delete(ctx, published)).To(Succeed())
	}, SpecTimeout(time.Minute))
})

// joined gives the account of a peer of a what kubectl comity join gives it, and
// acts as it.
func joined(ctx context.Context, id model.ClusterID, annotations map[string]string) (client.Client, string) {
	GinkgoHelper()
	_, objects, err := join.Objects(nil, join.Cluster{ID: "a", Set: "set"}, join.Cluster{ID: id, Set: "set"})
	Expect(err).NotTo(HaveOccurred())
	name := model.PeerName(id)
	for _, o := range objects[0] {
		if account, is := o.(*corev1.ServiceAccount); is {
			account.Annotations = annotations
		}
		Expect(client.IgnoreAlreadyExists(admin.Create(ctx, o))).To(Succeed())
	}
	return as(user(name)), name
}

var _ = Describe("the account of a peer", func() {
	// audience is the API server's own, which a token is for that asks for none.
	audience := func(ctx SpecContext) string {
		GinkgoHelper()
		asked := &authenticationv1.TokenRequest{}
		Expect(admin.SubResource("token").Create(ctx, account("trial", nil), asked)).To(Succeed())
		Expect(asked.Spec.Audiences).To(HaveLen(1))
		return asked.Spec.Audiences[0]
	}
	// seen waits until the API server evaluates the policy with the account.
	seen := func(ctx SpecContext, c client.Client, name string, tooLong time.Duration) {
		GinkgoHelper()
		Eventually(ctx, func() error { return request(ctx, c, name, tooLong) }).Should(MatchError(ContainSubstring("spec.expirationSeconds")))
	}

	It("renews its token for no longer and for no other audience than it was joined for", func(ctx SpecContext) {
		issuer := audience(ctx)
		peer, name := joined(ctx, "b", map[string]string{model.AnnotationTokenExpiry: "24h0m0s", model.AnnotationTokenAudiences: issuer})
		seen(ctx, peer, name, 24*time.Hour+time.Second)
		Expect(request(ctx, peer, name, 24*time.Hour)).To(Succeed(), "without an audience it is the API server's")
		Expect(request(ctx, peer, name, time.Hour, issuer)).To(Succeed())
		err := request(ctx, peer, name, 25*time.Hour)
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("spec.expirationSeconds: 90000 s; a token of peer-b is valid for 24h0m0s at most; kubectl comity rotate --expiry sets another limit")))
		Expect(request(ctx, peer, name, time.Hour, "sts.example.com")).To(MatchError(ContainSubstring(
			"spec.audiences: sts.example.com; a token of peer-b is for " + issuer + " only; kubectl comity rotate records the audience of this API server again")))
	}, SpecTimeout(time.Minute))

	It("that an earlier version joined goes on for 30 days", func(ctx SpecContext) {
		peer, name := joined(ctx, "c", nil)
		seen(ctx, peer, name, 31*24*time.Hour)
		Expect(request(ctx, peer, name, 30*24*time.Hour, "sts.example.com")).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("is given any token by an administrator, and other accounts are not limited", func(ctx SpecContext) {
		peer, name := joined(ctx, "d", map[string]string{model.AnnotationTokenExpiry: "1h"})
		seen(ctx, peer, name, 2*time.Hour)
		Expect(request(ctx, admin, name, 48*time.Hour, "sts.example.com")).To(Succeed())
		other := account("other", nil)
		other.Labels = nil
		Expect(admin.Create(ctx, other)).To(Succeed())
		Expect(request(ctx, as(user("other"), "system:masters"), "other", 48*time.Hour, "sts.example.com")).To(Succeed())
	}, SpecTimeout(time.Minute))
})
