// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// versionReader is an API server whose store is at a version.
type versionReader struct {
	client.Reader
	version string
	err     error
}

func (r *versionReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var given client.ListOptions
	given.ApplyOptions(opts)
	if given.Limit != 1 || given.Raw != nil {
		return errors.New("expected a list of one object, without a resourceVersion")
	}
	list.SetResourceVersion(r.version)
	return r.err
}

func TestTheOwnStoreIsFoundRestored(t *testing.T) {
	const first, second = "2026-06-01T12:00:00Z", "2026-06-01T13:00:00Z"
	failed := errors.New("down")
	at := func(version, restored string) storeState { return storeState{version, restored} }
	for _, tc := range []struct {
		name          string
		known, stored storeState
		is            string
		err           error
		found         bool
		want          storeState
	}{
		{"the first start", at("", ""), at("", ""), "50", nil, false, at("50", "")},
		{"the store went on", at("50", ""), at("50", ""), "60", nil, false, at("60", "")},
		{"nothing was written", at("50", ""), at("", ""), "50", nil, false, at("50", "")},
		{"it is restored while the agent runs", at("50", ""), at("", ""), "9", nil, true, at("9", second)},
		{"it was restored while the agent was down", at("", ""), at("50", ""), "9", nil, true, at("9", second)},
		{"the heartbeat was lost that wrote of a restore", at("9", first), at("50", ""), "10", nil, false, at("10", first)},
		{"the agent starts after a restore", at("", ""), at("9", first), "10", nil, false, at("10", first)},
		{"it is restored again", at("", ""), at("9", first), "8", nil, true, at("8", second)},
		{"the hub was restored, and says less", at("50", first), at("40", ""), "51", nil, false, at("51", first)},
		{"another replica wrote later", at("40", ""), at("50", ""), "51", nil, false, at("51", "")},
		{"the API server does not answer", at("", ""), at("50", ""), "", failed, false, at("50", "")},
		{"the versions are no numbers", at("b", ""), at("", ""), "a", nil, false, at("a", "")},
		{"the version in the Lease is no number", at("", ""), at("x", ""), "9", nil, false, at("9", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, _ := time.Parse(time.RFC3339, second)
			s := &ownStore{reader: &versionReader{version: tc.is, err: tc.err}, clock: clocktesting.NewFakePassiveClock(now), known: tc.known, remembered: newPublishedRecords()}
			found, err := s.check(t.Context(), tc.stored)
			if (found != nil) != tc.found || !errors.Is(err, tc.err) || s.state() != tc.want {
				t.Errorf("found %v, error %v, state %+v; want %v, %v, %+v", found, err, s.state(), tc.found, tc.err, tc.want)
			}
		})
	}
}

// agentAt is the agent of cluster b, which publishes in a hub, with the version of its own
// API server. Each call is a new start.
func agentAt(t *testing.T, hub client.Client, version string) (*heartbeat, *events.FakeRecorder) {
	t.Helper()
	h := joining(t, hub, "ours")
	recorder := events.NewFakeRecorder(10)
	h.store.reader = &versionReader{version: version}
	h.Namespace, h.Recorder = "comity-system", recorder
	h.client = fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}}).Build()
	return h, recorder
}

