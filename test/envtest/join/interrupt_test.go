// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// interrupter lets a number of writes through, in whatever cluster, and no more.
type interrupter struct{ left atomic.Int64 }

type interrupted struct {
	http.RoundTripper
	by *interrupter
}

func (i interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	// Reviews are questions, although they are posted.
	write := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "reviews")
	if write && i.by.left.Add(-1) < 0 {
		return nil, errors.New("the connection was cut")
	}
	return i.RoundTripper.RoundTrip(r)
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

// unlimited is more writes than any join makes.
const unlimited = 1000

// finishedWhenRepeated joins pairs of clusters with opts, each cut after another number of writes. A join
// without options has to finish what was begun then, so that both read each other.
func finishedWhenRepeated(ctx context.Context, id string, opts join.Options, atLeast int) {
	GinkgoHelper()
	attempt := func(n int) (by *interrupter, pair []join.Cluster, err error) {
		by = &interrupter{}
		pair = []join.Cluster{by.cluster("a", model.ClusterID(fmt.Sprintf("%s-%d-a", id, n))), by.cluster("b", model.ClusterID(fmt.Sprintf("%s-%d-b", id, n)))}
		if opts.Rotate {
			by.left.Store(unlimited)
			Expect(install.Join(ctx, nil, pair, join.Options{})).To(Succeed())
		}
		by.left.Store(int64(n))
		return by, pair, install.Join(ctx, nil, pair, opts)
	}
	uncut, _, err := attempt(unlimited)
	Expect(err).NotTo(HaveOccurred())
	var cut atomic.Int64
	var all errgroup.Group
	all.SetLimit(8)
	for n := range unlimited - int(uncut.left.Load()) {
		all.Go(func() error {
			defer GinkgoRecover()
			by, pair, err := attempt(n)
			if err == nil {
				return nil // the first join made what all share, too
			}
			cut.Add(1)
			Expect(err).To(MatchError(ContainSubstring("the connection was cut")), "after %d writes", n)
			Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("cluster %s-%d-", id, n))), "after %d writes", n)
			by.left.Store(unlimited)
			Expect(install.Join(ctx, nil, pair, join.Options{})).To(Succeed(), "after %d writes", n)
			one, other := pair[0].ID, pair[1].ID
			Eventually(reading(ctx, "b", one)).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
			Eventually(reading(ctx, "a", other)).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
			Eventually(func() error {
				return connectTo(credential(ctx, "a", other)).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(model.ScopedExchangeNamespace(other, one)))
			}).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
			return nil
		})
	}
	Expect(all.Wait()).To(Succeed())
	Expect(cut.Load()).To(BeNumerically(">", atLeast), "a join makes more writes than that")
}

var _ = Describe("A join that is interrupted", func() {
	It("at any write is finished when it is repeated", func(ctx SpecContext) {
		finishedWhenRepeated(ctx, "cut", join.Options{}, 20)
	})

	It("while it rotates is finished when it is repeated", func(ctx SpecContext) {
		finishedWhenRepeated(ctx, "turn", join.Options{Rotate: true}, 6)
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
