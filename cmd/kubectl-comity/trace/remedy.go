// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// remedy is what ends a reason. {from} and {to} are the contexts of the two clusters, {a}
// and {b} their ids, {here} is the context of the cluster at fault, {agent} Comity's
// namespace there, and {ns} and {name} are those of the Service.
type remedy struct{ fix, docs string }

const (
	rejoin     = "kubectl comity join {from} {to}"
	pods       = "kubectl --context {here} -n {agent} describe pods -l app.kubernetes.io/name=comity"
	logs       = "kubectl --context {here} -n {agent} logs -l app.kubernetes.io/name=comity"
	policies   = "do what the message says, or ask who owns the policy: kubectl --context {here} get exportpolicies -o yaml"
	connection = "troubleshooting.md#connection"
	noImport   = "troubleshooting.md#not-imported"
	routing    = "troubleshooting.md#routing"
)

// remedies are by reason. Without docs, those of the condition apply.
var remedies = map[string]remedy{
	// of the exporter
	"NotInstalled":     {"install Comity in the cluster", "install.md"},
	"NotRunning":       {pods, connection},
	"NotReady":         {pods, connection},
	"NoService":        {"the owner creates the Service, or deletes the ServiceExport", "conditions.md#serviceexport-valid-noservice"},
	"NoReadyEndpoints": {"the owner of the Pods: kubectl --context {from} -n {ns} get pods,endpointslices", "troubleshooting.md#no-endpoints"},
	"NoExport": {`echo '{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport","metadata":{"namespace":"{ns}","name":"{name}"}}' | ` +
		"kubectl --context {from} create -f -", "concepts.md"},
	"ClustersExcluded": {policies, "conditions.md#serviceexport-admitted-clustersexcluded"},
	"OutOfScope":       {"the owner of the export widens its scope", "troubleshooting.md#scope"},
	"ScopeNotAllowed":  {"the owner corrects the annotation", "troubleshooting.md#scope"},
	"UnknownCluster":   {rejoin, ""},
	"NotPublished":     {rejoin, "failures.md#something-was-deleted"},

	// of a Peer
	"NoPeer":            {rejoin, "peers.md#only-removed-removes"},
	"Removed":           {rejoin, "peers.md#only-removed-removes"},
	"Unauthorized":      {rejoin, ""},
	"Forbidden":         {rejoin, ""},
	"SecretMissing":     {rejoin, ""},
	"InvalidKubeconfig": {rejoin, ""},
	"ClusterIDReused":   {rejoin + " --replace", ""},
	"Unreachable":       {"if the API server of cluster {a} has moved: " + rejoin + " --server {a}=https://HOST:PORT; otherwise who owns the network", ""},
	"HeartbeatMissing":  {"start the agent of cluster {a}: kubectl --context {from} get pods -A -l app.kubernetes.io/name=comity", ""},
	"Stale":             {"start the agent of cluster {a}: kubectl --context {from} get pods -A -l app.kubernetes.io/name=comity", ""},
	"Lost":              {"start the agent of cluster {a}: kubectl --context {from} get pods -A -l app.kubernetes.io/name=comity", ""},

	// of the importer
	"NotListed":            {logs, noImport},
	"Pending":              {logs, noImport},
	"NotRead":              {rejoin, "imports.md#the-list"},
	"Missing":              {rejoin, "imports.md#missing-exports"},
	"Ended":                {"the owner exports the Service again in cluster {a}", "imports.md#the-list"},
	"Suspended":            {"the owner exports the Service again in cluster {a}", "imports.md#the-list"},
	"NamespaceMissing":     {"kubectl --context {to} create namespace {ns}", ""},
	"NamespaceNotAccepted": {`kubectl --context {to} patch peer {a} --type=json -p '[{"op":"add","path":"/spec/acceptedNamespaces/-","value":"{ns}"}]'`, ""},
	"NamespaceMismatch":    {"the owners give both namespaces the same identity: kubectl --context {to} label namespace {ns} --overwrite comity.dev/identity=VALUE", ""},
	"PolicyDenied":         {policies, ""},
	"NotEvaluated":         {policies, ""},
	"ForeignImport":        {"kubectl --context {to} -n {ns} delete serviceimport {name}", ""},
	"NameTaken":            {"the owner renames or deletes the object that the message names: kubectl --context {to} -n {ns} get services,endpointslices", ""},
	"AddressOverlap":       {"no command: who owns the address ranges gives one of the clusters others", ""},
	"AddressNotAccepted":   {"if the addresses are right, add their range: kubectl --context {to} edit peer {a}", ""},
	"Refused":              {"who owns the quota or policy that refuses it: kubectl --context {to} -n {ns} get events", ""},
	"SliceMissing":         {rejoin, ""},
	"Frozen":               {"kubectl comity confirm takeover {ns}/{name} --from {a} --context {to}", "imports.md#frozen"},
	"TakeoverHeld":         {"kubectl comity confirm takeover {ns}/{name} --from {a} --context {to}", ""},
	"Withdrawn":            {"bring cluster {a} back", "conditions.md#serviceimport-available-withdrawn"},
	"NotResolved":          {"see CoreDNS and what is before it: kubectl --context {to} -n kube-system get pods -l k8s-app=kube-dns", "troubleshooting.md#dns"},
	"NotAdmitted":          {"", "troubleshooting.md#networkpolicy"},
	"PortClosed":           {"nothing listens on the port: the owner of the Service in cluster {a} corrects targetPort", routing},
	"NotRouted": {"no command: who owns the network corrects routes, address ranges or a packet filter between the nodes of clusters {a} and {b}, or a NetworkPolicy on egress in {b}",
		routing},
}

