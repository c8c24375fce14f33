// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("confirm missing", func() {
	noon := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	before := func() *metav1.Time {
		GinkgoHelper()
		var p exchangev1alpha1.Peer
		Expect(target.Client.Get(scratch, client.ObjectKey{Name: "b"}, &p)).To(Succeed())
		return p.Spec.ConfirmMissingBefore
	}

	It("lists what is missing, asks, and confirms just that", func() {
		peer("b", nil)
		namespace := newNamespace()
		imported(namespace, "web", nil, entry("b", "u", model.SourceMissing, noon), entry("c", "v", "", time.Time{}))
		imported(namespace, "db", nil, entry("b", "u", model.SourceMissing, noon.Add(-time.Hour)))
		imported(namespace, "other", nil, entry("c", "u", model.SourceMissing, noon.Add(time.Hour)), entry("b", "u", "", time.Time{}))
		got := run("confirm", "missing", "b", "--context", "a")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(And(ContainSubstring(namespace+"/db, since 2020-01-01T11:00:00Z\n"), ContainSubstring(namespace+"/web, since 2020-01-01T12:00:00Z\n"),
			Not(ContainSubstring("other")), ContainSubstring("pass --yes to continue")))
		Expect(before()).To(BeNil())
		got = run("confirm", "missing", "b", "--yes")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(Equal("Confirmed: 2 missing exports of cluster b are gone.\n"))
		Expect(before().Time.Equal(noon)).To(BeTrue(), "the newest that was shown, not the time of this machine")

		By("confirming again, which changes nothing")
		Expect(run("confirm", "missing", "b", "--yes").code).To(BeZero())
		Expect(before().Time.Equal(noon)).To(BeTrue())
	})
	It("refuses a time that is to come, until which more may disappear", func() {
		peer("b", nil)
		imported(newNamespace(), "web", nil, entry("b", "u", model.SourceMissing, time.Now().Add(time.Hour)))
		got := run("confirm", "missing", "b", "--yes")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("correct the clock of the cluster or of this machine"))
		Expect(before()).To(BeNil())
	})
	It("says that nothing is missing, or that there is no Peer", func() {
		Expect(run("confirm", "missing", "b").out).To(Equal("No export of cluster b is missing.\n"))
		imported(newNamespace(), "web", nil, entry("b", "u", model.SourceMissing, noon))
		got := run("confirm", "missing", "b", "--yes")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("there is no Peer b; to remove all that is imported from cluster b, run kubectl comity leave --id b a"))
		Expect(run("confirm", "missing", "B").err).To(ContainSubstring("is not one RFC 1123 label"))
	})
})

var _ = Describe("confirm takeover", func() {
	held := []metav1.Condition{is("TakeoverHeld", "True", "TakeoverHeld", "an export of cluster c would change it")}
	waits := []model.Entry{entry("b", "u", "", time.Time{}), older(entry("c", "uid-of-c", "", time.Time{}))}
	confirmed := func(i *mcsv1beta1.ServiceImport) string {
		GinkgoHelper()
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(i), i)).To(Succeed())
		return i.Annotations[model.AnnotationConfirmTakeover]
	}

	It("lets the export that waits decide, or one of the list while those before it are absent", func() {
		namespace := newNamespace()
		waiting := imported(namespace, "waiting", held, waits...)
		frozen := imported(namespace, "frozen", []metav1.Condition{is("Frozen", "True", "NotRead", "cluster b is not read")}, entry("b", "u", "", time.Time{}), entry("c", "listed", "", time.Time{}))
		second := imported(namespace, "second", nil, entry("b", "u", "", time.Time{}), entry("c", "listed", "", time.Time{}))
		got := run("confirm", "takeover", namespace+"/waiting", "--from", "c", "--context", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect(confirmed(waiting)).To(Equal("c/uid-of-c"))
		Expect(run("confirm", "takeover", namespace+"/frozen", "--from", "c").code).To(BeZero())
		Expect(confirmed(frozen)).To(Equal("c/listed"))
		got = run("confirm", "takeover", namespace+"/second", "--from", "c")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("no export of cluster c waits for ServiceImport " + namespace + "/second"))
		Expect(confirmed(second)).To(BeEmpty())
	})
	It("confirms all of a cluster, and asks", func() {
		namespace := newNamespace()
		one, two := imported(namespace, "one", held, waits...), imported(namespace, "two", held, waits...)
		other := imported(namespace, "other", nil, entry("b", "u", "", time.Time{}))
		got := run("confirm", "takeover", "--all", "--from", "c")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(And(ContainSubstring(namespace+"/one\n"), ContainSubstring(namespace+"/two\n"), Not(ContainSubstring("/other"))))
		Expect(confirmed(one)).To(BeEmpty())
		got = run("confirm", "takeover", "--all", "--from", "c", "-y")
		Expect(got.code).To(BeZero(), got.err)
		Expect([]string{confirmed(one), confirmed(two), confirmed(other)}).To(Equal([]string{"c/uid-of-c", "c/uid-of-c", ""}))
		Expect(run("confirm", "takeover", "--all", "--from", "d").out).To(Equal("No import waits for an export of cluster d.\n"))
	})
	DescribeTable("refuses", func(message string, args ...string) {
		got := run(append([]string{"confirm", "takeover"}, args...)...)
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring(message))
	},
		Entry("no cluster", `required flag(s) "from" not set`, "shop/web"),
		Entry("neither name nor --all", "expected either NAMESPACE/NAME or --all", "--from", "c"),
		Entry("both", "expected either NAMESPACE/NAME or --all", "shop/web", "--all", "--from", "c"),
		Entry("no namespace", `"web": expected NAMESPACE/NAME, such as shop/web`, "web", "--from", "c"),
	)
})

