// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
func reading(ctx SpecContext, holder, peer model.ClusterID) func() error {
	return func() error {
		return connectTo(credential(ctx, holder, peer)).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(model.ExchangeNamespace(peer)))
	}
}

var _ = Describe("A join that is interrupted", func() {
	It("at any write is finished when it is repeated", func(ctx SpecContext) {
		for n := int64(0); ; n++ {
			one, other := model.ClusterID(fmt.Sprintf("cut-%d-a", n)), model.ClusterID(fmt.Sprintf("cut-%d-b", n))
			by := &interrupter{}
			by.left.Store(n)
			err := install.Join(ctx, nil, []join.Cluster{by.cluster("a", one), by.cluster("b", other)}, join.Options{})
			if err == nil {
				Expect(n).To(BeNumerically(">", 20), "a join makes more writes than that")
				return
			}
			Expect(err).To(MatchError(ContainSubstring("the connection was cut")), "after %d writes", n)
			Expect(err).To(MatchError(ContainSubstring("cluster cut-")), "after %d writes", n)

			by.left.Store(1000)
			Expect(install.Join(ctx, nil, []join.Cluster{by.cluster("a", one), by.cluster("b", other)}, join.Options{})).To(Succeed(), "after %d writes", n)
			secret := peerSecret(ctx, "b", one)
			Expect(secret.Data).To(HaveKey(join.KubeconfigKey))
			Eventually(reading(ctx, "b", one)).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
			Eventually(func() error {
				return connectTo(credential(ctx, "a", other)).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace(model.ScopedExchangeNamespace(other, one)))
			}).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
		}
	})

	It("while it rotates is finished when it is repeated", func(ctx SpecContext) {
		by := &interrupter{}
		by.left.Store(1000)
		Expect(install.Join(ctx, nil, []join.Cluster{by.cluster("a", "turn-a"), by.cluster("b", "turn-b")}, join.Options{})).To(Succeed())
		for n := int64(0); ; n++ {
			by.left.Store(n)
			err := install.Join(ctx, nil, []join.Cluster{by.cluster("a", "turn-a"), by.cluster("b", "turn-b")}, join.Options{Rotate: true})
			if err == nil {
				Expect(n).To(BeNumerically(">", 6))
				return
			}
			by.left.Store(1000)
			Expect(install.Join(ctx, nil, []join.Cluster{by.cluster("a", "turn-a"), by.cluster("b", "turn-b")}, join.Options{})).To(Succeed(), "after %d writes", n)
			for _, pair := range [][2]model.ClusterID{{"a", "turn-b"}, {"b", "turn-a"}} {
				Eventually(reading(ctx, pair[0], pair[1])).WithTimeout(cachedFor).Should(Succeed(), "after %d writes", n)
			}
		}
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
