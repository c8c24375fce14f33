// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package verify is `kubectl comity verify`: it checks that Services are
// reachable by their clusterset name, from every cluster to every other.
//
// In each cluster it creates a temporary namespace with a Pod of Comity's own
// image, a Service and a ServiceExport, waits until every cluster imports each
// of them, and fetches all of them from all of them. It gives a Result with one
// Check for each way, and for a failed one the broken step, which package trace
// finds. It removes what it created, even when it is interrupted, and changes nothing else.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	apirand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/trace"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

const (
	// cleanTimeout bounds the removal of the namespaces, which begins even after an
	// interruption.
	cleanTimeout = 90 * time.Second
	// requestTimeout bounds a request.
	requestTimeout = 3 * time.Second
	// retryInterval is the pause after requests that failed: kube-proxy and
	// CoreDNS follow an import within a second or so.
	retryInterval = 2 * time.Second
	// traceTimeout bounds the search for the broken step.
	traceTimeout = 30 * time.Second
)

const long = `Check that Services are reachable by their clusterset name, from every cluster to
every other.

In each cluster, the command creates a temporary namespace comity-verify-<random>
with a Pod of Comity's own image, a Service and a ServiceExport. Every cluster sends
requests to the Service of every cluster, over each IP family that both have. The
table shows the time of a request. Of what failed, the output names the first
broken step, as kubectl comity trace does, and what fixes it.

The exit code is 1 if a Service was not reachable, or something could not be removed.`

// options are the flags.
type options struct {
	command.Output
	timeout time.Duration
}

// New gives the command verify.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := env.Command("verify CONTEXT CONTEXT...", "Check that a temporary Service of each cluster is reachable from every other", long,
		"  kubectl comity verify a b\n  kubectl comity verify a b c --timeout 5m -o json", 2, o.run)
	o.AddFlags(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long all checks may take together, without the search for what is broken and the final removal")
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env, contexts []string) error {
	sites, err := agent.Sites(ctx, env, contexts)
	if err == nil {
		err = agent.Problems(sites) // before anything is made
	}
	if err != nil {
		return err
	}
	result := Result{Namespace: "comity-verify-" + apirand.String(8)}
	var members []*member
	for i, s := range sites {
		members = append(members, &member{Site: s, namespace: result.Namespace, service: fmt.Sprintf("verify-%d", i+1)})
	}
	if !o.Structured() {
		env.Printf("Verifying in the temporary namespace %s\n", result.Namespace)
	}
	verifying, cancel := context.WithTimeout(ctx, o.timeout)
	result.Checks = verifyAll(verifying, members)
	cancel()
	result.LeftBehind = removeAll(ctx, members)
	if ctx.Err() != nil {
		return &command.Error{Code: command.ExitProblem, Err: fmt.Errorf("interrupted; left behind: %s", cmp.Or(strings.Join(result.LeftBehind, "; "), "nothing"))}
	}
	result.Passed = len(result.LeftBehind) == 0 && !slices.ContainsFunc(result.Checks, func(c Check) bool { return !c.Passed })
	return o.Conclude(env.Out, "Verification", result, result.Passed, func() { show(env.Out, result) })
}

// verifyAll makes what is needed everywhere and then tries every way at once.
func verifyAll(ctx context.Context, members []*member) []Check {
	command.InParallel(members, func(_ int, m *member) {
		m.failed = m.create(ctx, newNamespace(m.namespace))
	})
	// Only where the namespace is everywhere, no cluster is reported to lack it.
	command.InParallel(members, func(_ int, m *member) {
		if m.failed == nil {
			m.failed = m.prepare(ctx)
		}
	})
	checks := make([][]Check, len(members)*len(members))
	command.InParallel(checks, func(i int, _ []Check) { checks[i] = members[i%len(members)].check(ctx, members[i/len(members)]) })
	return slices.Concat(checks...)
}

// removeAll removes all namespaces, even if ctx has ended, and says what it could not remove.
func removeAll(ctx context.Context, members []*member) (failed []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	command.InParallel(members, func(_ int, m *member) { m.failed = m.remove(ctx) })
	for _, m := range members {
		if m.failed != nil {
			failed = append(failed, m.failed.Error())
		}
	}
	return failed
}

// Result is what -o prints, under kind Verification.
type Result struct {
	Passed    bool    `json:"passed"`
	Namespace string  `json:"namespace"`
	Checks    []Check `json:"checks"`
	// LeftBehind names what could not be removed.
	LeftBehind []string `json:"leftBehind,omitempty"`
}

