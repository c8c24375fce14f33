// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	policyCRD = "exportpolicies.policy.comity.dev"
	// columns are what `kubectl get exportpolicies` prints, a part of the definition that is easy to change.
	columns = `kubectl get crd ` + policyCRD + ` -o jsonpath='{.spec.versions[0].additionalPrinterColumns[*].name}'`
)

// enforcement gives name=enforcement of every policy, in order.
func enforcement(ctx context.Context) string {
	GinkgoHelper()
	return strings.TrimSpace(run(ctx, `kubectl get exportpolicies -o jsonpath='{range .items[*]}{.metadata.name}={.spec.enforcement} {end}'`))
}

const baseline = "export-scope=Deny namespace-sameness=Deny no-external-name=Deny"

// remains lists what is in the cluster and named after Comity, but for events.
func remains(ctx context.Context) []string {
	GinkgoHelper()
	out, err := try(ctx, `kubectl api-resources --verbs=list -o name | grep -v '^events' | paste -sd, | xargs -I{} kubectl get {} --all-namespaces --ignore-not-found -o name`)
	Expect(err).NotTo(HaveOccurred(), out)
	var left []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		// The API server makes an APIService for each definition; the node and the Service of its DNS are the test's.
		of := strings.HasPrefix(line, "apiservice.") || strings.Contains(line, "comity-chart-control-plane") || strings.Contains(line, "comity-test-dns")
		if !of && (strings.Contains(line, "comity") || strings.Contains(line, "multicluster.x-k8s.io")) {
			left = append(left, line)
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// kept are the definitions and the Leases that the agent creates, which outlive every release.
func kept(namespaces ...string) []string {
	all := []string{
		"customresourcedefinition.apiextensions.k8s.io/exportpolicies.policy.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/exportrecords.exchange.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/importrecords.exchange.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/memberrecords.exchange.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/namespacerecords.exchange.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/peers.exchange.comity.dev",
		"customresourcedefinition.apiextensions.k8s.io/serviceexports.multicluster.x-k8s.io",
		"customresourcedefinition.apiextensions.k8s.io/serviceimports.multicluster.x-k8s.io",
		"lease.coordination.k8s.io/comity-leader",
		"lease.coordination.k8s.io/comity-replicas",
	}
	for _, namespace := range namespaces {
		all = append(all, "namespace/"+namespace)
	}
	return all
}

// In the order in which they are written: each begins with what the one before left.
var _ = Describe("A release", Ordered, func() {
	It("is installed in a fresh cluster", func(ctx SpecContext) {
		out := run(ctx, "helm install comity %s --namespace comity-system --create-namespace %s --wait --timeout 5m", chart, settings())
		Expect(out).To(ContainSubstring("kubectl comity join"))
		Expect(enforcement(ctx)).To(Equal(baseline))
		Expect(run(ctx, "helm test comity --namespace comity-system")).To(MatchRegexp(`Phase: +Succeeded`))
		Expect(remains(ctx)).NotTo(ContainElement(ContainSubstring("install")), "hooks are removed")
	}, SpecTimeout(specTimeout))

	It("lets whoever edits a namespace export, and whoever views it look", func(ctx SpecContext) {
		may := func(role, verb, resource string) string {
			run(ctx, "kubectl create rolebinding %[1]s --clusterrole=%[1]s --user=%[1]s --dry-run=client -o yaml | kubectl apply -f -", role)
			out, _ := try(ctx, "kubectl auth can-i %s %s.multicluster.x-k8s.io --as=%s", verb, resource, role)
			return strings.TrimSpace(out)
		}
		// A controller copies the rules.
		Eventually(func() string { return may("edit", "create", "serviceexports") }).Should(Equal("yes"))
		Expect(may("admin", "delete", "serviceexports")).To(Equal("yes"))
		Expect(may("view", "create", "serviceexports")).To(Equal("no"))
		Expect(may("view", "list", "serviceimports")).To(Equal("yes"))
		Expect(may("edit", "create", "serviceimports")).To(Equal("no"))
	}, SpecTimeout(specTimeout))

	It("FAULT 19: fails no create of 10 a second while authority and certificate are renewed every 15 s and the replicas are replaced", func(ctx SpecContext) {
		renewUnderLoad(ctx)
	}, SpecTimeout(specTimeout))

	It("is upgraded, with its definitions and policies", func(ctx SpecContext) {
		before := run(ctx, columns)
		run(ctx, `kubectl patch crd %s --type=json -p '[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns"}]'`, policyCRD)
		Expect(run(ctx, columns)).To(BeEmpty(), "as in an older version")
		out := run(ctx, "helm upgrade comity %s --namespace comity-system %s --wait --timeout 5m"+
			" --set policies.baseline.no-external-name.enforcement=Warn --set policies.baseline.export-scope.enabled=false --set verbosity=1", chart, settings())
		Expect(out).To(ContainSubstring("policies.baseline.no-external-name.enforcement is Warn"), "NOTES name what is unsafe")
		Expect(run(ctx, columns)).To(Equal(before))
		Expect(enforcement(ctx)).To(Equal("namespace-sameness=Deny no-external-name=Warn"))
	}, SpecTimeout(specTimeout))

	It("is rolled back, but for the definitions", func(ctx SpecContext) {
		run(ctx, `kubectl patch crd %s --type=json -p '[{"op":"add","path":"/spec/versions/0/additionalPrinterColumns/-","value":`+
			`{"name":"Newer","type":"string","jsonPath":".spec.enforcement"}}]'`, policyCRD)
		run(ctx, "helm rollback comity 1 --namespace comity-system --wait --timeout 5m")
		Expect(enforcement(ctx)).To(Equal(baseline))
		Expect(run(ctx, columns)).To(HaveSuffix(" Newer"), "what an upgrade brought stays")
		Expect(run(ctx, "kubectl --namespace comity-system get deployment comity -o jsonpath='{.spec.template.spec.containers[0].args}'")).To(ContainSubstring("--verbosity=0"))
	}, SpecTimeout(specTimeout))

	It("refuses a second one in the cluster", func(ctx SpecContext) {
		Expect(fails(ctx, "helm install second %s --namespace default %s", chart, settings())).
			To(ContainSubstring("installed in this cluster already, as release comity in namespace comity-system"))
	}, SpecTimeout(specTimeout))

	It("leaves nothing but definitions, and its namespace with the Leases", func(ctx SpecContext) {
		run(ctx, "helm uninstall comity --namespace comity-system --wait --timeout 5m")
		Eventually(remains).WithContext(ctx).Should(Equal(kept("comity-system")))
	}, SpecTimeout(specTimeout))

	It("takes over the definitions that another release left", func(ctx SpecContext) {
		run(ctx, "helm install prod %s --namespace clusterset --create-namespace %s --wait --timeout 5m", chart, settings())
		Expect(enforcement(ctx)).To(Equal(baseline))
		Expect(run(ctx, columns)).NotTo(ContainSubstring("Newer"))
		Expect(run(ctx, "helm test prod --namespace clusterset")).To(MatchRegexp(`Phase: +Succeeded`))
		run(ctx, "helm uninstall prod --namespace clusterset --wait --timeout 5m")
		Eventually(remains).WithContext(ctx).Should(Equal(kept("comity-system")))
	}, SpecTimeout(specTimeout))

	It("leaves definitions of the MCS API alone that something else brought, and refuses old ones", func(ctx SpecContext) {
		const definition = "serviceimports.multicluster.x-k8s.io"
		run(ctx, "kubectl label crd %s app.kubernetes.io/managed-by=other --overwrite", definition)
		run(ctx, `kubectl patch crd %s --type=json -p '[{"op":"test","path":"/spec/versions/1/name","value":"v1beta1"},`+
			`{"op":"replace","path":"/spec/versions/1/served","value":false}]'`, definition)
		Expect(fails(ctx, "helm install comity %s --namespace comity-system %s", chart, settings())).
			To(ContainSubstring("CustomResourceDefinition %s is too old: it serves v1alpha1, expected v1beta1", definition))
		run(ctx, "kubectl delete crd %s", definition)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("Without Helm", Ordered, func() {
	It("the rendering is applied again until it succeeds", func(ctx SpecContext) {
		render := fmt.Sprintf("helm template comity %s --namespace gitops --kube-version 1.36.3 %s", chart, settings())
		run(ctx, "kubectl create namespace gitops")
		apply := func(more string) {
			GinkgoHelper()
			step("$ %s %s | kubectl apply --server-side -f -", render, more)
			Eventually(func() error {
				out, err := try(ctx, "%s %s | kubectl apply --server-side -f -", render, more)
				if err != nil {
					step("not yet: %s", out)
				}
				return err
			}).Should(Succeed())
			run(ctx, "kubectl --namespace gitops wait --for=condition=Complete job --all --timeout=4m")
		}
		apply("")
		Expect(enforcement(ctx)).To(Equal(baseline))
		apply("") // nothing has changed
		apply("--set install.backoffLimit=4 --set policies.baseline.export-scope.enforcement=Audit")
		Expect(enforcement(ctx)).To(HavePrefix("export-scope=Audit "), "another version makes other Jobs")
		run(ctx, "kubectl --namespace gitops rollout status deployment/comity --timeout=4m")
		run(ctx, "%s | kubectl delete --ignore-not-found -f -", render)
		run(ctx, "kubectl delete namespace gitops")
	}, SpecTimeout(specTimeout))

	It("the overlay of config is applied in one go", func(ctx SpecContext) {
		kustomize := fmt.Sprintf(`kubectl kustomize %s | sed 's#image: ghcr.io/comity-mcs/comity:.*#image: %s#'`, chart+"/../../config/overlays/example", image)
		run(ctx, "kubectl delete namespace comity-system --ignore-not-found")
		run(ctx, "%s | kubectl apply -f -", kustomize)
		run(ctx, "kubectl --namespace comity-system wait --for=condition=Complete job --all --timeout=4m")
		run(ctx, "kubectl --namespace comity-system rollout status deployment/comity --timeout=4m")
		Expect(enforcement(ctx)).To(Equal(baseline))
		run(ctx, "%s | kubectl delete --ignore-not-found -f -", kustomize)
	}, SpecTimeout(specTimeout))

	DescribeTable("the API server accepts every manifest", func(ctx SpecContext, values string) {
		run(ctx, "kubectl create namespace strict --dry-run=client -o yaml | kubectl apply -f -")
		run(ctx, "helm template comity %s --namespace strict --kube-version 1.36.3 %s %s | kubectl apply --dry-run=server --validate=strict -f -", chart, settings(), values)
	},
		Entry("with the defaults", SpecTimeout(specTimeout), ""),
		Entry("with everything that is optional", SpecTimeout(specTimeout), "--set exchange.hub=true --set networkPolicy.apiServerCIDRs={10.0.0.1/32} --set priorityClassName=system-cluster-critical"+
			" --set hostNetwork=true --set tolerations[0].operator=Exists --set podLabels.team=a --set imagePullSecrets[0].name=registry --set sync.podCIDRs={10.1.0.0/16}"),
		Entry("with a Secret of one's own", SpecTimeout(specTimeout), `--set webhook.certificate.existingSecret=mine --set-string webhook.certificate.caBundle="$(kubectl get configmap --namespace default kube-root-ca.crt -o jsonpath='{.data.ca\.crt}')"`),
	)
})
