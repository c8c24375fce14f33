// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
)

// ExitCode is what the process returns to the shell.
type ExitCode int

// The exit codes of every command.
const (
	// ExitDone: the command did what it was asked to, or all is healthy.
	ExitDone ExitCode = 0
	// ExitProblem: the command ran and found a problem, such as an unhealthy cluster.
	ExitProblem ExitCode = 1
	// ExitRefused: wrong usage, or a check failed. Nothing was written.
	ExitRefused ExitCode = 2
	// ExitIncomplete: the command failed while it wrote. Repeat it.
	ExitIncomplete ExitCode = 3
)

// Error is an error with an exit code.
type Error struct {
	Code ExitCode
	Err  error
	// Silent is true if the command has printed already what is wrong.
	Silent bool
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Refused says that the input or a check keeps the command from running, and
// that nothing was written. err may be nil.
func Refused(err error) error { return withCode(ExitRefused, err) }

// Refusedf is Refused with a message.
func Refusedf(format string, args ...any) error { return Refused(fmt.Errorf(format, args...)) }

// Problem says that the command ran and found a problem. err may be nil.
func Problem(err error) error { return withCode(ExitProblem, err) }

// Incomplete says that the command failed while it wrote. err may be nil.
func Incomplete(err error) error { return withCode(ExitIncomplete, err) }

// Incompletef is Incomplete with a message.
func Incompletef(format string, args ...any) error { return Incomplete(fmt.Errorf(format, args...)) }

// Printed is code without a message: the command has printed what is wrong.
func Printed(code ExitCode) error {
	return &Error{Code: code, Err: errors.New("the problem is printed above"), Silent: true}
}

func withCode(code ExitCode, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// CodeOf is the exit code of err. An error without a code is ExitRefused: it is
// from the parsing of flags and arguments, or from reading before any write.
func CodeOf(err error) ExitCode {
	if err == nil {
		return ExitDone
	}
	if coded := (*Error)(nil); errors.As(err, &coded) {
		return coded.Code
	}
	return ExitRefused
}