func TestTheLeaseInAHubKeepsTheVersionOfTheOwnStore(t *testing.T) {
	writes := 0
	hub := &server{Client: fake.NewClientBuilder().WithScheme(inHubScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()}
	h, _ := agentAt(t, hub, "50")
	h.beat(t.Context())
	h.store.reader.(*versionReader).version = "60"
	h.beat(t.Context())
	if got := stateIn(hub.lease(t)); got != (storeState{version: "60"}) || writes != 1 {
		t.Errorf("the Lease says %+v after %d writes", got, writes)
	}

	h, recorder := agentAt(t, hub, "9")
	if may, _ := h.mayPublish(t.Context()); may {
		t.Error("something may be withdrawn before the version is compared")
	}
	h.beat(t.Context())
	got := stateIn(hub.lease(t))
	if _, err := time.Parse(time.RFC3339, got.restored); got.version != "9" || err != nil {
		t.Errorf("after a restore, the Lease says %+v", got)
	}
	select {
	case event := <-recorder.Events:
		if want := "Warning StoreRestored the API server is at resourceVersion 9 and was at 60 before"; len(event) < len(want) || event[:len(want)] != want {
			t.Errorf("says %q", event)
		}
	default:
		t.Error("no event says that the store was restored")
	}

	h, recorder = agentAt(t, hub, "70")
	h.beat(t.Context())
	if again := stateIn(hub.lease(t)); again.restored != got.restored || again.version != "70" || len(recorder.Events) > 0 {
		t.Errorf("after the next start, the Lease says %+v, with %d events", again, len(recorder.Events))
	}
}

func TestInAMeshARestoreOnlyEndsWhatIsRemembered(t *testing.T) {
	own := newServer()
	h, recorder := agentAt(t, own, "9")
	h.hub, h.store.known = false, storeState{version: "50"}
	h.remembered.wrote(publishing("u", "comity-b"))
	if got := h.restore(t.Context(), decide.ExportView{Lost: h.lostOf(nil)}); got != (decide.Restore{Recent: true}) || len(h.lostOf(nil)) > 0 {
		t.Errorf("%+v, and %v is remembered", got, h.lostOf(nil))
	}
	h.beat(t.Context())
	if got := stateIn(own.lease(t)); got != (storeState{}) || len(recorder.Events) > 0 {
		t.Errorf("the Lease says %+v, with %d events", got, len(recorder.Events))
	}
}

// A record that is published from a cache, of a ServiceExport that the restored store does
// not have, would be withdrawn as soon as the cache is read again.
func TestInAMeshNothingIsPublishedFromTheCacheOfTheStoreBefore(t *testing.T) {
	h, _ := agentAt(t, newServer(), "9")
	now := clocktesting.NewFakePassiveClock(time.Now())
	h.hub, h.store.clock = false, now
	h.definition = &exportDefinition{reader: h.client, clock: now}
	asked := func() bool {
		view := decide.ExportView{Local: decide.LocalExport{Export: &mcsv1beta1.ServiceExport{}}}
		view.Restore = h.restore(t.Context(), view)
		return decide.NeedsExists(view)
	}
	if asked() {
		t.Error("the API server is asked although there was no restore")
	}
	h.store.suspect(&restoredetect.Found{Was: "60", Is: "9"})
	if !asked() {
		t.Error("the API server is not asked after a restore")
	}
	now.SetTime(now.Now().Add(restoredetect.Pause))
	if asked() {
		t.Error("the API server is still asked when all caches were read again")
	}
}

func TestARestoreThatACacheDetectsIsCheckedForEveryExport(t *testing.T) {
	h, recorder := agentAt(t, newServer(), "51")
	h.store.known = storeState{version: "50"}
	h.store.suspect(&restoredetect.Found{Was: "60", Is: "9"})
	h.store.reader.(*versionReader).err = errors.New("down")
	if got := h.restore(t.Context(), decide.ExportView{}); got.Problem == "" {
		t.Errorf("before the check, nothing keeps an export from being changed: %+v", got)
	}
	h.store.reader.(*versionReader).err = nil
	got := h.restore(t.Context(), decide.ExportView{})
	if got.Mark == "" || got.Problem != "" || len(recorder.Events) != 1 {
		t.Errorf("%+v, %d events", got, len(recorder.Events))
	}
	h.store.suspect(&restoredetect.Found{Was: "60", Is: "10"})
	if again := h.restore(t.Context(), decide.ExportView{}); again != got || h.store.suspected() != nil {
		t.Errorf("the cache of another kind makes it another restore: %+v", again)
	}
}

func TestARestoreIsLookedForBeforeAWithdrawal(t *testing.T) {
	h, _ := agentAt(t, newServer(), "9")
	h.store.known = storeState{version: "50"}
	missing := decide.ExportView{Records: []*exchangev1alpha1.ExportRecord{{ObjectMeta: managed("web.shop")}}}
	if got := h.restore(t.Context(), missing); got.Mark == "" || got.Problem != "" {
		t.Errorf("the restore is not found: %+v", got)
	}
	h.store.reader.(*versionReader).err = errors.New("down")
	if got := h.restore(t.Context(), missing); got.Problem == "" {
		t.Errorf("nothing says that the version cannot be read: %+v", got)
	}
	if got := h.restore(t.Context(), decide.ExportView{}); got.Problem != "" {
		t.Errorf("the version is read for an export that is not published: %+v", got)
	}
}
