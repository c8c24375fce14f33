// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// The program under test is its own child.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		if err := child.Serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newClient(t testing.TB, o engine.Options) *child.Client {
	t.Helper()
	c := child.New(o)
	t.Cleanup(c.Close)
	return c
}

// loaded is a client with policies that all compile. On a busy machine, what takes too much
// memory must not take too long before.
func loaded(t testing.TB, list ...engine.Policy) *child.Client {
	t.Helper()
	return loadedWith(t, engine.Options{Timeout: 10 * time.Second}, list...)
}

func loadedWith(t testing.TB, o engine.Options, list ...engine.Policy) *child.Client {
	t.Helper()
	c := newClient(t, o)
	for _, r := range c.Load(list) {
		if r.Err != nil {
			t.Fatalf("policy %s: %v", r.Name, r.Err)
		}
	}
	return c
}

func policy(name, rules string) engine.Policy {
	return engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies." + name + "\n\n" + rules + "\n"}}
}

func denying(name, body string) engine.Policy {
	return policy(name, "deny contains {\"msg\": \"no\"} if {\n\t"+body+"\n}")
}

// tenfold are n rules, each of ten copies of the one before.
func tenfold(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n\nx%d := concat(\"\", [x%d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d])", i+1, i)
	}
	return b.String()
}

// bomb needs ten gigabytes at once if the condition holds.
func bomb(name, condition string) engine.Policy {
	return policy(name, fmt.Sprintf("deny contains {\"msg\": \"x\"} if {\n\t%s\n\tcount(concat(\"\", [x6 | some i in numbers.range(1, 1000)])) < 0\n}\n\nx0 := \"aaaaaaaaaa\"%s", condition, tenfold(6)))
}

func request(namespace string) decision.Input {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "db", Labels: map[string]string{"app": "db"}}
	return decision.Input{
		APIVersion: decision.InputVersion, Operation: decision.Create, Subject: decision.SubjectServiceExport,
		UserInfo:  &decision.UserInfo{Username: "jane", Groups: []string{"devs"}},
		Object:    &mcsv1beta1.ServiceExport{ObjectMeta: meta},
		Service:   &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		Cluster:   "a", Scope: decision.Scope{All: true}, NamespaceScope: decision.Scope{All: true}, EffectiveScope: decision.Scope{All: true},
		Peers: map[string]decision.Peer{"b": {}},
	}
}

