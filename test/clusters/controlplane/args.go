// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"strings"
)

func (c *Cluster) etcdArgs() []string {
	client, peer := "https://"+address(c.ports.etcd), "https://"+address(c.ports.etcdPeer)
	args := []string{
		"--name=" + c.id, "--data-dir=" + c.file("etcd"), "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + c.id + "=" + peer,
		// A crash of a process loses nothing without it, and a crash of the machine may.
		"--unsafe-no-fsync",
	}
	for _, prefix := range []string{"", "peer-"} {
		args = append(args, "--"+prefix+"client-cert-auth", "--"+prefix+"trusted-ca-file="+c.pki.certFile("etcd-ca"),
			"--"+prefix+"cert-file="+c.pki.certFile("etcd"), "--"+prefix+"key-file="+c.pki.keyFile("etcd"))
	}
	return args
}

func (c *Cluster) apiserverArgs() []string {
	services := make([]string, len(c.network.ServiceCIDRs))
	for i, cidr := range c.network.ServiceCIDRs {
		services[i] = cidr.String()
	}
	args := []string{
		"--etcd-servers=https://" + address(c.ports.etcd), "--etcd-cafile=" + c.pki.certFile("etcd-ca"),
		"--etcd-certfile=" + c.pki.certFile("etcd"), "--etcd-keyfile=" + c.pki.keyFile("etcd"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.apiserver),
		// What the Service "kubernetes" points at; a loopback address is no valid endpoint.
		"--advertise-address=" + c.hostAddress(1),
		"--tls-cert-file=" + c.pki.certFile("server"), "--tls-private-key-file=" + c.pki.keyFile("server"),
		"--client-ca-file=" + c.pki.certFile("ca"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + c.file("pki", "sa.key"), "--service-account-key-file=" + c.file("pki", "sa.pub"),
		"--service-cluster-ip-range=" + strings.Join(services, ","),
		"--authorization-mode=Node,RBAC", "--allow-privileged", "--profiling=false",
		"--audit-policy-file=" + c.file("audit-policy.yaml"), "--audit-log-path=" + c.AuditLog(),
		"--audit-log-maxsize=2000", // in MB: one file, so that all writes can be counted
	}
	return append(args, c.options.APIServerArgs...)
}

func (c *Cluster) controllerManagerArgs() []string {
	kubeconfig := c.file(ControllerManager + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.controllerManager),
		"--tls-cert-file=" + c.pki.certFile("server"), "--tls-private-key-file=" + c.pki.keyFile("server"),
		"--root-ca-file=" + c.pki.certFile("ca"), "--service-account-private-key-file=" + c.file("pki", "sa.key"),
		"--cluster-signing-cert-file=" + c.pki.certFile("ca"), "--cluster-signing-key-file=" + c.pki.keyFile("ca"),
		"--use-service-account-credentials", "--leader-elect=false", "--profiling=false",
		"--authentication-skip-lookup", // there is no front proxy whose headers it could trust
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
}

func (c *Cluster) schedulerArgs() []string {
	kubeconfig := c.file(Scheduler + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.scheduler),
		"--tls-cert-file=" + c.pki.certFile("server"), "--tls-private-key-file=" + c.pki.keyFile("server"),
		"--leader-elect=false", "--profiling=false",
		"--authentication-skip-lookup", // there is no front proxy whose headers it could trust
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
}

func (c *Cluster) kwokArgs() []string {
	return []string{
		"--kubeconfig=" + c.file(Kwok+".kubeconfig"), "--config=" + c.file("kwok.yaml"),
		"--manage-all-nodes", "--node-lease-duration-seconds=40",
	}
}

func (c *Cluster) coreDNSArgs() []string { return []string{"-conf", c.file("Corefile")} }

// corefile serves the cluster's own names and those of the clusterset, as a
// cluster's CoreDNS does that follows the MCS API; nothing is cached.
func (c *Cluster) corefile() string {
	return fmt.Sprintf(`.:%d {
    bind 127.0.0.1
    errors
    ready 127.0.0.1:%d
    kubernetes cluster.local clusterset.local {
        kubeconfig %q
        multicluster clusterset.local
        ttl 5
        startup_timeout 30s
    }
}
`, c.ports.dns, c.ports.dnsReady, c.file(CoreDNS+".kubeconfig"))
}

// hostAddress is the address of the i-th machine of the cluster: 1 is the API server's, nodes follow.
// No machine has it; it is outside of all Pod and Service networks.
func (c *Cluster) hostAddress(i int) string { return fmt.Sprintf("172.30.%d.%d", c.number, i) }