// Check is one way: cluster To fetches the Service that cluster From exports.
type Check struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Family is IPv4 or IPv6; empty if it failed before an address was used.
	Family string `json:"family,omitempty"`
	Passed bool   `json:"passed"`
	// Milliseconds is the time of the request, name resolution included.
	Milliseconds float64 `json:"milliseconds,omitempty"`
	// Address is what the name resolved to.
	Address string `json:"address,omitempty"`
	// Message says what failed.
	Message string `json:"message,omitempty"`
	// Cause is the broken step of the way, as kubectl comity trace has it.
	Cause *trace.Step `json:"cause,omitempty"`
}

// show prints a table of all checks, and then the failures.
func show(out io.Writer, result Result) {
	table := command.NewTable(out, "\nFROM", "TO", "FAMILY", "TIME")
	for _, c := range result.Checks {
		time := "FAILED"
		if c.Passed {
			time = fmt.Sprintf("%.1f ms", c.Milliseconds)
		}
		table.Row(c.From, c.To, c.Family, time)
	}
	table.Flush()
	for _, c := range result.Checks {
		if c.Passed {
			continue
		}
		way := fmt.Sprintf("%s fetching from %s", c.To, c.From)
		if c.Family != "" {
			way += " over " + c.Family
		}
		_, _ = fmt.Fprintf(out, "\nFAILED: %s: %s\n", way, c.Message)
		if c.Cause != nil {
			_, _ = fmt.Fprintf(out, "  %s", c.Cause)
		}
	}
	for _, left := range result.LeftBehind {
		_, _ = fmt.Fprintf(out, "\nLEFT BEHIND: %s\n", left)
	}
	if result.Passed {
		_, _ = fmt.Fprintln(out, "\nEvery cluster reaches every Service. Nothing was left behind.")
	}
}

// member is one cluster that takes part.
type member struct {
	*agent.Site
	// pod serves what this cluster exports, and fetches what the others do; nil if none is ready.
	pod *corev1.Pod
	// namespace is the temporary one, of the same name everywhere.
	namespace string
	// service is the name of what this cluster exports. Each has its own, so that an answer
	// says whose it is.
	service string
	// families are those of its Service.
	families []corev1.IPFamily
	// failed is why nothing of this cluster can be fetched.
	failed error
}

func (m *member) id() string { return string(m.Agent.ID) }

// answer is what the Pod of the cluster answers.
func (m *member) answer() string { return m.id() + " in " + m.namespace }

// prepare makes the Pod and the Service, and the export when the Pod is ready.
func (m *member) prepare(ctx context.Context) error {
	// A Pod is refused before a controller has made the account of the new namespace.
	err := command.Await(ctx, func(ctx context.Context) error {
		return m.Target.Get(ctx, m.namespace, "default", &corev1.ServiceAccount{})
	})
	var objects []client.Object
	for _, pull := range m.Agent.Pod.Spec.ImagePullSecrets { // without them, the image of the agent cannot be pulled here
		var from corev1.Secret
		err = cmp.Or(err, m.Target.Get(ctx, m.Agent.Namespace, pull.Name, &from))
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: from.Name}, Type: from.Type, Data: from.Data})
	}
	named := metav1.ObjectMeta{Namespace: m.namespace, Name: m.service}
	service := &corev1.Service{
		ObjectMeta: named,
		Spec: corev1.ServiceSpec{
			Selector: podLabels, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), // both where the cluster has both
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(agent.ServePort)}},
		},
	}
	pod := m.Agent.NewPod(m.namespace, "verify", podLabels, m.answer())
	for _, object := range append(objects, pod, service) {
		if err == nil {
			err = m.create(ctx, object)
		}
	}
	if err == nil {
		err = agent.AwaitPod(ctx, m.Target, pod)
	}
	if err != nil {
		return err
	}
	m.pod, m.families = pod, service.Spec.IPFamilies
	return m.create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: named})
}

