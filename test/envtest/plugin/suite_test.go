// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

func TestPlugin(t *testing.T) {
	suite.Run(t, "plugin", suite.Waits{Soon: 20 * time.Second, Poll: 100 * time.Millisecond})
}

var (
	// target is the one cluster, which contexts a and again lead to.
	target *command.Target
	// kubeconfig has also context dead, where nobody listens.
	kubeconfig string
	scratch    context.Context
)

var _ = BeforeSuite(func() {
	config := suite.Start(suite.APIServer())[0]
	scratch = context.Background()
	var err error
	target, err = command.NewTarget("a", config)
	Expect(err).NotTo(HaveOccurred())

	file := clientcmdapi.NewConfig()
	file.Clusters["real"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.Clusters["dead"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1", CertificateAuthorityData: config.CAData}
	file.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	for name, cluster := range map[string]string{"a": "real", "again": "real", "dead": "dead"} {
		file.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: "admin"}
	}
	file.CurrentContext = "a"
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*file, kubeconfig)).To(Succeed())
	GinkgoT().Setenv("KUBECONFIG", kubeconfig)
})

// outcome is what a command printed and how it ended.
type outcome struct {
	out, err string
	code     int
}

// run runs the plugin as a process would.
func run(args ...string) outcome {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(scratch, time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	code := app.Run(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args)
	return outcome{out.String(), errOut.String(), code}
}

// create makes objects for one spec.
func create(objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(target.Client.Create(scratch, object)).To(Succeed())
		DeferCleanup(func() {
			Expect(client.IgnoreNotFound(target.Client.Delete(scratch, object, client.GracePeriodSeconds(0)))).To(Succeed())
		})
	}
}

// newNamespace makes one that stays: nothing removes namespaces here.
func newNamespace() string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"}}
	Expect(target.Client.Create(scratch, namespace)).To(Succeed())
	return namespace.Name
}
