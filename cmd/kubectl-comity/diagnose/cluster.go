// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// overlaps compares the ranges of each two clusters once, and with those of Peers whose
// clusters are not diagnosed.
func overlaps(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	if err = c.rangesErr; len(c.ranges.Pods) == 0 && err == nil {
		err = c.Target.Errorf("no Pod range is known; compare it by hand, and pass it to join as --pod-cidrs %s=RANGE", c.id)
	}
	with := func(id model.ClusterID, ranges join.Ranges) {
		if overlap := join.Overlap(c.id, id, c.ranges, ranges); overlap != "" {
			all = append(all, finding.Finding{Reason: model.ReasonAddressOverlap, Message: overlap + "; endpoints in it are not imported",
				Fix: "who owns the networks of the clusters gives one of the two another range; no command of Comity can"})
		}
	}
	for _, other := range c.all[:slices.Index(c.all, c)] {
		if other.kind() != hub { // whose Pods call nobody
			with(other.id, other.ranges)
		}
	}
	for _, peer := range c.peers {
		if c.peerOf(peer.Name) == nil {
			accepted, _ := model.ParsePrefixes(peer.Spec.AcceptedCIDRs)
			with(model.ClusterID(peer.Name), join.Ranges{Pods: accepted})
		}
	}
	return all, err
}

// server is what an API server says of itself.
type server struct {
	version string
	// ahead is by how much its clock is ahead of the one of this machine.
	ahead time.Duration
}

