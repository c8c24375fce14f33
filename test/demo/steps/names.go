// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// question is one that CoreDNS of a cluster is asked.
type question struct {
	kind, name string
	// want are the right answers, sorted; because says where they are known from.
	want    []string
	because string
}

// names asks CoreDNS of every cluster for every export that reaches it.
func names(ctx context.Context, w *world.World) error {
	w.Out.Print("What the CoreDNS of each cluster answers, and what it should answer according to the objects of the clusters:")
	for _, m := range w.Members {
		questions, err := questionsFor(ctx, w, m)
		if err != nil {
			return err
		}
		rows := [][]string{{"CLUSTER", "TYPE", "NAME", "ANSWER", "WHICH IS"}}
		err = w.Await(ctx, "CoreDNS of "+m.ID()+" answers correctly", func(ctx context.Context) error {
			rows = rows[:1]
			for _, q := range questions {
				if err := ask(ctx, m, q); err != nil {
					return err
				}
				for i, value := range q.want {
					row := []string{m.ID(), q.kind, q.name, value, q.because}
					if i > 0 {
						row = []string{"", "", "", value}
					}
					rows = append(rows, row)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		w.Out.Table(rows)
	}
	return nil
}

// ask fails unless CoreDNS gives exactly what is wanted.
func ask(ctx context.Context, m *world.Member, q question) error {
	got, err := m.Lookup(ctx, q.name, q.kind)
	if err != nil {
		return err
	}
	if !slices.Equal(q.want, got) {
		return fmt.Errorf("CoreDNS of %s: expected %s %s to be %v (%s), got %v", m.ID(), q.kind, q.name, q.want, q.because, got)
	}
	return nil
}

// questionsFor are those whose answers the objects of the clusters give away.
func questionsFor(ctx context.Context, w *world.World, m *world.Member) ([]question, error) {
	var all []question
	for _, e := range exports() {
		if !e.Reaches(m.ID()) {
			continue
		}
		var more []question
		var err error
		if e.Headless {
			more, err = headless(ctx, w, e)
		} else {
			more, err = withIP(ctx, m, e)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// withIP asks for the address of a derived Service, and for its port.
func withIP(ctx context.Context, m *world.Member, e check.Export) ([]question, error) {
	imported, err := check.Import(ctx, m, e)
	if err != nil {
		return nil, err
	}
	derived := imported.Annotations[model.AnnotationDerivedName]
	var service corev1.Service
	if err := m.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: derived}, &service); err != nil {
		return nil, fmt.Errorf("derived Service of %s in %s: %w", e, m.ID(), err)
	}
	questions := []question{{"A", e.Host(), []string{service.Spec.ClusterIP}, "the cluster IP of " + derived + " here"}}
	if e.Port != "" {
		questions = append(questions, question{"SRV", srv(e), []string{fmt.Sprintf("%d %s.", e.Number, e.Host())}, "its port"})
	}
	return questions, nil
}

// headless asks for the addresses of all Pods, for each by its own name, and for
// their port.
func headless(ctx context.Context, w *world.World, e check.Export) ([]question, error) {
	var all, ports []string
	var each []question
	for _, source := range e.Sources() {
		ips, err := check.PodIPs(ctx, w.Member(source), e)
		if err != nil {
			return nil, err
		}
		all = append(all, ips...)
		for i := range ips {
			pod := fmt.Sprintf("%s-%d", strings.TrimSuffix(e.Name, "-service"), i)
			var p corev1.Pod
			if err := w.Member(source).Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: pod}, &p); err != nil {
				return nil, fmt.Errorf("read Pod %s of %s in %s: %w", pod, e, source, err)
			}
			name := pod + "." + source + "." + e.Host()
			each = append(each, question{"A", name, []string{p.Status.PodIP}, "Pod " + pod + " of " + source})
			ports = append(ports, fmt.Sprintf("%d %s.", e.Number, name))
		}
	}
	slices.Sort(all)
	slices.Sort(ports)
	questions := append([]question{{"A", e.Host(), all, "the Pods of " + strings.Join(e.Sources(), " and ")}}, each...)
	return append(questions, question{"SRV", srv(e), ports, "their port"}), nil
}

func srv(e check.Export) string { return "_" + e.Port + "._tcp." + e.Host() }
