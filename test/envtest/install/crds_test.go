// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/comity/install"
	"github.com/comity-mcs/comity/config/crd"
)

// installCRDs runs `comity install crds`.
func installCRDs(ctx context.Context, version string, change ...func(*install.CRDOptions)) (string, error) {
	out := &output{}
	options := install.CRDOptions{Version: version, MCS: true}
	for _, f := range change {
		f(&options)
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	err := install.CRDs(ctx, crdJob, out, options)
	return out.String(), err
}

func withoutMCS(o *install.CRDOptions) { o.MCS = false }

// lines is what the command prints if it does one thing to each of the definitions.
func lines(did string, names ...string) string {
	text := ""
	for _, name := range names {
		text += "customresourcedefinition " + name + " " + did + "\n"
	}
	return text
}

func all() []string { return append(append([]string{}, mcsDefinitions...), ownDefinitions...) }

func stored(ctx context.Context, name string) *apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	out := &apiextensionsv1.CustomResourceDefinition{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, out)).To(Succeed())
	return out
}

// another creates a definition as another implementation would.
func another(ctx context.Context, text []byte, change ...func(*apiextensionsv1.CustomResourceDefinition)) {
	GinkgoHelper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	Expect(yaml.Unmarshal(text, definition)).To(Succeed())
	for _, f := range change {
		f(definition)
	}
	Expect(admin.Create(ctx, definition, client.FieldOwner("lighthouse"))).To(Succeed())
}

// tooOld is ServiceExport as it was before v1beta1.
func tooOld(d *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range d.Spec.Versions {
		if v.Name == "v1alpha1" {
			v.Storage = true
			d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v}
			return
		}
	}
}

// The specs follow one cluster: a definition that was created a moment ago can
// take minutes to delete, so none is.
var _ = Describe("comity install", Ordered, func() {
	const policies = "exportpolicies.policy.comity.dev"

	It("waits with policies for the ClusterRole that owns them, and for ExportPolicies to be served", func(ctx SpecContext) {
		out, ended := inBackground(ctx, manifest("one"))
		Eventually(out.String).Should(ContainSubstring("waiting: --owner-cluster-role: clusterroles.rbac.authorization.k8s.io \"comity\" not found"))
		clusterRole(ctx, owner)
		Eventually(out.String).Should(ContainSubstring("waiting: list exportpolicies: no matches for kind"))
		text, err := crd.FS.ReadFile("policy.comity.dev_exportpolicies.yaml")
		Expect(err).NotTo(HaveOccurred())
		another(ctx, text)
		Eventually(ended).Should(Receive(BeNil()))
		Expect(out.String()).To(ContainSubstring("exportpolicy one created"))
	})

	It("refuses an MCS API that is too old before it writes anything", func(ctx SpecContext) {
		another(ctx, mcscrd.ServiceExportCRD, tooOld)
		out, err := installCRDs(ctx, "v1.2.0")
		Expect(err).To(MatchError(And(ContainSubstring(mcsDefinitions[0]+" is too old"), ContainSubstring("serves v1alpha1;"),
			ContainSubstring("expected v1beta1"), ContainSubstring("field owner lighthouse"))))
		Expect(out).To(BeEmpty())
		list := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(admin.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(ConsistOf(HaveField("Name", policies), HaveField("Name", mcsDefinitions[0])), "nothing was created")
	})

	It("leaves the MCS API of another implementation alone, and takes over what kubectl applied of its own", func(ctx SpecContext) {
		upgraded := &apiextensionsv1.CustomResourceDefinition{}
		Expect(yaml.Unmarshal(mcscrd.ServiceExportCRD, upgraded)).To(Succeed())
		Eventually(func() error { // the API server may still write the status of the one that is there
			upgraded.ResourceVersion = stored(ctx, mcsDefinitions[0]).ResourceVersion
			return admin.Update(ctx, upgraded, client.FieldOwner("lighthouse"))
		}).Should(Succeed())

		out, err := installCRDs(ctx, "v1.2.0", withoutMCS)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(HavePrefix(lines("created", ownDefinitions[:len(ownDefinitions)-1]...) + lines("configured", policies)))
		Expect(stored(ctx, mcsDefinitions[0]).Labels).NotTo(HaveKey("app.kubernetes.io/managed-by"))
		Expect(stored(ctx, policies).Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "comity-install"))
	})

	It("waits until all are served, and changes nothing when repeated", func(ctx SpecContext) {
		out, err := installCRDs(ctx, "v1.2.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(HavePrefix(lines("left alone (belongs to field owner lighthouse)", mcsDefinitions[0]) +
			lines("created", mcsDefinitions[1]) + lines("unchanged", ownDefinitions...)))
		for _, name := range all() {
			Expect(stored(ctx, name).Status.Conditions).To(ContainElement(And(
				HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
		}
		out, err = installCRDs(ctx, "v1.2.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(HaveSuffix(lines("unchanged", append(mcsDefinitions[1:2:2], ownDefinitions...)...)))
	})

	It("upgrades, and does not downgrade", func(ctx SpecContext) {
		ours := append(mcsDefinitions[1:2:2], ownDefinitions...)
		out, err := installCRDs(ctx, "v1.10.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(HaveSuffix(lines("configured", ours...)))
		out, err = installCRDs(ctx, "v1.9.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(HaveSuffix(lines("left alone (applied by Comity v1.10.0, which is newer than this v1.9.0)", ours...)))
		Expect(stored(ctx, policies).Annotations).To(HaveKeyWithValue("comity.dev/version", "v1.10.0"))
	})

	It("waits for a definition that is being deleted", func(ctx SpecContext) {
		const name, finalizer = "importrecords.exchange.comity.dev", "test.comity.dev/hold"
		edit := func(finalizers ...string) {
			Eventually(func() error {
				d := stored(ctx, name)
				d.Finalizers = finalizers
				return admin.Update(ctx, d)
			}).Should(Succeed())
		}
		edit(finalizer)
		Expect(admin.Delete(ctx, stored(ctx, name))).To(Succeed())
		out, ended := &output{}, make(chan error, 1)
		go func() {
			ended <- install.CRDs(ctx, crdJob, out, install.CRDOptions{Version: "v1.10.0", MCS: true})
		}()
		Eventually(out.String).Should(ContainSubstring("waiting: customresourcedefinition " + name + " is being deleted"))
		edit()
		Eventually(ended).Should(Receive(BeNil()))
		Expect(out.String()).To(ContainSubstring(lines("created", name)))
	})

	It("names the right that is missing", func(ctx SpecContext) {
		err := install.CRDs(ctx, policyJob, &output{}, install.CRDOptions{Version: "v1.10.0", MCS: true})
		Expect(err).To(MatchError(And(ContainSubstring("cannot get resource"), ContainSubstring(mcsDefinitions[0]))))
		options := policyOptions(manifest("one"))
		options.OwnerClusterRole = ""
		Expect(install.Policies(ctx, crdJob, &output{}, options)).To(MatchError(And(ContainSubstring("cannot list resource"), ContainSubstring("exportpolicies"))))
	})

	Describe("policies", policySpecs)
})
