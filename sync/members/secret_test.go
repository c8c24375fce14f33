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
	claims, refusals := assign([]corev1.Secret{
		secret("younger", time.Hour, "b", "prod", good),
		secret("older", 2*time.Hour, "b", "prod", good),
		secret("own", 0, "a", "prod", good),
		secret("dotted", 0, "b.example.com", "prod", good),
		secret("upper", 0, "B", "prod", good),
		secret("empty", 0, "", "prod", good),
		secret("elsewhere", 0, "c", "staging", good),
		secret("broken", 0, "d", "prod", []byte("garbage")),
		unrelated, going,
	}, "a", "prod")

	type line struct{ Secret, What string }
	var got []line
	for _, c := range claims {
		what := "stands for " + string(c.id)
		if c.config == nil {
			what += ", without a connection"
		}
		got = append(got, line{c.secret.Name, what})
	}
	for _, r := range refusals {
		got = append(got, line{r.secret.Name, r.reason})
		if !strings.Contains(r.message, "Secret comity-system/"+r.secret.Name) || !strings.Contains(r.message, "remedy: ") || !strings.Contains(r.message, "expected ") {
			t.Errorf("the message does not name the object, what is expected and the remedy: %s", r.message)
		}
	}
	want := []line{
		{"older", "stands for b"}, {"broken", "stands for d, without a connection"},
		{"younger", ReasonDuplicateClusterID}, {"broken", ReasonInvalidKubeconfig}, {"dotted", ReasonInvalidClusterID},
		{"elsewhere", ReasonWrongClusterSet}, {"empty", ReasonInvalidClusterID}, {"own", ReasonOwnClusterID}, {"upper", ReasonInvalidClusterID},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