var _ = Describe("confirm lost", func() {
	confirmed := func(namespace, name string) string {
		GinkgoHelper()
		var record exchangev1alpha1.ExportRecord
		Expect(target.Client.Get(scratch, types.NamespacedName{Namespace: model.ExchangeNamespace("a"), Name: model.RecordName(namespace, name)}, &record)).To(Succeed())
		return record.Annotations[model.AnnotationConfirmLost]
	}

	It("confirms one by its name, or all and asks, and no export that is not lost", func() {
		namespace := newNamespace()
		export := func(name string) *mcsv1beta1.ServiceExport {
			return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}}
		}
		lose(export("web"))
		lose(export("db"))
		publish(export("kept"))
		got := run("confirm", "lost", namespace+"/web", "--context", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect([]string{confirmed(namespace, "web"), confirmed(namespace, "db"), confirmed(namespace, "kept")}).To(Equal([]string{"true", "", ""}))
		got = run("confirm", "lost", namespace+"/kept")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("no export " + namespace + "/kept is lost in this cluster"))
		got = run("confirm", "lost", "--all")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(And(ContainSubstring(namespace+"/db of cluster a\n"), Not(ContainSubstring("/web")), Not(ContainSubstring("/kept"))))
		Expect(run("confirm", "lost", "--all", "--yes").code).To(BeZero())
		Expect(confirmed(namespace, "db")).To(Equal("true"))
		Expect(run("confirm", "lost", "--all").out).To(Equal("No export is lost.\n"))
	})
})

// publish makes the record of an export in the exchange of cluster a, as the agent does.
func publish(export *mcsv1beta1.ServiceExport) { publishAs(export, false) }

// lose publishes an export whose ServiceExport disappeared with a restore.
func lose(export *mcsv1beta1.ServiceExport) { publishAs(export, true) }

func publishAs(export *mcsv1beta1.ServiceExport, lost bool) {
	GinkgoHelper()
	exchange := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: model.ExchangeNamespace("a"), Labels: map[string]string{model.LabelExchangeFrom: "a"}}}
	Expect(client.IgnoreAlreadyExists(target.Client.Create(scratch, exchange))).To(Succeed())
	record := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "exchange.comity.dev/v1alpha1", "kind": "ExportRecord",
		"metadata": map[string]any{"namespace": exchange.Name, "name": model.RecordName(export.Namespace, export.Name)},
		"spec": map[string]any{
			"service": map[string]any{"namespace": export.Namespace, "name": export.Name}, "exportUID": string(export.UID),
			"exportedAt": "2026-01-01T00:00:00Z", "type": "ClusterSetIP", "lost": lost,
		},
	}}
	Expect(target.Client.Apply(scratch, client.ApplyConfigurationFromUnstructured(record), client.FieldOwner(model.FieldOwner), client.ForceOwnership)).To(Succeed())
	DeferCleanup(func() { Expect(target.Client.Delete(scratch, record)).To(Succeed()) })
}