func export(t *testing.T, in decision.Input) *engine.Subject {
	t.Helper()
	on, err := engine.Writer{}.Export(in)
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// patience is more than the 3 s of the API server, for machines that are busy.
const patience = 30 * time.Second

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestAPolicyThatEndsItsProcessFailsAlone(t *testing.T) {
	for name, rules := range map[string]engine.Policy{
		"ten gigabytes at once":   bomb("bomb", "true"),
		"an array without end":    denying("bomb", "count(numbers.range(1, 1000000000)) < 0"),
		"an endless loop":         denying("bomb", "some x in numbers.range(1, 5000)\n\tsome y in numbers.range(1, 5000)\n\tsome z in numbers.range(1, 5000)\n\tx + y + z < 0"),
		"a comprehension":         denying("bomb", "count([[x, y, z] | some x in numbers.range(1, 5000); some y in numbers.range(1, 5000); some z in numbers.range(1, 5000)]) < 0"),
		"a regular expression":    denying("bomb", `regex.match(concat("", ["(", concat("|", [sprintf("a%d", [x]) | some x in numbers.range(1, 400000)]), "){1,1000}"]), "b")`),
		"a builtin that is stuck": policy("bomb", "deny contains {\"msg\": \"x\"} if regex.match(`(a?){900}b`, x6)\n\nx0 := \"aaaaaaaaaa\""+tenfold(6)),
	} {
		t.Run(name, func(t *testing.T) {
			rules.Enforcement = v1alpha1.Warn
			timeout := 10 * time.Second
			if name == "an endless loop" || name == "a builtin that is stuck" {
				timeout = engine.DefaultTimeout
			}
			c := loadedWith(t, engine.Options{Timeout: timeout}, denying("a", "true"), rules, denying("z", "true"))
			times := 1
			if name == "ten gigabytes at once" || name == "an endless loop" { // then it is known to end a process
				times = 2
			}
			for n := range times {
				begin := time.Now()
				v := c.Evaluate(within(t, patience), request("shop"))
				if failure := c.Failures()["bomb"]; v.Outcome != decision.Denied || len(v.Violations) != 2 || failure.Count != int64(n+1) {
					t.Errorf("got %+v", v)
				}
				t.Log(time.Since(begin), c.Failures()["bomb"].Message)
			}
		})
	}
}

func TestADenyingPolicyThatEndsItsProcessRefusesWhatItMatches(t *testing.T) {
	c := loaded(t, bomb("bomb", `input.object.metadata.namespace == "shop"`))
	v := c.Evaluate(within(t, patience), request("shop"))
	if v.Outcome != decision.NotEvaluated || !strings.HasPrefix(v.Problem, "policy bomb: ResourceExhausted: ") {
		t.Errorf("got %+v", v)
	}
	if v := c.Evaluate(within(t, patience), request("bank")); v.Outcome != decision.Allowed {
		t.Errorf("in another namespace: %+v", v)
	}
}

func TestAPolicyThatEndsProcessesForTwoNamespacesIsInQuarantine(t *testing.T) {
	bad := bomb("bomb", "true")
	c := loaded(t, bad)
	exhausts := func(namespace string) {
		t.Helper()
		last := ""
		for range 10 { // on a busy machine it may be stopped before
			if last = c.Evaluate(within(t, patience), request(namespace)).Problem; strings.HasPrefix(last, "policy bomb: ResourceExhausted: ") {
				return
			}
		}
		t.Errorf("it does not end a process: %s", last)
	}
	exhausts("shop")
	if r := c.Load([]engine.Policy{bad}); r[0].Err != nil {
		t.Errorf("one namespace is enough: %v", r[0].Err)
	}
	exhausts("bank")
	if r := c.Load([]engine.Policy{bad}); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "ResourceExhausted") {
		t.Errorf("two namespaces are not: %v", r[0].Err)
	}
	bad.Rego += "\n# edited\n"
	if r := c.Load([]engine.Policy{bad}); r[0].Err != nil {
		t.Errorf("another version: %v", r[0].Err)
	}
}

// Whoever may annotate exports in one namespace has no policy put in quarantine, however many
// annotations end a process.
func TestTheAnnotationsOfOneNamespaceQuarantineNoPolicy(t *testing.T) {
	greedy := denying("greedy", "letters := split(object.get(input.object.metadata.annotations, \"text\", \"\"), \"\")\n\tcount([[a, b] | some a in letters; some b in letters]) < 0")
	c := loadedWith(t, engine.Options{Timeout: patience}, greedy, denying("other", `input.object.metadata.namespace == "bank"`))
	exhausted := 0
	for n := 0; n < 10 && exhausted < 3; n++ { // on a busy machine it may be stopped before
		in := request("shop")
		in.Object.Annotations = map[string]string{"text": strings.Repeat("x", 100<<10+n)}
		if v := c.Evaluate(within(t, 4*patience), in); strings.HasPrefix(v.Problem, "policy greedy: ResourceExhausted: ") {
			exhausted++
		}
	}
	if exhausted < 3 {
		t.Errorf("%d annotations ended a process", exhausted)
	}
	for namespace, want := range map[string]decision.Outcome{"shop": decision.Allowed, "bank": decision.Denied, "office": decision.Allowed} {
		in := request(namespace)
		in.Object.Annotations = map[string]string{"text": "short"}
		if v := c.Evaluate(within(t, patience), in); v.Outcome != want || v.Problem != "" {
			t.Errorf("%s: %+v", namespace, v)
		}
	}
	if r := c.Load([]engine.Policy{greedy}); r[0].Err != nil {
		t.Errorf("it is in quarantine: %+v", r[0])
	}
}

