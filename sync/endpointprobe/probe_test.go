// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package endpointprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// down are the clusters of a key that do not answer.
func down(p *Prober, of types.NamespacedName) (out []model.ClusterID) {
	for id, answers := range p.Answers(of) {
		if !answers {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network answers as told; what it is not told of hangs until it is given up.
type network struct {
	mu        sync.Mutex
	open      map[string]bool
	dials     map[string]int
	now, most int
}

func newNetwork(open ...string) *network {
	n := &network{open: map[string]bool{}, dials: map[string]int{}}
	n.set(true, open...)
	return n
}

func (n *network) set(open bool, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		n.open[a] = open
	}
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials[address]++
	n.now++
	n.most = max(n.most, n.now)
	open := n.open[address]
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.now--
		n.mu.Unlock()
	}()
	if !open {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near, nil
}

// counted are the dials since the last call.
func (n *network) counted() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.dials
	n.dials = map[string]int{}
	return out
}

// inBubble runs a Prober in fake time; step lets one round end.
func inBubble(t *testing.T, opts Options, test func(p *Prober, step func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New(opts)
		var running sync.WaitGroup
		running.Go(func() {
			if err := p.Start(ctx); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
		time.Sleep(2 * p.opts.Timeout) // between two rounds
		test(p, func() {
			time.Sleep(p.opts.Interval)
			synctest.Wait()
		})
		cancel()
		running.Wait()
	})
}

func at(texts ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, text := range texts {
		out = append(out, netip.MustParseAddrPort(text))
	}
	return out
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// TestVerdictsAreDamped draws rounds as letters: + answers, - does not.
func TestVerdictsAreDamped(t *testing.T) {
	for rounds, want := range map[string]string{
		"---":          "uud",
		"--+--+--+":    "uuuuuuuuu",
		"----+":        "uuddd",
		"---++":        "uuddu",
		"---+-+-+-":    "uuddddddd",
		"---++--+---":  "uudduuuuuud",
		"++++---++":    "uuuuuuddu",
		"+-+-+-+-+---": "uuuuuuuuuuud",
	} {
		t.Run(rounds, func(t *testing.T) {
			n := newNetwork()
			var flips []types.NamespacedName
			known := ""
			inBubble(t, Options{Dial: n.dial}, func(p *Prober, step func()) {
				p.Changed().Subscribe(func(c notify.Change) { flips = append(flips, c.Key) })
				p.Watch(key("web"), map[model.ClusterID][]netip.AddrPort{"b": at("10.0.0.1:80", "10.0.0.2:80")})
				got := ""
				for _, r := range rounds {
					n.set(r == '+', "10.0.0.2:80") // one that answers is enough
					step()
					got += map[bool]string{true: "d", false: "u"}[len(down(p, key("web"))) == 1]
					known += map[bool]string{true: "k", false: "-"}[len(p.Answers(key("web"))) == 1]
				}
				if got != want {
					t.Errorf("verdicts %s, want %s", got, want)
				}
			})
			changes := 0
			for i := range want {
				// From neither to up or down is a change, too.
				if i > 0 && (known[i] != known[i-1] || want[i] != want[i-1]) {
					changes++
				}
			}
			if len(flips) != changes {
				t.Errorf("told %d times of %d changes", len(flips), changes)
			}
		})
	}
}

func TestClustersAreJudgedApart(t *testing.T) {
	n := newNetwork("10.0.2.1:80")
	inBubble(t, Options{Dial: n.dial}, func(p *Prober, step func()) {
		p.Watch(key("web"), map[model.ClusterID][]netip.AddrPort{
			"d": at("10.0.4.1:80"), "b": at("10.0.1.1:80"), "c": at("10.0.2.1:80"), "udp-only": nil, "odd": {netip.AddrPort{}},
		})
		p.Watch(key("other"), map[model.ClusterID][]netip.AddrPort{"c": at("10.0.2.1:80")})
		for range roundsToDown {
			step()
		}
		if diff := cmp.Diff([]model.ClusterID{"b", "d"}, down(p, key("web"))); diff != "" {
			t.Errorf("down (-want +got):\n%s", diff)
		}
		if none := down(p, key("other")); none != nil {
			t.Errorf("down for another import: %v", none)
		}
		p.Watch(key("web"), map[model.ClusterID][]netip.AddrPort{"b": at("10.0.1.9:80"), "d": nil})
		if diff := cmp.Diff([]model.ClusterID{"b"}, down(p, key("web"))); diff != "" {
			t.Errorf("other targets leave the verdict, none end it (-want +got):\n%s", diff)
		}
		p.Watch(key("web"), nil)
		n.counted()
		step()
		if down, dials := down(p, key("web")), n.counted(); down != nil || len(dials) != 1 {
			t.Errorf("what is watched no more: down %v, dialed %v", down, dials)
		}
	})
}

func TestImportsShareConnections(t *testing.T) {
	n := newNetwork()
	inBubble(t, Options{Dial: n.dial}, func(p *Prober, step func()) {
		for i := range 100 {
			p.Watch(key(fmt.Sprint("web-", i)), map[model.ClusterID][]netip.AddrPort{"b": at("10.0.0.1:80", "10.0.0.1:81")})
		}
		step()
		if diff := cmp.Diff(map[string]int{"10.0.0.1:80": 1, "10.0.0.1:81": 1}, n.counted()); diff != "" {
			t.Errorf("dials (-want +got):\n%s", diff)
		}
	})
}

func TestWorkIsBounded(t *testing.T) {
	n := newNetwork()
	inBubble(t, Options{Dial: n.dial}, func(p *Prober, _ func()) {
		for i := range 500 {
			var targets []netip.AddrPort
			for j := range 5 {
				targets = append(targets, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i / 250), byte(i % 250), byte(j)}), 80))
			}
			p.Watch(key(fmt.Sprint("web-", i)), map[model.ClusterID][]netip.AddrPort{"b": targets})
		}
		time.Sleep(p.opts.Interval + 22*p.opts.Timeout) // 1,500 targets, 64 at once, 1 s each
		synctest.Wait()
		dials := n.counted()
		if len(dials) != 1500 || slices.Max(slices.Collect(maps.Values(dials))) != 1 {
			t.Errorf("%d targets of 500 imports were dialed in one round, at most %d times", len(dials), slices.Max(slices.Collect(maps.Values(dials))))
		}
		if n.most > 64 {
			t.Errorf("%d connections at once", n.most)
		}
	})
}

