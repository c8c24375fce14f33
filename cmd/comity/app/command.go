// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/comity-mcs/comity/cmd/comity/install"
	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/policies/engine/child"
)

// version is set by the linker.
var version = "dev"

// Exit codes of the binary.
const (
	exitFailed = 1
	exitUsage  = 2
)

// errLogged replaces an error that the agent has logged.
var errLogged = errors.New("stopped")

// Main runs the agent with options o, which flags override, or the subcommand in args,
// until it ends or the process receives SIGTERM or SIGINT. It returns the exit code: 0 after success or a
// requested stop, 2 for invalid flags or arguments, 1 for other errors.
func Main(o Options, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	root := NewCommand(o)
	root.SetArgs(args)
	started := false // after flags and arguments were accepted
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
		started = err == nil
		return err
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errLogged) {
		fmt.Fprintln(os.Stderr, "comity:", err)
	}
	if !started {
		return exitUsage
	}
	return exitFailed
}

// NewCommand returns the command line of the binary, with o as the defaults of the
// flags. Without a subcommand it runs the agent.
func NewCommand(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:   "comity",
		Short: "Run the agent of a member cluster: webhook, status controller and sync controllers in one process",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q is neither a flag nor a subcommand; see comity --help", args[0])
			}
			return o.Validate()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLog(o, os.Stderr)
			ctrl.SetLogger(log)
			klog.SetLogger(log) // that of client-go
			if err := Run(cmd.Context(), o, log); err != nil {
				log.Error(err, "stopped")
				return errLogged
			}
			return nil
		},
		Version:           version,
		SilenceErrors:     true, // printed by Main
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // the image has no shell
	}
	root.SetVersionTemplate("{{.Version}}\n")
	o.AddFlags(root.Flags())
	root.AddCommand(install.NewCommand(version), probe.NewCommand(), probe.NewServeCommand(), child.Command())
	return root
}

// newLog is the log in the format of --log-format. A failure is one line, without a stack.
func newLog(o Options, to io.Writer) logr.Logger {
	encoder := zap.JSONEncoder()
	if o.LogFormat == logText {
		encoder = zap.ConsoleEncoder()
	}
	lazy := zap.RawZapOpts(uberzap.WrapCore(func(core zapcore.Core) zapcore.Core { return lazyCore{core} }))
	return zap.New(zap.WriteTo(to), zap.Level(zapcore.Level(-o.Verbosity)), zap.StacktraceLevel(zapcore.PanicLevel), encoder, lazy)
}

// lazyCore encodes the values of a logger when something is logged by it: each reconcile has a
// logger with values of its own, and hardly any logs.
type lazyCore struct{ zapcore.Core }

// With implements zapcore.Core.
func (c lazyCore) With(fields []zapcore.Field) zapcore.Core {
	return lazyCore{zapcore.NewLazyWith(c.Core, fields)}
}
