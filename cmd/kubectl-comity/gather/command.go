// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package gather is `kubectl comity gather`: one archive for a bug report.
//
// It takes contexts and the tree of commands, and writes objects, logs and the output of
// commands to a file. It writes to no cluster. Of Secrets it keeps names and keys alone;
// redact says what else is left out.
package gather

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/diagnose"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Write one archive for a bug report. For each cluster it has the objects of Comity and
of the MCS API, derived Services, published and imported EndpointSlices, Comity's
Deployments, Pods, Events and logs, webhooks, the configuration of CoreDNS, address
ranges and zones of Nodes; and the output of status and diagnose.

Of a Secret it has the names of the keys. Values of environment variables, the
annotation last-applied-configuration, tokens and private keys are left out. Names,
labels and addresses are in it: read it before you publish it.

A cluster that does not answer does not stop the command. The output, which is also
contents.yaml in the archive, says what is in it, and what is not and why.`

// Report is what is printed, and contents.yaml in the archive.
type Report struct {
	File string `json:"file"`
	// Plugin is the version of this plugin.
	Plugin   string    `json:"plugin"`
	Clusters []Cluster `json:"clusters"`
}

// Cluster is what was taken from one cluster.
type Cluster struct {
	Context string `json:"context"`
	// Taken are files, with the number of objects in them.
	Taken map[string]int `json:"taken"`
	// NotTaken says of a file that is not in the archive why.
	NotTaken map[string]string `json:"notTaken,omitempty"`

	// files are what was taken, by name in the archive, and bytes their size.
	files map[string][]byte
	bytes int
}

func newCluster(name string) Cluster {
	return Cluster{Context: name, Taken: map[string]int{}, NotTaken: map[string]string{}, files: map[string][]byte{}}
}

// New gives the command gather.
func New(env *command.Env) *cobra.Command {
	var file string
	cmd := env.Command("gather [CONTEXT...]", "Write one archive with what a bug report needs", long,
		"  kubectl comity gather a b\n  kubectl comity gather a b --file report.tar.gz", 0,
		func(ctx context.Context, env *command.Env, args []string) error { return run(ctx, env, args, file) })
	cmd.Flags().StringVar(&file, "file", "", "The archive, which must not exist (comity-gather-TIME.tar.gz without the flag)")
	return cmd
}

// run writes the archive and prints what is in it. Only an error of the archive itself is returned.
func run(ctx context.Context, env *command.Env, contexts []string, name string) error {
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	root := "comity-gather-" + now.Format("20060102T150405Z")
	report := Report{File: cmp.Or(name, root+".tar.gz"), Plugin: command.Version, Clusters: make([]Cluster, len(sites))}
	file, err := os.OpenFile(report.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	files := map[string][]byte{}
	command.InParallel(sites, func(i int, site *agent.Site) { report.Clusters[i] = read(ctx, site) })
	for _, c := range report.Clusters {
		maps.Copy(files, c.files)
	}
	found, _ := status.Read(ctx, sites, "", time.Now())
	for name, value := range map[string]any{"contents.yaml": report, "status.yaml": found, "diagnose.yaml": diagnose.Sites(ctx, sites, false)} {
		files[name], _ = yaml.Marshal(value) // plain data
	}
	if err := errors.Join(write(file, root, now, files), file.Close(), ctx.Err()); err != nil {
		return errors.Join(fmt.Errorf("write the archive: %w", err), os.Remove(report.File))
	}
	env.Printf("%s# No content of a Secret is in the archive. Names, labels and addresses are: read it before you publish it.\n", files["contents.yaml"])
	return nil
}

// What is read of one cluster is bounded in time and size, since it is in memory until the
// archive is written. Of one kind maxObjects are taken;
// of a log, the last lines.
const (
	clusterTimeout           = 3 * time.Minute
	maxBytes                 = 256 << 20
	maxObjects               = 5000
	maxLogLines, maxLogBytes = 20_000, 8 << 20
)

// source is a folder of the archive: kinds, and which of their objects are taken.
type source struct {
	folder, version, kinds string
	labels, fields         string
	namespace              string
	names                  []string
	// own is true for what is taken of Comity's namespace only.
	own bool
}

var dnsNames = []string{"coredns", "coredns-custom", "kube-dns", "node-local-dns"}

var sources = []source{
	{folder: "comity", version: "exchange.comity.dev/v1alpha1", kinds: "Peer MemberRecord ExportRecord ImportRecord NamespaceRecord"},
	{folder: "comity", version: "policy.comity.dev/v1alpha1", kinds: "ExportPolicy"},
	{folder: "comity", version: "multicluster.x-k8s.io/v1beta1", kinds: "ServiceExport ServiceImport"},
	{folder: "comity", version: "about.k8s.io/v1beta1", kinds: "ClusterProperty"},
	{folder: "comity", version: "v1", kinds: "Event", fields: "reportingComponent=" + model.FieldOwner},
	{folder: "derived", version: "v1", kinds: "Service", labels: model.LabelServiceName},
	{folder: "derived", version: "discovery.k8s.io/v1", kinds: "EndpointSlice", labels: model.LabelServiceName},
	{folder: "exchange", version: "discovery.k8s.io/v1", kinds: "EndpointSlice", labels: model.LabelExportName},
	{folder: "exchange", version: "v1", kinds: "Namespace", labels: model.LabelExchangeFrom},
	{folder: "admission", version: "admissionregistration.k8s.io/v1", labels: agent.NameLabel,
		kinds: "ValidatingWebhookConfiguration MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"},
	{folder: "dns", version: "v1", kinds: "ConfigMap", namespace: metav1.NamespaceSystem, names: dnsNames},
	{folder: "dns", version: "apps/v1", kinds: "Deployment DaemonSet", namespace: metav1.NamespaceSystem, names: dnsNames},
	{folder: "nodes", version: "v1", kinds: "Node"},
	{folder: "agent", version: "apps/v1", kinds: "Deployment", own: true},
	{folder: "agent", version: "v1", kinds: "Pod Service Event Secret", own: true},
	{folder: "agent", version: "batch/v1", kinds: "Job", own: true},
	{folder: "agent", version: "coordination.k8s.io/v1", kinds: "Lease", own: true},
}

// read takes everything of a cluster. What cannot be read is noted.
func read(ctx context.Context, site *agent.Site) Cluster {
	c := newCluster(site.Context)
	if site.Err != nil {
		c.missing("agent", site.Err)
	}
	if site.Target == nil {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	namespace := site.Agent.Namespace
	for _, s := range sources {
		if s.own && namespace == "" {
			continue
		} else if s.own {
			s.namespace = namespace
		}
		for kind := range strings.FieldsSeq(s.kinds) {
			c.objects(ctx, site.Target, s, kind)
		}
	}
	if namespace != "" {
		c.logs(ctx, site.Target, namespace)
	}
	return c
}

// objects takes those of one kind; the first of them if not all can be read.
func (c *Cluster) objects(ctx context.Context, target *command.Target, s source, kind string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(s.version, kind+"List"))
	err := target.Client.List(ctx, list, &client.ListOptions{Namespace: s.namespace, Limit: maxObjects, Raw: &metav1.ListOptions{LabelSelector: s.labels, FieldSelector: s.fields}})
	if err == nil && list.GetContinue() != "" {
		err = errors.New("there are more objects than are taken of one kind")
	}
	taken := slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool {
		return s.names != nil && !slices.Contains(s.names, o.GetName())
	})
	for i := range taken {
		redact(&taken[i])
	}
	if err != nil {
		c.missing(s.folder+"/"+kind, err)
	}
	if len(taken) > 0 {
		content, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": taken})
		c.took(content, err, len(taken), s.folder, kind+".yaml")
	}
}

// logs takes the logs of each container of Comity, also that of the one before its last restart.
func (c *Cluster) logs(ctx context.Context, target *command.Target, namespace string) {
	var pods corev1.PodList
	api, err := kubernetes.NewForConfig(target.REST)
	if err = errors.Join(err, target.Client.List(ctx, &pods, client.InNamespace(namespace))); err != nil {
		c.missing("logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, of := range pod.Status.ContainerStatuses {
			for previous, name := range []string{".log", ".previous.log"}[:min(1+of.RestartCount, 2)] {
				content, err := api.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
					Container: of.Name, Previous: previous > 0, Timestamps: true, TailLines: ptr.To[int64](maxLogLines), LimitBytes: ptr.To[int64](maxLogBytes),
				}).DoRaw(ctx)
				c.took(content, err, 0, "logs", pod.Name+"."+of.Name+name)
			}
		}
	}
}

// took keeps a file, or notes why it is missing. Parts of its name are escaped: a context may
// be named like a path.
func (c *Cluster) took(content []byte, err error, objects int, folder, name string) {
	if c.bytes += len(content); err == nil && c.bytes > maxBytes {
		err = fmt.Errorf("more than %d MiB of this cluster", maxBytes>>20)
	}
	if err != nil {
		c.missing(folder+"/"+name, err)
		return
	}
	c.Taken[folder+"/"+name] = objects
	c.files[path.Join(url.QueryEscape("cluster-"+c.Context), folder, url.QueryEscape(name))] = content
}

func (c *Cluster) missing(name string, err error) {
	c.NotTaken[name] = strings.TrimPrefix(err.Error(), fmt.Sprintf("context %q: ", c.Context))
}

// write packs files, by name, in a compressed archive with one folder, and leaves secrets out.
func write(to io.Writer, folder string, now time.Time, files map[string][]byte) (err error) {
	compressed := gzip.NewWriter(to)
	packed := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := secrets.ReplaceAll(files[name], []byte(leftOut))
		errHeader := packed.WriteHeader(&tar.Header{Name: path.Join(folder, name), Mode: 0o600, Size: int64(len(content)), ModTime: now})
		_, errContent := packed.Write(content)
		err = cmp.Or(err, errHeader, errContent)
	}
	return errors.Join(err, packed.Close(), compressed.Close())
}

const leftOut = "(left out)"

var (
	// secrets are what no file has, since logs, messages and annotations are of others: JSON
	// web tokens, the header with one, private keys, and passwords in addresses.
	secrets = regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?i:bearer)\s+[\w.~+/-]{16,}=*|` +
		`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*-----END [A-Z ]*PRIVATE KEY-----|://[^/\s:@"]+:[^/\s@"]+@`)
	// directive is a line of a Corefile that names a credential.
	directive = regexp.MustCompile(`(?im)^(\s*\S*(?:password|secret|token|access_key|credentials)\S*\s+)\S.*$`)
)

