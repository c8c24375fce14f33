// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package evaluator makes the program of a suite the process in which policies are evaluated,
// as the agent does it with itself.
//
// It is not part of package suite, since most suites need no policy engine in their program:
// it is the largest part of what is linked.
package evaluator

import (
	"os"
	"testing"

	"github.com/comity-mcs/comity/policies/engine/child"
)

// Main runs the tests of a program, or is the process in which it evaluates policies.
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		if err := child.Serve(os.Args[2]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
