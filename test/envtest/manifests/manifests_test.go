// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

const commandTimeout = time.Minute

var root = filepath.Join("..", "..", "..")

// server is a control plane, and the programs that are run against it.
type server struct {
	t             *testing.T
	kubectl, helm string
	version       string
	// ca is a file with a certificate, for whatever needs one.
	ca string
}

// start brings up a control plane that has the kinds which Comity does not bring itself.
func start(t *testing.T) *server {
	t.Helper()
	log.SetLogger(logr.Discard()) // envtest repeats what the programs log
	provider, err := binaries.New()
	if err != nil {
		t.Fatal(err)
	}
	assets, err := provider.Assets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	programs, err := provider.Ensure(t.Context(), binaries.Helm)
	if err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true,
		CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{certManagerCRDs(t)}},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &server{
		t: t, kubectl: filepath.Join(assets, binaries.Kubectl), helm: programs[binaries.Helm],
		ca: filepath.Join(t.TempDir(), "ca.crt"),
	}
	if err := os.WriteFile(s.ca, config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	s.version = version.GitVersion
	t.Log("kube-apiserver", s.version)
	if os.Getenv(binaries.KubernetesEnv) != "" && s.version != provider.Kubernetes() {
		t.Fatalf("kube-apiserver is %s, but %s asks for %s: unset %s", s.version, binaries.KubernetesEnv, provider.Kubernetes(), binaries.AssetsEnv)
	}
	admin, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	return s
}

// certManagerCRDs is where the module of cert-manager has its definitions. It is
// downloaded where it is not there: nothing that this test compiles needs it.
func certManagerCRDs(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/cert-manager/cert-manager")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download cert-manager's module: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil || module.Dir == "" {
		t.Fatalf("download cert-manager's module: no directory in what go mod download printed: %v\n%s", err, out)
	}
	return filepath.Join(module.Dir, "deploy", "crds")
}

// run runs a program with the input on its standard input.
func (s *server) run(input []byte, program string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root
	cmd.Stdin = bytes.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}

// must is run for what has to succeed before anything can be tested.
func (s *server) must(t *testing.T, input []byte, program string, args ...string) string {
	t.Helper()
	stdout, stderr, err := s.run(input, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr)
	}
	return stdout
}

// accepts fails the test unless the server accepts all objects of the text, without a warning.
func (s *server) accepts(t *testing.T, text string) {
	t.Helper()
	objects := decode(t, text)
	if len(objects) == 0 {
		t.Fatal("the manifest has no objects")
	}
	namespaces := map[string]bool{"": true}
	for _, o := range objects {
		if !namespaces[o.GetNamespace()] {
			s.makeNamespace(t, o.GetNamespace())
		}
		namespaces[o.GetNamespace()] = true
	}
	stdout, stderr, err := s.run([]byte(text), s.kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	if err != nil || stderr != "" {
		t.Errorf("Kubernetes %s does not accept it: %v\n%s", s.version, err, stderr)
	}
	if have := strings.Count(stdout, "(server dry run)"); have != len(objects) {
		t.Errorf("%d of %d objects were accepted", have, len(objects))
	}
	t.Logf("%d objects", len(objects))
}

// makeNamespace makes a Namespace that objects are to be in: a dry run stores none.
func (s *server) makeNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, name)
	s.must(t, []byte(namespace), s.kubectl, "apply", "-f", "-")
}

func decode(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var objects []unstructured.Unstructured
	for _, document := range strings.Split("\n"+text, "\n---") {
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

// kustomizations lists the directories below config that can be applied.
func kustomizations(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(root, "config"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{"kustomization.yaml", "kustomization.yml"}, d.Name()) {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil || bytes.Contains(text, []byte("kind: Component")) { // a component is a part of overlays
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		found = append(found, filepath.ToSlash(dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// charts are values with which the chart is rendered, by what they are for.
func (s *server) charts() map[string][]string {
	return map[string][]string{
		"as documented": nil,
		"with a certificate of one's own": {
			"--set", "webhook.certificate.existingSecret=web", "--set-file", "webhook.certificate.caBundle=" + s.ca,
		},
		"as a hub, with most options": {
			"--set", "exchange.hub=true", "--set", "sync.import=false", "--set", "clusterProperty=true", "--set", "fullnameOverride=other",
			"--set", "networkPolicy.apiServerCIDRs={192.0.2.1/32}", "--set", "priorityClassName=system-cluster-critical",
			"--set", "hostNetwork=true", "--set", "podLabels.team=net", "--set", "webhook.excludedNamespaces={kube-system}",
		},
		"with what users of charts add": {
			"--set", "nameOverride=mcs", "--set", "commonAnnotations.team=net", "--set", "global.imagePullSecrets={registry}",
			"--set", "podSecurityContext.runAsUser=1000", "--set", "extraArgs={--verbosity=1}", "--set", "extraEnv[0].name=A",
			"--set", "extraVolumes[0].name=tmp", "--set-json", "extraVolumes[0].emptyDir={}",
			"--set", "extraVolumeMounts[0].name=tmp", "--set", "extraVolumeMounts[0].mountPath=/tmp",
			"--set", "livenessProbe.timeoutSeconds=2", "--set", "podDisruptionBudget.maxUnavailable=50%", "--set", "metrics.service.enabled=true",
		},
	}
}

func TestKubernetesAcceptsEveryManifest(t *testing.T) {
	s := start(t)
	t.Run("but none with an unknown field", func(t *testing.T) { // or all of the below would prove nothing
		_, stderr, err := s.run([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "dta": {}}`),
			s.kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if err == nil || !strings.Contains(stderr, "dta") {
			t.Errorf("an unknown field was accepted: %v, %s", err, stderr)
		}
	})
	// The definitions first, and for good: the kinds of the others are looked up.
	t.Run("config/crd", func(t *testing.T) { s.accepts(t, s.must(t, nil, s.kubectl, "kustomize", "config/crd")) })
	s.must(t, nil, s.kubectl, "apply", "-k", "config/crd")
	s.must(t, bytes.Join([][]byte{mcscrd.ServiceExportCRD, mcscrd.ServiceImportCRD}, []byte("\n---\n")), s.kubectl, "apply", "-f", "-")
	s.must(t, nil, s.kubectl, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

	for _, dir := range kustomizations(t) {
		if dir == "config/crd" {
			continue
		}
		t.Run(dir, func(t *testing.T) { s.accepts(t, s.must(t, nil, s.kubectl, "kustomize", dir)) })
	}
	for title, values := range s.charts() {
		t.Run("the chart "+title, func(t *testing.T) {
			args := []string{
				"template", "comity", "charts/comity", "--namespace", "comity-system", "--kube-version", s.version,
				"--set", "clusterID=a", "--set", "clusterset=example",
			}
			s.accepts(t, s.must(t, nil, s.helm, append(args, values...)...))
		})
	}
}
