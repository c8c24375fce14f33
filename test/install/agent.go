// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// Namespace and Account are where and as whom the agent runs.
const (
	Namespace = "comity-system"
	Account   = "comity"
)

// Target is the cluster to install into.
type Target struct {
	// ID and Set name the member.
	ID, Set string
	// Config is admin access.
	Config *rest.Config
	// Kubectl is the program that renders the manifests.
	Kubectl string
	// Dir receives the agent's certificate, kubeconfig and log.
	Dir string
}

// Agent is Comity as a process with the rights of its service account.
type Agent struct {
	target  Target
	binary  string
	flags   []string
	health  string
	metrics string
	cmd     *exec.Cmd
	exited  chan struct{}
}

// Prepare applies definitions, roles, policies and webhooks, whose address is
// on loopback, and returns an agent that is not started yet. Extra flags come last.
func Prepare(ctx context.Context, t Target, binary string, flags ...string) (*Agent, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	certificate, err := NewCertificate(Namespace)
	if err != nil {
		return nil, err
	}
	if err := writeFiles(t.Dir, map[string][]byte{"tls.crt": certificate.Cert, "tls.key": certificate.Key}); err != nil {
		return nil, err
	}
	if err := applyAll(ctx, t, func(o *unstructured.Unstructured) (bool, error) { return onLoopback(o, ports[0], certificate.CA) }); err != nil {
		return nil, err
	}
	kubeconfig, err := accountKubeconfig(ctx, t.Config)
	if err != nil {
		return nil, err
	}
	if err := writeFiles(t.Dir, map[string][]byte{"kubeconfig": kubeconfig}); err != nil {
		return nil, err
	}
	a := &Agent{target: t, binary: binary, health: address(ports[1]), metrics: address(ports[2])}
	a.flags = append([]string{
		"--kubeconfig", filepath.Join(t.Dir, "kubeconfig"), "--namespace", Namespace,
		"--cluster-id", t.ID, "--clusterset", t.Set, "--cert-dir", t.Dir,
		"--webhook-bind-address", address(ports[0]), "--health-probe-bind-address", a.health, "--metrics-bind-address", a.metrics,
	}, flags...)
	return a, nil
}

// applyAll applies the definitions and what config/default renders to, each
// object first passed through adapt, which may drop it.
func applyAll(ctx context.Context, t Target, adapt func(*unstructured.Unstructured) (keep bool, err error)) error {
	definitions, err := CRDs()
	if err != nil {
		return err
	}
	rendered, err := Render(ctx, t.Kubectl)
	if err != nil {
		return err
	}
	objects := definitions
	for _, o := range rendered {
		keep, err := adapt(o)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if keep && o.GetKind() != "CustomResourceDefinition" {
			objects = append(objects, o)
		}
	}
	return Apply(ctx, t.Config, objects)
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
		clientConfig["url"] = "https://" + address(port) + path
		clientConfig["caBundle"] = encode(ca)
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
func (a *Agent) Start() error {
	log, err := os.OpenFile(a.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(a.binary, a.flags...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		return fmt.Errorf("start comity of %s: %w", a.target.ID, err)
	}
	exited := make(chan struct{})
	a.exited = exited
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(exited) }(a.cmd)
	return nil
}

// WaitReady waits until /readyz says so, or says why not.
func (a *Agent) WaitReady(ctx context.Context, timeout time.Duration) error {
	last := "no answer yet"
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-a.exited:
			return false, fmt.Errorf("it ended: %s", a.cmd.ProcessState)
		default:
		}
		status, body, err := get(ctx, "http://"+a.health+"/readyz")
		if err != nil {
			last = err.Error()
			return false, nil
		}
		last = body
		return status == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("comity of %s is not ready (%s): %w; its log ends:\n%s", a.target.ID, last, err, a.logTail())
	}
	return nil
}

// Stop asks the agent to end and waits for it; Kill does not ask.
func (a *Agent) Stop() error { return a.end(syscall.SIGTERM) }

// Kill ends the agent without letting it finish anything.
func (a *Agent) Kill() error { return a.end(syscall.SIGKILL) }

func (a *Agent) end(signal syscall.Signal) error {
	if a.cmd == nil {
		return nil
	}
	if err := a.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-a.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = a.cmd.Process.Kill()
		return fmt.Errorf("comity of %s did not end within 30 s of %s; killed", a.target.ID, signal)
	}
}

// MetricsURL is where Prometheus would scrape.
func (a *Agent) MetricsURL() string { return "http://" + a.metrics + "/metrics" }

// LogFile is where both output streams go.
func (a *Agent) LogFile() string { return filepath.Join(a.target.Dir, "comity.log") }

// PID of the running process.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

func (a *Agent) logTail() string {
	text, err := os.ReadFile(a.LogFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// accountKubeconfig is access as the agent's service account for a day.
func accountKubeconfig(ctx context.Context, admin *rest.Config) ([]byte, error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](86400)}}
	token, err := clientset.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, Account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of service account %s/%s: %w", Namespace, Account, err)
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["local"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	kubeconfig.AuthInfos["comity"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	kubeconfig.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "comity"}
	kubeconfig.CurrentContext = "local"
	return clientcmd.Write(*kubeconfig)
}

func get(ctx context.Context, url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body := make([]byte, 2048)
	n, _ := response.Body.Read(body)
	return response.StatusCode, strings.TrimSpace(string(body[:n])), nil
}

// freePorts finds n ports that nothing on loopback uses now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) }

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