// hop is a pair of clusters; to is one that was not read within the exporting cluster.
type hop struct {
	clusters
	from, to *cluster
}

func (h hop) step(severity finding.Severity, check string, c *cluster, message string) Step {
	return Step{Finding: finding.Finding{Severity: severity, Check: check, Cluster: c.Context, Message: message}}
}

func (h hop) ok(check string, c *cluster, message string, since metav1.Time) Step {
	return h.step(finding.OK, check, c, message).since(since)
}

// broken is a step with the remedy of its reason.
func (h hop) broken(check string, c *cluster, reason, message string) Step {
	s := h.step(finding.Error, check, c, message)
	known := remedies[reason]
	// A context that was not given is often called like the cluster.
	s.Reason, s.Fix = reason, strings.NewReplacer("{from}", cmp.Or(h.from.Context, string(h.from.ID)), "{to}", cmp.Or(h.to.Context, string(h.to.ID)),
		"{a}", string(h.from.ID), "{b}", string(h.to.ID), "{here}", c.Context, "{agent}", c.Agent.Namespace, "{ns}", h.key.Namespace, "{name}", h.key.Name,
	).Replace(cmp.Or(known.fix, "the administrator of cluster "+string(c.ID)+" does what the message says"))
	s.Docs = finding.Docs(known.docs)
	if known.docs == "" {
		s.Docs = finding.Condition("ServiceExport", condition.TypeAvailable, reason)
	}
	return s
}

// condition is the step of a condition of an object; broken if it is not as it should be.
func (h hop) condition(check string, c *cluster, kind string, all []metav1.Condition, typ string) Step {
	found := meta.FindStatusCondition(all, typ)
	if found == nil {
		found = &metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: model.ReasonPending, Message: "the agent has not set condition " + typ + " yet"}
		if condition.BadWhenTrue(typ) {
			found.Status = metav1.ConditionFalse
		}
	}
	if (found.Status == metav1.ConditionTrue) != condition.BadWhenTrue(typ) {
		return h.ok(check, c, cmp.Or(found.Message, typ), found.LastTransitionTime)
	}
	reason, _, _ := strings.Cut(found.Reason, ",")
	s := h.broken(check, c, reason, typ+" is "+string(found.Status)+": "+found.Message).since(found.LastTransitionTime)
	s.Docs = finding.Condition(kind, typ, reason)
	return s.about(kind, c)
}

// about names the object of that kind and the name of the Service.
func (s Step) about(kind string, c *cluster) Step {
	s.Object = kind + " " + c.key.String()
	return s
}

func (s Step) since(at metav1.Time) Step {
	if !at.IsZero() {
		s.Since = &at
	}
	return s
}

// warned is a step that is not broken after all.
func (s Step) warned() Step {
	s.Severity = finding.Warning
	return s
}

func (s Step) fixedBy(command string) Step {
	s.Fix = command
	return s
}
