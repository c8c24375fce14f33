// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
)

// reachTimeout bounds the first request to a cluster, so that one that does not
// answer is reported soon.
const reachTimeout = 15 * time.Second

// Target is a cluster that a context of the kubeconfig leads to.
type Target struct {
	// Context is the name in the kubeconfig.
	Context string
	REST    *rest.Config
	// Client knows the kinds of NewScheme.
	Client client.Client
	// UID is that of the namespace kube-system: it identifies the cluster,
	// whatever context and address lead to it.
	UID types.UID
}

// NewScheme knows the kinds that commands read or write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install,
		policyv1alpha1.AddToScheme, exchangev1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(scheme))
	return scheme
}

// Open connects to the cluster of one context, which ContextNames gives. The error says
// which context, and whether the kubeconfig is wrong or the cluster does not answer.
func (e *Env) Open(ctx context.Context, names ...string) (*Target, error) {
	names, err := e.ContextNames(names)
	if err != nil {
		return nil, err
	}
	name := names[0]
	config, err := e.configFlags(&name).ToRESTConfig()
	if err != nil {
		return nil, unusable(name, err)
	}
	// Requests go out at the rate that kubectl uses.
	config.QPS, config.Burst, config.UserAgent = 50, 300, "kubectl-comity/"+Version
	target, err := NewTarget(name, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var system corev1.Namespace
	if err := target.Get(ctx, "", metav1.NamespaceSystem, &system); err != nil {
		return nil, err
	}
	target.UID = system.UID
	return target, nil
}

func unusable(name string, err error) error {
	return fmt.Errorf("context %q of the kubeconfig cannot be used: %w", name, err)
}

// NewTarget is the cluster that config leads to, without a request to it.
func NewTarget(name string, config *rest.Config) (*Target, error) {
	c, err := client.New(config, client.Options{Scheme: NewScheme()})
	if err != nil {
		return nil, unusable(name, err)
	}
	return &Target{Context: name, REST: config, Client: c}, nil
}

// Get reads an object. The error names the context and the object.
func (t *Target) Get(ctx context.Context, namespace, name string, into client.Object) error {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := t.Client.Get(ctx, key, into); err != nil {
		return t.Errorf("read %T %s: %w", into, key, err)
	}
	return nil
}

// Missing asks the API server which rights a ServiceAccount does not have, whoever grants them.
func (t *Target) Missing(ctx context.Context, namespace, account string, rights join.Rights) (missing []string, err error) {
	for _, right := range rights {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account),
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &right,
		}}
		if err := t.Client.Create(ctx, review); err != nil {
			return nil, t.Errorf("ask for the rights of ServiceAccount %s/%s: %w", namespace, account, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, join.DisplayRight(right))
		}
	}
	return missing, nil
}

// Errorf is an error that names the context. Kubernetes' own messages say which
// right is missing on which resource, but not in which cluster.
func (t *Target) Errorf(format string, args ...any) error {
	return fmt.Errorf("context %q: "+format, append([]any{t.Context}, args...)...)
}

// Distinct refuses two contexts that lead to one cluster.
func Distinct(targets []*Target) error {
	seen := map[types.UID]*Target{}
	for _, target := range targets {
		if other, ok := seen[target.UID]; ok {
			return fmt.Errorf("contexts %q and %q lead to one cluster (both have kube-system with UID %s); name each cluster once",
				other.Context, target.Context, target.UID)
		}
		seen[target.UID] = target
	}
	return nil
}

// InParallel calls do for each item at once, and waits for all.
func InParallel[T any](items []T, do func(int, T)) {
	var working sync.WaitGroup
	for i, item := range items {
		working.Go(func() { do(i, item) })
	}
	working.Wait()
}

// awaitInterval is the pause between two questions to a cluster.
const awaitInterval = 500 * time.Millisecond

// Await calls do until it succeeds. When ctx has ended, it gives the last error of do.
func Await(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		// The error of a request that was cut short says nothing. Clients refuse one at the
		// deadline, which may be before ctx has noticed it.
		deadline, bounded := ctx.Deadline()
		if ended := ctx.Err() != nil || bounded && !time.Now().Before(deadline); err == nil || last == nil || !ended {
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last == nil {
		return err // do was never called
	}
	return last
}
