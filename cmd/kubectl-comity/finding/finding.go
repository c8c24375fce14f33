// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package finding is what the commands that look for faults have in common: one
// Finding for each check, and the addresses of the documentation.
//
// Status, trace and diagnose print findings; none of them words a fault by itself
// if another one knows it too. The package reads and writes no cluster.
package finding

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Check string `json:"check"`
	// Cluster is the context of the kubeconfig; empty if no single cluster is at fault.
	Cluster string `json:"cluster,omitempty"`
	// Object is kind, namespace and name of the object at fault: "ServiceExport shop/web".
	Object string `json:"object,omitempty"`
	// Reason is one word, that of the object's condition if it has one.
	Reason string `json:"reason,omitempty"`
	// Message says what was found and what was expected.
	Message string `json:"message,omitempty"`
	// Since is when the state began, if the cluster records it.
	Since *metav1.Time `json:"since,omitempty"`
	// Fix is the command that fixes it, or names the object and who owns it.
	Fix string `json:"fix,omitempty"`
	// Docs is the address of the section that explains it.
	Docs string `json:"docs,omitempty"`
}

// docsRoot is where the pages of docs/ are read.
const docsRoot = "https://github.com/comity-mcs/comity/blob/main/docs/"

// Docs is the address of a page of docs/, with its anchor: "troubleshooting.md#dns".
func Docs(page string) string { return docsRoot + page }

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
