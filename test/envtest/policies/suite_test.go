// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/envtest/suite/evaluator"
)

func TestMain(m *testing.M) { evaluator.Main(m) }

func TestPolicies(t *testing.T) {
	suite.Run(t, "policies", suite.Waits{Poll: 100 * time.Millisecond})
}

// statusInterval is shortened from 5 s.
const statusInterval = 500 * time.Millisecond

var (
	scheme = suite.Scheme()
	server *rest.Config
	// direct reads and writes without a cache.
	direct client.Client
)

var _ = BeforeSuite(func() {
	server = suite.Start(suite.APIServer())[0]
	direct = suite.Client(server)
})

// loadable is an engine.
type loadable interface {
	controller.Engine
	Evaluate(context.Context, decision.Input) decision.Verdict
	EvaluateImport(context.Context, decision.ImportInput) decision.Verdict
}

// replica is one replica of the agent, as far as policies go.
type replica struct {
	engine loadable
	// apart is the engine if it evaluates in processes of its own, as the agent does.
	apart *child.Client
	// elect makes it the leader.
	elect func()
	// changes counts how often it said that verdicts may differ.
	changes atomic.Int64
	// writes counts its requests that change something, events included.
	writes atomic.Int64
	// stop ends it and waits for its end; it ends with the spec anyway.
	stop func()
}

// start runs a replica that does not lead and evaluates in this process, with options that
// change what is usual here.
func start(change ...func(ctrl.Manager, *replica, *controller.Options)) *replica {
	GinkgoHelper()
	return (&replica{engine: engine.New(engine.Options{})}).start(change...)
}

// startApart is start for a replica that evaluates in processes of its own.
func startApart() *replica {
	GinkgoHelper()
	c := child.New(engine.Options{})
	DeferCleanup(c.Close)
	return (&replica{engine: c, apart: c}).start()
}

func (r *replica) start(change ...func(ctrl.Manager, *replica, *controller.Options)) *replica {
	GinkgoHelper()
	counted := rest.CopyConfig(server)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &r.writes} })
	yes := true
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme:     scheme,
		Logger:     GinkgoLogr,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &yes},
	})
	Expect(err).NotTo(HaveOccurred())
	elected := make(chan struct{})
	r.elect = func() { close(elected) }
	options := controller.Options{Engine: r.engine, Changed: func() { r.changes.Add(1) }, Elected: elected, StatusInterval: statusInterval}
	for _, c := range change {
		c(mgr, r, &options)
	}
	Expect(controller.SetupWithManager(mgr, options)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		Expect(<-ended).To(Succeed())
	}
	DeferCleanup(func() { r.stop() })
	Eventually(r.engine.Digest).Within(timeout).ShouldNot(BeEmpty())
	return r
}

type counter struct {
	next  http.RoundTripper
	count *atomic.Int64
}

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		c.count.Add(1)
	}
	return c.next.RoundTrip(request)
}
