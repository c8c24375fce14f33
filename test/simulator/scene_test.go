// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// quiet is a world in which nothing happens by itself but reading and
// reconciling.
func quiet(seed uint64, clusters []model.ClusterID, keys []types.NamespacedName) Options {
	return Options{Source: Seed(seed), Clusters: clusters, Keys: keys}
}

// users lets users do things n times, and nobody else.
func (w *World) users(n int) {
	for range n {
		w.now = w.now.Add(1e9)
		w.user(w.cluster())
	}
}

// shared makes every cluster export every key, and waits until all is imported.
func shared(o Options) *World {
	w := New(o)
	for _, id := range w.ids {
		for _, key := range o.Keys {
			w.exports(w.clusters[id], key, 2)
		}
	}
	w.rounds()
	return w
}

// exports makes a cluster export a Service on port 80 with that many endpoints.
func (w *World) exports(c *Cluster, key types.NamespacedName, endpoints int) {
	service := serviceOf(key, port("http", 80))
	w.must(c.Server.Put("user", service))
	w.must(c.Server.Put("user", exportOf(key)))
	w.must(c.Server.Put("user", sliceOf(service, key.Name+"-0", w.number(c), 0, endpoints)))
	w.now = w.now.Add(2e9)
}

// fails runs something that is to hold and gives the test's error if it does not.
func (w *World) holds(what string, is bool, args ...any) {
	if !is {
		w.fail(what, args...)
	}
}

// state is everything that stands in all clusters, in words.
func (w *World) state() string {
	var lines []string
	for _, id := range w.ids {
		for _, key := range w.opts.Keys {
			if s := w.standing(w.clusters[id], key); s != nil {
				lines = append(lines, fmt.Sprint(id, " ", key, " ", s.Import, s.Service))
				for _, name := range slices.Sorted(maps.Keys(s.Slices)) {
					lines = append(lines, fmt.Sprint(id, " ", key, " ", name, " ", s.Slices[name]))
				}
			}
		}
		for _, o := range w.clusters[id].Server.List("ExportRecord", "") {
			lines = append(lines, fmt.Sprint(id, " ", o.GetNamespace(), "/", o.GetName()))
		}
	}
	return strings.Join(lines, "\n")
}

// ready is how many ready endpoints of one cluster an importer has.
func (w *World) ready(c *Cluster, key types.NamespacedName, from model.ClusterID) int {
	count := 0
	for _, o := range c.Server.List("EndpointSlice", key.Namespace) {
		s, is := o.(*discoveryv1.EndpointSlice)
		if !is || !model.IsManaged(s) || s.Labels[model.LabelServiceName] != key.Name || clusterOf(s) != from {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				count++
			}
		}
	}
	return count
}

func (w *World) imported(c *Cluster, key types.NamespacedName) *mcsv1beta1.ServiceImport {
	return find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
}

// since counts the writes that agents made after the first n, by verb and kind.
func (w *World) since(n int) map[string]int {
	counts := map[string]int{}
	for _, write := range w.writes[n:] {
		counts[write.Verb()+" "+write.Ref.Kind]++
	}
	return counts
}

// watch calls check after every write of an agent in one cluster.
func (w *World) watch(c *Cluster, check func(apiserver.Write)) {
	before := c.Server.Audit
	c.Server.Audit = func(write apiserver.Write) {
		before(write)
		check(write)
	}
}

// fault runs one scenario for many seeds.
func fault(t *testing.T, count int, scenario func(seed uint64) *World, run func(w *World)) {
	t.Helper()
	t.Parallel()
	each(t, count, func(seed uint64) (err error) {
		var w *World
		defer func() {
			if broken, is := recover().(Violation); is {
				err = broken
			}
		}()
		w = scenario(seed)
		return w.Run(func() { run(w) })
	})
}
