// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// Address is where an API server is reached, and the PEM bundle that verifies it.
type Address struct {
	Server string
	CAData []byte
	// Source says where the address is from, for a reader.
	Source string
}

// findAddresses finds the candidates of each route: the address given; else the one that the
// holder has stored, then that of the kubeconfig, unless that is on loopback, which is the
// administrator's machine; then it is what the cluster states of itself. The error says what
// to pass instead.
func (p *Prepared) findAddresses(ctx context.Context) error {
	for _, r := range p.Routes {
		peer := r.issuer
		if peer.opts.ReadOnly {
			break
		}
		if peer.Server == "" && len(peer.CAData) == 0 {
			secret, err := r.holder.secret(ctx, r.secret)
			if err != nil {
				return r.holder.named(err)
			}
			// For this holder alone: no other member believes what is stored there. What cannot be used is written again.
			if config, err := kubeconfig.Sanitize(secret.Data[KubeconfigKey]); err == nil && len(config.CAData) > 0 {
				r.Candidates = []Address{{config.Host, config.CAData, "stored by an earlier join"}}
			}
		}
		more, err := peer.ownAddresses(ctx)
		if err != nil && len(r.Candidates) == 0 {
			return peer.named(err)
		}
		for _, a := range more {
			if !slices.ContainsFunc(r.Candidates, func(b Address) bool { return a.Server == b.Server && string(a.CAData) == string(b.CAData) }) {
				r.Candidates = append(r.Candidates, a)
			}
		}
		r.Address = r.Candidates[0]
	}
	return nil
}

// ownAddresses are those of m's API server as it is given, or as the kubeconfig or m itself
// states it, with every authority that may have signed its certificate.
func (m *member) ownAddresses(ctx context.Context) (all []Address, err error) {
	base, _, err := rest.DefaultServerUrlFor(m.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", m.RESTConfig.Host, err)
	}
	host := strings.TrimRight(base.String(), "/")
	access := rest.CopyConfig(m.RESTConfig)
	if err := rest.LoadTLSFiles(access); err != nil {
		return nil, fmt.Errorf("read the files that the kubeconfig names: %w", err)
	}
	var root corev1.ConfigMap // what Pods of the cluster verify its API server with
	if err := m.get(ctx, metav1.NamespaceSystem, "kube-root-ca.crt", &root); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	// Whichever of the two authorities signed the certificate, all who verify it have it.
	ca := slices.Clone(access.CAData)
	if own := strings.TrimSpace(root.Data["ca.crt"]); !bytes.Contains(ca, []byte(own)) {
		ca = append(ca, "\n"+own...)
	}
	if len(m.CAData) > 0 {
		ca = m.CAData
	}
	servers := []Address{{Server: host, Source: "from the kubeconfig"}}
	switch {
	case m.Server != "":
		servers = []Address{{Server: m.Server, Source: "given by --server"}}
	case onLoopback(host):
		if servers, err = m.statedServers(ctx); err != nil {
			return nil, err
		}
	}
	for _, server := range servers {
		if !kubeconfig.IsServer(server.Server) { // the other side's agent could not use it
			return nil, fmt.Errorf("server %q cannot be used by the other cluster; expected https://host:port", server.Server)
		}
		all = append(all, Address{strings.TrimRight(server.Server, "/"), bytes.TrimSpace(ca), server.Source})
	}
	switch {
	case len(servers) == 0:
		err = fmt.Errorf("the kubeconfig names %s, which only this machine reaches; pass an address that the other clusters reach as --server %s=https://HOST:PORT", host, m.ID)
	case len(bytes.TrimSpace(ca)) == 0:
		err = fmt.Errorf("no certificate authority for %s is known; pass the PEM bundle that verifies it with --ca %s=FILE", servers[0].Server, m.ID)
	}
	return all, err
}

