// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent finds the Comity agent that is installed in a cluster, runs the
// agent's own subcommands in its Pod, and compares versions.
//
// It takes a command.Target and gives an Agent: what the agent publishes on
// its leader Lease (sync/model.AgentInfo), and where it runs. It writes nothing,
// and reads only Leases, Pods and Deployments.
package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// NameLabel selects Comity's Deployment and Pods, however they were installed, as Labels do.
const NameLabel = "app.kubernetes.io/name=comity"

// Labels are those of Comity's Deployment and Pods.
var Labels = client.MatchingLabels{"app.kubernetes.io/name": "comity"}

// What Find's errors are, for errors.Is.
var (
	// ErrNotInstalled: the cluster has no agent. Find returns what one that was there
	// stated, if its Lease is left.
	ErrNotInstalled = errors.New("no Comity agent is installed")
	// ErrNotRunning: Comity is installed, and no replica leads. Find returns what
	// the last leader stated as well.
	ErrNotRunning = errors.New("no replica of the agent leads")
)

// Agent is the agent of one cluster.
type Agent struct {
	model.AgentInfo
	// Namespace is Comity's own in that cluster.
	Namespace string
	// Deployments are those of the agent.
	Deployments []appsv1.Deployment
	// Pod is the leader's; nil with ErrNotRunning.
	Pod *corev1.Pod
	// Renewed is when the leader last renewed its Lease.
	Renewed time.Time
}

// Container is the agent's in its Pod, or else the first one.
func (a Agent) Container() corev1.Container {
	containers := a.Pod.Spec.Containers
	return containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "comity" }))]
}

// Find gives the agent of the cluster that target leads to. It is there as soon
// as the leader has renewed its Lease once after its start.
func Find(ctx context.Context, target *command.Target) (Agent, error) {
	var leases coordinationv1.LeaseList
	if err := target.Client.List(ctx, &leases, client.MatchingFields{metav1.ObjectNameField: model.LeaderLease}); err != nil {
		return Agent{}, target.Errorf("find the agent: %w", err)
	}
	var found Agent
	problem := target.Errorf("%w: no namespace has a Lease %s of a running agent; see docs/install.md", ErrNotInstalled, model.LeaderLease)
	var namespaces []string
	for _, lease := range leases.Items {
		info, errInfo := model.ParseAgentInfo(lease.Annotations)
		a := Agent{AgentInfo: info, Namespace: lease.Namespace, Renewed: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time}
		var err error
		if a.Pod, err = leader(ctx, target, lease); err != nil {
			return Agent{}, err
		}
		var deployments appsv1.DeploymentList
		err = target.Client.List(ctx, &deployments, client.InNamespace(lease.Namespace), Labels)
		if err != nil && a.Pod == nil { // of an agent that runs, they only say how many replicas are available
			return Agent{}, target.Errorf("find the agent's Deployment: %w", err)
		}
		a.Deployments = deployments.Items
		isInstalled := a.Pod != nil || len(a.Deployments) > 0 // the Lease outlives an uninstalled release
		if isInstalled || found.Namespace == "" {
			found = a
		}
		if !isInstalled {
			continue
		}
		namespaces, problem = append(namespaces, lease.Namespace), nil
		if a.Pod == nil {
			problem = target.Errorf("%w: Lease %s/%s was renewed at %s, and its holder %q does not run; see kubectl --context %s -n %s get pods -l %s",
				ErrNotRunning, lease.Namespace, lease.Name, a.Renewed.UTC().Format(time.RFC3339), ptr.Deref(lease.Spec.HolderIdentity, ""),
				target.Context, lease.Namespace, NameLabel)
		} else if errInfo != nil {
			problem = target.Errorf("Lease %s/%s does not describe the agent: %w; run a version of Comity that this plugin (%s) knows",
				lease.Namespace, lease.Name, errInfo, command.Version)
		}
	}
	if len(namespaces) > 1 {
		slices.Sort(namespaces)
		return Agent{}, target.Errorf("more than one Comity agent is installed: one in each of the namespaces %s; uninstall all but one (helm list --all-namespaces)",
			strings.Join(namespaces, ", "))
	}
	return found, problem
}

