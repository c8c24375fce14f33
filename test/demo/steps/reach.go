// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// reach lets a Pod of cluster-3 talk to Pods of the others, by name and by
// clusterset IP. It needs Pods in which something runs.
func reach(ctx context.Context, w *world.World) error {
	if _, err := w.Show(ctx, three, "apply", "-f", folder+"client.yaml"); err != nil {
		return err
	}
	if _, err := w.Show(ctx, three, "wait", "pod/client", "--for=condition=Ready", "--timeout=50s"); err != nil {
		return err
	}
	w.Out.Print("web-service runs in cluster-1 alone. From a Pod in cluster-3, by name and by clusterset IP:")
	imported, err := check.Import(ctx, w.Member(three), web)
	if err != nil {
		return err
	}
	for _, host := range []string{web.Host(), imported.Spec.IPs[0]} {
		if err := answered(ctx, w, "http://"+host+"/hostname", "web-"); err != nil {
			return err
		}
	}
	w.Out.Print("One Pod of many, by a name of its own:")
	if err := answered(ctx, w, "http://cassandra-0.cluster-2."+rings.Host()+":9042/hostname", "cassandra-0"); err != nil {
		return err
	}
	return balanced(ctx, w)
}

// answered fetches url from the client and expects an answer of a Pod whose
// name begins so. Which rules a node has follows a moment after the objects.
func answered(ctx context.Context, w *world.World, url, pod string) error {
	args := []string{"exec", "client", "--", "curl", "-sS", "--max-time", "5", "-w", `\n`, url}
	err := w.Await(ctx, url+" answers", func(ctx context.Context) error {
		out, err := w.Kubectl(ctx, three, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	out, err := w.Show(ctx, three, args...)
	if err == nil && !strings.HasPrefix(out, pod) {
		err = fmt.Errorf("expected that a Pod %s… answers at %s, got %q", pod, url, out)
	}
	return err
}

// requests is how many balanced makes: that one of three clusters gets none of
// them by chance happens once in two million times.
const requests = 36

// balanced shows that kube-proxy spreads requests over the Pods of all clusters.
func balanced(ctx context.Context, w *world.World) error {
	w.Out.Print("api runs in all three clusters. The Pods that answer %d requests from cluster-3:", requests)
	script := fmt.Sprintf(`curl -sS --max-time 5 -H "Connection: close" -w "\n" "http://%s:8080/hostname?[1-%d]" | sort | uniq -c`, api.Host(), requests)
	out, err := w.Show(ctx, three, "exec", "client", "--", "sh", "-c", script)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return fmt.Errorf("expected a count and a Pod, got %q", line)
		}
		count, err := strconv.Atoi(fields[0])
		if err != nil {
			return fmt.Errorf("expected a count and a Pod, got %q", line)
		}
		counts[fields[1]] = count
	}
	rows := [][]string{{"CLUSTER", "ANSWERS"}}
	for _, source := range api.Sources() {
		pods, err := check.PodNames(ctx, w.Member(source), api)
		if err != nil {
			return err
		}
		sum := 0
		for _, pod := range pods {
			sum += counts[pod]
		}
		if sum == 0 {
			return fmt.Errorf("expected answers from Pods of %s (%v), got none", source, pods)
		}
		rows = append(rows, []string{source, strconv.Itoa(sum)})
	}
	w.Out.Table(rows)
	return nil
}
