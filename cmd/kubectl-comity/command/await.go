// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Await calls do until it succeeds. When ctx has ended, it gives the last error of do.
func Await(ctx context.Context, interval time.Duration, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := do(ctx)
		if err == nil || last == nil || ctx.Err() == nil { // the error of a request that was cut short says nothing
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last == nil {
		return err // do was never called
	}
	return last
}

// goneInterval is how often a namespace is read that is being deleted.
const goneInterval = 500 * time.Millisecond

// AwaitGone waits until a namespace that was deleted is gone.
func (t *Target) AwaitGone(ctx context.Context, namespace string) error {
	return Await(ctx, goneInterval, func(ctx context.Context) error {
		err := t.Get(ctx, "", namespace, &corev1.Namespace{})
		if err == nil {
			return fmt.Errorf("it is not gone yet; see kubectl --context %s get namespace %s -o yaml", t.Context, namespace)
		}
		return client.IgnoreNotFound(err)
	})
}
