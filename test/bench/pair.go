// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

const (
	clusterset = "bench"
	// readyTimeout bounds the start of one agent.
	readyTimeout = time.Minute
)

// member is one cluster and its agent.
type member struct {
	*controlplane.Cluster
	typed kubernetes.Interface
	// exports writes ServiceExports, which typed does not know.
	exports client.Client
	agent   *install.Agent
}

// pair is two joined clusters with Comity in each.
type pair struct {
	dir      string
	clusters []*controlplane.Cluster
	a, b     *member
	begun    time.Time
}

func newPair() (*pair, error) {
	dir, err := os.MkdirTemp("", "comity-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	return &pair{dir: dir, begun: time.Now()}, nil
}

// say tells progress with the time since the start.
func (p *pair) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
}

// start starts clusters and agents and joins them.
func (p *pair) start(ctx context.Context) error {
	provider, err := binaries.New()
	if err != nil {
		return err
	}
	programs, err := provider.Ensure(ctx, binaries.Kubectl)
	if err != nil {
		return err
	}
	p.say("go build ./cmd/comity")
	binary := filepath.Join(p.dir, "comity")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/comity")
	cmd.Dir = provider.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/comity: %w\n%s", err, out)
	}
	p.say("starting clusters a and b")
	// Without controllers: nothing but the bench changes what it watches.
	p.clusters, err = controlplane.Start(ctx, controlplane.Options{IDs: []string{"a", "b"}, Dir: filepath.Join(p.dir, "clusters"), APIServerOnly: true})
	if err != nil {
		return err
	}
	p.say("installing Comity in both and joining them")
	var group errgroup.Group
	for i, into := range []**member{&p.a, &p.b} {
		if *into, err = newMember(p.clusters[i]); err != nil {
			return err
		}
		m := *into
		group.Go(func() error {
			return m.install(ctx, filepath.Join(p.dir, "agents", m.ID()), binary, programs[binaries.Kubectl])
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return join.Connect(ctx, side(p.a), side(p.b), join.Options{})
}

func newMember(c *controlplane.Cluster) (*member, error) {
	typed, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	exports, err := client.New(c.RESTConfig(), client.Options{})
	if err != nil {
		return nil, err
	}
	return &member{Cluster: c, typed: typed, exports: exports}, mcsv1beta1.Install(exports.Scheme())
}

func (m *member) install(ctx context.Context, dir, binary, kubectl string) error {
	agent, err := install.Prepare(ctx, install.Target{Cluster: m.Cluster, Set: clusterset, Kubectl: kubectl, Dir: dir}, binary)
	if err != nil {
		return err
	}
	m.agent = agent
	if err := agent.Start(); err != nil {
		return err
	}
	return agent.WaitReady(ctx, readyTimeout)
}

// side is how m takes part in a join.
func side(m *member) join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(m.ID()), Set: clusterset, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: []netip.Prefix{addresses},
	}
}

func (m *member) createNamespace(ctx context.Context, name string) error {
	_, err := m.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// close ends everything and removes what it left on disk.
func (p *pair) close() error {
	var errs []error
	for _, m := range []*member{p.a, p.b} {
		if m != nil && m.agent != nil {
			errs = append(errs, m.agent.Kill())
		}
	}
	return errors.Join(append(errs, controlplane.Close(p.clusters), os.RemoveAll(p.dir))...)
}
