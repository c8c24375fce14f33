// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// The kinds of a Service.
const (
	kindExport = "ServiceExport"
	kindImport = "ServiceImport"
)

// The conditions that the table has a column for, in its order.
var columns = []string{"Valid", "Ready", "Conflict", "Admitted", "Available"}

// badWhenTrue are the conditions that say that something is wrong.
var badWhenTrue = []string{"Conflict", "DeletionHeld"}

// pageSize bounds one answer of the API server.
const pageSize = 500

// readServices reads exports and imports, and which of them are not well.
func (p *part) readServices(ctx context.Context, target *command.Target, namespace string) {
	var exports mcsv1beta1.ServiceExportList
	for more := true; more; more = exports.Continue != "" {
		if !p.list(ctx, target, &exports, namespace, exports.Continue) {
			return
		}
		for _, e := range exports.Items {
			p.addService(kindExport, e.ObjectMeta, e.Status.Conditions)
		}
	}
	var imports mcsv1beta1.ServiceImportList
	for more := true; more; more = imports.Continue != "" {
		if !p.list(ctx, target, &imports, namespace, imports.Continue) {
			return
		}
		for _, i := range imports.Items {
			p.addService(kindImport, i.ObjectMeta, i.Status.Conditions)
		}
	}
}

func (p *part) list(ctx context.Context, target *command.Target, into client.ObjectList, namespace, token string) bool {
	err := target.Client.List(ctx, into, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token))
	if err == nil {
		return true
	}
	if meta.IsNoMatchError(err) {
		if p.cluster.State != NotInstalled {
			p.problem("definitions", "the API server does not serve %s; the chart installs it (crds.enabled, crds.mcs.enabled), see docs/install.md", mcsv1beta1.GroupVersion)
		}
		return false
	}
	p.problem("services", "%v", target.Errorf("%w", err))
	return false
}

func (p *part) addService(kind string, object metav1.ObjectMeta, conditions []metav1.Condition) {
	s := Service{
		Context: p.cluster.Context, Cluster: p.cluster.ID, Kind: kind, Namespace: object.Namespace, Name: object.Name,
		Conditions: map[string]Condition{},
	}
	for _, c := range conditions {
		s.Conditions[c.Type] = Condition{Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
		if bad(c) {
			p.problem(kind+" "+object.Namespace+"/"+object.Name, "%s is %s (%s)%s", c.Type, c.Status, c.Reason, prefixed(": ", c.Message))
		}
	}
	p.services = append(p.services, s)
}

// bad is true for a condition that says that something is wrong, not for one
// that is not decided yet.
func bad(c metav1.Condition) bool {
	if slices.Contains(badWhenTrue, c.Type) {
		return c.Status == metav1.ConditionTrue
	}
	if c.Status == metav1.ConditionUnknown {
		return c.Reason != "Pending"
	}
	return c.Status == metav1.ConditionFalse && c.Reason != "Pending"
}
