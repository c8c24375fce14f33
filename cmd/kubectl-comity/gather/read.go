// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/model"
)

// What is read of one cluster is bounded in time and size. Of one kind maxObjects are taken;
// of a log, the last lines.
const (
	clusterTimeout           = 3 * time.Minute
	maxBytes                 = 256 << 20
	maxObjects               = 5000
	maxLogLines, maxLogBytes = 20_000, 8 << 20
)

var errMore = errors.New("there are more objects than are taken of one kind")

// source is a folder of the archive: kinds, and which of their objects are taken.
type source struct {
	folder, namespace, labels, fields string
	names                             []string
	kinds                             []string // Kind.version.group
}

// sources are those of a cluster in which Comity has a namespace; "" if it has none.
func sources(namespace string) []source {
	all := []source{
		{folder: "comity", kinds: []string{
			"Peer.v1alpha1.exchange.comity.dev", "MemberRecord.v1alpha1.exchange.comity.dev", "ExportRecord.v1alpha1.exchange.comity.dev",
			"ImportRecord.v1alpha1.exchange.comity.dev", "NamespaceRecord.v1alpha1.exchange.comity.dev", "ExportPolicy.v1alpha1.policy.comity.dev",
			"ServiceExport.v1beta1.multicluster.x-k8s.io", "ServiceImport.v1beta1.multicluster.x-k8s.io", "ClusterProperty.v1alpha1.about.k8s.io",
		}},
		{folder: "derived", labels: model.LabelServiceName, kinds: []string{"Service.v1.", "EndpointSlice.v1.discovery.k8s.io"}},
		{folder: "exchange", labels: model.LabelExportName, kinds: []string{"EndpointSlice.v1.discovery.k8s.io"}},
		{folder: "exchange", labels: model.LabelExchangeFrom, kinds: []string{"Namespace.v1."}},
		{folder: "comity", fields: "reportingComponent=" + model.FieldOwner, kinds: []string{"Event.v1."}},
		{folder: "admission", labels: agent.NameLabel, kinds: []string{
			"ValidatingWebhookConfiguration.v1.admissionregistration.k8s.io", "MutatingWebhookConfiguration.v1.admissionregistration.k8s.io",
			"ValidatingAdmissionPolicy.v1.admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io",
		}},
		{folder: "dns", namespace: metav1.NamespaceSystem, names: []string{"coredns", "coredns-custom", "kube-dns", "node-local-dns"},
			kinds: []string{"ConfigMap.v1.", "Deployment.v1.apps", "DaemonSet.v1.apps"}},
		{folder: "nodes", kinds: []string{"Node.v1."}},
	}
	if namespace == "" {
		return all
	}
	return append(all, source{folder: "agent", namespace: namespace, kinds: []string{
		"Deployment.v1.apps", "Pod.v1.", "Job.v1.batch", "Service.v1.", "Lease.v1.coordination.k8s.io", "Event.v1.", "Secret.v1.",
	}})
}

// reader takes what is to be known of one cluster.
type reader struct {
	Cluster
	archive *archive
	target  *command.Target
	bytes   int
}

// read takes everything of a cluster. What cannot be read is noted.
func read(ctx context.Context, site *agent.Site, a *archive) Cluster {
	r := reader{Cluster{Context: site.Context, Taken: map[string]int{}}, a, site.Target, 0}
	if site.Err != nil {
		r.missing("agent", site.Err)
	}
	if site.Target == nil {
		return r.Cluster
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for _, s := range sources(site.Agent.Namespace) {
		for _, kind := range s.kinds {
			r.objects(ctx, s, kind)
		}
	}
	if site.Agent.Namespace != "" {
		r.logs(ctx, site.Agent.Namespace)
	}
	return r.Cluster
}

// objects takes those of one kind; the first of them if not all can be read.
func (r *reader) objects(ctx context.Context, s source, kindArg string) {
	kind, _ := schema.ParseKindArg(kindArg)
	taken := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return page, r.target.Client.List(ctx, page, &client.ListOptions{Namespace: s.namespace, Limit: options.Limit, Continue: options.Continue, Raw: &options})
	}
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{LabelSelector: s.labels, FieldSelector: s.fields}, func(item runtime.Object) error {
		object, is := item.(*unstructured.Unstructured)
		if !is || len(s.names) > 0 && !slices.Contains(s.names, object.GetName()) {
			return nil
		}
		if len(taken.Items) == maxObjects {
			return errMore
		}
		redact(object)
		taken.Items = append(taken.Items, *object)
		return nil
	})
	if err != nil {
		r.missing(s.folder+"/"+kind.Kind, err)
	}
	if len(taken.Items) > 0 {
		content, err := yaml.Marshal(taken.UnstructuredContent())
		r.took(content, err, len(taken.Items), s.folder, kind.Kind+".yaml")
	}
}

// logs takes the logs of each container of Comity, also that of the one before its last restart.
func (r *reader) logs(ctx context.Context, namespace string) {
	var pods corev1.PodList
	api, err := kubernetes.NewForConfig(r.target.REST)
	if err = errors.Join(err, r.target.Client.List(ctx, &pods, client.InNamespace(namespace))); err != nil {
		r.missing("logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			for _, previous := range []bool{false, true}[:min(1+c.RestartCount, 2)] {
				content, err := api.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
					Container: c.Name, Previous: previous, Timestamps: true, TailLines: ptr.To[int64](maxLogLines), LimitBytes: ptr.To[int64](maxLogBytes),
				}).DoRaw(ctx)
				name := map[bool]string{false: ".log", true: ".previous.log"}[previous]
				r.took(content, err, 0, "logs", pod.Name+"."+c.Name+name)
			}
		}
	}
}

// took adds a file, or notes why it is missing.
func (r *reader) took(content []byte, err error, objects int, folder, name string) {
	if r.bytes += len(content); err == nil && r.bytes > maxBytes {
		err = fmt.Errorf("more than %d MiB of this cluster", maxBytes>>20)
	}
	if err == nil {
		err = r.archive.add(content, "cluster-"+r.Context, folder, name)
	}
	if err != nil {
		r.missing(folder+"/"+name, err)
		return
	}
	r.Taken[folder+"/"+name] = objects
}

func (r *reader) missing(name string, err error) {
	r.NotTaken = append(r.NotTaken, name+": "+strings.TrimPrefix(err.Error(), fmt.Sprintf("context %q: ", r.Context)))
}
