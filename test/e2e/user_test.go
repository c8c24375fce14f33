// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/test/docs/guide"
	"github.com/comity-mcs/comity/test/install"
)

const (
	// chartEnv names cert-manager's chart: a file, or a reference to a registry.
	chartEnv = "CERT_MANAGER_CHART"
	// blockTimeout bounds one block of the guide, which itself waits up to 5 minutes for each cluster.
	blockTimeout = 11 * time.Minute
	// commandTimeout bounds one command that a spec runs.
	commandTimeout = 3 * time.Minute
)

// user is who installs Comity by docs/install.md: a shell with kubectl, helm and
// the plugin, and a kubeconfig with the contexts a and b.
type user struct {
	dir    string
	env    []string
	blocks []guide.Block
	runner guide.Runner
	// comity is the chart, and image the settings that name the image: for commands that the guide does not have.
	comity, image string
}

// programs is what goes on the user's PATH.
func (p prepared) programs() string { return filepath.Join(p.Dir, "bin") }

// newUser reads the guide, which installs the image and the plugin that were made.
func newUser(made prepared) *user {
	GinkgoHelper()
	dir, programs := made.Dir, made.programs()
	text, err := os.ReadFile(filepath.Join(install.Root(), "docs", "install.md"))
	Expect(err).NotTo(HaveOccurred())
	blocks, err := guide.Read(string(text))
	Expect(err).NotTo(HaveOccurred())

	repository, tag, _ := strings.Cut(made.Image, ":")
	u := &user{
		dir: dir, blocks: blocks,
		comity: filepath.Join(install.Root(), "charts", "comity"),
		image: fmt.Sprintf("--set image.registry= --set image.repository=%s --set image.tag=%s",
			repository, cmp.Or(tag, "latest")),
		// Nothing of the developer's own is read or written.
		env: append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_DATA_HOME="+dir,
			"KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "KUBECACHEDIR="+filepath.Join(dir, "kubectl-cache"), "KUBERC=off"),
	}
	certManager := "oci://quay.io/jetstack/charts/cert-manager"
	if chart := os.Getenv(chartEnv); chart != "" {
		certManager = chart + " --set startupapicheck.enabled=false" // its image is not among those of an offline machine
	}
	table := guide.Table(certManager, u.comity, u.image, fmt.Sprintf("install -m 755 %s %s", made.Plugin, programs))
	Expect(guide.Unused(blocks, table)).To(BeEmpty(), "docs/install.md has changed: adapt the table in test/docs/guide")
	step("docs/install.md is run word for word, but for these references:")
	for _, s := range table {
		step("  %s\n      -> %s\n      %s", s.Published, s.Local, s.Why)
	}
	u.runner = guide.Runner{Dir: dir, Env: u.env, Table: table, Timeout: blockTimeout, Out: GinkgoWriter, Begin: begin}
	return u
}

// follow does what sections of the guide say, and gives what was printed.
func (u *user) follow(ctx context.Context, sections ...string) string {
	GinkgoHelper()
	blocks := guide.Selected(u.blocks, sections...)
	Expect(blocks).NotTo(BeEmpty(), "docs/install.md has nothing to run in %q", sections)
	out, err := u.runner.Run(ctx, blocks)
	Expect(err).NotTo(HaveOccurred(), "docs/install.md cannot be followed")
	return out
}

// try runs a command line and gives all that it printed, errors included.
func (u *user) try(ctx context.Context, format string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	line := fmt.Sprintf(format, args...)
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = u.dir, u.env, 5*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a command line, which must succeed, shows it and gives what it printed.
func (u *user) run(ctx context.Context, format string, args ...any) string {
	GinkgoHelper()
	line := fmt.Sprintf(format, args...)
	step("$ %s", line)
	out, err := evaluated(ctx, func() (string, error) { return u.try(ctx, "%s", line) })
	GinkgoWriter.Printf("    | %s\n", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n    | "))
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", line, out)
	return out
}

// refused runs a command line, which must fail, shows it and gives what it printed.
func (u *user) refused(ctx context.Context, format string, args ...any) string {
	GinkgoHelper()
	line := fmt.Sprintf(format, args...)
	step("$ %s", line)
	out, err := evaluated(ctx, func() (string, error) { return u.try(ctx, "%s", line) })
	GinkgoWriter.Printf("    | %s\n", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n    | "))
	Expect(err).To(HaveOccurred(), "nobody refused `%s`", line)
	return out
}

// fails is refused for commands that refuse nothing and report a problem.
func (u *user) fails(ctx context.Context, format string, args ...any) string {
	GinkgoHelper()
	return u.refused(ctx, format, args...)
}

// quietly runs a command line that is repeated until it prints what is waited for:
// nothing is shown, and an error is a text like any other.
func (u *user) quietly(ctx context.Context, format string, args ...any) string {
	out, err := u.try(ctx, format, args...)
	if err != nil {
		return out + err.Error()
	}
	return out
}
