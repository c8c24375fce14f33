// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

var since = time.Date(2026, 11, 21, 10, 2, 11, 0, time.UTC)

func waiting(id model.ClusterID) model.Report {
	return model.Report{Cluster: id, Reason: model.ReasonPending}
}

func importing(id model.ClusterID) model.Report {
	return model.Report{Cluster: id, Imported: true, Reason: model.ReasonImported, Since: since}
}

func lacking(id model.ClusterID) model.Report {
	return model.Report{
		Cluster: id, Reason: model.ReasonNamespaceMissing, Since: since, Message: "namespace shop does not exist there; create it",
	}
}

// expectMessage waits until a condition has this status, reason and message.
func expectMessage(read func() []metav1.Condition, typ, want string) {
	GinkgoHelper()
	Eventually(func() string {
		if c := meta.FindStatusCondition(read(), typ); c != nil {
			return string(c.Status) + "/" + c.Reason + ": " + c.Message
		}
		return ""
	}).WithTimeout(patience).Should(Equal(want))
}

var _ = Describe("Available", func() {
	var key types.NamespacedName

	BeforeEach(func(ctx SpecContext) {
		key = types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
	})

	It("follows the clusters in scope, tells of each turn once, and outlives a restart", func(ctx SpecContext) {
		read := func() []metav1.Condition { return getExport(ctx, key).Status.Conditions }
		createService(ctx, key)
		createExport(ctx, key)
		world.report(key, waiting("b"), waiting("c"))
		world.observe(key, published())
		expectMessage(read, "Available", "Unknown/Pending: imported by 0 of 2 clusters; not reported yet by b, c")
		world.report(key, importing("b"), importing("c"))
		expectMessage(read, "Available", "True/Imported: imported by all 2 clusters in scope: b, c")

		world.pass(time.Minute)
		world.report(key, importing("b"), lacking("c"))
		expectMessage(read, "Available", "False/NamespaceMissing: imported by 1 of 2 clusters; "+
			"NamespaceMissing in c since 2026-11-21T10:02:11Z: namespace shop does not exist there; create it")
		settle(ctx, key.Namespace)
		version := getExport(ctx, key).ResourceVersion

		By("a restart after which c is read late")
		stop()
		world.forget(key)
		start()
		unread := waiting("c")
		unread.Unsynced = true
		world.observe(key, published())
		world.report(key, importing("b"), unread)
		settle(ctx, key.Namespace)
		world.report(key, importing("b"), lacking("c"))
		world.observe(key, published())
		settle(ctx, key.Namespace)
		Expect(getExport(ctx, key).ResourceVersion).To(Equal(version))

		By("c getting the namespace")
		world.report(key, importing("b"), importing("c"))
		expectMessage(read, "Available", "True/Imported: imported by all 2 clusters in scope: b, c")
		expectEvents(ctx, key, "ServiceExport", "Exported", "Imported", "NamespaceMissing", "Imported")
	})

	It("is written once per interval while five clusters flip, and the last state lands (fault 25)", func(ctx SpecContext) {
		createService(ctx, key)
		createExport(ctx, key)
		world.observe(key, published())
		expectConditions(ctx, key, map[string]string{
			"Valid": "True/Valid", "Ready": "True/Exported", "Conflict": "False/NoConflicts", "Admitted": "True/Admitted",
		})
		settle(ctx, key.Namespace)
		world.pass(time.Hour) // what was written so far counts no more
		world.freeze()
		DeferCleanup(world.thaw)
		writes := writesTo("serviceexports", key)
		flip := func(i int) model.Observation {
			c := conflict
			c.Message = fmt.Sprintf("flip %d.", i)
			return published(c)
		}
		for i := range 20 {
			world.observe(key, flip(i))
			settle(ctx, key.Namespace)
		}
		read := func() []metav1.Condition { return getExport(ctx, key).Status.Conditions }
		expectMessage(read, "Conflict", "True/PortConflict: flip 0.")
		Expect(writesTo("serviceexports", key)-writes).To(Equal(1), "the first goes at once")

		By("the interval passing, in which nothing else happens")
		world.pass(interval)
		expectMessage(read, "Conflict", "True/PortConflict: flip 19.")
		Expect(writesTo("serviceexports", key)-writes).To(Equal(2), "the last state lands by itself")
	})

	It("says of an import which clusters are connected, what is missing, and what freezes it", func(ctx SpecContext) {
		read := func() []metav1.Condition { return getImport(ctx, key).Status.Conditions }
		apply(ctx, model.FieldOwner, key.Namespace, importText)
		apply(ctx, model.FieldOwner, key.Namespace, derivedText)
		connected := model.Liveness{State: model.Connected}
		seen := published()
		seen.Sources = []model.Source{{Cluster: "a", State: model.SourcePublished, Liveness: connected}, {Cluster: "b", State: model.SourcePublished, Liveness: connected}}
		world.observe(key, seen)
		expectMessage(read, "Available", "True/Connected: all 2 clusters that export it are connected: a, b")

		By("b being lost, and the export of a, which decides, missing")
		seen.Sources = []model.Source{
			{Cluster: "a", State: model.SourceMissing, Since: since, Liveness: connected},
			{Cluster: "b", State: model.SourceNotRead, Liveness: model.Liveness{State: model.Lost, Since: since.Add(time.Hour), Confirmed: since}},
		}
		seen.Freeze = &model.Freeze{By: model.Source{Cluster: "a", State: model.SourceMissing, Since: since}}
		world.pass(time.Minute)
		world.observe(key, seen)
		expectMessage(read, "Available", "False/Lost: 1 of 2 clusters that export it are connected; "+
			"Lost in b: endpoints there stay in use as long as they answer; bring the cluster back or remove it")
		expectMessage(read, "SourceMissing", "True/Missing: the export of cluster a is missing since 2026-11-21T10:02:11Z although it was not withdrawn, "+
			"and what was imported from it is kept; restore it (kubectl comity join restores exchange namespaces), "+
			"or confirm that it is gone: kubectl comity confirm missing a")
		expectMessage(read, "Frozen", "True/Missing: no property of the import changes, because the export of cluster a decides it, "+
			"and that export is missing since 2026-11-21T10:02:11Z; if it is gone for good: kubectl comity confirm missing a; "+
			"or let another export decide: kubectl comity confirm takeover "+key.String()+" --from CLUSTER")

		By("the end of both")
		world.pass(time.Minute)
		seen.Sources, seen.Freeze = []model.Source{{Cluster: "a", State: model.SourcePublished, Liveness: connected}, {Cluster: "b", State: model.SourcePublished, Liveness: connected}}, nil
		world.observe(key, seen)
		expectMessage(read, "Available", "True/Connected: all 2 clusters that export it are connected: a, b")
		for _, typ := range []string{"SourceMissing", "Frozen"} {
			Expect(meta.FindStatusCondition(read(), typ)).To(BeNil())
		}
		expectEvents(ctx, key, "ServiceImport", "Lost", "Missing", "Missing", "Connected") // SourceMissing, and Frozen
	})
})

