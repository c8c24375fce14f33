// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// overlaps compares the ranges of each two clusters once, and with those of Peers whose
// clusters are not diagnosed.
func overlaps(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	if err = c.rangesErr; len(c.ranges.Pods) == 0 && err == nil {
		err = fmt.Errorf("no Pod range is known; compare it by hand, and pass it to join as --pod-cidrs %s=RANGE", c.ID())
	}
	with := func(id model.ClusterID, ranges join.Ranges) {
		if overlap := join.Overlap(c.ID(), id, c.ranges, ranges); overlap != "" {
			all = append(all, finding.Finding{Reason: model.ReasonAddressOverlap, Message: overlap + "; endpoints in it are not imported",
				Fix: "who owns the networks of the clusters gives one of the two another range; no command of Comity can"})
		}
	}
	for _, other := range c.all[:slices.Index(c.all, c)] {
		if other.kind() != hub { // whose Pods call nobody
			with(other.ID(), other.ranges)
		}
	}
	for _, peer := range c.objects.Peers {
		if c.peerOf(peer.Name) == nil {
			accepted, _ := model.ParsePrefixes(peer.Spec.AcceptedCIDRs)
			with(model.ClusterID(peer.Name), join.Ranges{Pods: accepted})
		}
	}
	return all, err
}

// readServer asks the API server for its version and its time.
func (c *cluster) readServer(ctx context.Context) error {
	api, err := discovery.NewDiscoveryClientForConfig(c.Target.REST)
	if err != nil {
		return err
	}
	info, err := api.ServerVersionWithContext(ctx)
	if err != nil {
		return err
	}
	c.version = info.GitVersion
	sent, review := time.Now(), &authenticationv1.SelfSubjectReview{} // which every user may create, and nothing stores
	err = c.Target.Client.Create(ctx, review)
	c.ahead = review.CreationTimestamp.Sub(sent.Add(time.Since(sent) / 2))
	return err
}

// oldest is what docs/install.md asks for.
var oldest = version.MustParseGeneric("1.32")

func kubernetesVersion(_ context.Context, c *cluster) ([]finding.Finding, error) {
	own, _ := version.ParseGeneric(c.version) // nil if it is none
	if c.version == "" && c.serverErr != nil {
		return nil, c.serverErr
	}
	if own != nil && !own.LessThan(oldest) {
		return nil, nil
	}
	return []finding.Finding{{Reason: "VersionTooOld", Message: fmt.Sprintf("Kubernetes is %q; expected %s or newer", c.version, oldest), Fix: "upgrade the cluster " + c.Context}}, nil
}

// maxSkew is half of what docs/security.md warns of: a timestamp has whole seconds, and a request takes time.
const maxSkew = time.Minute

// clocks compares the clock of each API server with that of the first one that answered.
func clocks(_ context.Context, c *cluster) ([]finding.Finding, error) {
	first := c.all[slices.IndexFunc(c.all, func(other *cluster) bool { return other.Target != nil && other.serverErr == nil || other == c })]
	ahead := c.ahead - first.ahead
	if c.serverErr != nil || ahead.Abs() < maxSkew {
		return nil, c.serverErr
	}
	return []finding.Finding{{Severity: finding.Warning, Reason: "ClockSkew",
		Message: fmt.Sprintf("the clock of the API server differs by %s from that of cluster %s; the older export decides a conflict, so that the wrong one may", ahead.Round(time.Second), first.ID()),
		Fix:     "who owns the control planes sets their clocks, such as by NTP"}}, nil
}

func certManager(_ context.Context, c *cluster) ([]finding.Finding, error) {
	missing, err := join.Unserved(c.Target.Client, "cert-manager.io/v1", "Certificate")
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return []finding.Finding{{Severity: finding.Warning, Reason: "Missing", Message: "cert-manager is not installed; the webhook needs it, or a certificate of your own",
		Fix: "helm upgrade --install cert-manager oci://quay.io/jetstack/charts/cert-manager --kube-context " + c.Context + " --namespace cert-manager --create-namespace --set crds.enabled=true --wait"}}, nil
}

const definition = " -f https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_"

