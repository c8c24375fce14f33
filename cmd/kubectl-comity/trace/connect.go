// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

const (
	// targetSeconds bound each connection, maxEndpoints how many there are on a way.
	targetSeconds, maxEndpoints = 3, 50
	// cleanTimeout bounds the removal of a Pod, which begins even after an interruption.
	cleanTimeout = 30 * time.Second
	// podSeconds is when a Pod ends that could not be removed.
	podSeconds = 600

	checkAnswer, checkConnect = "DNS answer", "Connection"
)

// connect adds the last steps to each way: what a Pod in each importer finds, if no step
// before is broken. Without a timeout, nothing is tried.
func (r *Report) connect(ctx context.Context, timeout time.Duration) {
	pending := map[*cluster][]*Way{}
	var order []*cluster
	for i := range r.Exports {
		e := &r.Exports[i]
		for n := range e.Ways {
			w := &e.Ways[n]
			to := w.hop.to
			if _, unread := to.notRead(""); unread {
				continue
			}
			switch {
			case timeout == 0:
				w.notTried(" (--no-connect)")
			case to.Err != nil || isBroken(e.Steps) || isBroken(w.Steps):
				w.notTried("")
			default:
				if pending[to] == nil {
					order = append(order, to)
				}
				pending[to] = append(pending[to], w)
			}
		}
	}
	r.Pods = make([]string, len(order))
	failed := make([]error, len(order))
	command.InParallel(order, func(i int, to *cluster) { r.Pods[i], failed[i] = to.try(ctx, timeout, pending[to]) })
	for _, err := range failed {
		if err != nil {
			r.LeftBehind = append(r.LeftBehind, err.Error())
		}
	}
}

func (w *Way) notTried(why string) {
	for _, check := range []string{checkAnswer, checkConnect} {
		w.Steps = append(w.Steps, w.hop.step(finding.NotRead, check, w.hop.to, "not tried"+why))
	}
}

// try runs a Pod in the cluster and adds what it finds to ways. The error says that the
// Pod could not be removed.
func (c *cluster) try(ctx context.Context, timeout time.Duration, ways []*Way) (place string, left error) {
	pod := c.Agent.NewPod(c.Agent.Namespace, "comity-trace-"+apirand.String(5), map[string]string{"app.kubernetes.io/name": "comity-trace"}, "ok")
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](podSeconds)
	place = fmt.Sprintf("Pod %s/%s of cluster %s", pod.Namespace, pod.Name, c.ID)
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		if err := c.Target.Client.Delete(cleaning, pod); client.IgnoreNotFound(err) != nil {
			left = c.Target.Errorf("delete %s: %w", place, err)
		}
	}()
	trying, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := probe.Request{TimeoutSeconds: targetSeconds}
	counts := make([]int, len(ways))
	for i, w := range ways {
		targets := w.hop.targets()
		counts[i] = len(targets)
		request.Names, request.Addresses = append(request.Names, w.hop.name()), append(request.Addresses, targets...)
	}
	var found probe.Response
	err := c.Target.Client.Create(trying, pod)
	if err == nil {
		err = agent.AwaitPod(trying, c.Target, pod)
	}
	if err == nil {
		found, err = agent.Probe(trying, c.Target, agent.Agent{Pod: pod}, request)
	}
	for i, w := range ways {
		if err != nil {
			w.notTried(": " + err.Error())
			continue
		}
		w.Steps = append(w.Steps, w.hop.answered(found.Names[i]), w.hop.connected(found.Addresses[:counts[i]]))
		found.Addresses = found.Addresses[counts[i]:]
	}
	return place, nil
}

// name is the clusterset name, as no search domain changes it.
func (h hop) name() string {
	return fmt.Sprintf("%s.%s.svc.%s.", h.key.Name, h.key.Namespace, corefile.Zone)
}

// targets are host:port of the ready endpoints, for TCP, in the IP families of the import.
func (h hop) targets() (all []string) {
	ready, _ := h.imported()
	families := h.to.derivedService().Spec.IPFamilies
	for _, e := range ready {
		for _, p := range e.slice.Ports {
			isUsed := len(families) == 0 || slices.Contains(families, corev1.IPFamily(e.slice.AddressType)) || e.slice.AddressType == discoveryv1.AddressTypeFQDN
			if isUsed && p.Port != nil && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
				all = append(all, net.JoinHostPort(e.address, strconv.Itoa(int(*p.Port))))
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
	if ready, _ := h.imported(); len(want) == 0 {
		for _, e := range ready {
			want = append(want, e.address)
		}
	}
	isWanted := func(address string) bool { return slices.Contains(want, address) }
	switch {
	case answer.Error != "":
		return h.broken(checkAnswer, h.to, "NotResolved", answer.Error)
	case !slices.ContainsFunc(answer.Addresses, isWanted):
		return h.broken(checkAnswer, h.to, "NotResolved", fmt.Sprintf("%s is %s; expected %s", h.name(), strings.Join(answer.Addresses, ", "), strings.Join(want, ", ")))
	}
	return h.ok(checkAnswer, h.to, h.name()+" is "+strings.Join(answer.Addresses, ", "), metav1.Time{})
}

// connected says to how many endpoints connections came about, and if not to all, who can
// fix that.
func (h hop) connected(results []probe.Result) Step {
	failed := slices.DeleteFunc(slices.Clone(results), func(r probe.Result) bool { return r.Error == "" })
	message := fmt.Sprintf("%d of %d endpoints accept a TCP connection", len(results)-len(failed), len(results))
	if len(failed) == 0 {
		return h.ok(checkConnect, h.to, message, metav1.Time{})
	}
	message += fmt.Sprintf("; %s: %s", failed[0].Target, failed[0].Error)
	var endpoints []string
	for _, r := range results {
		endpoints = append(endpoints, r.Target)
	}
	closed, fix := h.closed(endpoints)
	isRefused := !slices.ContainsFunc(failed, func(r probe.Result) bool { return !strings.Contains(r.Error, "refused") })
	_, unread := h.from.notRead("", "NetworkPolicy", "Service")
	switch {
	case fix != "":
		s := h.broken(checkConnect, h.to, "NotAdmitted", fmt.Sprintf("%s; NetworkPolicies of cluster %s select the Pods and admit no address of cluster %s: %s", message, h.from.ID, h.to.ID, strings.Join(closed, ", ")))
		s.Object = "NetworkPolicy " + h.key.Namespace + "/" + closed[0]
		return s.fixedBy(fix)
	case isRefused:
		return h.broken(checkConnect, h.to, "PortClosed", message)
	case unread:
		message += "; whether a NetworkPolicy selects the Pods was not read"
	case len(closed) == 0:
		message += fmt.Sprintf("; no NetworkPolicy of cluster %s selects the Pods", h.from.ID)
	default:
		message += fmt.Sprintf("; NetworkPolicies of cluster %s select the Pods: %s", h.from.ID, strings.Join(closed, ", "))
	}
	return h.broken(checkConnect, h.to, "NotRouted", message)
}
