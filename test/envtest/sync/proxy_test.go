// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"io"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// proxy is the network between a cluster's API server and its peers.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	isCut bool
	open  map[net.Conn]bool
}

func newProxy(target string) *proxy {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	p := &proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	go p.serve()
	DeferCleanup(func() {
		p.cut()
		Expect(listener.Close()).To(Succeed())
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut breaks all connections and lets none through; mend ends that.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.open {
		_ = c.Close()
	}
	clear(p.open)
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed at the end of the suite
		}
		go p.forward(client)
	}
}

func (p *proxy) forward(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.admit(client, server) {
		_ = client.Close()
		if server != nil {
			_ = server.Close()
		}
		return
	}
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // ends when either side does
			_ = pair[0].Close()
		})
	}
	both.Wait()
}

func (p *proxy) admit(connections ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		return false
	}
	for _, c := range connections {
		p.open[c] = true
	}
	return true
}
