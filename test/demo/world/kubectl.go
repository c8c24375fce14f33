// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandTimeout bounds one kubectl, which waits for nothing here but an API
// server and, on kind, for a command in a Pod.
const commandTimeout = 60 * time.Second

// Kubectl runs kubectl in the project's root and gives all that it printed.
func (w *World) Kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	return w.run(ctx, commandTimeout, append([]string{"kubectl", "--context", cluster}, args...)...)
}

// run runs a command in the project's root and gives all that it printed.
func (w *World) run(ctx context.Context, timeout time.Duration, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := map[string]string{"kubectl": w.kubectl, "helm": w.helm}[command[0]]
	cmd := exec.CommandContext(ctx, name, command[1:]...)
	cmd.Dir = w.root
	// Nothing of the user's own is read or written; the plugin is where kubectl finds it.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(), "KUBECACHEDIR="+w.path("kubectl-cache"), "KUBERC=off",
		"HELM_CACHE_HOME="+w.path("helm"), "HELM_CONFIG_HOME="+w.path("helm"), "HELM_DATA_HOME="+w.path("helm"),
		"PATH="+w.path("bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Show prints a command and its output, and expects that it succeeds.
func (w *World) Show(ctx context.Context, cluster string, args ...string) (string, error) {
	out, err := w.show(ctx, cluster, args...)
	if err != nil {
		return out, fmt.Errorf("expected that `%s` succeeds: %w", commandLine(cluster, args), err)
	}
	return out, nil
}

// ShowRefused prints a command and its output, and expects that it fails
// with each of these texts.
func (w *World) ShowRefused(ctx context.Context, expected []string, cluster string, args ...string) error {
	out, err := w.show(ctx, cluster, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fmt.Errorf("expected that `%s` is refused, but it succeeded", commandLine(cluster, args))
	case !errors.As(err, &exit) || exit.ExitCode() < 0:
		return fmt.Errorf("expected that `%s` is refused: %w", commandLine(cluster, args), err)
	}
	return Contains(out, expected...)
}

func (w *World) show(ctx context.Context, cluster string, args ...string) (string, error) {
	w.Out.Command(append([]string{"kubectl", "--context", cluster}, args...)...)
	out, err := w.Kubectl(ctx, cluster, args...)
	w.Out.Output(out)
	return out, err
}

// Contains fails unless every expected text is in out, white space aside.
func Contains(out string, expected ...string) error {
	squeezed := strings.Join(strings.Fields(out), " ")
	for _, text := range expected {
		if !strings.Contains(squeezed, text) {
			return fmt.Errorf("expected %q in this output, which has it not:\n%s", text, out)
		}
	}
	return nil
}

func commandLine(cluster string, args []string) string {
	return "kubectl --context " + cluster + " " + strings.Join(args, " ")
}