// A builtin that no deadline interrupts ends with its process.
func TestADeadlineThatIsNotObeyedEndsTheProcess(t *testing.T) {
	c := loadedWith(t, engine.Options{}, policy("stuck", "deny contains {\"msg\": \"x\"} if regex.match(`(a?){900}b`, x6)\n\nx0 := \"aaaaaaaaaa\""+tenfold(6)), denying("z", "true"))
	before := c.MainPID()
	for n := 0; ; n++ {
		v := c.Evaluate(within(t, patience), request("shop"))
		if n < 9 && len(v.Failed) > 1 {
			continue // a busy machine started another process late
		}
		if v.Outcome != decision.Denied || len(v.Violations) != 1 || !slices.Equal(v.Failed, []string{"stuck"}) {
			t.Fatalf("got %+v", v)
		}
		why := c.Failures()["stuck"].Message
		if strings.HasPrefix(why, "ResourceExhausted: ") && strings.HasSuffix(why, "it takes more than 800ms of CPU time") {
			break
		}
		if n == 9 { // on a busy machine it may be stopped before the builtin is called
			t.Fatalf("it fails for another reason: %s", why)
		}
	}
	if c.MainPID() == before {
		t.Error("the process that answers is the one in which the builtin was called")
	}
}

func TestAPolicyThatEndsTheCompilerIsRefused(t *testing.T) {
	nested := "x"
	for range 14 {
		nested = "[y | y := " + nested + "]"
	}
	for name, rules := range map[string]string{
		"comprehensions": "deny contains {\"msg\": \"x\"} if count(v) < 0\n\nx := input.cluster\n\nv := " + nested,
		"brackets":       "deny contains {\"msg\": \"x\"} if input.cluster == " + strings.Repeat("[", 60000) + strings.Repeat("]", 60000),
	} {
		t.Run(name, func(t *testing.T) {
			c := loaded(t, denying("good", "true"))
			if _, err := c.Change(t.Context(), policy("bad", rules)); err == nil {
				t.Error("it is accepted")
			} else {
				t.Log(err.Error()[:min(300, len(err.Error()))])
			}
			r := c.Load([]engine.Policy{denying("good", "true"), policy("bad", rules)})
			if r[0].Err != nil || r[1].Err == nil {
				t.Errorf("results: %+v", r)
			}
			if v := c.Evaluate(within(t, patience), request("shop")); v.Outcome != decision.Denied {
				t.Errorf("got %+v", v)
			}
		})
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	long := policy("long", `deny contains {"msg": x6}`+"\n\nx0 := \"aaaaaaaaaa\""+tenfold(6))
	many := policy("many", `deny contains {"msg": sprintf("%d", [x])} if some x in numbers.range(1, 5000)`)
	v := loaded(t, denying("a", "true"), long, many).Evaluate(within(t, patience), request("shop"))
	if len(v.Violations) != 2 || len(v.Violations[1].Message) > 20<<10 || v.Problem != "policy many: deny contains 5000 entries; expected at most 1000" {
		t.Errorf("%d violations, problem %q", len(v.Violations), v.Problem)
	}
}

// Fault 17: a hundred at once are all answered, and soon after all is as before.
func TestASlowPolicyDelaysNobodyForLong(t *testing.T) {
	c := loadedWith(t, engine.Options{}, denying("slow", "input.object.metadata.name == \"slow\"\n\tsome x in numbers.range(1, 100000000)\n\tx < 0"))
	in := request("shop")
	in.Object.Name = "slow"
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			begin := time.Now()
			v := c.Evaluate(within(t, 3*time.Second), in)
			if took := time.Since(begin); v.Outcome != decision.NotEvaluated || took > 4*time.Second {
				t.Errorf("after %v: %+v", took, v)
			}
		})
	}
	all.Wait()
	if v := c.Evaluate(within(t, patience), request("shop")); v.Outcome != decision.Allowed {
		t.Errorf("afterwards: %+v", v)
	}
}

