// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// Kubeconfig is a file in which every cluster's id is a context.
func (w *World) Kubeconfig() string { return w.path("kubeconfig") }

// writeKubeconfig makes it of those of the clusters.
func (w *World) writeKubeconfig() error {
	merged := clientcmdapi.NewConfig()
	for _, m := range w.Members {
		from, err := clientcmd.LoadFromFile(m.Kubeconfig())
		if err != nil {
			return fmt.Errorf("read the kubeconfig of %s: %w", m.ID(), err)
		}
		if err := merge(merged, m.ID(), from); err != nil {
			return err
		}
	}
	merged.CurrentContext = IDs()[0]
	return clientcmd.WriteToFile(*merged, w.Kubeconfig())
}

// merge adds the current context of from to all, under a name of its own.
func merge(all *clientcmdapi.Config, name string, from *clientcmdapi.Config) error {
	current := from.Contexts[from.CurrentContext]
	if current == nil {
		return fmt.Errorf("the kubeconfig of %s has no context %q, which it says is current", name, from.CurrentContext)
	}
	cluster, user := from.Clusters[current.Cluster], from.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return fmt.Errorf("the kubeconfig of %s has no cluster %q or no user %q, which its context names", name, current.Cluster, current.AuthInfo)
	}
	all.Clusters[name], all.AuthInfos[name] = cluster, user
	all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return nil
}

// AsPeer makes a context of the credential that holder has for peer, as it is
// in the Secret there, and gives its name: holder@peer.
func (w *World) AsPeer(ctx context.Context, holder, peer string) (string, error) {
	key := types.NamespacedName{Namespace: install.Namespace, Name: join.PeerName(model.ClusterID(peer))}
	var secret corev1.Secret
	if err := w.Member(holder).Client.Get(ctx, key, &secret); err != nil {
		return "", fmt.Errorf("the credential of %s for %s: %w", holder, peer, err)
	}
	credential, err := clientcmd.Load(secret.Data[join.KubeconfigKey])
	if err != nil {
		return "", fmt.Errorf("read Secret %s in %s: %w", key, holder, err)
	}
	all, err := clientcmd.LoadFromFile(w.Kubeconfig())
	if err != nil {
		return "", err
	}
	name := holder + "@" + peer
	if err := merge(all, name, credential); err != nil {
		return "", err
	}
	// The same API server, but at the address that this machine has for it.
	all.Contexts[name].Cluster = peer
	delete(all.Clusters, name)
	return name, clientcmd.WriteToFile(*all, w.Kubeconfig())
}
