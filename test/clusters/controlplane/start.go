// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/process"
)

// start brings up one cluster in the order in which its parts need each other.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return fmt.Errorf("prepare %s: %w", c.dir, err)
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	if err := c.run(ctx, Etcd, c.etcdArgs(), dialable(address(c.ports.etcd))); err != nil {
		return err
	}
	if err := c.run(ctx, APIServer, c.apiserverArgs(), process.HTTPReady(client, c.config.Host+"/readyz")); err != nil {
		return err
	}
	if !c.options.WithoutMCS {
		if err := clusters.Apply(ctx, c.config, clusters.MCSDefinitions()...); err != nil {
			return err
		}
	}
	if err := clusters.Apply(ctx, c.config, c.options.Manifests...); err != nil {
		return err
	}
	if c.options.APIServerOnly {
		return nil
	}
	if err := c.createNodes(ctx); err != nil {
		return err
	}
	if err := c.startControllers(ctx, client); err != nil {
		return err
	}
	return c.awaitUsable(ctx)
}

// startControllers starts what follows the API server, side by side.
func (c *Cluster) startControllers(ctx context.Context, client *http.Client) error {
	type component struct {
		name  string
		args  []string
		ready func(context.Context) error
	}
	all := []component{
		{ControllerManager, c.controllerManagerArgs(),
			process.HTTPReady(client, "https://"+address(c.ports.controllerManager)+"/healthz")},
		{Scheduler, c.schedulerArgs(), process.HTTPReady(client, "https://"+address(c.ports.scheduler)+"/readyz")},
		{Kwok, c.kwokArgs(), func(context.Context) error { return nil }}, // awaitUsable sees what it does
	}
	if !c.options.WithoutMCS {
		if err := clusters.Apply(ctx, c.config, []byte(coreDNSAccess)); err != nil {
			return err
		}
		all = append(all, component{CoreDNS, c.coreDNSArgs(),
			process.HTTPReady(http.DefaultClient, "http://"+address(c.ports.dnsReady)+"/ready")})
	}
	var group errgroup.Group
	for _, part := range all {
		p, err := c.launch(part.name, part.args, part.ready)
		if err != nil {
			return err
		}
		group.Go(func() error { return p.Await(ctx, startTimeout, part.ready) })
	}
	return group.Wait()
}

// run starts a component and waits until it is ready.
func (c *Cluster) run(ctx context.Context, name string, args []string, ready func(context.Context) error) error {
	p, err := c.launch(name, args, ready)
	if err != nil {
		return err
	}
	return p.Await(ctx, startTimeout, ready)
}

// launch starts a component and remembers it.
func (c *Cluster) launch(name string, args []string, ready func(context.Context) error) (*process.Process, error) {
	// Programs must not find the caller's cluster, nor a proxy between themselves.
	env := []string{"KUBECONFIG=", "HOME=" + c.dir, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}
	p := process.New(name, c.paths[name], filepath.Join(c.dir, name+".log"), env, args...)
	c.components = append(c.components, p)
	c.ready[name] = ready
	return p, p.Start()
}

// prepare makes the cluster's directory: keys, certificates, kubeconfigs and configuration.
func (c *Cluster) prepare() error {
	pki := filepath.Join(c.dir, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return err
	}
	var err error
	if c.pki, err = newAuthority(pki, "ca"); err != nil {
		return err
	}
	etcd, err := newAuthority(pki, "etcd-ca") // its own: a client of the API server must not reach etcd
	if err != nil {
		return err
	}
	if _, _, err := etcd.issue("etcd", "etcd", nil, "127.0.0.1", "localhost"); err != nil {
		return err
	}
	serviceIP := c.network.ServiceCIDRs[0].Addr().Next().String()
	if _, _, err := c.pki.issue("server", "kube-apiserver", nil, "127.0.0.1", "localhost", serviceIP,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"); err != nil {
		return err
	}
	if err := writeAccountKey(c.file("pki", "sa.key"), c.file("pki", "sa.pub")); err != nil {
		return err
	}
	users := []struct {
		file, user string
		groups     []string
	}{
		{"kubeconfig", "admin", []string{"system:masters"}},
		{ControllerManager + ".kubeconfig", "system:kube-controller-manager", nil},
		{Scheduler + ".kubeconfig", "system:kube-scheduler", nil},
		{CoreDNS + ".kubeconfig", "system:coredns", nil},
		{Kwok + ".kubeconfig", "kwok", []string{"system:masters"}}, // it acts as every node and pod
	}
	for _, u := range users {
		cert, key, err := c.pki.issue(u.file, u.user, u.groups)
		if err != nil {
			return err
		}
		err = clusters.WriteKubeconfig(c.file(u.file), c.id, "https://"+address(c.ports.apiserver), c.pki.pem, "",
			&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
		if err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"audit-policy.yaml": auditPolicyOf(c.options.AuditBodies), "kwok.yaml": kwokStages, "Corefile": c.corefile()} {
		if err := os.WriteFile(c.file(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	c.config, err = clusters.LoadKubeconfig(c.Kubeconfig())
	return err
}

func (c *Cluster) file(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func dialable(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
