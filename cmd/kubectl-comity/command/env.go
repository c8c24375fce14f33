// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
)

// Name is how users run the plugin.
const Name = "kubectl comity"

// Version is the plugin's; the linker sets it.
var Version = "dev"

// Env is what the process gives to a command: streams and flags.
type Env struct {
	genericiooptions.IOStreams // Out and ErrOut are printable
	// Raw is Out for what is read as it is.
	Raw io.Writer
	// Kubeconfig, Context, Timeout, As and AsGroups are the flags that every
	// command has. Context is the one that is used if no argument names one.
	Kubeconfig, Context, Timeout, As string
	AsGroups                         []string
	// IsTerminal reports whether a stream is a terminal.
	IsTerminal func(stream any) bool
}

// NewEnv has the streams and no flag set.
func NewEnv(streams genericiooptions.IOStreams) *Env {
	raw := streams.Out
	streams.Out, streams.ErrOut = printable{raw, maxLine}, printable{streams.ErrOut, maxLine}
	return &Env{IOStreams: streams, Raw: raw, Timeout: "0", IsTerminal: isTerminal}
}

// AddFlags registers the flags that every command has, under kubectl's names.
func (e *Env) AddFlags(flags *pflag.FlagSet) {
	e.configFlags(&e.Context).AddFlags(flags)
	flags.Lookup("context").Usage = "The kubeconfig context to use if no argument names one"
}

// configFlags reads the kubeconfig as kubectl does. Its pointers are e's own, so
// that any number of contexts can be opened with the flags that were given once.
func (e *Env) configFlags(contextName *string) *genericclioptions.ConfigFlags {
	return &genericclioptions.ConfigFlags{
		KubeConfig: &e.Kubeconfig, Context: contextName, Timeout: &e.Timeout,
		Impersonate: &e.As, ImpersonateGroup: &e.AsGroups,
	}
}

// rawConfig is the merged kubeconfig.
func (e *Env) rawConfig() (clientcmdapi.Config, error) {
	raw, err := e.configFlags(&e.Context).ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return raw, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return raw, nil
}

// ContextNames are the contexts to work on: names as they are given, or else
// the one of --context, or else the current one. Every name is in the kubeconfig.
func (e *Env) ContextNames(names []string) ([]string, error) {
	raw, err := e.rawConfig()
	if err != nil {
		return nil, err
	}
	if used := cmp.Or(e.Context, raw.CurrentContext); len(names) == 0 && used != "" {
		names = []string{used}
	}
	known := cmp.Or(strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "), "none; set --kubeconfig or KUBECONFIG to the file that has them")
	if len(names) == 0 {
		return nil, fmt.Errorf("no context is given and the kubeconfig has no current one; expected one of: %s", known)
	}
	for _, name := range names {
		if _, ok := raw.Contexts[name]; !ok {
			return nil, fmt.Errorf("context %q is not in the kubeconfig; expected one of: %s", name, known)
		}
	}
	return names, nil
}

// CompleteContexts completes arguments that are names of contexts.
func (e *Env) CompleteContexts(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	raw, _ := e.rawConfig() // of one that cannot be read, nothing is completed
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool { return slices.Contains(given, name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Group is a command that only has others.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	help := func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	group := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs, RunE: help}
	group.AddCommand(commands...)
	return group
}

// New is a command. run reads the flags.
func New(use, short, long, example string, args cobra.PositionalArgs, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) },
	}
}

// Command is New with arguments that are contexts, perhaps after others: at least that many.
func (e *Env) Command(use, short, long, example string, atLeast int, run func(context.Context, *Env, []string) error) *cobra.Command {
	cmd := New(use, short, long, example, cobra.MinimumNArgs(atLeast), func(ctx context.Context, args []string) error {
		return run(ctx, e, args)
	})
	cmd.ValidArgsFunction = e.CompleteContexts
	return cmd
}

// Warnf prints a warning where it does not mix with the output.
func (e *Env) Warnf(format string, args ...any) {
	_, _ = fmt.Fprintf(e.ErrOut, "Warning: "+format+"\n", args...)
}

// Printf prints a line of the output.
func (e *Env) Printf(format string, args ...any) { _, _ = fmt.Fprintf(e.Out, format, args...) }

// OpenAll opens the contexts that ContextNames gives. Two of them that are one
// cluster are refused.
func (e *Env) OpenAll(ctx context.Context, names []string) ([]*Target, error) {
	names, err := e.ContextNames(names)
	if err != nil {
		return nil, err
	}
	var targets []*Target
	for _, name := range names {
		target, err := e.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	return targets, Distinct(targets)
}

// ParseKey is the object that an argument names.
func ParseKey(text string) (key types.NamespacedName, err error) {
	namespace, name, _ := strings.Cut(text, "/")
	if problems := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Label(name)...); len(problems) > 0 {
		return key, fmt.Errorf("%q: expected NAMESPACE/NAME, such as shop/web", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

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

// Open connects to the cluster of a context that ContextNames gave. The error says which
// context, and whether the kubeconfig is wrong or the cluster does not answer.
func (e *Env) Open(ctx context.Context, name string) (*Target, error) {
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
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		// The error of a request that was cut short says nothing. Clients refuse one at the
		// deadline, which may be before ctx has noticed it.
		deadline, bounded := ctx.Deadline()
		if ended := ctx.Err() != nil || bounded && !time.Now().Before(deadline); last == nil || !ended {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(awaitInterval):
		}
	}
}