// definitions asks for all kinds that the agent reads and writes, and for the version of the
// MCS API that others read.
func definitions(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	const older, newer = mcsv1beta1.GroupName + "/v1alpha1", mcsv1beta1.GroupName + "/v1beta1"
	kinds := map[string]string{v1alpha1.GroupVersion.String(): join.HubKinds}
	if c.kind() != hub {
		kinds[v1alpha1.GroupVersion.String()] += " Peer"
		kinds[policyv1alpha1.GroupVersion.String()] = "ExportPolicy"
		kinds[older], kinds[newer] = "ServiceExport ServiceImport", "ServiceExport ServiceImport"
	}
	missingNewer, _ := join.Unserved(c.Target.Client, newer, kinds[newer]) // an error is that of the loop
	for _, version := range slices.Sorted(maps.Keys(kinds)) {
		missing, errRead := join.Unserved(c.Target.Client, version, kinds[version])
		if err = errors.Join(err, errRead); len(missing) == 0 {
			continue
		}
		f := finding.Finding{Reason: "NotServed", Message: fmt.Sprintf("the API server does not serve %s of %s", strings.Join(missing, ", "), version),
			Fix: c.Helm("--reset-then-reuse-values --set crds.enabled=true --set crds.mcs.enabled=true")}
		if version == older && len(missingNewer) == 0 { // the newer version is served, so another owner's definitions are there
			f.Message += ", which CoreDNS, Envoy Gateway and Istio read; the definitions are not Comity's"
			f.Fix = "kubectl --context " + c.Context + " apply --server-side --force-conflicts" + definition + "serviceexports.yaml" + definition + "serviceimports.yaml"
		}
		all = append(all, f)
	}
	return all, err
}

// otherImplementations finds who else creates ServiceImports.
func otherImplementations(ctx context.Context, c *cluster) (all []finding.Finding, err error) {
	if c.importsNothing() {
		return nil, nil // sync.import=false is for this
	}
	owners := map[string]string{} // with one ServiceImport of each
	kinds := []schema.GroupVersionKind{schema.GroupVersion(mcsv1beta1.GroupVersion).WithKind("ServiceImport")}
	err = join.EachOf(ctx, c.Target.Client, kinds, func(o *metav1.PartialObjectMetadata) error {
		if !model.IsManaged(o) {
			owners[model.OwnerOf(o)] = "ServiceImport " + client.ObjectKeyFromObject(o).String()
		}
		return nil
	})
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		all = append(all, finding.Finding{Severity: finding.Warning, Object: owners[owner], Reason: model.ReasonForeignImport,
			Message: "it belongs to " + owner + "; only one implementation of the MCS API may create ServiceImports",
			Fix:     "switch the other one off, or let it import: " + c.Helm("--reset-then-reuse-values --set sync.import=false")})
	}
	return all, err
}

// importsNothing is true if the agent leaves imports to another implementation.
func (c *cluster) importsNothing() bool {
	return c.Agent.Pod != nil && slices.Contains(c.Agent.Container().Args, "--import=false")
}

func zones(ctx context.Context, c *cluster) ([]finding.Finding, error) {
	var nodes corev1.NodeList
	err := c.Target.Client.List(ctx, &nodes)
	var without []string
	for _, node := range nodes.Items {
		if node.Labels[corev1.LabelTopologyZone] == "" {
			without = append(without, node.Name)
		}
	}
	if len(without) == 0 || len(without) == len(nodes.Items) { // nobody uses zones here
		return nil, err
	}
	return []finding.Finding{{Severity: finding.Warning, Object: "Node " + without[0], Reason: "ZoneMissing",
		Message: fmt.Sprintf("%d of %d Nodes have no label %s; there, the order of tiers and trafficDistribution have no effect", len(without), len(nodes.Items), corev1.LabelTopologyZone),
		Fix:     "kubectl --context " + c.Context + " label node " + strings.Join(without, " ") + " " + corev1.LabelTopologyZone + "=ZONE"}}, nil
}

// tokens reads the credentials of Peers, and asks those clusters that are diagnosed, too,
// whether they accept them: a connection that is open says nothing.
func tokens(ctx context.Context, c *cluster) (all []finding.Finding, err error) {
	for _, peer := range c.objects.Peers {
		if peer.Spec.Removed {
			continue
		}
		var asked client.Client
		if other := c.peerOf(peer.Name); other != nil && other.Target != nil && c.Agent.Mode == model.ExchangeMesh {
			asked = other.Target.Client
		}
		reason, message, errRead := join.CheckCredential(ctx, c.Target.Client, c.Agent.Namespace, peer, asked)
		if err = errors.Join(err, errRead); reason != "" {
			all = append(all, finding.Finding{Object: "Secret " + c.Agent.Namespace + "/" + peer.Spec.KubeconfigSecret, Reason: reason, Message: message,
				Fix: c.fix(finding.FixJoin, peer.Name)})
		}
	}
	return all, err
}

