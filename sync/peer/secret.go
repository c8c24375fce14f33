// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/model"
)

// secretKey is the key of a peer Secret that holds the kubeconfig.
const secretKey = "kubeconfig"

// Reasons for which a peer Secret is refused.
const (
	ReasonInvalidClusterID   = "InvalidClusterID"
	ReasonOwnClusterID       = "OwnClusterID"
	ReasonDuplicateClusterID = "DuplicateClusterID"
	ReasonWrongClusterSet    = "WrongClusterSet"
	ReasonInvalidKubeconfig  = "InvalidKubeconfig"
)

// refusal is one Secret that is not used, and why.
type refusal struct {
	secret  *corev1.Secret
	reason  string
	message string
}

// claim is the Secret that stands for one member.
type claim struct {
	id     model.ClusterID
	secret *corev1.Secret
	// config is nil if the kubeconfig was refused: the member exists, so
	// nothing of it may be drained, but it cannot be reached with this Secret.
	config *rest.Config
	// digest changes with the kubeconfig.
	digest [sha256.Size]byte
}

// judge decides which Secrets stand for which members. Of two that claim one
// id, the older keeps it: a new Secret must not be able to take over a member.
func judge(secrets []corev1.Secret, self model.ClusterID, set string) (claims []claim, refusals []refusal) {
	sorted := make([]*corev1.Secret, 0, len(secrets))
	for i := range secrets {
		s := &secrets[i]
		if _, isPeer := s.Labels[model.LabelClusterID]; isPeer && s.DeletionTimestamp == nil {
			sorted = append(sorted, s)
		}
	}
	slices.SortFunc(sorted, func(a, b *corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	holders := map[model.ClusterID]*corev1.Secret{}
	for _, s := range sorted {
		id, no := identify(s, self, set, holders)
		if no != nil {
			refusals = append(refusals, *no)
			continue
		}
		holders[id] = s
		c := claim{id: id, secret: s, digest: sha256.Sum256(s.Data[secretKey])}
		config, f := sanitize(s.Data[secretKey])
		if f != nil {
			refusals = append(refusals, refusal{s, ReasonInvalidKubeconfig, fmt.Sprintf("Secret %s/%s, key %s: %s", s.Namespace, s.Name, secretKey, f)})
		}
		c.config = config
		claims = append(claims, c)
	}
	return claims, refusals
}

func identify(s *corev1.Secret, self model.ClusterID, set string, holders map[model.ClusterID]*corev1.Secret) (model.ClusterID, *refusal) {
	where := fmt.Sprintf("Secret %s/%s", s.Namespace, s.Name)
	if got := s.Labels[model.LabelClusterSet]; got != set {
		return "", &refusal{s, ReasonWrongClusterSet, fmt.Sprintf("%s, label %s: is %q; expected %q, this cluster's set; remedy: correct the label, or delete the Secret",
			where, model.LabelClusterSet, got, set)}
	}
	id, err := model.ParseClusterID(s.Labels[model.LabelClusterID])
	if err != nil {
		return "", &refusal{s, ReasonInvalidClusterID, fmt.Sprintf("%s, label %s: %v; expected an id such as \"cluster-1\"; remedy: give the peer's id as its ClusterProperty %s has it",
			where, model.LabelClusterID, err, model.LabelClusterID)}
	}
	if id == self {
		return "", &refusal{s, ReasonOwnClusterID, fmt.Sprintf("%s, label %s: %q is this cluster's own id; expected another cluster's; remedy: delete the Secret, or give one of the two clusters another id",
			where, model.LabelClusterID, id)}
	}
	if older := holders[id]; older != nil {
		return "", &refusal{s, ReasonDuplicateClusterID, fmt.Sprintf("%s, label %s: %q is claimed by the older Secret %s already, which stays in use; expected one Secret for each cluster; remedy: delete one of the two",
			where, model.LabelClusterID, id, older.Name)}
	}
	return id, nil
}

// fault is why a kubeconfig is refused: the field, what was expected, and what
// to do. It never holds a value from the kubeconfig, which may be a credential.
type fault struct{ field, expected, remedy string }

func (f *fault) String() string {
	return fmt.Sprintf("%s: expected %s; remedy: %s", f.field, f.expected, f.remedy)
}

const rejoin = "write the Secret again with kubectl comity join"

// sanitize turns the kubeconfig of a peer Secret into a client configuration,
// or says why not. A kubeconfig is code as well as data: exec plugins and auth
// providers run programs, file paths read this pod's files (CVE-2022-24817). So
// only inline data is taken over, field by field; what is not named here is
// not used, and what could do harm is refused even where nothing refers to it.
func sanitize(data []byte) (*rest.Config, *fault) {
	if len(data) == 0 {
		return nil, &fault{"kubeconfig", "a kubeconfig, but the key is missing or empty", rejoin}
	}
	// The decoder's error quotes what it could not read, so it is not passed on.
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, &fault{"kubeconfig", "YAML of apiVersion v1, kind Config, but it cannot be read as that", rejoin}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if f := checkCluster(config.Clusters[name]); f != nil {
			return nil, f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		if f := checkUser(config.AuthInfos[name]); f != nil {
			return nil, f
		}
	}
	cluster, user, f := onlyContext(config)
	if f != nil {
		return nil, f
	}
	return &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
	}, nil
}

// onlyContext finds the one context. With several, which one is meant would
// hang on current-context, and a slip there would connect to another cluster.
func onlyContext(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *fault) {
	if len(config.Contexts) != 1 {
		return nil, nil, &fault{"contexts", fmt.Sprintf("exactly one context, found %d", len(config.Contexts)), "remove all contexts but the peer's"}
	}
	for name, context := range config.Contexts {
		if config.CurrentContext != "" && config.CurrentContext != name {
			return nil, nil, &fault{"current-context", "the name of the only context, or nothing", "set it to that name"}
		}
		if context == nil {
			return nil, nil, &fault{"contexts[0].context", "a cluster and a user", rejoin}
		}
		cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
		if cluster == nil {
			return nil, nil, &fault{"contexts[0].context.cluster", "the name of an entry in clusters", rejoin}
		}
		if user == nil {
			return nil, nil, &fault{"contexts[0].context.user", "the name of an entry in users", rejoin}
		}
		return cluster, user, nil
	}
	return nil, nil, nil // not reached: there is exactly one context
}

func checkCluster(c *clientcmdapi.Cluster) *fault {
	if c == nil {
		return &fault{"clusters.cluster", "a server and its certificate authority", rejoin}
	}
	server, err := url.Parse(c.Server)
	switch {
	case c.CertificateAuthority != "":
		return &fault{"clusters.cluster.certificate-authority", "no file path", "put the certificates into certificate-authority-data"}
	case c.InsecureSkipTLSVerify:
		return &fault{"clusters.cluster.insecure-skip-tls-verify", "a verified server", "remove it and give certificate-authority-data"}
	case c.ProxyURL != "":
		return &fault{"clusters.cluster.proxy-url", "no proxy", "give a server address that this cluster reaches itself"}
	case c.Server == "":
		return &fault{"clusters.cluster.server", "an https URL, but it is empty", "give the peer's API server as this cluster reaches it"}
	case err != nil || server.Scheme != "https" || server.Hostname() == "" || server.User != nil || server.RawQuery != "" || server.Fragment != "":
		return &fault{"clusters.cluster.server", "an https URL of a host and nothing secret, such as https://10.0.0.1:6443", "give the peer's API server as this cluster reaches it"}
	}
	if len(c.CertificateAuthorityData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CertificateAuthorityData) {
		return &fault{"clusters.cluster.certificate-authority-data", "base64 of PEM certificates", rejoin}
	}
	return nil
}

func checkUser(u *clientcmdapi.AuthInfo) *fault {
	const inline = "put a token, or client-certificate-data and client-key-data, into the kubeconfig"
	switch {
	case u == nil:
		return &fault{"users.user", "a token or a client certificate", inline}
	case u.Exec != nil:
		return &fault{"users.user.exec", "no exec plugin, which would run a program in this pod", inline}
	case u.AuthProvider != nil:
		return &fault{"users.user.auth-provider", "no auth provider, which would run code in this pod", inline}
	case u.TokenFile != "":
		return &fault{"users.user.tokenFile", "no file path", inline}
	case u.ClientCertificate != "":
		return &fault{"users.user.client-certificate", "no file path", inline}
	case u.ClientKey != "":
		return &fault{"users.user.client-key", "no file path", inline}
	case u.Username != "" || u.Password != "":
		return &fault{"users.user.username", "no password", inline}
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return &fault{"users.user.as", "no impersonation", "use the account that the peer made for this cluster"}
	case u.Token == "" && len(u.ClientCertificateData) == 0 && len(u.ClientKeyData) == 0:
		return &fault{"users.user", "a token or a client certificate, found neither", inline}
	}
	for _, r := range u.Token {
		if r <= ' ' || r > '~' {
			return &fault{"users.user.token", "a token without white space or control characters", rejoin}
		}
	}
	if len(u.ClientCertificateData) > 0 || len(u.ClientKeyData) > 0 {
		if _, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData); err != nil {
			return &fault{"users.user.client-certificate-data", "a PEM certificate and, in client-key-data, its key", rejoin}
		}
	}
	return nil
}
