// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package install checks what `comity install` does to a real API server, with
// the rights that its package comment states and no others.
package install

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/comity-mcs/comity/test/envtest/suite"
)

// soon bounds waits.
const soon = time.Minute

// Names of all definitions.
var (
	mcsDefinitions = []string{"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}
	ownDefinitions = []string{
		"exportrecords.exchange.comity.dev", "importrecords.exchange.comity.dev", "memberrecords.exchange.comity.dev",
		"namespacerecords.exchange.comity.dev", "peers.exchange.comity.dev", "exportpolicies.policy.comity.dev",
	}
)

var (
	scheme = suite.Scheme()
	// admin may do everything; crdJob and policyJob are the accounts of the Jobs.
	admin, crdJob, policyJob client.Client
)

func TestInstall(t *testing.T) {
	suite.Run(t, "install", suite.Waits{Soon: soon})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	server := suite.Start(&envtest.Environment{})[0] // without the definitions
	admin = suite.Client(server)
	crdJob = account(ctx, server, "crds", rbacv1.PolicyRule{
		APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
		ResourceNames: append(append([]string{}, mcsDefinitions...), ownDefinitions...), Verbs: []string{"get", "create", "patch"},
	})
	policyJob = account(ctx, server, "policies",
		rbacv1.PolicyRule{APIGroups: []string{"policy.comity.dev"}, Resources: []string{"exportpolicies"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, ResourceNames: []string{owner}, Verbs: []string{"get"}},
	)
})

// account is a service account with these rights and no others.
func account(ctx context.Context, server *rest.Config, name string, rules ...rbacv1.PolicyRule) client.Client {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "job-" + name}, Rules: rules}
	Expect(admin.Create(ctx, role)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "comity-system", Name: name}},
	})).To(Succeed())
	config := rest.CopyConfig(server)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:comity-system:" + name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// output is what a command prints, which may still run.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
