// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

const formerOwner = "application/apply-patch"

// pipeline applies an object as the Sveltos pipeline does, marks of its own included.
func pipeline(o client.Object, apiVersion, kind string) {
	GinkgoHelper()
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["projectsveltos.io/reference-name"], annotations["projectsveltos.io/hash"] = "mcs", "sha256:0"
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	data, err := yaml.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	Expect(api.Patch(ctx, o, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(formerOwner), client.ForceOwnership)).To(Succeed())
}

// byPipeline makes what the pipeline makes of web, exported by b.
func (c *cluster) byPipeline() {
	GinkgoHelper()
	at := func(name string, labels map[string]string) metav1.ObjectMeta {
		labels[model.LabelServiceName] = "web"
		return metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: name, Labels: labels}
	}
	derived := model.DerivedName("web")
	service := &corev1.Service{
		ObjectMeta: at(derived, map[string]string{model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": "sveltos", "app": "web"}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8000, Protocol: "TCP", TargetPort: intstr.FromInt32(8080)}},
		},
	}
	pipeline(service, "v1", "Service")
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: at("web", map[string]string{}),
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: c.service().Spec.ClusterIPs,
			Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 8000, Protocol: "TCP"}},
		},
	}
	imp.Annotations = map[string]string{model.AnnotationDerivedName: derived}
	pipeline(imp, "multicluster.x-k8s.io/v1beta1", "ServiceImport")
	slice := source("web-1", "10.2.0.1")
	slice.ObjectMeta = at(derived+"-b", map[string]string{
		discoveryv1.LabelServiceName: derived, discoveryv1.LabelManagedBy: "sveltos", "service-export-name": "web",
	})
	pipeline(slice, "discovery.k8s.io/v1", "EndpointSlice")
}

func (c *cluster) objects() []client.Object {
	GinkgoHelper()
	return []client.Object{c.service(), c.serviceImport(), c.slice("b")}
}

// failing fails the nth patch that it is to make, and all after it.
type failing struct {
	client.Client
	left int
}

var errCrash = errors.New("crash")

func (f *failing) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if f.left--; f.left < 0 {
		return errCrash
	}
	return f.Client.Patch(ctx, o, p, opts...)
}

var _ = Describe("taking over from the Sveltos pipeline", func() {
	// check holds what must be true of objects that were taken over.
	check := func(c *cluster, before []client.Object, ip string) {
		GinkgoHelper()
		for i, o := range c.objects() {
			Expect(o.GetUID()).To(Equal(before[i].GetUID()), "nothing is deleted and made anew")
			Expect(o.GetManagedFields()).To(HaveEach(HaveField("Manager", model.FieldOwner)))
			Expect(o.GetLabels()).NotTo(Or(HaveKey(ContainSubstring("sveltos")), HaveKey("service-export-name"), ContainElement("sveltos")))
			Expect(o.GetAnnotations()).NotTo(Or(HaveKey(ContainSubstring("sveltos")), HaveKey(model.AnnotationAdopting)))
		}
		s := c.service()
		Expect(s.Spec.ClusterIP).To(Equal(ip))
		Expect(s.Spec.Selector).To(BeEmpty())
		Expect(s.Spec.Ports).To(HaveExactElements(HaveField("Port", BeEquivalentTo(80))))
		Expect(c.serviceImport().Spec.IPs).To(Equal([]string{ip}))
		Expect(c.slice("b").Labels).To(HaveKeyWithValue(model.LabelSourceCluster, "b"))
	}
	It("adopts in place, and what the former owner takes back is not missed", func() {
		c := importing()
		c.byPipeline()
		before, ip := c.objects(), c.service().Spec.ClusterIP
		c.Takeover = true
		Expect(c.bring().Problems).To(BeEmpty())
		check(c, before, ip)
		taken := c.objects()
		for _, o := range taken { // an apply of nothing, and the mark of it
			empty := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: o.GetObjectKind().GroupVersionKind().GroupVersion().String()}}
			gvk, err := api.GroupVersionKindFor(o)
			Expect(err).NotTo(HaveOccurred())
			empty.SetGroupVersionKind(gvk)
			empty.SetNamespace(o.GetNamespace())
			empty.SetName(o.GetName())
			data, err := yaml.Marshal(empty)
			Expect(err).NotTo(HaveOccurred())
			Expect(api.Patch(ctx, empty, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(formerOwner))).To(Succeed())
		}
		for i, o := range c.objects() {
			Expect(content(o)).To(Equal(content(taken[i])))
		}
		c.bring()
		Expect(c.writes).To(BeEmpty())
	})
	It("goes on after a crash at every write", func() {
		for crash := 1; ; crash++ {
			c := importing()
			c.byPipeline()
			before, ip := c.objects(), c.service().Spec.ClusterIP
			c.Takeover = true
			crashed := false
			for range 6 {
				c.read()
				_, err := apply.New(&failing{api, crash}, nil).Apply(ctx, plan.Import(c.ImportInput).Actions)
				if crashed = errors.Is(err, errCrash); crashed {
					break
				}
				Expect(err).NotTo(HaveOccurred())
			}
			c.bring()
			check(c, before, ip)
			if !crashed {
				Expect(crash).To(BeNumerically(">", 5), "the crashes must have hit something")
				return
			}
		}
	})
	It("leaves alone what differs in one mark, and everything unless told to", func() {
		c := importing()
		c.byPipeline()
		before := c.objects()
		Expect(c.bring().Problems).To(ConsistOf(HaveField("Reason", model.ReasonForeignImport)))
		Expect(c.objects()).To(Equal(before))
		c.Takeover = true
		s := c.service()
		s.Labels["app.kubernetes.io/managed-by"] = "someone"
		Expect(api.Update(ctx, s)).To(Succeed())
		before = c.objects()
		Expect(c.bring().Problems).To(ConsistOf(HaveField("Reason", model.ReasonForeignImport)))
		Expect(c.objects()).To(Equal(before))
	})
	It("keeps the selector where selectors are maintained", func() {
		c := importing()
		c.byPipeline()
		c.Takeover, c.MaintainSelectors = true, true
		c.Desired.Selector = map[string]string{"app": "web"}
		c.Desired.Targets = []model.Target{{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(8080)}}
		c.bring()
		Expect(c.service().Spec.Selector).To(Equal(c.Desired.Selector))
		Expect(c.service().Spec.Ports[0].TargetPort).To(Equal(intstr.FromInt32(8080)))
		Expect(c.service().Labels).To(HaveKeyWithValue(model.LabelSourceCluster, "a"))
	})
})