// statedServers are those that the cluster states: the endpoint that kubeadm
// gave to all its nodes, then the endpoints of the Service kubernetes.
func (m *member) statedServers(ctx context.Context) ([]Address, error) {
	config, err := m.kubeadmConfig(ctx)
	if err != nil {
		return nil, err
	}
	var all []Address
	if endpoint := config.ControlPlaneEndpoint; endpoint != "" {
		if _, _, err := net.SplitHostPort(endpoint); err != nil {
			endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), "6443")
		}
		all = append(all, Address{Server: "https://" + endpoint, Source: "kubeadm's control plane endpoint, since the kubeconfig's is on loopback"})
	}
	var found discoveryv1.EndpointSlice // which the API servers keep themselves, sorted
	if err := m.get(ctx, metav1.NamespaceDefault, "kubernetes", &found); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	for _, endpoint := range found.Endpoints {
		for _, port := range found.Ports {
			address := net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(ptr.Deref(port.Port, 443))))
			all = append(all, Address{Server: "https://" + address, Source: "endpoint of Service default/kubernetes, since the kubeconfig's is on loopback"})
		}
	}
	return slices.DeleteFunc(all, func(a Address) bool { return onLoopback(a.Server) }), nil
}

// onLoopback reports whether a URL leads to the machine that reads it.
func onLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// noteOwner is the field manager of annotations. It is not FieldOwner, whose next apply of the
// object would remove them.
const noteOwner = client.FieldOwner("comity-join-note")

// trust stores the credential of the route, unless a good one is there.
func (r *Route) trust(ctx context.Context) error {
	holder, issuer := r.holder, *r.issuer
	issuer.Server, issuer.CAData = r.Address.Server, r.Address.CAData
	account := accountOf(issuer.Cluster, holder.ID)
	if issuer.isHub {
		if err := holder.apply(ctx, namespace(holder.Namespace, nil), ""); err != nil {
			return err
		}
	}
	existing, err := holder.secret(ctx, r.secret)
	if err != nil {
		return err
	}
	kubeconfig, wanted, note := existing.Data[KubeconfigKey], secret(holder.Namespace, r.secret), "" // whose labels it has, by preflightSecret
	keep, err := issuer.accepts(ctx, account, kubeconfig)
	if err == nil && !keep {
		kubeconfig, note, err = issuer.issue(ctx, account, holder.opts.Rotate || holder.replaced)
	}
	if err == nil {
		err = issuer.named(issuer.record(ctx, account, kubeconfig, keep))
	}
	if err != nil {
		return err
	}
	// The agent renews the token and then owns that field; applying the same
	// value again would still write the new ownership.
	if keep {
		holder.report(wanted, Unchanged, "")
		return nil
	}
	wanted.Data = map[string][]byte{KubeconfigKey: kubeconfig}
	return holder.apply(ctx, wanted, note)
}

// accepts reports whether a kubeconfig still lets account in here, and the agent would not
// renew its token yet.
func (m *member) accepts(ctx context.Context, account string, data []byte) (bool, error) {
	token := readToken(data, m.Cluster)
	if claims, is := kubeconfig.ReadToken(token); m.opts.Rotate || !is || claims.Due(m.opts.Now()) {
		return false, nil
	}
	user, err := Authenticate(ctx, m.client, token)
	if err != nil {
		return false, fmt.Errorf("ask cluster %s whether the credential of %s is still good: %w", m.ID, account, err)
	}
	if user.Username != fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, account) {
		return false, nil
	}
	// For 10 s, the API server remembers that a token was good whose account was made again
	// since, as by a rotation that was interrupted.
	var standing corev1.ServiceAccount
	err = m.get(ctx, m.Namespace, account, &standing)
	return err == nil && string(standing.UID) == user.UID, client.IgnoreNotFound(err)
}

