// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// versions says once what version says.
func versions(_ context.Context, c *cluster) ([]finding.Finding, error) {
	sites := model.Map(c.all, func(other *cluster) *agent.Site { return other.Site })
	if skew := agent.Skew(command.Version, sites); skew != "" && c == c.all[0] {
		return []finding.Finding{{Severity: finding.Warning, Reason: "VersionSkew", Message: skew, Fix: c.Helm("--reset-then-reuse-values")}}, nil
	}
	return nil, nil
}

// connections are the problems that status has with Peers.
func connections(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	for _, f := range c.status.Problems {
		name, is := strings.CutPrefix(f.Object, "Peer ")
		if !is {
			continue
		}
		f.Fix = c.fix(cmp.Or(finding.Fix(f.Reason), finding.FixJoin), name)
		if slices.Contains([]string{"", "Missing", "TakeoverHeld"}, f.Reason) { // status has the command for these
			f.Fix = "follow the message"
		}
		all = append(all, f)
	}
	return all, nil
}

// tokens reads the credentials of Peers, and asks those clusters that are diagnosed, too,
// whether they accept them: a connection that is open says nothing.
func tokens(ctx context.Context, c *cluster) (all []finding.Finding, err error) {
	for _, peer := range c.objects.Peers {
		if peer.Spec.Removed {
			continue
		}
		name := peer.Spec.KubeconfigSecret
		f := finding.Finding{Object: fmt.Sprintf("Secret %s/%s", c.Agent.Namespace, name), Fix: c.fix(finding.FixJoin, peer.Name)}
		var asked client.Client
		if other := c.peerOf(peer.Name); other != nil && other.Target != nil && c.Agent.Mode == model.ExchangeMesh {
			asked = other.Target.Client
		}
		var errRead error
		f.Reason, f.Message, errRead = join.CheckCredential(ctx, c.Target.Client, client.ObjectKey{Namespace: c.Agent.Namespace, Name: name}, peer.Name, asked, time.Now())
		if err = errors.Join(err, errRead); f.Reason != "" {
			all = append(all, f)
		}
	}
	return all, err
}

// agentRights asks for those rights of the agent without which it does nothing, or says nothing.
func agentRights(ctx context.Context, c *cluster) ([]finding.Finding, error) {
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
		Fix: c.Kubectl(fmt.Sprintf("create secret tls %s --cert=tls.crt --key=tls.key --dry-run=client -o yaml | %s", secret.Name, c.Kubectl("apply -f -")))}
	if secret.Annotations["cert-manager.io/certificate-name"] != "" {
		f.Fix = c.Kubectl("delete secret " + secret.Name) // cert-manager issues it again
	}
	if f.Reason, f.Message = certificateFault(chain, hooks, time.Now()); f.Reason == "" {
		return nil, nil
	}
	return []finding.Finding{f}, nil
}

// certificateFault says why the API server does not trust the certificate for a webhook.
func certificateFault(chain []*x509.Certificate, hooks []hook, now time.Time) (reason, message string) {
	if ends := chain[0].NotAfter; !ends.After(now) {
		return "CertificateExpired", fmt.Sprintf("the certificate of the webhook expired at %s; the API server refuses every export until it is renewed", ends.UTC().Format(time.RFC3339))
	}
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
			return "CertificateNotTrusted", fmt.Sprintf("the API server refuses every export, since the CA bundle of %s does not verify the certificate of the webhook: %v", one.object, err)
		}
	}
	return "", ""
}