var _ = Describe("a selector that goes", func() {
	It("first selects nothing, until the slices made of it are empty", func() {
		c := importing()
		c.MaintainSelectors = true
		c.Desired.Selector = map[string]string{"app": "web"}
		c.bring()
		made := source("made", "10.1.0.1") // as the controller does, which does not run here
		made.ObjectMeta = metav1.ObjectMeta{Namespace: c.Key.Namespace, GenerateName: model.DerivedName("web") + "-", Labels: map[string]string{
			discoveryv1.LabelServiceName: model.DerivedName("web"), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			model.LabelServiceName: "web", model.LabelSourceCluster: "a",
		}}
		Expect(api.Create(ctx, made)).To(Succeed())
		c.MaintainSelectors = false
		c.bring()
		Expect(c.service().Spec.Selector).To(Equal(map[string]string{model.LabelSelectsNothing: "true"}))
		made.Endpoints = nil
		Expect(api.Update(ctx, made)).To(Succeed())
		c.bring()
		Expect(c.service().Spec.Selector).To(BeEmpty())
		Expect(c.service().Labels).NotTo(HaveKey(model.LabelSourceCluster))
	})
})

var _ = Describe("the endpoints of a lost cluster", func() {
	It("are the last resort in place, also if it was not read since start, and come back as it published them", func() {
		c := importing()
		second := source("web-2", "10.3.0.1")
		c.Desired.Constituents = append(c.Desired.Constituents, model.Constituent{SourceExport: model.SourceExport{Cluster: "c"}, Declared: c.Desired.Ports})
		c.Sources["c"] = []*discoveryv1.EndpointSlice{second}
		c.bring()
		before := c.slice("b")
		labeled := before.DeepCopy()
		labeled.Labels["mine"] = "yes"
		Expect(api.Update(ctx, labeled, client.FieldOwner("user"))).To(Succeed())

		full, sources := c.Desired, c.Sources
		c.Unsynced, c.Traffic = sets.New[model.ClusterID]("b"), map[model.ClusterID]model.Traffic{"b": model.Unanswered}
		c.Desired, c.Frozen = plan.Standing(c.Current, c.Key, &model.Import{Constituents: full.Constituents[1:]}), true
		c.Sources = map[model.ClusterID][]*discoveryv1.EndpointSlice{"c": sources["c"]}
		Expect(c.bring().Unready).To(HaveKeyWithValue(model.ClusterID("b"), len(before.Endpoints)))
		Expect(c.writes).To(Equal([]string{"update EndpointSlice"}))
		got := c.slice("b")
		Expect(got.UID).To(Equal(before.UID))
		Expect(got.Endpoints).To(HaveEach(HaveField("Conditions", And(HaveField("Ready", HaveValue(BeFalse())), HaveField("Serving", HaveValue(BeTrue())), HaveField("Terminating", HaveValue(BeTrue()))))))
		Expect(got.Labels).To(HaveKeyWithValue("mine", "yes"))

		c.Traffic = nil
		c.bring()
		Expect(c.slice("b").Endpoints).To(HaveEach(HaveField("Conditions.Ready", HaveValue(BeTrue()))))

		c.Unsynced, c.Desired, c.Frozen, c.Sources = nil, full, false, sources
		c.bring()
		want := content(before)
		want.GetLabels()["mine"] = "yes"
		Expect(content(c.slice("b"))).To(Equal(want))
	})
})
