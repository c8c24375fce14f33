// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

const token = "very-secret-token"

// kubeconfigOf is a good one of a server with a certificate of its own; without
// one, of a server that nobody asks.
func kubeconfigOf(t testing.TB, server string, ca []byte, token string) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["b"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["b"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func secret(name string, age time.Duration, id, set string, data []byte) corev1.Secret {
	return corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "comity-system", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-age)),
			Labels: map[string]string{model.LabelClusterID: id, model.LabelClusterSet: set},
		},
		Data: map[string][]byte{kubeconfig.SecretKey: data},
	}
}

func TestJudge(t *testing.T) {
	good := kubeconfigOf(t, "https://10.0.0.1:6443", nil, token)
	unrelated := secret("tls", 0, "", "", nil)
	unrelated.Labels = nil
	going := secret("going", 0, "e", "prod", good)
	going.DeletionTimestamp = &metav1.Time{}
	assigned := assign([]corev1.Secret{
		secret("younger", time.Hour, "b", "prod", good),
		secret("older", 2*time.Hour, "b", "prod", good),
		secret("own", 0, "a", "prod", good),
		secret("dotted", 0, "b.example.com", "prod", good),
		secret("upper", 0, "B", "prod", good),
		secret("empty", 0, "", "prod", good),
		secret("elsewhere", 0, "c", "staging", good),
		secret("broken", 0, "d", "prod", []byte("garbage")),
		unrelated, going,
	}, "a", "prod", formerly{})

	type line struct{ Secret, What string }
	var got []line
	for _, c := range assigned.claims {
		what := "stands for " + string(c.id)
		if c.config == nil {
			what += ", without a connection"
		}
		got = append(got, line{c.secret.Name, what})
	}
	for _, r := range assigned.refusals {
		got = append(got, line{r.secret.Name, r.reason})
		if !strings.Contains(r.message, "Secret comity-system/"+r.secret.Name) || !strings.Contains(r.message, "remedy: ") || !strings.Contains(r.message, "expected ") {
			t.Errorf("the message does not name the object, what is expected and the remedy: %s", r.message)
		}
	}
	want := []line{
		{"older", "stands for b"}, {"broken", "stands for d, without a connection"}, {"elsewhere", "stands for c, without a connection"},
		{"dotted", ReasonInvalidClusterID}, {"empty", ReasonInvalidClusterID}, {"own", ReasonOwnClusterID}, {"upper", ReasonInvalidClusterID},
		{"younger", ReasonDuplicateClusterID}, {"broken", ReasonInvalidKubeconfig}, {"elsewhere", ReasonWrongClusterSet},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// withUID is a Secret as the API server stores it.
func withUID(s corev1.Secret, change func(*corev1.Secret)) corev1.Secret {
	s.UID = types.UID("uid-of-" + s.Name)
	if change != nil {
		change(&s)
	}
	return s
}

func TestASecretWithAWrongLabelIsStillThatOfItsMember(t *testing.T) {
	good := kubeconfigOf(t, "https://10.0.0.1:6443", nil, token)
	of := func(name, id string, age time.Duration) corev1.Secret {
		return withUID(secret(name, age, id, "prod", good), nil)
	}
	without := func(s corev1.Secret, label string) corev1.Secret {
		delete(s.Labels, label)
		return s
	}
	inUse := formerly{inUse: map[types.UID]model.ClusterID{"uid-of-any": "b"}, named: map[string]model.ClusterID{"peer-b": "b", "peer-c": "c"}}
	named := formerly{named: inUse.named}
	for name, c := range map[string]struct {
		before       formerly
		secrets      []corev1.Secret
		want         string // claims, then refusals
		unidentified bool
	}{
		"the label is gone, and the Secret was in use":     {inUse, []corev1.Secret{without(of("any", "", 0), model.LabelClusterID)}, "any:b- any:InvalidClusterID", false},
		"the label is gone, and the name says whose it is": {named, []corev1.Secret{without(of("peer-b", "", 0), model.LabelClusterID)}, "peer-b:b- peer-b:InvalidClusterID", false},
		"the label is gone, and nothing says whose it is":  {named, []corev1.Secret{without(of("any", "", 0), model.LabelClusterID)}, "any:InvalidClusterID", true},
		"both labels and the annotations are gone":         {formerly{}, []corev1.Secret{without(without(of("any", "", 0), model.LabelClusterID), model.LabelClusterSet)}, "", false},
		"the id is no id":   {inUse, []corev1.Secret{of("any", "B_", 0)}, "any:b- any:InvalidClusterID", false},
		"the id is our own": {inUse, []corev1.Secret{of("any", "a", 0)}, "any:b- any:OwnClusterID", false},
		"the id is our own, and nothing says whose it is": {named, []corev1.Secret{of("any", "a", 0)}, "any:OwnClusterID", true},
		"the id is that of no other member":               {inUse, []corev1.Secret{of("any", "bb", 0)}, "any:b- any:ClusterIDChanged", false},
		"the id is that of another member, which keeps its younger Secret": {inUse, []corev1.Secret{of("any", "c", time.Hour), of("peer-c", "c", 0)},
			"any:b- peer-c:c any:ClusterIDChanged", false},
		"the name is that of a member that has another Secret": {named, []corev1.Secret{of("peer-b", "c", 0), of("any", "b", 0)}, "any:b peer-b:c", false},
		"the one in use is refused, and a younger one is valid": {inUse, []corev1.Secret{
			withUID(secret("any", time.Hour, "b", "staging", good), nil), of("younger", "b", 0),
		}, "any:b- any:WrongClusterSet younger:DuplicateClusterID", true},
		"the older one was never in use and is refused": {named, []corev1.Secret{
			withUID(secret("older", time.Hour, "b", "staging", good), nil), of("younger", "b", 0),
		}, "younger:b older:WrongClusterSet", false},
		"both are refused": {named, []corev1.Secret{
			withUID(secret("older", time.Hour, "b", "staging", good), nil), withUID(secret("younger", 0, "b", "staging", good), nil),
		}, "older:b- older:WrongClusterSet younger:WrongClusterSet", false},
		"two are valid":                          {named, []corev1.Secret{of("any", "c", time.Hour), of("peer-c", "c", 0)}, "any:c peer-c:DuplicateClusterID", true},
		"the exchange's own Secret is no peer's": {named, []corev1.Secret{without(of(model.ExchangeSecret, "", 0), model.LabelClusterID)}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := assign(c.secrets, "a", "prod", c.before)
			var text []string
			for _, claim := range got.claims {
				item := claim.secret.Name + ":" + string(claim.id)
				if claim.config == nil {
					item += "-"
				}
				if (claim.config == nil) != claim.unusable() {
					t.Errorf("%s is unusable: %v", item, claim.unusable())
				}
				text = append(text, item)
			}
			for _, r := range got.refusals {
				text = append(text, r.secret.Name+":"+r.reason)
			}
			if (len(got.ownID) > 0) != (name == "the id is our own, and nothing says whose it is") {
				t.Errorf("Secrets that claim our id: %d", len(got.ownID))
			}
			if s := strings.Join(text, " "); s != c.want || (got.unidentified != "") != c.unidentified {
				t.Errorf("got %q, unidentified %q; want %q, %v", s, got.unidentified, c.want, c.unidentified)
			}
		})
	}
}
