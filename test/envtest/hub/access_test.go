// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/install"
)

func BeForbidden() OmegaMatcher { return WithTransform(apierrors.IsForbidden, BeTrue()) }

// kinds are what an exchange namespace holds.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&exchangev1alpha1.ExportRecordList{}, &exchangev1alpha1.ImportRecordList{}, &exchangev1alpha1.NamespaceRecordList{},
		&exchangev1alpha1.MemberRecordList{}, &discoveryv1.EndpointSliceList{}, &coordinationv1.LeaseList{},
	}
}

// planted are objects of every kind, with which somebody else's exchange could be forged.
func planted(namespace string) []client.Object {
	at := metav1.ObjectMeta{Namespace: namespace, Name: "planted"}
	return []client.Object{
		&exchangev1alpha1.ExportRecord{ObjectMeta: at}, &exchangev1alpha1.ImportRecord{ObjectMeta: at}, &exchangev1alpha1.NamespaceRecord{ObjectMeta: at},
		&exchangev1alpha1.MemberRecord{ObjectMeta: at}, &discoveryv1.EndpointSlice{ObjectMeta: at, AddressType: discoveryv1.AddressTypeIPv4},
		&coordinationv1.Lease{ObjectMeta: at},
	}
}

// Invariant I4: a member that somebody took over can do no more than this.
var _ = Describe("The credential of a member in the hub", Ordered, func() {
	var asA client.Client
	own := []string{"comity-a", "comity-a-to-b", "comity-a-to-c"}
	forA := []string{"comity-b", "comity-c", "comity-b-to-a", "comity-c-to-a"}
	notForA := []string{"comity-b-to-c", "comity-c-to-b", "default", "kube-system", join.DefaultNamespace}

	BeforeAll(func(ctx SpecContext) { asA = members["a"].inHub(ctx) })

	It("writes the member's own namespaces", func(ctx SpecContext) {
		for _, namespace := range own {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"}}
			Expect(asA.Create(ctx, lease)).To(Succeed(), namespace)
			Expect(asA.Delete(ctx, lease)).To(BeForbidden(), namespace)
			Expect(theHub.client.Delete(ctx, lease)).To(Succeed(), namespace)
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"}, AddressType: discoveryv1.AddressTypeIPv4}
			Expect(asA.Create(ctx, slice)).To(Succeed(), namespace)
			Expect(asA.Delete(ctx, slice)).To(Succeed(), namespace)
		}
	})

	It("writes nothing anywhere else", func(ctx SpecContext) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"planted":"yes"}}}`))
		for _, namespace := range append(notForA, forA...) {
			for _, object := range planted(namespace) {
				Expect(asA.Patch(ctx, object, patch)).To(BeForbidden(), "patch %T in %s", object, namespace)
				Expect(asA.Delete(ctx, object)).To(BeForbidden(), "delete %T in %s", object, namespace)
				Expect(asA.Create(ctx, object)).To(BeForbidden(), "create %T in %s", object, namespace)
			}
		}
		for _, namespace := range own {
			for _, object := range []client.Object{
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "planted"}},
				&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "planted"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "any"}},
			} {
				Expect(asA.Create(ctx, object)).To(BeForbidden(), "%T in %s", object, namespace)
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			Expect(asA.Patch(ctx, ns, patch)).To(BeForbidden(), namespace)
			Expect(asA.Delete(ctx, ns)).To(BeForbidden(), namespace)
		}
		Expect(asA.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "planted"}})).To(BeForbidden())
	})

	It("reads what is for the member, and no export that is for another alone", func(ctx SpecContext) {
		for _, list := range kinds() {
			readable := append(slices.Clone(forA), own...)
			if _, is := list.(*coordinationv1.LeaseList); is {
				readable = forA // its own one it gets by name
			}
			for _, namespace := range readable {
				Expect(asA.List(ctx, list, client.InNamespace(namespace))).To(Succeed(), "%T in %s", list, namespace)
			}
			for _, namespace := range notForA {
				Expect(asA.List(ctx, list, client.InNamespace(namespace))).To(BeForbidden(), "%T in %s", list, namespace)
			}
			Expect(asA.List(ctx, list)).To(BeForbidden(), "%T in all namespaces", list)
		}
		for _, namespace := range append(append(notForA, forA...), own...) {
			Expect(asA.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))).To(BeForbidden(), "Secrets in %s", namespace)
			Expect(asA.List(ctx, &corev1.ServiceAccountList{}, client.InNamespace(namespace))).To(BeForbidden(), "accounts in %s", namespace)
		}
	})

	It("sees of namespaces the member's own, by name", func(ctx SpecContext) {
		for _, namespace := range own {
			Expect(asA.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})).To(Succeed(), namespace)
		}
		for _, namespace := range append(notForA, forA...) {
			Expect(asA.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})).To(BeForbidden(), namespace)
		}
		Expect(asA.List(ctx, &corev1.NamespaceList{})).To(BeForbidden())
	})

	It("renews itself and becomes nobody else", func(ctx SpecContext) {
		account := func(name string) *corev1.ServiceAccount {
			return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: join.DefaultNamespace, Name: name}}
		}
		Expect(asA.SubResource("token").Create(ctx, account("member-a"), &authenticationv1.TokenRequest{})).To(Succeed())
		for _, other := range []string{"member-b", "member-c", "comity", "default"} {
			Expect(asA.SubResource("token").Create(ctx, account(other), &authenticationv1.TokenRequest{})).To(BeForbidden(), other)
		}
	})

	It("renews itself for no longer and for no other audience than join set", func(ctx SpecContext) {
		rendered, err := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(install.Root(), "config", "admission", "tokens")).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(clusters.Apply(ctx, theHub.RESTConfig(), rendered)).To(Succeed())
		renew := func(expiry time.Duration, audiences ...string) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: join.DefaultNamespace, Name: "member-a"}}
			seconds := int64(expiry / time.Second)
			return asA.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: &seconds, Audiences: audiences,
			}})
		}
		// The API server enforces a policy a moment after it is stored.
		Eventually(ctx, func() error { return renew(join.DefaultExpiry + time.Hour) }).Should(And(BeForbidden(),
			MatchError(ContainSubstring("spec.expirationSeconds: 90000 s; a token of member-a is valid for 24h0m0s at most"))))
		Expect(renew(time.Hour, "sts.example.com")).To(And(BeForbidden(), MatchError(ContainSubstring("spec.audiences: sts.example.com"))))
		Expect(renew(join.DefaultExpiry)).To(Succeed())
	})
})