func (m *member) create(ctx context.Context, object client.Object) error {
	if err := m.Target.Client.Create(ctx, object); err != nil {
		return m.Target.Errorf("create %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// awaitImport waits until this cluster imports what from exports. No name is resolved
// before, since DNS servers remember what is missing.
func (m *member) awaitImport(ctx context.Context, from *member) error {
	return command.Await(ctx, func(ctx context.Context) error {
		var found mcsv1beta1.ServiceImport
		err := client.IgnoreNotFound(m.Target.Get(ctx, m.namespace, from.service, &found))
		isImported := meta.IsStatusConditionTrue(found.Status.Conditions, condition.TypeImportReady) &&
			slices.ContainsFunc(found.Status.Clusters, func(source mcsv1beta1.ClusterStatus) bool { return source.Cluster == from.id() })
		if err == nil && !isImported {
			err = errors.New("it is not imported")
		}
		return err
	})
}

// remove deletes the namespace until it is gone, or that is forbidden.
func (m *member) remove(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var forbidden error
	err := command.Await(ctx, func(ctx context.Context) error {
		err := m.Target.Client.Delete(ctx, newNamespace(m.namespace))
		if err == nil {
			err = errors.New("it is not gone yet")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		err = m.Target.Errorf("delete namespace %s: %w", m.namespace, err)
		if apierrors.IsForbidden(err) {
			forbidden = err
			cancel()
		}
		return err
	})
	return cmp.Or(forbidden, err)
}

// podLabels are those of the one Pod in each namespace, which serves and fetches.
var podLabels = map[string]string{"app.kubernetes.io/name": "comity-verify"}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"app.kubernetes.io/managed-by":       "kubectl-comity",
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
}

// check fetches what from exports until it works or ctx ends, once for each IP
// family that both clusters have.
func (m *member) check(ctx context.Context, from *member) (checks []Check) {
	c := Check{From: from.id(), To: m.id()}
	err := from.failed
	if err == nil && m.pod == nil { // one whose own export was refused can fetch all the same
		err = m.failed
	}
	if err != nil {
		c.Message = err.Error()
		return []Check{c}
	}
	if err := m.awaitImport(ctx, from); err != nil {
		c.Message = err.Error()
		return []Check{m.explain(ctx, from, c)}
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if slices.Contains(from.families, family) && slices.Contains(m.families, family) {
			c.Family = string(family)
			checks = append(checks, m.fetch(ctx, from, c))
		}
	}
	if len(checks) == 0 {
		c.Message = fmt.Sprintf("the clusters have no IP family in common: %v and %v", from.families, m.families)
		checks = []Check{c}
	}
	return checks
}

// fetch repeats one check until it passes.
func (m *member) fetch(ctx context.Context, from *member, c Check) Check {
	c.Message = "the time was over before a request was made; give more with --timeout"
	url := fmt.Sprintf("http://%s.%s.svc.%s/", from.service, from.namespace, corefile.Zone)
	request := probe.Request{Targets: []probe.Target{{Target: url, Family: c.Family}}, TimeoutSeconds: int(requestTimeout.Seconds())}
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		// A request under way is let end, so that what it found out is reported.
		requesting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*requestTimeout)
		defer cancel()
		answers, err := agent.Probe(requesting, m.Target, agent.Agent{Pod: m.pod}, request)
		if err != nil {
			c.Message = err.Error()
			return false, nil
		}
		c = measured(c, answers[0], from.answer())
		return c.Passed, nil
	})
	if err != nil {
		c = m.explain(ctx, from, c)
	}
	return c
}

// measured is c with what the answer says.
func measured(c Check, answer probe.Result, want string) Check {
	c.Address, c.Message = answer.Address, answer.Error
	if c.Message == "" && answer.Body != want {
		c.Message = fmt.Sprintf("the answer is %q; expected %q", answer.Body, want)
	}
	if c.Passed = c.Message == ""; c.Passed {
		c.Milliseconds = answer.Milliseconds
	}
	return c
}

// explain finds the broken step of a check that failed, even if ctx has ended by its deadline.
func (m *member) explain(ctx context.Context, from *member, c Check) Check {
	if errors.Is(ctx.Err(), context.Canceled) { // interrupted
		return c
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
	defer cancel()
	key := types.NamespacedName{Namespace: from.namespace, Name: from.service}
	sites := slices.Compact([]*agent.Site{from.Site, m.Site})
	report := trace.Service(ctx, sites, key, from.Context, m.Context, true)
	if c.Cause = report.Cause; !report.Broken {
		c.Cause = &trace.Step{Finding: finding.Finding{Severity: finding.Error, Check: "Answer", Cluster: m.Context, Message: "no step before is broken",
			Fix: "check that nothing else has the addresses of the Pods, and that Services work in the cluster", Docs: finding.Docs("troubleshooting.md#overlapping-ranges")}}
	}
	return c
}