func TestAStopGivesUpAtOnce(t *testing.T) {
	n := newNetwork()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New(Options{Dial: n.dial, Concurrency: 1, Timeout: time.Hour})
		for i := range 50 {
			p.Watch(key(fmt.Sprint("web-", i)), map[model.ClusterID][]netip.AddrPort{"b": {netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)}})
		}
		done := make(chan error)
		go func() { done <- p.Start(ctx) }()
		time.Sleep(p.opts.Interval + time.Minute)
		before := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(before) > 0 {
			t.Errorf("ended after %s with %v", time.Since(before), err)
		}
		for i := range 50 {
			if p.watched[key(fmt.Sprint("web-", i))]["b"].failed > 0 {
				t.Error("a round that was given up counts")
			}
		}
	})
}

func TestARefusedConnectionIsNoAnswer(t *testing.T) {
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	inBubble(t, Options{Dial: refuse}, func(p *Prober, step func()) {
		p.Watch(key("web"), map[model.ClusterID][]netip.AddrPort{"b": at("10.0.0.1:80")})
		for range roundsToDown {
			step()
		}
		if len(down(p, key("web"))) != 1 {
			t.Error("up")
		}
	})
}

func TestTheSampleDependsOnNothingButTheTargets(t *testing.T) {
	var all []netip.AddrPort
	for i := range 1000 {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}), 8080))
	}
	want := at("10.0.1.240:8080", "10.0.2.193:8080", "10.0.3.167:8080")
	for range 100 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		got := sampleOf(append(all, all[:10]...), 3)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Fatalf("sample (-want +got), so a restart would begin to count again:\n%s", diff)
		}
	}
}

// The kernel accepts connections for a process that is frozen.
func TestAProcessThatIsFrozenDoesNotAnswerStrictly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	target := netip.MustParseAddrPort(listener.Addr().String())
	answers := func(strict bool, within time.Duration) bool {
		return New(Options{Strict: strict, Timeout: within}).Dial(t.Context(), sets.New(target))[target]
	}
	if !answers(false, 10*time.Second) {
		t.Error("the kernel does not answer for it")
	}
	if answers(true, 200*time.Millisecond) {
		t.Error("it answers strictly")
	}
	var accepting sync.WaitGroup
	defer accepting.Wait()
	defer func() { _ = listener.Close() }()
	accepting.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, connection) // as a server that waits for a request
			_ = connection.Close()
		}
	})
	if !answers(true, 10*time.Second) {
		t.Error("a server that closes when its client does is frozen")
	}
}

func TestARealListenerIsUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := netip.MustParseAddrPort(listener.Addr().String())
	p := New(Options{Timeout: 10 * time.Second})
	if !p.Dial(t.Context(), sets.New(target))[target] {
		t.Error("a listening port does not answer")
	}
	_ = listener.Close()
	if p.Dial(t.Context(), sets.New(target))[target] {
		t.Error("a closed port answers")
	}
}
