// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// newImport is an import of which nothing exists in cluster a.
func newImport(name string, from ...model.ClusterID) *plan.ImportInput {
	in := &plan.ImportInput{Key: key(name), Self: "a", Desired: &model.Import{}}
	for _, id := range from {
		in.Desired.Constituents = append(in.Desired.Constituents, model.Constituent{Cluster: id})
	}
	return in
}

// withService adds a derived Service of an import.
func withService(in *plan.ImportInput, of string) *plan.ImportInput {
	in.Current.Services = append(in.Current.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{model.LabelServiceName: of}}})
	return in
}

// creationsTest notes whose turn comes.
type creationsTest struct {
	creations
	t    *testing.T
	mu   sync.Mutex
	come []types.NamespacedName
}

func testCreations(t *testing.T, test func(*creationsTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &creationsTest{t: t}
		c.turns.come.Subscribe(func(k types.NamespacedName) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.come = append(c.come, k)
		}, func() {})
		test(c)
	})
}

func (c *creationsTest) begins(in *plan.ImportInput) func([]plan.Action) {
	c.t.Helper()
	end, now := c.begin(in)
	if !now {
		c.t.Fatalf("%s has to wait", in.Key)
	}
	return end
}

func (c *creationsTest) waits(in *plan.ImportInput) {
	c.t.Helper()
	if _, now := c.begin(in); now {
		c.t.Fatalf("%s does not have to wait", in.Key)
	}
	c.turns.pass(in.Key)
}

// comes waits for the turns of imports, and fails unless they are these.
func (c *creationsTest) comes(after time.Duration, names ...string) {
	c.t.Helper()
	time.Sleep(after)
	var want []types.NamespacedName
	for _, name := range names {
		want = append(want, key(name))
	}
	if got := c.taken(); !slices.Equal(got, want) {
		c.t.Fatalf("the turn of %v has come; want %v", got, want)
	}
}

// taken are the imports whose turn came since the last call.
func (c *creationsTest) taken() []types.NamespacedName {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	come := c.come
	c.come = nil
	return come
}

func TestTheImportsOfAClusterAreCreatedOneAtATimeWithPauses(t *testing.T) {
	const took = 100 * time.Millisecond
	slicesOf := func(id model.ClusterID) []plan.Action { return []plan.Action{{Source: id}} }
	for name, c := range map[string]struct {
		meanwhile []plan.Action // what is written to an import that exists
		pause     time.Duration
	}{
		"nothing else changes":                 {nil, took},
		"the endpoints of another one change":  {slicesOf("c"), took + maxBusyPause},
		"the endpoints of this cluster change": {slicesOf("a"), took + maxBusyPause},
		"only a ServiceImport changes":         {slicesOf(""), took},
		"only its own endpoints change":        {slicesOf("b"), took},
	} {
		t.Run(name, func(t *testing.T) {
			testCreations(t, func(test *creationsTest) {
				end := test.begins(newImport("one", "b"))
				test.waits(newImport("two", "b"))
				test.waits(newImport("three", "b"))
				test.waits(newImport("two", "b")) // again, as when all are listed
				for _, next := range []string{"two", "three"} {
					time.Sleep(took)
					test.begins(withService(newImport("exists", "b", "c"), "exists"))(c.meanwhile)
					end(nil)
					test.comes(c.pause - time.Millisecond)
					test.comes(time.Millisecond, next)
					end = test.begins(newImport(next, "b"))
				}
				end(nil)
				time.Sleep(time.Second)
				test.comes(0)
			})
		})
	}
}

func TestThePauseOfABusyClusterIsBounded(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{10 * time.Millisecond: 100 * time.Millisecond, time.Second: 1250 * time.Millisecond} {
		testCreations(t, func(c *creationsTest) {
			end := c.begins(newImport("one", "b"))
			c.waits(newImport("two", "b"))
			time.Sleep(took)
			c.begins(withService(newImport("exists", "c"), "exists"))([]plan.Action{{Source: "c"}})
			end(nil)
			c.comes(pause - time.Millisecond)
			c.comes(time.Millisecond, "two")
		})
	}
}

func TestATurnThatIsNotTakenIsTheNextOnes(t *testing.T) {
	testCreations(t, func(c *creationsTest) {
		end := c.begins(newImport("one", "b"))
		c.waits(newImport("withdrawn", "b"))
		c.waits(newImport("three", "b"))
		end(nil)
		c.comes(0, "withdrawn")
		c.turns.pass(key("withdrawn"))
		c.comes(0, "three")
	})
}

func TestOtherClustersAndWhatExistsDoNotWaitForCreations(t *testing.T) {
	testCreations(t, func(c *creationsTest) {
		c.begins(newImport("one", "b"))
		c.begins(newImport("two", "c"))
		c.begins(newImport("own", "b", "a"))(nil)
		c.begins(withService(newImport("exists", "b"), "exists"))(nil)
		c.waits(withService(newImport("new", "b"), "another that has the same derived name"))
		goes := newImport("goes")
		goes.Desired = nil
		c.begins(goes)(nil)
		// A name that b exports as well is created in d's turn.
		both := newImport("both", "b", "d")
		c.begins(both)
		c.waits(newImport("three", "b", "c", "d"))
	})
}

func TestACreationThatFailedWaitsForItsNextTurn(t *testing.T) {
	testCreations(t, func(c *creationsTest) {
		end := c.begins(newImport("one", "b"))
		time.Sleep(time.Second)
		end(nil)
		c.waits(newImport("one", "b")) // again, within the pause
		c.comes(time.Second, "one")
		c.begins(newImport("one", "b"))(nil)
	})
}
