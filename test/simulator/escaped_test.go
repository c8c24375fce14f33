// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// escaped are the bugs that no other test had found when the simulator did, by
// their names in testdata/escaped.txt, each as small as it can be: seeds mean
// something else with every change of the simulator.
var escaped = map[string]func() error{
	"family-while-unread": func() error {
		w := New(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			key := w.opts.Keys[0]
			w.exports(w.clusters["b"], key, 1) // ClusterSetIP, and older
			w.headless(w.clusters["a"], key)
			w.rounds()
			w.Check()
		})
	},
	"copy-changes-family": func() error {
		w := shared(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			w.retype(w.clusters["b"], w.opts.Keys[0])
			w.Check()
		})
	},
	"left-beside-foreign-import": func() error {
		w := shared(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			key, a := w.opts.Keys[0], w.clusters["a"]
			w.drop(a, "ServiceImport", key)
			w.must(a.Server.Put("user", foreignImport(key)))
			w.rescale(w.clusters["b"], key, 1, 5, 5)
			w.rounds()
			w.holds("%d of 5 endpoints stand where a ServiceImport of others took our place", w.ready(a, key, "b") == 5, w.ready(a, key, "b"))
		})
	},
	"names-taken-after-import": func() error {
		w := shared(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			key, a := w.opts.Keys[0], w.clusters["a"]
			plain := types.NamespacedName{Namespace: key.Namespace, Name: model.DerivedName(key.Name)}
			other := types.NamespacedName{Namespace: key.Namespace, Name: model.AlternateDerivedName(key.Name)}
			w.drop(a, "Service", plain)
			w.must(a.Server.Put("user", serviceOf(plain, port("", 53))))
			w.must(a.Server.Put("user", serviceOf(other, port("", 53))))
			w.rounds()
			for _, o := range a.Server.List("EndpointSlice", key.Namespace) {
				w.holds("%s leads the clients of somebody's Service astray", o.GetLabels()[discoveryv1.LabelServiceName] != plain.Name, o.GetName())
			}
			w.Check()
		})
	},
	"withdrawal-by-a-late-cache": func() error {
		w := shared(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			key, a, b := w.opts.Keys[0], w.clusters["a"], w.clusters["b"]
			late := func() error { // b reads ServiceExports, and not its own records
				b.Agents[0].Local["ServiceExport"].Follow(1 << 30)
				return b.Agents[0].Publish(key)
			}
			w.drop(b, "ServiceExport", key)
			w.now = w.now.Add(time.Minute)
			w.must(b.Server.Put("user", exportOf(key)))
			w.must(late())
			a.Agents[0].Follow("b", func() int { return 1 << 30 })
			w.must(a.Agents[0].Import(key))
			w.drop(b, "ServiceExport", key)
			err := late()
			w.holds("b withdraws what it has not read: %v", apierrors.IsConflict(err), err)
			w.rounds()
			w.holds("%d endpoints of b stay although b withdrew its export", w.ready(a, key, "b") == 0, w.ready(a, key, "b"))
		})
	},
	"ports-beside-foreign-import": func() error {
		w := New(quiet(1, ids("a", "b"), keys("web")))
		return w.Run(func() {
			key, a := w.opts.Keys[0], w.clusters["a"]
			service := serviceOf(key, port("", 80))
			for _, o := range []apiserver.Object{service, exportOf(key), sliceOf(service, key.Name+"-0", w.number(a), 0, 1)} {
				w.must(a.Server.Put("user", o))
			}
			w.must(w.clusters["b"].Server.Put("user", serviceOf(key, port("http", 81)))) // and no endpoints
			w.must(w.clusters["b"].Server.Put("user", exportOf(key)))
			w.rounds()
			w.drop(a, "ServiceImport", key)
			w.must(a.Server.Put("user", foreignImport(key)))
			w.rounds()
			w.Check()
		})
	},
}

// foreignImport is a ServiceImport that a user made.
func foreignImport(key types.NamespacedName) *mcsv1beta1.ServiceImport {
	s := &mcsv1beta1.ServiceImport{ObjectMeta: meta(key)}
	s.APIVersion, s.Kind = mcsv1beta1.GroupVersion.String(), "ServiceImport"
	return s
}

// headless exports a headless Service of IPv4 that has a slice of IPv6, too.
func (w *World) headless(c *Cluster, key types.NamespacedName) {
	service := serviceOf(key, port("http", 80))
	service.Spec.ClusterIP = corev1.ClusterIPNone
	six := sliceOf(service, key.Name+"-6", w.number(c), 0, 1)
	six.AddressType, six.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd01::1"}
	for _, o := range []apiserver.Object{service, exportOf(key), sliceOf(service, key.Name+"-0", w.number(c), 0, 1), six} {
		w.must(c.Server.Put("user", o))
	}
}

// retype deletes a slice and makes one of its name with the other family.
func (w *World) retype(c *Cluster, key types.NamespacedName) {
	service := find[corev1.Service](c, "Service", key)
	s := sliceOf(service, key.Name+"-0", w.number(c), 0, 1)
	w.drop(c, "EndpointSlice", types.NamespacedName{Namespace: key.Namespace, Name: s.Name})
	s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd01::1"}
	w.must(c.Server.Put("user", s))
}

// TestEscaped runs every bug that escaped. One that is fixed must stay so; one
// that is open is only told of.
func TestEscaped(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/escaped.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for line := range strings.Lines(string(file)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		known++
		name, state := fields[0], fields[1]
		t.Run(name, func(t *testing.T) {
			run, has := escaped[name]
			if !has {
				t.Fatal("no such run in escaped_test.go")
			}
			switch err := run(); {
			case err != nil && state == "fixed":
				t.Error(err)
			case err != nil:
				t.Skipf("open: %v", strings.Split(err.Error(), "\n")[0])
			case state == "open":
				t.Log("it holds now: say fixed in testdata/escaped.txt")
			}
		})
	}
	if known != len(escaped) {
		t.Errorf("testdata/escaped.txt has %d bugs, and here are %d", known, len(escaped))
	}
}
