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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// secret is a peer Secret that claims id, with a kubeconfig.
func secret(name, id, kubeconfig string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: name, Labels: map[string]string{
			model.LabelClusterID: id, model.LabelClusterSet: clusterset,
		}},
		Data: map[string][]byte{join.KubeconfigKey: []byte(kubeconfig)},
	}
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

// leave removes a peer Secret as kubectl comity leave does. A peer whose Secret is only
// deleted stays a member for ten minutes, or until the agent is restarted if nothing was
// imported from it, and the status of exports names it.
func (m *member) leave(ctx context.Context, peer *corev1.Secret) {
	GinkgoHelper()
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, model.AnnotationLeaving)
	Expect(m.client.Patch(ctx, peer, client.RawPatch(types.MergePatchType, []byte(mark)))).To(Succeed())
	m.remove(ctx, peer)
	if id := peer.Labels[model.LabelClusterID]; !slices.Contains(ids, id) {
		Eventually(func() ([]sample, error) { return m.metrics(fmt.Sprintf("comity_peer_synced{peer=%q}", id)) }).WithContext(ctx).
			Should(BeEmpty(), "the member %s", id)
	}
}

// nowhere is a port that nothing listens on.
const nowhere = "https://127.0.0.1:1"

var _ = Describe("A bad peer Secret", func() {
	DescribeTable("gets one event and one line of the log, and no other peer suffers",
		func(ctx SpecContext, id, kubeconfig, reason string, parts ...string) {
			a := members["a"]
			bad := secret("peer-bad-"+strings.ToLower(reason)+"-"+newNumber(), id, kubeconfig)
			a.create(ctx, bad)
			DeferCleanup(func(ctx context.Context) { a.leave(ctx, bad) })
			told := HaveExactElements(And(HavePrefix("Warning/"+reason+": "), containAll(append(parts, "remedy: "))))
			Eventually(a.events("Secret", bad.Name)).WithContext(ctx).Should(told)
			Expect(logged(a.dir, bad.Name, `"reason":"`+reason+`"`)(Default)).To(HaveLen(1))
			Expect(logged(a.dir, "s3cr3t")(Default)).To(BeEmpty(), "no credential is logged")
			everythingElseWorks(ctx)
			Expect(a.events("Secret", bad.Name)(Default, ctx)).To(told, "said once")
		},
		Entry("of garbage", "ghost", "\x00\x01 no: [kubeconfig s3cr3t", "InvalidKubeconfig", "key kubeconfig", "kind Config"),
		Entry("without a kubeconfig", "ghost", "", "InvalidKubeconfig", "key kubeconfig", "missing or empty"),
		Entry("with an exec plugin", "ghost", kubeconfig(nowhere, `{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/s3cr3t}}`),
			"InvalidKubeconfig", "users.user.exec", "no exec plugin"),
		Entry("with a file path", "ghost", kubeconfig(nowhere, `{tokenFile: /var/run/secrets/s3cr3t}`),
			"InvalidKubeconfig", "users.user.tokenFile", "no file path"),
		Entry("of an id that another Secret has", "b", kubeconfig(nowhere, `{token: s3cr3t}`),
			"DuplicateClusterID", `"b" is claimed by the older Secret peer-b`),
		Entry("of our own id", "a", kubeconfig(nowhere, `{token: s3cr3t}`), "OwnClusterID", `"a" is this cluster's own id`),
		Entry("of an id that is none", "C_3", kubeconfig(nowhere, `{token: s3cr3t}`), "InvalidClusterID", `"C_3"`),
	)

	It("of a server that cannot be reached says so, and no other peer suffers", func(ctx SpecContext) {
		a := members["a"]
		lost := secret("peer-lost", "lost", kubeconfig(nowhere, `{token: s3cr3t}`))
		a.create(ctx, lost)
		DeferCleanup(func(ctx context.Context) { a.leave(ctx, lost) })
		Eventually(a.events("Secret", lost.Name)).WithContext(ctx).
			Should(HaveExactElements(And(HavePrefix("Warning/"), containAll([]string{"lost", "127.0.0.1:1", "remedy: "}))))
		Expect(logged(a.dir, "peer cannot be read", "lost")(Default)).To(HaveLen(1))
		Expect(logged(a.dir, "s3cr3t")(Default)).To(BeEmpty(), "no credential is logged")
		everythingElseWorks(ctx)
	})

	It("in the place of a good one leaves the old connection in use", func(ctx SpecContext) {
		a := members["a"]
		good := &corev1.Secret{}
		key := types.NamespacedName{Namespace: install.Namespace, Name: join.PeerName("b")}
		Expect(a.client.Get(ctx, key, good)).To(Succeed())
		was := good.Data[join.KubeconfigKey]
		put := func(text []byte) {
			GinkgoHelper()
			Expect(a.client.Get(ctx, key, good)).To(Succeed())
			good.Data[join.KubeconfigKey] = text
			Expect(a.client.Update(ctx, good)).To(Succeed())
		}
		put([]byte("garbage"))
		Eventually(a.events("Secret", key.Name)).WithContext(ctx).Should(ContainElement(HavePrefix("Warning/InvalidKubeconfig: ")))
		everythingElseWorks(ctx)
		put(was)
		awaitConverged(ids...)
		everythingElseWorks(ctx)
	})
})
