// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// addPeer makes a Peer and its Secret with a kubeconfig, until the spec ends.
func (m *member) addPeer(ctx context.Context, id, kubeconfig string) {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "bad-" + id},
		Data:       map[string][]byte{join.KubeconfigKey: []byte(kubeconfig)},
	}
	peer := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: exchangev1alpha1.PeerSpec{
		ClusterSet: clusterset, ClusterUID: "99999999-9999-4999-8999-999999999999", KubeconfigSecret: secret.Name,
	}}
	m.create(ctx, secret, peer)
	DeferCleanup(func(ctx context.Context) {
		m.remove(ctx, peer, secret)
		if id != m.ID() {
			Eventually(func() ([]sample, error) { return m.metrics(fmt.Sprintf("comity_peer_state{peer=%q}", id)) }).WithContext(ctx).
				Should(BeEmpty(), "the member %s", id)
		}
	})
}

// kubeconfig has a user of the given YAML and reaches server.
func kubeconfig(server, user string) string {
	return `apiVersion: v1
kind: Config
clusters: [{name: peer, cluster: {server: "` + server + `"}}]
contexts: [{name: peer, context: {cluster: peer, user: peer}}]
users: [{name: peer, user: ` + user + `}]
`
}

// nowhere is a port that nothing listens on.
const nowhere = "https://127.0.0.1:1"

var _ = Describe("A bad Peer", func() {
	It("gets one event and one line of the log, and no other peer suffers", func(ctx SpecContext) {
		a := members["a"]
		bad := map[string]struct {
			kubeconfig, reason string
			parts              []string
		}{
			"garbage": {"\x00\x01 no: [kubeconfig s3cr3t", "InvalidKubeconfig", []string{"key kubeconfig", "kind Config"}},
			"empty":   {"", "InvalidKubeconfig", []string{"key kubeconfig", "it is empty"}},
			"exec": {kubeconfig(nowhere, `{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/s3cr3t}}`),
				"InvalidKubeconfig", []string{"users[0].user.exec", "inline data only"}},
			"path":        {kubeconfig(nowhere, `{tokenFile: /var/run/secrets/s3cr3t}`), "InvalidKubeconfig", []string{"users[0].user.tokenFile", "inline data only"}},
			"unreachable": {kubeconfig(nowhere, `{token: s3cr3t}`), "", []string{"unreachable", "127.0.0.1:1"}},
			a.ID():        {kubeconfig(nowhere, `{token: s3cr3t}`), "OwnClusterID", []string{"is this cluster's own id"}},
		}
		for id, peer := range bad {
			a.addPeer(ctx, id, peer.kubeconfig)
		}
		everythingElseWorks(ctx)
		// The agent may see a Peer before the Secret that came before it.
		known := func(lines []string) []string {
			return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "SecretMissing") })
		}
		for id, peer := range bad {
			said := HaveExactElements(And(HavePrefix("Warning/"+peer.reason), containAll(append(peer.parts, "remedy: "))))
			Eventually(a.events("Peer", id)).WithContext(ctx).Should(WithTransform(known, said), id)
			Expect(known(logged(a.logFile(), `"the status of a peer changed"`, fmt.Sprintf(`"peer":%q`, id), `"reason":"`+peer.reason)(Default))).To(HaveLen(1), id)
		}
		Expect(logged(a.logFile(), "s3cr3t")(Default)).To(BeEmpty(), "no credential is logged")
	})

	It("with a bad kubeconfig in the place of a good one leaves the old connection in use", func(ctx SpecContext) {
		a := members["a"]
		good := &corev1.Secret{}
		key := types.NamespacedName{Namespace: install.Namespace, Name: model.PeerName("b")}
		Expect(a.client.Get(ctx, key, good)).To(Succeed())
		was := good.Data[join.KubeconfigKey]
		put := func(text []byte) {
			GinkgoHelper()
			Expect(a.client.Get(ctx, key, good)).To(Succeed())
			good.Data[join.KubeconfigKey] = text
			Expect(a.client.Update(ctx, good)).To(Succeed())
		}
		put([]byte("garbage"))
		Eventually(a.events("Peer", "b")).WithContext(ctx).Should(ContainElement(HavePrefix("Warning/InvalidKubeconfig: ")))
		everythingElseWorks(ctx)
		put(was)
		awaitConverged(ids...)
		everythingElseWorks(ctx)
	})
})
