// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import "errors"

// ExitCode is what the process returns to the shell.
type ExitCode int

// The exit codes of every command.
const (
	// ExitDone: the command did what it was asked to, or all is healthy.
	ExitDone ExitCode = 0
	// ExitProblem: the command ran and found a problem, such as an unhealthy cluster.
	ExitProblem ExitCode = 1
	// ExitRefused: wrong usage, or a check failed. Nothing was written. It is the code of
	// every error that is not an Error.
	ExitRefused ExitCode = 2
	// ExitIncomplete: the command failed while it wrote. Repeat it.
	ExitIncomplete ExitCode = 3
)

// Error is an error with an exit code other than ExitRefused.
type Error struct {
	Code ExitCode
	Err  error
	// Silent is true if the command has printed already what is wrong.
	Silent bool
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Incomplete says that the command failed while it wrote. err may be nil.
func Incomplete(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitIncomplete, Err: err}
}

// Printed is code without a message: the command has printed what is wrong.
func Printed(code ExitCode) error {
	return &Error{Code: code, Err: errors.New("the problem is printed above"), Silent: true}
}

// CodeOf is the exit code of err.
func CodeOf(err error) ExitCode {
	if err == nil {
		return ExitDone
	}
	if coded := (*Error)(nil); errors.As(err, &coded) {
		return coded.Code
	}
	return ExitRefused
}