// Authenticate asks the cluster of c whose token it is: only the API server knows, since the
// account may have been made again, or the whole cluster. It gives nobody for a token that
// is refused.
func Authenticate(ctx context.Context, c client.Client, token string) (user authenticationv1.UserInfo, err error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.Create(ctx, review); err != nil || !review.Status.Authenticated {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.User, nil
}

// issue makes a kubeconfig with a new token of account here. If again is true, it first
// deletes the account and makes it again. Every token of the old one is bound to its UID, so
// the API server refuses them from then on, save for the 10 s for which it remembers that a
// token was good.
func (m *member) issue(ctx context.Context, account string, again bool) (kubeconfig []byte, note string, err error) {
	wanted := serviceAccount(m.Namespace, account)
	if again {
		if err = m.remove(ctx, wanted); err == nil {
			err = m.apply(ctx, wanted, "its old tokens are not valid any more")
		}
	}
	if err != nil {
		return nil, "", err
	}
	if m.opts.DryRun {
		return nil, "new credential", nil
	}
	seconds := int64(m.opts.Expiry / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := m.client.SubResource("token").Create(ctx, wanted, request); err != nil {
		return nil, "", fmt.Errorf("ask cluster %s for a token of ServiceAccount %s/%s: %w", m.ID, m.Namespace, account, err)
	}
	kubeconfig, err = writeKubeconfig(account, m.Cluster, request.Status.Token)
	return kubeconfig, "new credential, valid until " + request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339), err
}

// record notes on account, here, the lifetime and the audiences of the token in a
// kubeconfig that it was given. A policy of the API server (config/admission) allows
// the account to renew it for no longer and for no other audience. What is noted of
// a token that is kept stays, since its account may have renewed it for less.
func (m *member) record(ctx context.Context, account string, data []byte, kept bool) error {
	claims, is := kubeconfig.ReadToken(readToken(data, m.Cluster))
	if m.opts.DryRun || !is {
		return nil
	}
	found := &corev1.ServiceAccount{}
	if err := m.get(ctx, m.Namespace, account, found); err != nil {
		return err
	}
	if _, noted := found.Annotations[model.AnnotationTokenExpiry]; kept && noted {
		return nil
	}
	return m.annotate(ctx, found, map[string]string{
		model.AnnotationTokenExpiry:    (time.Duration(claims.Expires-claims.Issued) * time.Second).String(),
		model.AnnotationTokenAudiences: strings.Join(claims.Audience, ","),
	})
}

// annotate adds the annotations that object, as it was read, does not have yet.
func (m *member) annotate(ctx context.Context, object client.Object, wanted map[string]string) error {
	if found := object.GetAnnotations(); labels.Equals(found, labels.Merge(found, wanted)) {
		return nil
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.GetUID(), "annotations": wanted}}) // strings
	if err := m.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), noteOwner); err != nil {
		return fmt.Errorf("annotate %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// writeKubeconfig is the kubeconfig by which user reaches peer: self-contained,
// with no plugin, provider or file path, which the agent would refuse.
func writeKubeconfig(user string, peer Cluster, token string) ([]byte, error) {
	name := string(peer.ID)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: peer.Server, CertificateAuthorityData: peer.CAData}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: peer.Namespace}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// readToken is the token in a kubeconfig that writeKubeconfig could have
// written for peer as it is now; empty if server, authority or form differ.
func readToken(data []byte, peer Cluster) string {
	config, err := kubeconfig.Sanitize(data)
	if err != nil || config.Host != peer.Server || !bytes.Equal(config.CAData, peer.CAData) {
		return ""
	}
	return config.BearerToken
}

// CheckCredential reads the Secret by which a cluster, with Comity in that namespace, reads a
// peer, and asks the API server of the peer, unless asked is nil, whether it accepts the token.
// It gives the reason for which the peer cannot be read with it; none if all is well.
func CheckCredential(ctx context.Context, holder client.Client, namespace string, peer v1alpha1.Peer, asked client.Client) (reason, message string, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: peer.Spec.KubeconfigSecret}
	var secret corev1.Secret
	if err := holder.Get(ctx, key, &secret); apierrors.IsNotFound(err) {
		return "SecretMissing", "there is no credential by which cluster " + peer.Name + " is read", nil
	} else if err != nil {
		return "", "", fmt.Errorf("read Secret %s: %w", key, err)
	}
	config, err := kubeconfig.Sanitize(secret.Data[KubeconfigKey])
	if err != nil {
		return "InvalidKubeconfig", fmt.Sprintf("the credential by which cluster %s is read cannot be used: %v", peer.Name, err), nil
	}
	if claims, ok := kubeconfig.ReadToken(config.BearerToken); ok && claims.Expires <= time.Now().Unix() {
		return "Expired", fmt.Sprintf("the token by which cluster %s is read expired at %s", peer.Name, time.Unix(claims.Expires, 0).UTC().Format(time.RFC3339)), nil
	}
	if asked == nil {
		return "", "", nil
	}
	if user, err := Authenticate(ctx, asked, config.BearerToken); err != nil || user.Username != "" {
		return "", "", err
	}
	return "Unauthorized", fmt.Sprintf("cluster %s does not accept the token by which it is read: it was revoked, or its account was made again", peer.Name), nil
}
