// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// tokenFieldOwner is the field manager of what record writes. It is not FieldOwner,
// whose next apply of the account would remove the annotations.
const tokenFieldOwner = "comity-join-token"

// record notes on account, here, the lifetime and the audiences of the token in a
// kubeconfig that it was given. A policy of the API server (config/admission) allows
// the account to renew it for no longer and for no other audience. What is noted of
// a token that is kept stays, since its account may have renewed it for less.
func (m *member) record(ctx context.Context, account string, data []byte, kept bool) error {
	claims, is := kubeconfig.ReadToken(readToken(data, m.Cluster))
	if m.opts.DryRun || !is {
		return nil
	}
	wanted := map[string]string{
		model.AnnotationTokenExpiry:    (time.Duration(claims.Expires-claims.Issued) * time.Second).String(),
		model.AnnotationTokenAudiences: strings.Join(claims.Audience, ","),
	}
	found := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: account}
	if err := m.client.Get(ctx, key, found); err != nil {
		return fmt.Errorf("read ServiceAccount %s: %w", key, err)
	}
	_, noted := found.Annotations[model.AnnotationTokenExpiry]
	if kept && noted || contains(found.Annotations, wanted) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": found.UID, "annotations": wanted}})
	if err != nil {
		return fmt.Errorf("encode the annotations of ServiceAccount %s: %w", key, err)
	}
	if err := m.client.Patch(ctx, found, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(tokenFieldOwner)); err != nil {
		return fmt.Errorf("record expiry and audiences of the token of ServiceAccount %s: %w", key, err)
	}
	return nil
}
