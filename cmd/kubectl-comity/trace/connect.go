// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/networkpolicy"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join/corefile"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// targetSeconds bound each connection, maxEndpoints how many there are on a way, and
	// connectTimeout all of them.
	targetSeconds, maxEndpoints = 3, 50
	connectTimeout              = time.Minute
)

// connect adds the last steps to each way: what the leader of the importer's agent finds, if
// what is imported was read and no step before is broken. Only if isAsked, anything is tried.
func (r *Report) connect(ctx context.Context, isAsked bool) {
	var pending []*Way
	for _, e := range r.Exports {
		for n := range e.Ways {
			w := &e.Ways[n]
			switch to := w.hop.to; {
			case to.Target == nil:
			case !isAsked:
				w.notTried(" (--no-connect)")
			case to.whyImportUnread() != nil || isBroken(e.Steps) || isBroken(w.Steps):
				w.notTried("")
			default:
				pending = append(pending, w)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	command.InParallel(pending, func(_ int, w *Way) { w.try(ctx) })
}

func (w *Way) notTried(why string) {
	for _, check := range []check{checkAnswer, checkConnect} {
		w.Steps = append(w.Steps, w.hop.untried(check, w.hop.to, errors.New("not tried"+why)))
	}
}

// try asks the leader of the importer's agent.
func (w *Way) try(ctx context.Context) {
	targets := model.Map(append([]string{w.hop.name()}, w.hop.targets()...), func(t string) probe.Target { return probe.Target{Target: t} })
	found, err := agent.Probe(ctx, w.hop.to.Target, w.hop.to.Agent, probe.Request{TimeoutSeconds: targetSeconds, Targets: targets})
	if err != nil {
		w.notTried(": " + err.Error())
		return
	}
	w.Steps = append(w.Steps, w.hop.answered(found[0]), w.hop.connected(ctx, found[1:]))
}

// name is the clusterset name, as no search domain changes it.
func (h hop) name() string {
	return fmt.Sprintf("%s.%s.svc.%s.", h.from.key.Name, h.from.key.Namespace, corefile.Zone)
}

// targets are host:port of the ready endpoints, for TCP, in the IP families of the import.
func (h hop) targets() (all []string) {
	ready, _, _ := h.imported()
	families := h.to.derivedService().Spec.IPFamilies
	for _, e := range ready {
		if len(families) > 0 && !slices.Contains(families, corev1.IPFamily(e.slice.AddressType)) {
			continue
		}
		for _, p := range e.slice.Ports {
			if p.Port != nil && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
				all = append(all, net.JoinHostPort(e.address, fmt.Sprint(*p.Port)))
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(maxEndpoints, len(all))]
}

// answered is what the DNS of the importer says: the clusterset IP, or endpoints of a
// headless import.
func (h hop) answered(answer probe.Result) Step {
	want := h.to.imported.Spec.IPs
	if ready, _, _ := h.imported(); len(want) == 0 {
		want = model.Map(ready, func(e endpoint) string { return e.address })
	}
	message := h.name() + " is " + strings.Join(answer.Addresses, ", ")
	if sets.New(want...).HasAny(answer.Addresses...) {
		return h.step(checkAnswer, h.to, "", message)
	}
	return h.step(checkAnswer, h.to, "NotResolved", cmp.Or(answer.Error, message+"; expected "+strings.Join(want, ", ")))
}

// connected says to how many endpoints connections came about, and if not to all, who can
// fix that.
func (h hop) connected(ctx context.Context, results []probe.Result) Step {
	failed := model.Without(results, func(r probe.Result) bool { return r.Error == "" })
	message := fmt.Sprintf("%d of %d endpoints accept a TCP connection", len(results)-len(failed), len(results))
	if len(failed) == 0 {
		return h.step(checkConnect, h.to, "", message)
	}
	message += fmt.Sprintf("; %s: %s", failed[0].Target, failed[0].Error)
	var policies []finding.Finding // of the exporter, that admit no address of the importer
	err := h.from.whyUnread("ServiceExport", "Peer")
	if importer := h.from.peer(h.to.ID()); err == nil && importer != nil && h.from.export != nil {
		policies, err = networkpolicy.Check(ctx, h.from.Target, []mcsv1beta1.ServiceExport{*h.from.export}, []v1alpha1.Peer{*importer})
	}
	switch {
	case len(policies) > 0:
		s := h.step(checkConnect, h.to, policies[0].Reason, message+"; "+policies[0].Message)
		s.Object, s.Fix, s.Docs = policies[0].Object, policies[0].Fix, finding.Docs("troubleshooting.md#networkpolicy")
		return s
	case !slices.ContainsFunc(failed, func(r probe.Result) bool { return !strings.Contains(r.Error, "refused") }):
		return h.step(checkConnect, h.to, "PortClosed", message)
	case err != nil:
		message += "; whether a NetworkPolicy is in the way was not read: " + err.Error()
	default:
		message += fmt.Sprintf("; no NetworkPolicy of cluster %s keeps cluster %s away", h.from.ID(), h.to.ID())
	}
	return h.step(checkConnect, h.to, "NotRouted", message)
}
