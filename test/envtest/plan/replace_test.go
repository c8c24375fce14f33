// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

var _ = Describe("a slice of which only endpoints changed is replaced", func() {
	// outdated is the plan for one more endpoint, made of what exists now.
	outdated := func(c *cluster) []plan.Action {
		GinkgoHelper()
		c.bring()
		c.Sources["b"] = []*discoveryv1.EndpointSlice{source("web-1", "10.2.0.1", "10.2.0.2")}
		c.read()
		actions := plan.Import(c.ImportInput).Actions
		Expect(actions).To(HaveExactElements(HaveField("Read", Not(BeNil()))))
		return actions
	}
	try := func(actions []plan.Action) error {
		_, err := apply.New(api, nil).Apply(ctx, actions)
		return err
	}
	addresses := func(s *discoveryv1.EndpointSlice) (out []string) {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
		return out
	}

	It("and stays Comity's, which still removes what it applied and no longer does", func() {
		c := importing()
		c.Sources["b"][0].Labels = map[string]string{"team": "web"}
		c.bring()
		replaced := source("web-1", "10.2.0.2")
		replaced.Labels = map[string]string{"team": "web"}
		c.Sources["b"] = []*discoveryv1.EndpointSlice{replaced}
		c.bring()
		Expect(model.IsManaged(c.slice("b"))).To(BeTrue())
		Expect(c.slice("b").Labels).To(HaveKeyWithValue("team", "web"))
		c.Sources["b"] = []*discoveryv1.EndpointSlice{source("web-1", "10.2.0.3")}
		c.bring()
		Expect(c.slice("b").Labels).NotTo(HaveKey("team"))
		Expect(addresses(c.slice("b"))).To(Equal([]string{"10.2.0.3"}))
	})

	It("without the loss of what others changed meanwhile", func() {
		c := importing()
		actions := outdated(c)
		edit := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"mine":"yes"}},"endpoints":[{"addresses":["10.9.9.9"]}]}`))
		Expect(api.Patch(ctx, c.slice("b"), edit, client.FieldOwner("user"))).To(Succeed())
		Expect(try(actions)).To(Succeed())
		Expect(c.slice("b").Labels).To(HaveKeyWithValue("mine", "yes"))
		Expect(addresses(c.slice("b"))).To(Equal([]string{"10.2.0.1", "10.2.0.2"}))
	})

	It("but not one that was made again, or is gone", func() {
		c := importing()
		actions := outdated(c)
		other := c.slice("b")
		Expect(api.Delete(ctx, other.DeepCopy())).To(Succeed())
		Expect(apply.ClassOf(try(actions))).To(Equal(apply.Conflict))
		other.UID, other.ResourceVersion = "", ""
		Expect(api.Create(ctx, other)).To(Succeed())
		Expect(apply.ClassOf(try(actions))).To(Equal(apply.Conflict))
		Expect(addresses(c.slice("b"))).To(Equal([]string{"10.2.0.1"}))
	})
})
