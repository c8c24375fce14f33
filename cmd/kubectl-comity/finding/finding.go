// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package finding is what the commands that look for faults have in common: one
// Finding for each check, and the addresses of the documentation.
//
// Status, trace and diagnose print findings; none of them words a fault by itself
// if another one knows it too. The package reads and writes no cluster.
package finding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Severity orders findings.
type Severity string

// Severities, the worst first.
const (
	// Error: something does not work.
	Error Severity = "Error"
	// Warning: something will not work under conditions that the message names.
	Warning Severity = "Warning"
	// NotRead: it is unknown, because a cluster or an object could not be read.
	NotRead Severity = "NotRead"
	// OK: it was checked and works.
	OK Severity = "OK"
)

// Finding is what one check found in one cluster.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check is what was checked, in a few words: "CoreDNS version".
	Check string `json:"check,omitempty"`
	// Cluster is the context of the kubeconfig; empty if no single cluster is at fault. It has
	// several, separated by commas, where these have the same problem with one peer.
	Cluster string `json:"cluster,omitempty"`
	// Object is kind, namespace and name of the object at fault: "ServiceExport shop/web".
	Object string `json:"object,omitempty"`
	// Reason is one word, that of the object's condition if it has one.
	Reason string `json:"reason,omitempty"`
	// Message says what was found and what was expected.
	Message string `json:"message,omitempty"`
	// Affects is on how many other objects it shows: exports, imports and Peers.
	Affects int `json:"affects,omitempty"`
	// Since is when the state began, if the cluster records it.
	Since *metav1.Time `json:"since,omitempty"`
	// Fix is the command that fixes it, or names the object and who owns it.
	Fix string `json:"fix,omitempty"`
	// Docs is the address of the section that explains it.
	Docs string `json:"docs,omitempty"`
}

// String is the finding without its fix, in one line. It names the context once, whoever
// wrote the message.
func (f Finding) String() string {
	parts := []string{f.Cluster, f.Check, f.Object}
	line := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
	if f.Affects > 0 {
		line += fmt.Sprintf(" (affects %d objects)", f.Affects)
	}
	if reason := " (" + f.Reason + ")"; f.Reason != "" && !strings.Contains(f.Message, reason) {
		line += reason
	}
	line += ": " + strings.TrimPrefix(f.Message, fmt.Sprintf("context %q: ", f.Cluster))
	if f.Since != nil {
		line += ", since " + f.Since.UTC().Format(time.RFC3339)
	}
	return line
}

// Advice is what fixes the finding, and where that is explained, in lines of their own.
func (f Finding) Advice(indent string) (lines string) {
	if f.Fix != "" {
		lines = indent + "fix:  " + f.Fix + "\n"
	}
	if f.Docs != "" {
		lines += indent + "docs: " + f.Docs + "\n"
	}
	return lines
}

// Docs is the address of a page of docs/, with its anchor: "troubleshooting.md#dns".
func Docs(page string) string { return "https://github.com/comity-mcs/comity/blob/main/docs/" + page }

// Condition is the address of a reason of a condition. docs/conditions.md has an anchor
// for each: kind, type and reason, as in "serviceexport-ready-failed". Of joined reasons,
// as Conflict has them, it is that of the first; the type of an event without a condition
// is Event.
func Condition(kind, conditionType, reason string) string {
	page := "conditions.md#"
	if kind == "Peer" {
		page = "peers.md#"
	}
	reason, _, _ = strings.Cut(reason, ",")
	return Docs(page + strings.ToLower(kind+"-"+conditionType+"-"+reason))
}

// Fix is what to do about a reason that has a fix of its own; empty for others. In the text,
// {a} is the id of a cluster that exports and {b} of one that imports, {from} and {to} are
// their contexts, {here} is the context of the cluster at fault, {agent} Comity's namespace
// there, and {ns} and {name} are those of the Service.
func Fix(reason string) string {
	for _, f := range fixes {
		if slices.Contains(strings.Fields(f.reasons), reason) {
			return f.fix
		}
	}
	return ""
}

// inHub names the hub, whose context is not known, in commands that need it.
var inHub = strings.NewReplacer("kubectl comity join ", "kubectl comity join --hub HUB ", "kubectl comity leave ", "kubectl comity leave --hub HUB ")

// Fill replaces variables, each before its value, in a text of Fix for a cluster with that
// exchange.
func Fill(text string, exchange model.ExchangeMode, values ...string) string {
	if exchange == model.ExchangeHub {
		text = inHub.Replace(text)
	}
	return strings.NewReplacer(values...).Replace(text)
}

// FixJoin is what fixes most that is wrong with a Peer.
const FixJoin = "kubectl comity join {from} {to}"

var fixes = []struct{ reasons, fix string }{
	{"NoService", "the owner creates the Service, or deletes the ServiceExport"},
	{"NoExport", `echo '{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport","metadata":{"namespace":"{ns}","name":"{name}"}}' | ` +
		"kubectl --context {from} create -f -"},
	{"ClustersExcluded PolicyDenied NotEvaluated", "do what the message says, or ask who owns the policy: kubectl --context {here} get exportpolicies -o yaml"},

	{"UnknownCluster NotPublished NotRead Missing SliceMissing", FixJoin},
	{"ClusterIDReused", FixJoin + " --replace"},
	{"Unreachable", "if the API server of cluster {a} has moved: " + FixJoin + " --server {a}=https://HOST:PORT; otherwise who owns the network"},
	{"HeartbeatMissing Lost", "start the agent of cluster {a}: kubectl --context {from} get pods -A -l app.kubernetes.io/name=comity"},
	{"InvalidRecord LimitExceeded", "who owns cluster {a} changes what it publishes, or runs the same version of Comity"},

	{"Ended Suspended", "the owner exports the Service again in cluster {a}"},
	{"Pending NotListed", "kubectl --context {here} -n {agent} logs -l app.kubernetes.io/name=comity"},
	{"NamespaceMissing", "kubectl --context {to} create namespace {ns}"},
	{"NamespaceNotAccepted", `kubectl --context {to} patch peer {a} --type=json -p '[{"op":"add","path":"/spec/acceptedNamespaces/-","value":"{ns}"}]'`},
	{"NamespaceMismatch", "the owners give both namespaces the same identity: kubectl --context {to} label namespace {ns} --overwrite comity.dev/identity=VALUE"},
	{"ForeignImport", "kubectl --context {to} -n {ns} delete serviceimport {name}"},
	{"NameTaken", "the owner renames or deletes the object that the message names: kubectl --context {to} -n {ns} get services,endpointslices"},
	{"AddressOverlap", "no command: who owns the address ranges gives one of the clusters others"},
	{"AddressNotAccepted", "if the addresses are right, add their range: kubectl --context {to} edit peer {a}"},
	{"Refused", "who owns the quota or policy that refuses it: kubectl --context {to} -n {ns} get events"},
	{"Frozen TakeoverHeld", "kubectl comity confirm takeover {ns}/{name} --from {a} --context {to}"},
	{"Withdrawn", "bring cluster {a} back"},

	{"PortClosed", "nothing listens on the port: the owner of the Service in cluster {a} corrects targetPort"},
	{"NotRouted", "no command: who owns the network corrects routes, address ranges or a packet filter between the nodes of clusters {a} and {b}, or a NetworkPolicy on egress in {b}"},
}
