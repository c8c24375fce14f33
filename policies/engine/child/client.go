// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// checkTime leaves the webhook, which has 3 s, time to answer.
const checkTime = 2 * time.Second

// Client has the policies in use. All methods are safe for concurrent use.
type Client struct {
	engine.Front
	main, spare *worker
	offenders   offenders
	loading     sync.Mutex
	revision    int                    // of the policies that were last sent
	current     atomic.Pointer[loaded] // what the process that answers has acknowledged; no digest before
}

// loaded is a set of policies.
type loaded struct {
	revision int
	text     []byte            // JSON
	digests  map[string]string // of the policies, by name
	Loaded
}

// New is a Client without policies. It takes the Timeout, what is Required and the Registerer of
// an engine. It starts no process yet.
func New(o engine.Options) *Client {
	apart := o
	apart.Apart = true
	c := &Client{main: newWorker(o), spare: newWorker(apart), offenders: offenders{lru.New(remembered), lru.New(remembered), lru.New(remembered)}}
	c.current.Store(&loaded{Loaded: Loaded{Imports: true}})
	c.Front = engine.Front{Records: engine.NewRecords(o.Registerer), Writer: engine.NewWriter(), Decide: c.decide}
	return c
}

// Close ends the processes.
func (c *Client) Close() {
	for _, w := range []*worker{c.main, c.spare} {
		if p := w.live.Load(); p != nil {
			p.end()
		}
	}
}

// Digest names the policies in use, as the process that answers acknowledged them; empty until
// policies, or an empty list of them, were loaded.
func (c *Client) Digest() string { return c.current.Load().Digest }

// HasImportPolicies is that of an engine.
func (c *Client) HasImportPolicies() bool { return c.current.Load().Imports }

// Load is that of an engine. If there was no process, the error of every Result says so, and
// what was loaded before stays in use.
func (c *Client) Load(list []engine.Policy) []engine.Result {
	c.loading.Lock()
	defer c.loading.Unlock()
	list = slices.Clone(list)
	now, err := c.load(list)
	results := make([]engine.Result, len(list))
	for i, policy := range list {
		if results[i].Name = policy.Name; err != nil {
			results[i].Err = busy(err)
			continue
		}
		if why := now.Errs[i]; why != "" {
			results[i].Err = errors.New(why)
		} else {
			results[i].Digest = policy.Digest()
		}
	}
	if err == nil {
		c.current.Store(now)
		c.Keep(now.digests)
	}
	return results
}

// load has the other process load policies first, until none ends it. It writes why one is
// refused into the list. If they are in use as they are, it does nothing: what is in use is not
// put in doubt because there is no process, or no time for it, just now.
func (c *Client) load(list []engine.Policy) (*loaded, error) {
	for {
		next := loaded{revision: c.revision + 1, digests: map[string]string{}}
		for i := range list {
			digest := list[i].Digest()
			next.digests[list[i].Name] = digest
			list[i].Refused = cmp.Or(list[i].Refused, c.offenders.refused(digest))
		}
		var err error
		if next.text, err = json.Marshal(list); err != nil {
			return nil, err
		}
		if now := c.current.Load(); bytes.Equal(now.text, next.text) {
			return now, nil
		}
		c.revision = next.revision
		if _, err = c.spare.process(context.Background(), &next); c.offenders.tooCostly(err, next.digests) {
			continue
		} else if err != nil {
			return nil, err
		}
		p, err := c.main.process(context.Background(), &next)
		if err != nil {
			return nil, err
		}
		return p.loaded.Load(), nil
	}
}

// busy is an error that says nothing about a policy: there was no process, or no time. Another
// attempt may succeed.
func busy(err error) error { return apierrors.NewServiceUnavailable(err.Error()) }

