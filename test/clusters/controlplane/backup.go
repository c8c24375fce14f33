// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// laterWrites are made after a backup: more than a test makes after it restores it, so that
// the store comes to no version twice.
const laterWrites = 2000

// Backup copies the store into dir, for which etcd is stopped for a moment. What it returns
// restores the copy: etcd and API server end as if the machine did, and start again.
func (c *Cluster) Backup(ctx context.Context, dir string) (restore func(context.Context) error, err error) {
	data, copied := filepath.Join(c.dir, "etcd"), filepath.Join(dir, "etcd")
	if err := c.Kill(Etcd); err != nil { // to end in order, it waits for its clients
		return nil, err
	}
	if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
		return nil, err
	}
	if err := c.Start(ctx, Etcd); err != nil {
		return nil, err
	}
	store, err := c.Store()
	if err != nil {
		return nil, err
	}
	var writes errgroup.Group
	writes.SetLimit(concurrent)
	for range laterWrites {
		writes.Go(func() error { return store.Put(ctx, "backup-is-older", "than this") })
	}
	if err := writes.Wait(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := errors.Join(c.Kill(APIServer), c.Kill(Etcd), os.RemoveAll(data), os.Rename(copied, data)); err != nil {
			return err
		}
		if err := c.Start(ctx, Etcd); err != nil {
			return err
		}
		return c.Start(ctx, APIServer)
	}, nil
}