// leader is the Pod that holds lease, or nil if there is none.
func leader(ctx context.Context, target *command.Target, lease coordinationv1.Lease) (*corev1.Pod, error) {
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if name == "" {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := target.Get(ctx, lease.Namespace, name, pod); err != nil || pod.Status.Phase != corev1.PodRunning {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// Site is a context with the agent of its cluster.
type Site struct {
	Context string
	// Target is nil if the cluster does not answer.
	Target *command.Target
	Agent  Agent
	// Err says why there is no Target, or is that of Find.
	Err error
}

// ID is that of the agent, or else the context.
func (s *Site) ID() model.ClusterID { return cmp.Or(s.Agent.ID, model.ClusterID(s.Context)) }

// Kubectl is a command for the cluster, in Comity's namespace.
func (s *Site) Kubectl(arguments string) string {
	return "kubectl --context " + s.Context + " -n " + cmp.Or(s.Agent.Namespace, join.DefaultNamespace) + " " + arguments
}

// Helm is a command that installs or changes Comity in the cluster.
func (s *Site) Helm(arguments string) string {
	return "helm upgrade --install comity oci://ghcr.io/comity-mcs/charts/comity --kube-context " + s.Context +
		" --namespace " + cmp.Or(s.Agent.Namespace, join.DefaultNamespace) + " " + arguments
}

// Cluster is the site in the form that sync/join takes.
func (s *Site) Cluster() join.Cluster {
	return join.Cluster{
		ID: s.ID(), Set: s.Agent.Set, Namespace: s.Agent.Namespace, ServiceAccount: s.Agent.ServiceAccount,
		RESTConfig: s.Target.REST, PodCIDRs: s.Agent.PodCIDRs, ServiceCIDRs: s.Agent.ServiceCIDRs, Unattended: s.Err != nil,
	}
}

// Sites opens contexts side by side and finds their agents. Its error is of contexts that
// are not in the kubeconfig, or that lead to one cluster; others are in the Sites.
func Sites(ctx context.Context, env *command.Env, contexts []string) ([]*Site, error) {
	names, err := env.ContextNames(contexts)
	if err != nil {
		return nil, err
	}
	sites := model.Map(names, func(name string) *Site { return &Site{Context: name} })
	Read(ctx, env, sites)
	var targets []*command.Target
	for _, s := range sites {
		if s.Target != nil {
			targets = append(targets, s.Target)
		}
	}
	return sites, command.Distinct(targets)
}

// Read opens those sites that did not answer before, and finds all agents again.
func Read(ctx context.Context, env *command.Env, sites []*Site) {
	command.InParallel(sites, func(_ int, s *Site) {
		if s.Target == nil {
			s.Target, s.Err = env.Open(ctx, s.Context)
		}
		if s.Target != nil {
			s.Agent, s.Err = Find(ctx, s.Target)
		}
	})
}

// Problems are the errors of sites, to be solved together.
func Problems(sites []*Site) error {
	return errors.Join(model.Map(sites, func(s *Site) error { return s.Err })...)
}

// Skew says which versions run if some differ from each other, or from this plugin, by more
// than one minor version; empty if none does. A version that is no release, such as that of a
// local build, differs from every other text. An agent whose version is not known, or that
// is not installed any more, is left out.
func Skew(sites []*Site) string {
	versions, running, skewed := []string{command.Version}, "this plugin is "+command.Version, false
	for _, s := range sites {
		own := s.Agent.Version
		if own == "" || errors.Is(s.Err, ErrNotInstalled) {
			continue
		}
		skewed = skewed || slices.ContainsFunc(versions, func(other string) bool { return !compatible(own, other) })
		versions = append(versions, own)
		running += fmt.Sprintf(", cluster %s runs Comity %s", s.Agent.ID, own)
	}
	if !skewed {
		return ""
	}
	return running + "; expected at most one minor version of difference; upgrade the older ones"
}

func compatible(a, b string) bool {
	left, errLeft := version.ParseSemantic(a)
	right, errRight := version.ParseSemantic(b)
	return a == b || errLeft == nil && errRight == nil && left.Major() == right.Major() &&
		left.Minor() <= right.Minor()+1 && right.Minor() <= left.Minor()+1
}

// Certificate reads what the webhook serves: the Secret with a certificate that the agent's
// Pod mounts, and its chain, the webhook's own first. Both are nil if no such Secret can be
// read.
func Certificate(ctx context.Context, target *command.Target, pod *corev1.Pod) (*corev1.Secret, []*x509.Certificate, error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		secret := &corev1.Secret{}
		if err := target.Get(ctx, pod.Namespace, volume.Secret.SecretName, secret); err != nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
			continue
		}
		chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		if err != nil {
			return secret, nil, fmt.Errorf("key %s of the Secret: %w", corev1.TLSCertKey, err)
		}
		return secret, chain, nil
	}
	return nil, nil, nil
}

// Probe runs `comity probe` in the Pod of from, which has Comity's image, as kubectl exec
// does. An error carries what it wrote to standard error.
func Probe(ctx context.Context, target *command.Target, from Agent, request probe.Request) (results []probe.Result, err error) {
	input, _ := json.Marshal(request) // strings, bytes and a number
	container, pod := from.Container(), client.ObjectKeyFromObject(from.Pod)
	argv := []string{"/comity"} // in the image, which has no shell
	if len(container.Command) > 0 {
		argv = container.Command[:1:1]
	}
	core, err := corev1client.NewForConfig(target.REST)
	var executor remotecommand.Executor
	if err == nil { // by WebSocket, which every supported Kubernetes serves
		executor, err = remotecommand.NewWebSocketExecutor(target.REST, http.MethodGet, core.RESTClient().Get().
			Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{
				Container: container.Name, Command: append(argv, "probe"), Stdin: true, Stdout: true, Stderr: true,
			}, clientgoscheme.ParameterCodec).URL().String())
	}
	if err != nil {
		return nil, target.Errorf("connect to Pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &stdout, Stderr: &stderr}); err != nil {
		return nil, target.Errorf("run comity probe in Pod %s: %w: %s", pod, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil || len(results) != len(request.Targets) {
		return nil, target.Errorf("comity probe answered for %d of %d targets: %.200q; upgrade Comity there to the version of this plugin (%s)",
			len(results), len(request.Targets), stdout.String(), command.Version)
	}
	return results, nil
}

const (
	// ServePort is where a Pod of NewPod listens.
	ServePort = 8080
	// nobody is the user of Comity's image.
	nobody = 65532
)

// NewPod runs the agent's image where the agent runs, within Kubernetes' restricted
// profile and without access to the API. It answers every request with answer, and can
// run Probe. The leader's Pod must be known.
func (a Agent) NewPod(namespace, name string, labels map[string]string, answer string) *corev1.Pod {
	container := a.Container()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			ImagePullSecrets:              a.Pod.Spec.ImagePullSecrets,
			NodeSelector:                  a.Pod.Spec.NodeSelector,
			Tolerations:                   a.Pod.Spec.Tolerations,
			TerminationGracePeriodSeconds: new(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(nobody)), RunAsGroup: new(int64(nobody)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: name, Image: container.Image, ImagePullPolicy: container.ImagePullPolicy, Command: container.Command,
				Args:  []string{"serve", "--port", fmt.Sprint(ServePort), "--text", answer},
				Ports: []corev1.ContainerPort{{ContainerPort: ServePort}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(ServePort)}},
					PeriodSeconds: 1,
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// AwaitPod waits until a Pod is ready, and says otherwise what keeps it.
func AwaitPod(ctx context.Context, target *command.Target, pod *corev1.Pod) error {
	return command.Await(ctx, func(ctx context.Context) error {
		var now corev1.Pod
		if err := target.Get(ctx, pod.Namespace, pod.Name, &now); err != nil {
			return err
		}
		why := "phase " + string(now.Status.Phase)
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
			if c.Status == corev1.ConditionFalse && c.Message != "" {
				why = c.Message
			}
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				why = c.State.Waiting.Reason + ": " + c.State.Waiting.Message
			}
		}
		return target.Errorf("Pod %s/%s: it is not ready: %s", pod.Namespace, pod.Name, why)
	})
}