// redact removes what may be secret, and what nobody reads, from an object.
func redact(object *unstructured.Unstructured) {
	strip(object.Object)
	data, _ := object.Object["data"].(map[string]any)
	switch object.GetKind() {
	case "ConfigMap": // a Corefile may have the credentials of a plugin
		for key, text := range data {
			data[key] = directive.ReplaceAllString(fmt.Sprint(text), "${1}"+leftOut)
		}
	case "Secret":
		object.Object["keys"] = slices.Sorted(maps.Keys(data))
		delete(object.Object, "data")
		object.SetLabels(nil)
		object.SetAnnotations(nil)
	case "Node":
		unstructured.RemoveNestedField(object.Object, "status", "images")
		object.SetAnnotations(nil) // of network plugins, with keys of tunnels
	}
}

// strip removes, wherever they are, the values of environment variables, managed fields and
// what kubectl applied last.
func strip(value any) {
	list, _ := value.([]any)
	for _, item := range list {
		strip(item)
	}
	fields, _ := value.(map[string]any)
	delete(fields, "managedFields")
	delete(fields, corev1.LastAppliedConfigAnnotation)
	for key, item := range fields {
		strip(item)
		variables, _ := item.([]any)
		for _, variable := range variables {
			if named, is := variable.(map[string]any); is && key == "env" {
				delete(named, "value")
			}
		}
	}
}