// agentRights asks for those rights of the agent without which it does nothing, or says nothing.
func agentRights(ctx context.Context, c *cluster) ([]finding.Finding, error) {
	if c.Agent.ServiceAccount == "" { // its Lease does not describe it, which is found by itself
		return nil, nil
	}
	var all join.Rights
	all.Need("", "", "namespaces nodes", "list watch")
	all.Need("", "", "services", "list watch create patch delete")
	all.Need("", "discovery.k8s.io", "endpointslices", "list watch create patch update delete")
	all.Need("", mcsv1beta1.GroupName, "serviceimports", "list watch create patch delete")
	all.Need("", mcsv1beta1.GroupName, "serviceexports", "list watch")
	all.Need("", mcsv1beta1.GroupName, "serviceexports/status serviceimports/status", "patch")
	all.Need("", policyv1alpha1.GroupVersion.Group, "exportpolicies", "list watch")
	all.Need("", v1alpha1.GroupVersion.Group, "peers exportrecords importrecords namespacerecords memberrecords", "list watch")
	all.Need(c.Agent.Namespace, "", "secrets", "list watch patch")
	all.Need(c.Agent.Namespace, "coordination.k8s.io", "leases", "create")
	if c.Agent.Mode == model.ExchangeMesh && len(c.objects.Peers) > 0 {
		all.Need(model.ExchangeNamespace(c.ID()), v1alpha1.GroupVersion.Group, "exportrecords importrecords namespacerecords memberrecords", "create patch delete")
	}
	missing, err := c.Target.Missing(ctx, c.Agent.Namespace, c.Agent.ServiceAccount, all)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	fix := c.Helm("--reset-then-reuse-values")
	if strings.Contains(missing[0], " in namespace "+model.ExchangeNamespace(c.ID())) { // those of the chart are there
		fix = c.fix(finding.FixJoin, c.objects.Peers[0].Name)
	}
	return []finding.Finding{{Object: "ServiceAccount " + c.Agent.Namespace + "/" + c.Agent.ServiceAccount, Reason: "Forbidden",
		Message: "the agent may not " + strings.Join(missing, "; "), Fix: fix}}, nil
}

// hook is one webhook, with the configuration that it is of.
type hook struct {
	object string
	admissionregistrationv1.WebhookClientConfig
}

// webhook checks the configurations by which the API server calls the webhook, and the
// certificate that the webhook serves against their CA bundles.
func webhook(ctx context.Context, c *cluster) ([]finding.Finding, error) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := errors.Join(c.Target.Client.List(ctx, &mutating, agent.Labels), c.Target.Client.List(ctx, &validating, agent.Labels)); err != nil {
		return nil, err
	}
	var hooks []hook
	for _, configuration := range mutating.Items {
		for _, one := range configuration.Webhooks {
			hooks = append(hooks, hook{"MutatingWebhookConfiguration " + configuration.Name, one.ClientConfig})
		}
	}
	for _, configuration := range validating.Items {
		for _, one := range configuration.Webhooks {
			hooks = append(hooks, hook{"ValidatingWebhookConfiguration " + configuration.Name, one.ClientConfig})
		}
	}
	if len(mutating.Items) == 0 || len(validating.Items) == 0 {
		return []finding.Finding{{Reason: "WebhookMissing", Message: "a webhook configuration of Comity is missing, so no policy checks an export when it is stored",
			Fix: c.Helm("--reset-then-reuse-values")}}, nil
	}
	if one, is := model.Find(hooks, func(h hook) bool { return len(h.CABundle) == 0 }); is {
		return []finding.Finding{{Object: one.object, Reason: "CABundleMissing", Message: "a webhook has no CA bundle, so the API server refuses exports; the CA injector of cert-manager sets it",
			Fix: "kubectl --context " + c.Context + " get pods -A -l app.kubernetes.io/name=cainjector", Docs: finding.Docs("install.md#without-cert-manager")}}, nil
	}
	if c.Agent.Pod == nil {
		return nil, c.Err
	}
	secret, chain, err := agent.Certificate(ctx, c.Target, c.Agent.Pod)
	if err == nil && secret == nil {
		err = errors.New("no Secret that the agent's Pod mounts has a certificate, or it may not be read")
	}
	if err != nil {
		return nil, err
	}
	f := finding.Finding{Object: "Secret " + secret.Namespace + "/" + secret.Name, Docs: finding.Docs("install.md#without-cert-manager"),
		Fix: "replace the certificate in the Secret, which is your own, or webhook.certificate.caBundle of the chart"}
	if secret.Annotations["cert-manager.io/certificate-name"] != "" {
		f.Fix = c.Kubectl("delete secret " + secret.Name) // cert-manager issues it again
	}
	if f.Message = certificateFault(chain, hooks, time.Now()); f.Message == "" {
		return nil, nil
	}
	f.Reason = "CertificateNotTrusted"
	return []finding.Finding{f}, nil
}

// certificateFault says why the API server does not trust the certificate for a webhook; empty
// if it does.
func certificateFault(chain []*x509.Certificate, hooks []hook, now time.Time) string {
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, further := range chain[1:] {
		options.Intermediates.AddCert(further)
	}
	for _, one := range hooks {
		options.Roots = x509.NewCertPool()
		options.Roots.AppendCertsFromPEM(one.CABundle)
		if one.Service != nil {
			options.DNSName = one.Service.Name + "." + one.Service.Namespace + ".svc"
		}
		if _, err := chain[0].Verify(options); err != nil {
			return fmt.Sprintf("the API server refuses every export, since the CA bundle of %s does not verify the certificate of the webhook: %v", one.object, err)
		}
	}
	return ""
}