func readServer(ctx context.Context, target *command.Target) (s server, err error) {
	defer func() {
		if err != nil {
			err = target.Errorf("read the version of the API server: %w", err)
		}
	}()
	base, _, err := rest.DefaultServerUrlFor(target.REST)
	if err != nil {
		return s, err
	}
	api, err := rest.HTTPClientFor(target.REST)
	if err != nil {
		return s, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
	if err != nil {
		return s, err
	}
	sent := time.Now()
	response, err := api.Do(request)
	if err != nil {
		return s, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		s.ahead = date.Sub(sent.Add(time.Since(sent) / 2))
	}
	var info apiversion.Info
	err = errors.Join(json.NewDecoder(response.Body).Decode(&info), response.Body.Close())
	s.version = info.GitVersion
	return s, err
}

// oldest is what docs/install.md asks for.
var oldest = version.MustParseGeneric("1.32")

func kubernetesVersion(_ context.Context, c *cluster) ([]finding.Finding, error) {
	own, _ := version.ParseGeneric(c.server.version) // nil if it is none
	if c.serverErr != nil || own != nil && !own.LessThan(oldest) {
		return nil, c.serverErr
	}
	return []finding.Finding{{Reason: "VersionTooOld", Message: fmt.Sprintf("Kubernetes is %q; expected %s or newer", c.server.version, oldest), Fix: "upgrade the cluster " + c.Context}}, nil
}

// maxSkew is half of what docs/security.md warns of: a Date has whole seconds, and a request takes time.
const maxSkew = time.Minute

// clocks compares the clock of each API server with that of the first one that answered.
func clocks(_ context.Context, c *cluster) ([]finding.Finding, error) {
	first := c.all[slices.IndexFunc(c.all, func(other *cluster) bool { return other.Target != nil && other.serverErr == nil || other == c })]
	ahead := c.server.ahead - first.server.ahead
	if c.serverErr != nil || ahead.Abs() < maxSkew {
		return nil, c.serverErr
	}
	return []finding.Finding{{Severity: finding.Warning, Reason: "ClockSkew",
		Message: fmt.Sprintf("the clock of the API server differs by %s from that of cluster %s; the older export decides a conflict, so that the wrong one may", ahead.Round(time.Second), first.id),
		Fix:     "who owns the control planes sets their clocks, such as by NTP"}}, nil
}

func certManager(_ context.Context, c *cluster) ([]finding.Finding, error) {
	served, err := c.Target.Serves(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	if err != nil {
		return nil, c.Target.Errorf("find cert-manager: %w", err)
	}
	if served {
		return nil, nil
	}
	return []finding.Finding{{Severity: finding.Warning, Reason: "Missing", Message: "cert-manager is not installed; the webhook needs it, or a certificate of your own",
		Fix: "helm upgrade --install cert-manager oci://quay.io/jetstack/charts/cert-manager --kube-context " + c.Context + " --namespace cert-manager --create-namespace --set crds.enabled=true --wait"}}, nil
}

const definition = " -f https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_"

// definitions asks for all kinds that the agent reads and writes, and for the version of the
// MCS API that others read.
func definitions(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	mcs := mcsv1beta1.GroupName + "/v1beta1 ServiceExport ServiceImport"
	older := mcsv1beta1.GroupName + "/v1alpha1 ServiceExport ServiceImport"
	wanted := []string{mcs, older, v1alpha1.GroupVersion.String() + " ExportRecord ImportRecord MemberRecord NamespaceRecord Peer", policyv1alpha1.GroupVersion.String() + " ExportPolicy"}
	if c.kind() == hub {
		wanted = []string{v1alpha1.GroupVersion.String() + " ExportRecord ImportRecord MemberRecord NamespaceRecord"}
	}
	for _, kinds := range wanted {
		var missing []string
		words := strings.Fields(kinds)
		for _, kind := range words[1:] {
			served, err := c.Target.Serves(schema.FromAPIVersionAndKind(words[0], kind))
			if err != nil {
				return all, c.Target.Errorf("read which kinds are served: %w", err)
			}
			if !served {
				missing = append(missing, kind)
			}
		}
		f := finding.Finding{Reason: "NotServed", Message: fmt.Sprintf("the API server does not serve %s of %s", strings.Join(missing, ", "), words[0]),
			Fix: c.helm("--reset-then-reuse-values --set crds.enabled=true --set crds.mcs.enabled=true")}
		if kinds == older && all == nil { // the newer version is served, so another owner's definitions are there
			f.Message += ", which CoreDNS, Envoy Gateway and Istio read; the definitions are not Comity's"
			f.Fix = "kubectl --context " + c.Context + " apply --server-side --force-conflicts" + definition + "serviceexports.yaml" + definition + "serviceimports.yaml"
		}
		if len(missing) > 0 {
			all = append(all, f)
		}
	}
	return all, nil
}

// implementations are Deployments of others that create ServiceImports of this group.
var implementations = map[string]string{
	"submariner-lighthouse-agent":      "Submariner Lighthouse",
	"cloud-map-mcs-controller-manager": "AWS Cloud Map MCS Controller",
}

func otherImplementations(ctx context.Context, c *cluster) (all []finding.Finding, err error) {
	note := func(object, name string) {
		if c.importsNothing() {
			return // sync.import=false is for this
		}
		all = append(all, finding.Finding{Severity: finding.Warning, Object: object, Reason: model.ReasonForeignImport,
			Message: name + " implements the MCS API here, too; only one implementation may create ServiceImports",
			Fix:     "switch off " + name + ", or let it import: " + c.helm("--reset-then-reuse-values --set sync.import=false")})
	}
	for _, name := range slices.Sorted(maps.Keys(implementations)) {
		var found appsv1.DeploymentList
		if err := c.Target.Client.List(ctx, &found, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
			return all, c.Target.Errorf("find other implementations: %w", err)
		}
		for _, d := range found.Items {
			note("Deployment "+client.ObjectKeyFromObject(&d).String(), implementations[name])
		}
	}
	var cilium corev1.ConfigMap
	err = client.IgnoreNotFound(c.Target.Get(ctx, metav1.NamespaceSystem, "cilium-config", &cilium))
	if cilium.Data["clustermesh-enable-mcs-api"] == "true" {
		note("ConfigMap kube-system/cilium-config", "Cilium Cluster Mesh")
	}
	return all, err
}

// importsNothing is true if the agent leaves imports to another implementation.
func (c *cluster) importsNothing() bool {
	return c.Agent.Pod != nil && slices.Contains(c.Agent.Container().Args, "--import=false")
}

func zones(ctx context.Context, c *cluster) ([]finding.Finding, error) {
	var nodes corev1.NodeList
	if err := c.Target.Client.List(ctx, &nodes); err != nil {
		return nil, c.Target.Errorf("read the Nodes: %w", err)
	}
	var without []string
	for _, node := range nodes.Items {
		if node.Labels[corev1.LabelTopologyZone] == "" {
			without = append(without, node.Name)
		}
	}
	prefers := func(e *mcsv1beta1.ServiceExport) bool { return e.Annotations[model.AnnotationPrefer] != "" }
	matters := slices.ContainsFunc(c.all, func(other *cluster) bool { return slices.ContainsFunc(other.exports, prefers) })
	if len(without) == 0 || len(without) == len(nodes.Items) && !matters {
		return nil, nil
	}
	return []finding.Finding{{Severity: finding.Warning, Object: "Node " + without[0], Reason: "ZoneMissing",
		Message: fmt.Sprintf("%d of %d Nodes have no label %s; there, comity.dev/prefer and trafficDistribution have no effect", len(without), len(nodes.Items), corev1.LabelTopologyZone),
		Fix:     "kubectl --context " + c.Context + " label node " + strings.Join(without, " ") + " " + corev1.LabelTopologyZone + "=ZONE"}}, nil
}

// names finds the objects that Comity did not create and that have the names of what it
// imports: those of exports of the other clusters, and those that conditions name.
func names(ctx context.Context, c *cluster) (all []finding.Finding, err error) {
	if c.importsNothing() {
		return nil, nil
	}
	imports, services := c.expected()
	add := func(kind, reason, message string, object metav1.Object) {
		all = append(all, finding.Finding{Object: kind + " " + client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetName()}.String(), Reason: reason,
			Message: message + "; it belongs to " + ownerOf(object),
			Fix:     fmt.Sprintf("rename it, or: kubectl --context %s -n %s delete %s %s", c.Context, object.GetNamespace(), strings.ToLower(kind), object.GetName())})
	}
	var others []string
	err = join.Each(ctx, c.Target.Client, listOf(mcsv1beta1.GroupVersion.String(), "ServiceImportList"), func(o *metav1.PartialObjectMetadata) error {
		key := client.ObjectKeyFromObject(o)
		switch {
		case model.IsManaged(o):
		case imports[key]:
			add("ServiceImport", model.ReasonForeignImport, "it was not created by Comity, so nothing of that name is imported", o)
		default:
			others = append(others, fmt.Sprintf("%s (%s)", key, ownerOf(o)))
		}
		return nil
	})
	if len(others) > 0 {
		all = append(all, finding.Finding{Severity: finding.Warning, Object: "ServiceImport " + strings.Fields(others[0])[0], Reason: model.ReasonForeignImport,
			Message: fmt.Sprintf("%d ServiceImports were not created by Comity, such as %s; another implementation may import here", len(others), others[0]),
			Fix:     c.helm("--reset-then-reuse-values --set sync.import=false"), Docs: finding.Docs("settings.md#modes")})
	}
	if err != nil || len(services) == 0 {
		return all, c.readable(err)
	}
	err = join.Each(ctx, c.Target.Client, listOf("v1", "ServiceList"), func(o *metav1.PartialObjectMetadata) error {
		if of, is := services[client.ObjectKeyFromObject(o)]; is && !model.IsManaged(o) {
			add("Service", model.ReasonNameTaken, "it was not created by Comity and has the name of the derived Service of import "+of, o)
		}
		return nil
	})
	return all, c.readable(err)
}

// expected are the imports and the derived Services that exports of other clusters, and the
// imports that exist, make in this cluster.
func (c *cluster) expected() (imports map[types.NamespacedName]bool, services map[types.NamespacedName]string) {
	imports, services = map[types.NamespacedName]bool{}, map[types.NamespacedName]string{}
	expect := func(namespace, name string) {
		imports[types.NamespacedName{Namespace: namespace, Name: name}] = true
		for _, derived := range []string{model.DerivedName(name), model.AlternateDerivedName(name)} {
			services[types.NamespacedName{Namespace: namespace, Name: derived}] = namespace + "/" + name
		}
	}
	for _, other := range c.all {
		for _, export := range other.exports {
			if scope, err := model.ListedScope(client.ObjectKeyFromObject(export), export, nil); err == nil && other != c && scope.Contains(c.id) {
				expect(export.Namespace, export.Name)
			}
		}
	}
	for _, s := range c.status.Services {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		if s.Kind == "ServiceImport" && ready != nil && ready.Reason == model.ReasonNameTaken {
			expect(s.Namespace, s.Name)
		}
	}
	return imports, services
}

func listOf(version, kind string) *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
}

// ownerOf names who made an object, as far as its metadata says so.
func ownerOf(object metav1.Object) string {
	by := object.GetLabels()["app.kubernetes.io/managed-by"]
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			by = cmp.Or(by, "field manager "+entry.Manager)
		}
	}
	return cmp.Or(by, "somebody unknown")
}
