// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package world starts the clusters of the demo, installs Comity in each of them,
// and joins every two of them.
//
// It takes the kind of clusters and gives members with clients, a kubectl that
// knows them all by their ids, and questions to their CoreDNS. Whatever a user
// could type is run as that command and printed with its real output. It leaves
// nothing behind once it is closed, and needs root only where Docker does.
package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/demo/output"
)

// Set is the name of the clusterset.
const Set = "demo"

// IDs are the clusters' ids.
func IDs() []string { return []string{"cluster-1", "cluster-2", "cluster-3"} }

// Member is one cluster of the set.
type Member struct {
	clusters.Cluster
	// Client has an administrator's access.
	Client client.Client
}

// World is where the demo plays. Use New.
type World struct {
	Out *output.Printer
	// Kind is how clusters are made.
	Kind Kind
	// Dir keeps kubeconfigs, logs and data until Close.
	Dir     string
	Members []*Member

	family   clusters.Family
	root     string
	programs *binaries.Provider
	// kubectl and helm are programs; only kind needs helm.
	kubectl, helm string
	backend       backend
}

// backend is what differs between the kinds of clusters.
type backend interface {
	// build makes what Comity is run from.
	build(ctx context.Context) error
	// start starts a cluster for each id.
	start(ctx context.Context, ids []string) ([]clusters.Cluster, error)
	// install installs Comity in every cluster and waits until it is ready.
	install(ctx context.Context) error
	// join joins every two members.
	join(ctx context.Context) error
	// place says where Comity runs.
	place() string
	// close ends what start and install started.
	close() error
	// logs says how to read what Comity writes in a cluster.
	logs(id string) string
	// tail is the end of what Comity wrote in a cluster.
	tail(ctx context.Context, id string) string
}

// New prepares a world; it starts nothing yet.
func New(t *output.Printer, kind Kind, family clusters.Family) (*World, error) {
	provider, err := binaries.New()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "comity-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the demo: %w", err)
	}
	w := &World{Out: t, Kind: kind, family: family, Dir: dir, root: provider.Root, programs: provider}
	w.backend = newBackend(w)
	return w, nil
}

// Member gives a cluster by its id, which is one of IDs.
func (w *World) Member(id string) *Member {
	for _, m := range w.Members {
		if m.ID() == id {
			return m
		}
	}
	panic("the demo knows no cluster " + id)
}

// Others are the members but for one.
func (w *World) Others(id string) []*Member {
	var others []*Member
	for _, m := range w.Members {
		if m.ID() != id {
			others = append(others, m)
		}
	}
	return others
}

// Await waits until check finds nothing wrong. Its error has what check last
// found and the end of the logs of Comity.
func (w *World) Await(ctx context.Context, what string, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, w.Kind.patience())
	defer cancel()
	return w.Out.Wait(what, func() error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		var wrong error
		for {
			err := check(limited)
			if err == nil {
				return nil
			}
			if wrong == nil || limited.Err() == nil {
				wrong = err // not that the time was over while it was looked at
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-limited.Done():
				return fmt.Errorf("%s: not so within %v: %w%s", what, w.Kind.patience(), wrong, w.tails(ctx))
			case <-tick.C:
			}
		}
	})
}

// tails is the end of the log of every Comity.
func (w *World) tails(ctx context.Context) string {
	var text strings.Builder
	for _, m := range w.Members {
		fmt.Fprintf(&text, "\n\nend of the log of Comity in %s:\n%s", m.ID(), w.backend.tail(ctx, m.ID()))
	}
	return text.String()
}

// Close ends everything and removes the directory.
func (w *World) Close() error {
	return errors.Join(w.backend.close(), os.RemoveAll(w.Dir))
}

func (w *World) path(elements ...string) string {
	return filepath.Join(append([]string{w.Dir}, elements...)...)
}

func newClient(c clusters.Cluster) (client.Client, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), mcsv1beta1.Install(scheme), exchangev1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	return client.New(c.RESTConfig(), client.Options{Scheme: scheme})
}