// What is evaluated is what is there, whichever of it the process has already.
func TestAnswersAreThoseOfTheInput(t *testing.T) {
	c := loaded(t, denying("p", `input.service.spec.type == "ExternalName"`), policy("q", "deny contains {\"msg\": id} if some id, _ in input.peers"))
	for n := range 50 {
		in := request("shop")
		in.Peers = map[string]decision.Peer{fmt.Sprintf("cluster-%d", n): {}}
		want := 1
		if n%3 == 0 {
			in.Service.Spec.Type, want = corev1.ServiceTypeExternalName, 2
		}
		if n%5 == 0 {
			in.Service.Annotations = map[string]string{"large": strings.Repeat("x", 10<<10)}
		}
		v := c.Evaluate(within(t, patience), in)
		if len(v.Violations) != want || v.Violations[want-1].Message != fmt.Sprintf("cluster-%d", n) {
			t.Fatalf("got %+v", v)
		}
	}
}

func TestWhatIsInUseIsNotLoadedAgain(t *testing.T) {
	list := []engine.Policy{denying("fine", "true"), policy("broken", "deny contains")}
	c := newClient(t, engine.Options{Timeout: 10 * time.Second})
	first := c.Load(list)
	defer c.OccupySpare(t.Context())()
	again := make(chan []engine.Result, 1)
	go func() { again <- c.Load(list) }()
	select {
	case got := <-again:
		if fmt.Sprint(got) != fmt.Sprint(first) || got[0].Err != nil || got[1].Err == nil {
			t.Errorf("got %v; want %v, as before", got, first)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for a process, to load what is in use")
	}
}

// The digest of a verdict is that of the policies that gave it, also while others are loaded.
func TestNoVerdictIsOfTwoSets(t *testing.T) {
	sets := [][]engine.Policy{{denying("p", "true"), denying("q", "false")}, {denying("p", "false"), denying("q", "true")}}
	c := loaded(t, sets[0]...)
	of := map[string]string{c.Digest(): "p"}
	c.Load(sets[1])
	of[c.Digest()] = "q"
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range 20 {
			c.Load(sets[n%2])
		}
	}()
	for {
		v := c.Evaluate(within(t, patience), request("shop"))
		if len(v.Violations) != 1 || v.Violations[0].Policy != of[v.Digest] {
			t.Fatalf("got %+v of %v", v, of)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestAPreviewOfWhatEndsItsProcess(t *testing.T) {
	bad := bomb("bomb", "true")
	c := loaded(t, denying("a", "true"))
	if _, err := c.Change(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	change, err := c.Change(within(t, patience), bad)
	if err != nil {
		t.Fatal(err)
	}
	if of := change.Stages[v1alpha1.StageExport]; of != [2]bool{true, true} {
		t.Errorf("differs, is: %t", of)
	}
	answers := c.MainPID()
	if _, err := change.Compare(within(t, patience), export(t, request("shop"))); err == nil {
		t.Error("there is a verdict")
	}
	if c.MainPID() != answers {
		t.Error("the preview has ended the process that answers requests")
	}
	if _, err := c.Change(t.Context(), bad); err == nil || !strings.HasPrefix(err.Error(), "ResourceExhausted: evaluating it for ServiceExport shop/db in a preview: ") {
		t.Errorf("after the preview: %v", err)
	}
	for end := within(t, patience); ; { // a process has to start for it, in which a busy machine may take its time
		if change, err = c.Change(end, denying("p", "true")); !apierrors.IsServiceUnavailable(err) || end.Err() != nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := change.Compare(within(t, patience), export(t, request("shop")))
	if err != nil || len(found.Before.Violations) != 1 || len(found.After.Violations) != 2 {
		t.Errorf("another preview: %+v, %v", found, err)
	}
	if v := c.Evaluate(within(t, patience), request("shop")); v.Outcome != decision.Denied || len(v.Violations) != 1 {
		t.Errorf("what is in use: %+v", v)
	}
}

// Whoever is with a process that another request ends is not evaluated apart, where that one is.
func TestARequestIsEvaluatedAgainAtOnceAfterAnotherEndedTheProcess(t *testing.T) {
	c := loaded(t, denying("a", "true"))
	defer c.OccupySpare(t.Context())()
	ctx, cancel := context.WithCancel(t.Context()) // without a deadline, a part of which is time to be evaluated apart
	defer time.AfterFunc(patience, cancel).Stop()
	answers, stop := make(chan decision.Verdict), make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case answers <- c.Evaluate(ctx, request("shop")):
				case <-stop:
					return
				}
			}
		})
	}
	for range 5 {
		for range 80 {
			if v := <-answers; v.Outcome != decision.Denied || v.Problem != "" {
				t.Errorf("got %+v", v)
			}
		}
		c.EndMain("ServiceExport bank/db")
	}
	close(stop)
	all.Wait()
}

