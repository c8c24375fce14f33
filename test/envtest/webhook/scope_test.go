// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/model"
)

// asPrinted is the export of the documentation, as users copy it.
const asPrinted = `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata:
  name: internal-api
  namespace: production
  labels:
    # Only export to specific clusters
    export-to: "cluster-2,cluster-3"
`

var versions = []string{"v1alpha1", "v1beta1"}

// parse reads one object of any kind.
func parse(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &object.Object)).To(Succeed())
	return object
}

// export is a ServiceExport of one version.
func export(version, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("multicluster.x-k8s.io/" + version)
	object.SetKind("ServiceExport")
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// scoped is an export with the annotation comity.dev/export-to.
func scoped(version, namespace, name, scope string) *unstructured.Unstructured {
	object := export(version, namespace, name)
	object.SetAnnotations(map[string]string{model.AnnotationExportTo: scope})
	return object
}

// storedExport is what the API server holds.
func storedExport(ctx SpecContext, namespace, name string) *mcsv1beta1.ServiceExport {
	GinkgoHelper()
	stored := &mcsv1beta1.ServiceExport{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, stored)).To(Succeed())
	return stored
}

var _ = Describe("The export-to label", func() {
	It("is stored as an annotation, exactly as the documentation prints it", func(ctx SpecContext) {
		production := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "production"}}
		Expect(k8s.Create(ctx, production)).To(Succeed())
		Expect(k8s.Create(ctx, parse(asPrinted))).To(Succeed())
		stored := storedExport(ctx, "production", "internal-api")
		Expect(stored.Annotations).To(HaveKeyWithValue("comity.dev/export-to", "cluster-2,cluster-3"))
		Expect(stored.Labels).NotTo(HaveKey("export-to"))
	})

	for _, version := range versions {
		It("moves when it comes with other labels and annotations, in "+version, func(ctx SpecContext) {
			namespace := newNamespace(ctx, nil)
			object := scoped(version, namespace, "web", "cluster-2")
			object.SetLabels(map[string]string{"export-to": "cluster-2", "app": "web"})
			Expect(k8s.Create(ctx, object)).To(Succeed())
			stored := storedExport(ctx, namespace, "web")
			Expect(stored.Labels).To(Equal(map[string]string{"app": "web"}))
			Expect(stored.Annotations).To(Equal(map[string]string{model.AnnotationExportTo: "cluster-2"}))
		})

		It("is refused when the annotation says otherwise, in "+version, func(ctx SpecContext) {
			object := scoped(version, newNamespace(ctx, nil), "web", "cluster-2")
			object.SetLabels(map[string]string{"export-to": "cluster-2,cluster-3"})
			err := k8s.Create(ctx, object)
			Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(
				ContainSubstring(`label export-to is "cluster-2,cluster-3", but annotation comity.dev/export-to is "cluster-2"`),
				ContainSubstring("Remedy: keep the annotation and remove the label"))))
		})

		It("moves with server-side apply, again and again, in "+version, func(ctx SpecContext) {
			namespace := newNamespace(ctx, nil)
			for _, scope := range []string{"cluster-2,cluster-3", "cluster-2,cluster-3", "cluster-3"} {
				object := export(version, namespace, "web")
				object.SetLabels(map[string]string{"export-to": scope})
				Expect(k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("tester"))).To(Succeed())
				stored := storedExport(ctx, namespace, "web")
				Expect(stored.Labels).To(BeEmpty())
				Expect(stored.Annotations).To(HaveKeyWithValue(model.AnnotationExportTo, scope))
			}
		})
	}

	It("moves with kubectl apply of a manifest that is edited and applied again", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		for _, scope := range []string{"cluster-2,cluster-3", "cluster-2,cluster-3", "cluster-3"} {
			manifest := strings.Replace(asPrinted, "namespace: production", "namespace: "+namespace, 1)
			manifest = strings.Replace(manifest, "cluster-2,cluster-3", scope, 1)
			apply(manifest)
			Expect(storedExport(ctx, namespace, "internal-api").Annotations).To(HaveKeyWithValue(model.AnnotationExportTo, scope))
		}
	})
})