var _ = Describe("The status of a ServiceImport of another implementation", func() {
	It("is given what nobody else says, without force and without insisting", func(ctx SpecContext) {
		stop()
		startWith(true)
		DeferCleanup(func() {
			stop()
			start()
		})
		key := types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
		read := func() []metav1.Condition { return getImport(ctx, key).Status.Conditions }
		apply(ctx, "somebody", key.Namespace, importText)
		status := &mcsv1beta1.ServiceImport{}
		status.Namespace, status.Name = key.Namespace, key.Name
		Expect(direct.Status().Patch(ctx, status, client.RawPatch(types.ApplyPatchType, []byte(`{
			"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport", "status": {"conditions": [
				{"type": "Ready", "status": "True", "reason": "Ready", "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
		)), client.FieldOwner("somebody"))).To(Succeed())

		seen := published()
		seen.Sources = []model.Source{{Cluster: "a", State: model.SourcePublished, Liveness: model.Liveness{State: model.Connected}}, {Cluster: "b", State: model.SourcePublished, Liveness: model.Liveness{State: model.Connected}}}
		world.observe(key, seen)
		expectMessage(read, "Available", "True/Connected: all 2 clusters that export it are connected: a, b")
		expectMessage(read, "Ready", "True/Ready: theirs")
		Expect(getImport(ctx, key).Status.Clusters).To(HaveLen(2))
		Expect(getImport(ctx, key).Status.EndpointSliceObjects).To(BeEmpty())
		Expect(writesTo("serviceimports", key)).To(Equal(2), "all of it, which is refused, and what is left")

		By("nothing happening, and then somebody taking Available away")
		marker := types.NamespacedName{Namespace: key.Namespace, Name: "marker"}
		settleImports := func(name string) {
			GinkgoHelper()
			marker.Name = name
			apply(ctx, "somebody", key.Namespace, `{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: `+name+`}, spec: {type: Headless, ports: [{port: 80}]}}`)
			world.observe(marker, seen)
			Eventually(func() []metav1.Condition { return getImport(ctx, marker).Status.Conditions }).WithTimeout(patience).ShouldNot(BeEmpty())
		}
		world.pass(time.Minute)
		world.observe(key, seen)
		settleImports("marker-1")
		imported := getImport(ctx, key)
		meta.RemoveStatusCondition(&imported.Status.Conditions, "Available")
		Expect(direct.Status().Update(ctx, imported, client.FieldOwner("somebody"))).To(Succeed())
		settleImports("marker-2")
		Expect(writesTo("serviceimports", key)).To(Equal(2))
		Expect(meta.FindStatusCondition(read(), "Available")).To(BeNil())

		By("b being lost, which is news")
		world.pass(time.Minute)
		seen.Sources = []model.Source{seen.Sources[0], {Cluster: "b", State: model.SourceNotRead, Liveness: model.Liveness{State: model.Lost, Since: since}}}
		world.observe(key, seen)
		Eventually(func() string { return conditionsOf(read())["Available"] }).WithTimeout(patience).Should(Equal("False/Lost"))
		expectMessage(read, "Ready", "True/Ready: theirs")
		expectEvents(ctx, key, "ServiceImport", "Lost")
	})
})