// With the bomb stored, the requests of others never fail.
func TestOthersAreAnsweredWhileProcessesEnd(t *testing.T) {
	c := loaded(t, bomb("bomb", `input.object.metadata.namespace == "shop"`), denying("a", `input.object.metadata.namespace == "bank"`))
	var all sync.WaitGroup
	stop := time.Now().Add(4 * time.Second)
	all.Go(func() {
		for n := 0; time.Now().Before(stop); n++ {
			in := request("shop")
			in.Object.Generation = int64(n)
			c.Evaluate(within(t, patience), in)
			time.Sleep(time.Second)
		}
	})
	longest, count := time.Duration(0), 0
	for time.Now().Before(stop) {
		begin := time.Now()
		if v := c.Evaluate(within(t, patience), request("bank")); v.Outcome != decision.Denied {
			t.Fatalf("got %+v", v)
		}
		longest, count = max(longest, time.Since(begin)), count+1
		time.Sleep(20 * time.Millisecond)
	}
	all.Wait()
	t.Logf("%d requests, the longest took %v", count, longest)
}

// BenchmarkEvaluate is that of package engine, in another process.
func BenchmarkEvaluate(b *testing.B) {
	found, err := source.Read("../../../charts/comity/files/policies")
	if err != nil {
		b.Fatal(err)
	}
	var list []engine.Policy
	for _, one := range found {
		list = append(list, engine.FromObject(one.Object, time.Now()))
	}
	for _, clusters := range []int{5, 50, 200} {
		b.Run(fmt.Sprintf("baseline/clusters=%d", clusters), func(b *testing.B) {
			c, in := loaded(b, list...), request("shop")
			for n := range clusters - 1 {
				in.Peers[fmt.Sprintf("cluster-%d", n)] = decision.Peer{}
			}
			b.ReportAllocs()
			for b.Loop() {
				if v := c.Evaluate(b.Context(), in); v.Outcome != decision.Allowed {
					b.Fatal(v)
				}
			}
		})
	}
}

// Requests to store policies come while the preview of another one is made.
func TestAPolicyThatCannotBeUsedChangesNoOtherPreview(t *testing.T) {
	c := loaded(t)
	change, err := c.Change(within(t, patience), denying("p", "true"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Change(within(t, patience), denying("q", "x")); err == nil {
		t.Fatal("a policy is accepted that does not compile")
	}
	found, err := change.Compare(within(t, patience), export(t, request("shop")))
	if err != nil || len(found.After.Violations) != 1 || found.After.Violations[0].Policy != "p" {
		t.Errorf("got %+v, %v", found, err)
	}
}
