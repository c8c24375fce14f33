// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/ports"
	"github.com/comity-mcs/comity/test/clusters/process"
)

// Namespace and Account are where and as whom the agent runs.
const (
	Namespace = "comity-system"
	Account   = "comity"
)

// Target is the cluster to install into.
type Target struct {
	Cluster clusters.Cluster
	// Set is the clusterset that the cluster joins.
	Set string
	// Kubectl is the program that renders the manifests.
	Kubectl string
	// Dir receives the agent's certificate, kubeconfig and log.
	Dir string
	// Ports of a process are for webhook, health and metrics; nil means free ones.
	// Who prepares several at once must give them, so that they differ.
	Ports []int
	// AdmissionPolicies applies config/admission, too. Without it, tests can change
	// what Comity made.
	AdmissionPolicies bool
}

// PortsPerAgent is the length of Ports.
const PortsPerAgent = 3

// Agent is Comity as a process with the rights of its service account.
type Agent struct {
	process         *process.Process
	health, metrics string
	// with is the process with other flags at the end.
	with func(flags ...string) *process.Process
}

// Prepare applies definitions, roles, policies and webhooks, whose address is
// on loopback, and returns an agent that is not started yet. Extra flags come last.
func Prepare(ctx context.Context, t Target, binary string, flags ...string) (*Agent, error) {
	free := t.Ports
	if free == nil {
		var err error
		if free, err = ports.Free(PortsPerAgent); err != nil {
			return nil, err
		}
	}
	certificate, err := NewCertificate(Namespace)
	if err != nil {
		return nil, err
	}
	if err := writeFiles(t.Dir, map[string][]byte{"tls.crt": certificate.Cert, "tls.key": certificate.Key}); err != nil {
		return nil, err
	}
	adapt := func(o *unstructured.Unstructured) (bool, error) {
		if !t.AdmissionPolicies && strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			return false, nil
		}
		return onLoopback(o, free[0], certificate.CA)
	}
	if err := applyAll(ctx, t, adapt); err != nil {
		return nil, err
	}
	if err := clusters.ServiceAccountKubeconfig(ctx, t.Cluster, Namespace, Account, filepath.Join(t.Dir, "kubeconfig")); err != nil {
		return nil, err
	}
	return newAgent(t, binary, "comity.log", free, flags), nil
}

// newAgent describes the process. Its log is called log.
func newAgent(t Target, binary, log string, free []int, flags []string) *Agent {
	a := &Agent{health: ports.Address(free[1]), metrics: ports.Address(free[2])}
	always := []string{
		"--kubeconfig", filepath.Join(t.Dir, "kubeconfig"), "--namespace", Namespace, "--cluster-id", t.Cluster.ID(), "--clusterset", t.Set,
		"--cert-dir", t.Dir, "--webhook-bind-address", ports.Address(free[0]),
		"--health-probe-bind-address", a.health, "--metrics-bind-address", a.metrics, "--metrics-secure=false",
		"--shutdown-delay=0",
	}
	// Whatever the API servers of a suite have, the memory of an agent is that of one in its Pod.
	env := []string{"POD_SERVICE_ACCOUNT=" + Account, "GOMEMLIMIT=420MiB", "GOGC=100"}
	a.with = func(flags ...string) *process.Process {
		return process.New("comity", binary, filepath.Join(t.Dir, log), env, slices.Concat(always, flags)...)
	}
	a.process = a.with(flags...)
	return a
}

// Replica is one more agent for a target that was prepared, not started yet.
// The API server calls the webhook of the first alone.
func Replica(t Target, binary string, flags ...string) (*Agent, error) {
	free, err := ports.Free(PortsPerAgent)
	if err != nil {
		return nil, err
	}
	return newAgent(t, binary, "comity-replica.log", free, flags), nil
}

// applyAll applies the MCS API's definitions and what config/default renders to,
// each object first passed through adapt, which may drop it.
func applyAll(ctx context.Context, t Target, adapt func(*unstructured.Unstructured) (keep bool, err error)) error {
	if err := clusters.Apply(ctx, t.Cluster.RESTConfig(), clusters.MCSDefinitions()...); err != nil {
		return err
	}
	rendered, err := render(ctx, t.Kubectl)
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, o := range rendered {
		keep, err := adapt(o)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if keep {
			objects = append(objects, o)
		}
	}
	return apply(ctx, t.Cluster, objects)
}

// onLoopback leaves out what needs a kubelet, and lets the API server call the
// webhook on a port of this machine.
func onLoopback(o *unstructured.Unstructured, port int, ca []byte) (bool, error) {
	switch o.GetKind() {
	case "Deployment", "PodDisruptionBudget", "Service":
		return false, nil
	}
	return true, eachWebhook(o, func(clientConfig map[string]any) {
		path, _, _ := unstructured.NestedString(clientConfig, "service", "path")
		delete(clientConfig, "service")
		clientConfig["url"] = "https://" + ports.Address(port) + path
		clientConfig["caBundle"] = base64.StdEncoding.EncodeToString(ca)
	})
}

// eachWebhook edits the clientConfig of every webhook in a webhook configuration.
func eachWebhook(o *unstructured.Unstructured, edit func(clientConfig map[string]any)) error {
	hooks, found, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil || !found {
		return err
	}
	for _, h := range hooks {
		edit(h.(map[string]any)["clientConfig"].(map[string]any))
	}
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// Start runs the agent; it does not wait until it is ready.
func (a *Agent) Start() error { return a.process.Start() }

// KeepRunning does what a kubelet does for an agent: it calls start, which refuses while
// the agent runs, again and again until stop is called.
func KeepRunning(start func() error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ticker := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				_ = start()
			}
		}
	})
	return func() { cancel(); ended.Wait() }
}

// WaitReady waits until /readyz says so; the error says why not.
func (a *Agent) WaitReady(ctx context.Context, timeout time.Duration) error {
	return a.process.Await(ctx, timeout, process.HTTPReady(http.DefaultClient, "http://"+a.health+"/readyz"))
}

// Stop asks the agent to end and waits for it; Kill does not ask.
func (a *Agent) Stop() error { return a.process.Stop() }

// StopFor ends the agent in order; it starts with these flags instead of those
// that Prepare was given.
func (a *Agent) StopFor(flags ...string) error {
	if err := a.Stop(); err != nil {
		return err
	}
	a.process = a.with(flags...)
	return nil
}

// Kill ends the agent without letting it finish anything.
func (a *Agent) Kill() error { return a.process.Kill() }

// Running reports whether it was started and has not ended.
func (a *Agent) Running() bool { return a.process.Running() }

// PID is the id of its process.
func (a *Agent) PID() int { return a.process.PID() }

// MetricsURL is where Prometheus would scrape, ReadyURL what the kubelet would ask.
func (a *Agent) MetricsURL() string { return "http://" + a.metrics + "/metrics" }

// ReadyURL answers 503 and the reason while the agent is not ready.
func (a *Agent) ReadyURL() string { return "http://" + a.health + "/readyz" }

// LogTail is the end of what the agent wrote.
func (a *Agent) LogTail(lines int) string { return a.process.LogTail(lines) }

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
