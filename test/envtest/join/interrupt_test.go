// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// interrupter cuts the connection at the first of the writes, in whatever cluster, that it
// has not seen before. So a join that is repeated gets one write further each time.
type interrupter struct {
	// learning is true while it only watches.
	learning bool
	// seen and made are how often each write was there at most in an attempt, and is in this one.
	seen, made map[string]int
}

type interrupted struct {
	http.RoundTripper
	by *interrupter
}

func (i interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	// Reviews are questions, although they are posted.
	if write := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "reviews"); write && i.by.cuts(r) {
		return nil, errors.New("the connection was cut")
	}
	return i.RoundTripper.RoundTrip(r)
}

func (i *interrupter) cuts(r *http.Request) bool {
	what := r.Method + " " + r.URL.String()
	i.made[what]++
	if i.made[what] <= i.seen[what] {
		return false
	}
	i.seen[what] = i.made[what]
	return !i.learning
}

// join joins two clusters, whose requests are made one after the other.
func (i *interrupter) join(ctx context.Context, one, other model.ClusterID, opts join.Options) error {
	i.made = map[string]int{}
	return install.Join(ctx, nil, []join.Cluster{i.cluster("a", one), i.cluster("b", other)}, opts)
}

func (i *interrupter) cluster(at, id model.ClusterID) join.Cluster {
	c := cluster(at)
	c.ID = id
	c.RESTConfig = rest.CopyConfig(c.RESTConfig)
	c.RESTConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return interrupted{next, i} })
	return c
}

// reading reads what peer publishes with the credential that holder has. An API server
// knows accounts from a watch, and refuses the token of one that has just been replaced
// until it has seen the new one.
func reading(ctx context.Context, holder, peer model.ClusterID) func() error {
	return func() error {
		return connectTo(credential(ctx, holder, peer)).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(model.ExchangeNamespace(peer)))
	}
}

// bothRead expects that clusters a and b, under these ids, read each other.
func bothRead(ctx context.Context, one, other model.ClusterID, after int) {
	GinkgoHelper()
	Eventually(reading(ctx, "b", one)).WithTimeout(cachedFor).Should(Succeed(), "after %d cuts", after)
	Eventually(reading(ctx, "a", other)).WithTimeout(cachedFor).Should(Succeed(), "after %d cuts", after)
	Eventually(func() error {
		return connectTo(credential(ctx, "a", other)).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(model.ScopedExchangeNamespace(other, one)))
	}).WithTimeout(cachedFor).Should(Succeed(), "after %d cuts", after)
}

// A join makes far fewer writes than this.
const unlimited = 1000

var _ = Describe("A join that is interrupted", func() {
	It("at any write is finished when it is repeated", func(ctx SpecContext) {
		by, cuts := &interrupter{seen: map[string]int{}}, 0
		for ; cuts < unlimited; cuts++ {
			err := by.join(ctx, "cut-a", "cut-b", join.Options{})
			if err == nil {
				break
			}
			Expect(err).To(MatchError(And(ContainSubstring("the connection was cut"), ContainSubstring("cluster cut-"))), "after %d cuts", cuts)
		}
		Expect(cuts).To(And(BeNumerically(">", 20), BeNumerically("<", unlimited)), "the writes of a join")
		bothRead(ctx, "cut-a", "cut-b", cuts)
	})

	It("while it rotates is finished when it is repeated", func(ctx SpecContext) {
		by, cuts := &interrupter{learning: true}, 0
		for range 2 { // it sees what a join writes that finds all in place, and cuts what a rotation adds
			by.seen = map[string]int{}
			Expect(by.join(ctx, "turn-a", "turn-b", join.Options{})).To(Succeed())
		}
		by.learning = false
		for ; cuts < unlimited; cuts++ {
			err := by.join(ctx, "turn-a", "turn-b", join.Options{Rotate: true})
			if err == nil {
				break
			}
			Expect(err).To(MatchError(And(ContainSubstring("the connection was cut"), ContainSubstring("cluster turn-"))), "after %d cuts", cuts)
			free := &interrupter{learning: true, seen: map[string]int{}}
			Expect(free.join(ctx, "turn-a", "turn-b", join.Options{})).To(Succeed(), "after %d cuts", cuts)
			bothRead(ctx, "turn-a", "turn-b", cuts)
		}
		Expect(cuts).To(And(BeNumerically(">", 6), BeNumerically("<", unlimited)), "the writes that a rotation adds")
	})

	It("makes the old token useless when it rotates", func(ctx SpecContext) {
		a, b := cluster("a"), cluster("b")
		a.ID, b.ID = "old-a", "old-b"
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{})).To(Succeed())
		old := connectTo(credential(ctx, "b", "old-a"))
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{Rotate: true})).To(Succeed())
		Eventually(reading(ctx, "b", "old-a")).WithTimeout(cachedFor).Should(Succeed())
		Eventually(func() error {
			return old.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-old-a"))
		}).WithTimeout(cachedFor).Should(BeUnauthorized())
	})
})
