// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// network is what lies between the agent and the API server of one peer.
type network struct{ proxy *toxiproxy.Proxy }

// newNetwork leads to the API server at address.
func newNetwork(name, address string) *network {
	GinkgoHelper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	// The address is kept when the proxy is restarted.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	listen := free.Addr().String()
	Expect(free.Close()).To(Succeed())
	n := &network{toxiproxy.NewProxy(server, name, listen, address)}
	Expect(n.proxy.Start()).To(Succeed())
	n.toxic("mute", "mute", "{}")
	DeferCleanup(n.proxy.Stop)
	return n
}

// address is where the agent finds the API server.
func (n *network) address() string { return n.proxy.Listen }

func (n *network) toxic(name, kind, attributes string) {
	GinkgoHelper()
	_, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"name":%q,"type":%q,"stream":"downstream","attributes":%s}`, name, kind, attributes)))
	Expect(err).NotTo(HaveOccurred())
}

func (n *network) cure(name string) {
	GinkgoHelper()
	Expect(n.proxy.Toxics.RemoveToxic(context.Background(), name)).To(Succeed())
}

// slow delays each answer.
func (n *network) slow(by time.Duration) {
	n.toxic("slow", "latency", fmt.Sprintf(`{"latency":%d}`, by.Milliseconds()))
}

// hangUp breaks all connections; new ones work at once.
func (n *network) hangUp() {
	GinkgoHelper()
	n.proxy.Stop()
	Expect(n.proxy.Start()).To(Succeed())
}

// muted counts the moments from which on connections that stand bring nothing.
// It is the whole process's, so specs of this suite do not run side by side.
var muted atomic.Int64

// mute swallows everything from the server on connections that were made before
// the last call of silence: they stay open, and no byte comes. New ones work.
type mute struct{}

func silence() { muted.Add(1) }

// NewState remembers, for each connection, when it was made.
func (*mute) NewState() any { return muted.Load() }

// Pipe passes on, or swallows.
func (*mute) Pipe(stub *toxics.ToxicStub) {
	made, _ := stub.State.(int64)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			switch {
			case chunk == nil:
				stub.Close()
				return
			case made < muted.Load():
			default:
				stub.Output <- chunk
			}
		}
	}
}
