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

// AsPeer makes a context of the credential that holder has for peer, as it is
// in the Secret there, and gives its name: holder@peer.
func (w *World) AsPeer(ctx context.Context, holder, peer string) (string, error) {
	key := types.NamespacedName{Namespace: install.Namespace, Name: model.PeerName(model.ClusterID(peer))}
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
	current := credential.Contexts[credential.CurrentContext]
	if current == nil || credential.AuthInfos[current.AuthInfo] == nil {
		return "", fmt.Errorf("read Secret %s in %s: its kubeconfig has no user for its current context %q", key, holder, credential.CurrentContext)
	}
	// The same API server, but at the address that this machine has for it.
	all.AuthInfos[name] = credential.AuthInfos[current.AuthInfo]
	all.Contexts[name] = &clientcmdapi.Context{Cluster: peer, AuthInfo: name}
	return name, clientcmd.WriteToFile(*all, w.Kubeconfig())
}