// apply runs kubectl apply, as an administrator.
func apply(manifest string) {
	GinkgoHelper()
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	Expect(err).NotTo(HaveOccurred())
	kubectl, err := user.Kubectl()
	Expect(err).NotTo(HaveOccurred())
	file := GinkgoT().TempDir() + "/manifest.yaml"
	Expect(writeFile(file, manifest)).To(Succeed())
	_, stderr, err := kubectl.Run("apply", "-f", file)
	said, _ := io.ReadAll(stderr)
	Expect(err).NotTo(HaveOccurred(), fmt.Sprintf("kubectl apply: %s", said))
}

var _ = Describe("The scope of an export", func() {
	for _, version := range versions {
		DescribeTable("is refused with one clear message, in "+version,
			func(ctx SpecContext, scope string, wanted ...string) {
				namespace := newNamespace(ctx, nil)
				for _, asLabel := range []bool{false, true} {
					object := scoped(version, namespace, "web", scope)
					if asLabel {
						object.SetAnnotations(nil)
						object.SetLabels(map[string]string{"export-to": scope})
					}
					err := k8s.Create(ctx, object)
					Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
					first, rest, _ := strings.Cut(err.Error(), "\n")
					Expect(first).To(HaveSuffix(fmt.Sprintf("ServiceExport %s/web was refused by 1 policy:", namespace)))
					Expect(strings.Split(rest, "\n")).To(HaveLen(1), "one violation, one line: %s", rest)
					Expect(rest).To(HavePrefix(`[export-scope] metadata.annotations["comity.dev/export-to"]: `))
					Expect(rest).To(ContainSubstring("Remedy: "))
					for _, words := range wanted {
						Expect(rest).To(ContainSubstring(words))
					}
				}
			},
			Entry("when it names an unknown cluster", "cluster-2,cluster-9", "cluster-9", "cluster-2, cluster-3, cluster-4"),
			Entry("when it names this cluster itself", "cluster-1", `"cluster-1"`, "itself"),
			Entry("when it names nothing", "", "names no cluster"),
			Entry("when it is no list of ids", "cluster-2,,cluster-3", `item 2 of "cluster-2,,cluster-3" is empty`),
			Entry("when an item is no cluster id", "cluster-2,Cluster.3", `"Cluster.3"`, "RFC 1123"),
		)
	}

	It("is refused beyond the limit of the namespace", func(ctx SpecContext) {
		namespace := newNamespace(ctx, map[string]string{model.AnnotationExportTo: "cluster-2"})
		err := k8s.Create(ctx, scoped("v1beta1", namespace, "web", "cluster-2,cluster-3"))
		Expect(err).To(MatchError(And(ContainSubstring("[export-scope]"), ContainSubstring("limits its exports to: cluster-2"))))
		Expect(k8s.Create(ctx, scoped("v1beta1", namespace, "web", "cluster-2"))).To(Succeed())
	})

	It("is checked again when it is changed", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, scoped("v1beta1", namespace, "web", "cluster-2"))).To(Succeed())
		stored := storedExport(ctx, namespace, "web")
		stored.Annotations[model.AnnotationExportTo] = "cluster-9"
		Expect(k8s.Update(ctx, stored)).To(MatchError(ContainSubstring("cluster-9")))
	})

	It("is stored with a warning when a cluster in it lacks the namespace", func(ctx SpecContext) {
		Expect(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: absentNamespace}})).To(Succeed())
		warnings.Take()
		Expect(k8s.Create(ctx, scoped("v1beta1", absentNamespace, "web", "cluster-2,cluster-3"))).To(Succeed())
		Expect(warnings.Take()).To(ConsistOf(And(
			HavePrefix("[namespace-sameness] "), ContainSubstring("cluster cluster-3 publishes no namespace "+absentNamespace))))
	})
})
