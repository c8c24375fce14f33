// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultTimeout bounds what waits for the API server or the webhook. A
// certificate, a rollout and a slow pull of the image fit into it.
const defaultTimeout = 5 * time.Minute

// NewCommand is `comity install`; version is that of the binary.
func NewCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install what the agent needs in the API server; the chart runs it in Jobs",
		Args: func(*cobra.Command, []string) error {
			return errors.New("choose what to install: crds or policies; see comity install --help")
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args refuses every call
	}
	cmd.AddCommand(newCRDsCommand(version), newPoliciesCommand())
	return cmd
}

func newCRDsCommand(version string) *cobra.Command {
	o := CRDOptions{Version: version}
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Apply the CustomResourceDefinitions of Comity and of the MCS API",
		Long: `Apply the CustomResourceDefinitions of Comity and, with --mcs, those of the MCS API. Those of the MCS API that something else
installed, and those that a newer Comity installed, are left alone. Nothing is deleted.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&o.MCS, "mcs", true, "also the definitions of the MCS API (multicluster.x-k8s.io); false leaves them to another installer")
	return connects(cmd, func(ctx context.Context, c client.Client, out io.Writer) error { return CRDs(ctx, c, out, o) })
}

func newPoliciesCommand() *cobra.Command {
	var o PolicyOptions
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Apply the ExportPolicies of a file, and remove those that an earlier version of the file had",
		Long: `Apply the ExportPolicies of a YAML file, and delete those that an earlier run applied and the file no longer has. One with the
same name that something else made is refused.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&o.File, "file", "", "YAML file with the ExportPolicies (required)")
	_ = cmd.MarkFlagRequired("file")
	cmd.Flags().StringVar(&o.OwnerClusterRole, "owner-cluster-role", "", "ClusterRole that becomes the owner of the ExportPolicies: they are deleted with it; empty: no owner")
	return connects(cmd, func(ctx context.Context, c client.Client, out io.Writer) error { return Policies(ctx, c, out, o) })
}

// connects makes cmd run with a client of the cluster that the Pod runs in, or that a
// kubeconfig file names. --timeout bounds the whole.
func connects(cmd *cobra.Command, run func(context.Context, client.Client, io.Writer) error) *cobra.Command {
	kubeconfig := cmd.Flags().String("kubeconfig", "", "kubeconfig file; empty: the Pod's service account")
	timeout := cmd.Flags().Duration("timeout", defaultTimeout, "how long to wait for the API server and the webhook")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := RESTConfig(*kubeconfig)
		if err != nil {
			return err
		}
		scheme := runtime.NewScheme() // of what is read typed
		utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)))
		c, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("connect to the API server: %w", err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return run(ctx, c, cmd.OutOrStdout())
	}
	return cmd
}

// RESTConfig is the configuration of --kubeconfig, or of the service account of the Pod.
func RESTConfig(kubeconfig string) (config *rest.Config, err error) {
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

// say prints one line about what was done or is awaited. A reader that hung up
// does not stop an installation.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

// apply writes an object as one of this package, and says what that did to was, which has no
// resource version if there was none.
func apply(ctx context.Context, c client.Client, out io.Writer, object *unstructured.Unstructured, was client.Object) error {
	applied := object.DeepCopy()
	applied.SetLabels(labels.Merge(applied.GetLabels(), labels.Set{labelManagedBy: fieldOwner}))
	err := await(ctx, out, func(ctx context.Context) error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(fieldOwner), client.ForceOwnership)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", title(applied), err)
	}
	done := "configured"
	switch was.GetResourceVersion() {
	case "":
		done = "created"
	case applied.GetResourceVersion():
		done = "unchanged"
	}
	say(out, "%s %s", title(applied), done)
	return nil
}

// title is the kind and the name of an object.
func title(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + " " + object.GetName()
}

// interval is how often something awaited is tried again. A definition is
// served within a second of its creation.
const interval = time.Second

// refused is an error of this package that time does not cure.
type refused struct{ error }

// isFinal is true for what is not awaited: a refusal of this package, or one of the API server,
// unless it asks to try again. A kind that it does not serve yet, and a webhook that does not
// answer yet, are awaited.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return errors.As(err, new(refused))
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusNotFound && code != http.StatusConflict && code != http.StatusTooManyRequests
}

// await calls do until it succeeds, fails for good, or ctx ends. It prints what
// it waits for, one line for each change.
func await(ctx context.Context, out io.Writer, do func(context.Context) error) error {
	said := ""
	err := utilwait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil: // the error may be that of a request that was cut short
			said = cmp.Or(said, err.Error())
			return false, nil //nolint:nilerr // the poll ends with the error of ctx
		case isFinal(err):
			return false, err
		case err.Error() != said:
			said = err.Error()
			say(out, "waiting: %s", said)
		}
		return false, nil
	})
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("gave up waiting (--timeout, or interrupted): %s", said)
}
