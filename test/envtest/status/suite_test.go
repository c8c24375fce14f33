// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// interval is the least time between two writes of one status, shortened from 5 s.
const interval = time.Second

func TestStatus(t *testing.T) {
	suite.Run(t, "status", suite.Waits{Poll: 50 * time.Millisecond})
}

var (
	scheme = suite.Scheme()
	server *rest.Config
	// direct reads and writes without a cache.
	direct client.Client
	// world is what the running controller sees besides the cluster.
	world *fakes
	// stop ends the running controller and waits for its end.
	stop func()
)

var _ = BeforeSuite(func() {
	server = suite.Start(suite.APIServer())[0]
	direct = suite.Client(server)
	world = newFakes()
	start()
	DeferCleanup(func() { stop() })
})

// start runs a controller with world, one worker per kind: what is worked on
// later proves that what was asked for earlier is done.
func start() { startWith(false) }

// startWith is start, in a cluster where Comity does not import if foreign is true.
func startWith(foreign bool) {
	GinkgoHelper()
	yes, no := true, false
	counted := rest.CopyConfig(server)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next} })
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme:  scheme,
		Logger:  GinkgoLogr,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// First come, first served: a priority queue would put what is found at
		// start behind what comes later, and settle would prove nothing.
		Controller: config.Controller{SkipNameValidation: &yes, UsePriorityQueue: &no},
		Cache:      cache.Options{DefaultTransform: trimFieldSets},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(status.SetupWithManager(mgr, status.Options{
		Observations: world, Verdicts: world, PoliciesChanged: &world.policies,
		ForeignImports: foreign, FirstStatus: 1, Interval: interval, Now: world.now,
	})).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	stop = func() {
		cancel()
		Expect(<-ended).To(Succeed())
	}
	Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
}

// statusWrites counts the requests to write a status, those included that would
// change nothing or were refused; requests has them by path.
var (
	statusWrites atomic.Int64
	requests     sync.Map
)

type counter struct{ next http.RoundTripper }

func (c counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && strings.HasSuffix(request.URL.Path, "/status") {
		statusWrites.Add(1)
		count, _ := requests.LoadOrStore(request.URL.Path, new(atomic.Int64))
		count.(*atomic.Int64).Add(1)
	}
	return c.next.RoundTrip(request)
}

// writesTo is how often somebody asked to write the status of that object.
func writesTo(resource string, key types.NamespacedName) int {
	path := "/apis/multicluster.x-k8s.io/v1beta1/namespaces/" + key.Namespace + "/" + resource + "/" + key.Name + "/status"
	if count, ok := requests.Load(path); ok {
		return int(count.(*atomic.Int64).Load())
	}
	return 0
}

// trimFieldSets is what the program's cache does to every object.
func trimFieldSets(object any) (any, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	fields := accessor.GetManagedFields()
	for i := range fields {
		fields[i].FieldsV1 = nil
	}
	accessor.SetManagedFields(fields)
	return object, nil
}

// conditionsOf shows conditions by type, as "Status/Reason".
func conditionsOf(list []metav1.Condition) map[string]string {
	shown := map[string]string{}
	for _, c := range list {
		shown[c.Type] = string(c.Status) + "/" + c.Reason
	}
	return shown
}