// decide has the process that answers evaluate the policies, save those that ended a
// process before. If this subject ended it, or it dies twice, or one of those matches, all
// are evaluated apart. If there is no time for that, those fail.
func (c *Client) decide(ctx context.Context, on *engine.Subject) (decision.Verdict, []engine.Evaluation) {
	now := c.current.Load()
	if now.Digest == "" {
		return decision.Verdict{Problem: engine.ErrNotLoaded.Error()}, nil
	}
	answer, err := c.ask(ctx, now, on)
	if by := asDeath(err); by != nil && by.of != on.String() { // usually it is another that ended it
		answer, err = c.ask(ctx, now, on)
	}
	died := asDeath(err) != nil
	if died {
		go func() { _, _ = c.main.process(context.Background(), now) }() // for those that come next
	}
	if died || slices.ContainsFunc(answer.Evaluations, func(e engine.Evaluation) bool { return e.Failure == suspicion }) {
		half, cancel := engine.ShareOf(ctx, 2)
		apart, failed := c.decideApart(half, now, on)
		cancel()
		if failed == nil {
			answer, err = apart, nil
		} else if died {
			answer, err = c.ask(ctx, now, on)
		}
	}
	if err != nil {
		return decision.Verdict{Problem: err.Error(), Digest: now.Digest}, nil
	}
	return answer.Verdict, answer.Evaluations
}

// ask has the process that answers do so.
func (c *Client) ask(ctx context.Context, now *loaded, on *engine.Subject) (answer Answer, _ error) {
	p, err := c.main.process(ctx, now)
	if err != nil {
		return answer, err
	}
	return answer, p.call(ctx, "Evaluate", Question{On: on, Failed: c.offenders.suspects(now)}, &answer)
}

// decideApart evaluates each policy by itself, in the other process, until none ends it.
func (c *Client) decideApart(ctx context.Context, now *loaded, on *engine.Subject) (Answer, error) {
	q := Question{On: on, Failed: c.offenders.fail(now, on)}
	for {
		answer := Answer{}
		err := c.apart(ctx, now, "Evaluate", q, &answer)
		died := asDeath(err)
		if died == nil || died.of == "" || q.Failed[died.of] != "" || ctx.Err() != nil {
			return answer, err
		}
		q.Failed[died.of] = fmt.Sprintf("%s: %v", v1alpha1.ReasonResourceExhausted, died)
		if c.offenders.blame(now.digests[died.of], on, q.Failed[died.of]) {
			c.Notify()
		}
	}
}

// apart has the other process answer, alone, with these policies.
func (c *Client) apart(ctx context.Context, now *loaded, method string, q Question, reply any) error {
	unlock, err := c.spare.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := c.spare.renewed(ctx, now)
	if err != nil {
		return errors.New(err.Error()) // it is not this call that ended it
	}
	p.stderr.reset()
	err = p.call(ctx, method, q, reply)
	if errors.Is(err, errLate) {
		p.end() // it may still be evaluating
	}
	return err
}

// Change is what storing a policy would do. The error is the one that Load would give for a policy
// that is added to the policies in use, or replaces the one of its name. One that ends the process is in quarantine.
func (c *Client) Change(ctx context.Context, policy engine.Policy) (change engine.Change, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	now := c.current.Load()
	if now.Digest == "" {
		return change, busy(engine.ErrNotLoaded)
	}
	digest := policy.Digest()
	if why := c.offenders.refused(digest); why != "" {
		return change, errors.New(why)
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return change, err
	}
	q := Question{Policies: text}
	switch err = c.apart(ctx, now, "Change", q, &change.Stages); {
	case c.offenders.tooCostly(err, map[string]string{policy.Name: digest}):
		return change, errors.New(c.offenders.refused(digest))
	case err != nil && !isAnswer(err):
		return change, busy(err)
	}
	change.Compare = func(ctx context.Context, on *engine.Subject) (out engine.Comparison, err error) {
		q.On = on
		err = c.apart(ctx, c.current.Load(), "Compare", q, &out)
		if died := asDeath(err); died != nil && died.of == policy.Name && ctx.Err() == nil {
			c.offenders.refuse(digest, fmt.Sprintf("%s: evaluating it for %s in a preview: %v", v1alpha1.ReasonResourceExhausted, on, err))
		}
		return out, err
	}
	return change, err
}
