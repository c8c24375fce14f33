// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
)

const (
	// opening is how many connections are opened at once.
	opening = 16
	// most is how many watches are opened, at some 100 kB of the API server's memory each. If there
	// are more, only those are that get events meanwhile: the first busy ones of each member.
	most, busy = 40_000, 3
)

// Readers are the watches that simulated members keep open, as their agents do. What they
// bring is dropped.
type Readers struct {
	config *rest.Config
	since  string // resourceVersion
	open   atomic.Int64
	// Needed is how many watches members have open.
	Needed int
}

// Read opens the watches of all simulated members at an API server, until ctx ends: that of
// the measured member, or a hub. A member has a connection for each member that it reads
// and, in a hub, one for its own namespaces.
func (w World) Read(ctx context.Context, config *rest.Config, hub bool) (*Readers, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	now, err := typed.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	r := &Readers{config: config, since: now.ResourceVersion}
	var connections [][]string
	for reader := 1; reader < w.Members; reader++ {
		for member := range w.Members {
			switch {
			case member == 0 || hub && member != reader:
				connections = append(connections, watched(w.ID(member), w.ID(reader)))
			case hub:
				connections = append(connections, w.own(reader))
			}
		}
	}
	for _, paths := range connections {
		r.Needed += len(paths)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(opening)
	for _, paths := range connections {
		if r.Needed > most {
			paths = paths[:busy]
		}
		group.Go(func() error { return r.connect(groupCtx, ctx, paths) })
	}
	return r, group.Wait()
}

// Open is how many watches are open.
func (r *Readers) Open() int { return int(r.open.Load()) }

const (
	records = "exchange.comity.dev/v1alpha1"
	slices1 = "discovery.k8s.io/v1"
	leases1 = "coordination.k8s.io/v1"
)

// watched are the paths that reader watches of what member publishes, as package remote does; busy ones first.
func watched(member, reader model.ClusterID) []string {
	shared, scoped := model.ExchangeNamespace(member), model.ScopedExchangeNamespace(member, reader)
	return []string{
		path(slices1, shared, "endpointslices"), path(leases1, shared, "leases"), path(records, shared, "exportrecords"),
		path(records, shared, "namespacerecords"), path(records, shared, "memberrecords"),
		path(records, scoped, "exportrecords"), path(slices1, scoped, "endpointslices"), path(records, scoped, "importrecords"),
	}
}

// own are the paths that a member watches in a hub of what it publishes there, as package hub does; busy ones first.
func (w World) own(member int) (paths []string) {
	id := w.ID(member)
	shared := model.ExchangeNamespace(id)
	namespaces := []string{shared}
	for other := range w.Members {
		if other != member {
			namespaces = append(namespaces, model.ScopedExchangeNamespace(id, w.ID(other)))
		}
	}
	for _, namespace := range namespaces {
		paths = append(paths, path(records, namespace, "exportrecords"), path(records, namespace, "importrecords"), path(slices1, namespace, "endpointslices"))
	}
	return append(paths, path(records, shared, "namespacerecords"), path(records, shared, "memberrecords"))
}

func path(version, namespace, resource string) string {
	return "/apis/" + version + "/namespaces/" + namespace + "/" + resource
}

// connect opens watches over one connection, one after the other, and returns when all are open.
func (r *Readers) connect(ctx, until context.Context, paths []string) error {
	verifying, err := rest.TLSConfigFor(r.config)
	if err != nil {
		return err
	}
	verifying.NextProtos = []string{"h2"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: verifying, ForceAttemptHTTP2: true}}
	for _, path := range paths {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.watch(until, client, path); err != nil {
			return err
		}
	}
	return nil
}

func (r *Readers) watch(ctx context.Context, client *http.Client, path string) error {
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"7200"}, "resourceVersion": {r.since}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.config.Host+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch,application/json")
	response, err := client.Do(request) //nolint:bodyclose // closed where it is read to its end
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return fmt.Errorf("watch %s: %s", path, response.Status)
	}
	r.open.Add(1)
	go func() {
		defer r.open.Add(-1)
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body) // until ctx ends
	}()
	return nil
}
