// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestAConfirmationIsAskedForOnATerminalOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		yes, terminal bool
		answer        string
		want          string
	}{
		"--yes":                  {yes: true},
		"no terminal":            {answer: "yes\n", want: "pass --yes"},
		"yes":                    {terminal: true, answer: "Yes\n"},
		"y":                      {terminal: true, answer: "y\n"},
		"y at the end of a file": {terminal: true, answer: "y"},
		"no":                     {terminal: true, answer: "no\n", want: "nothing was written"},
		"nothing":                {terminal: true, answer: "\n", want: "nothing was written"},
		"the end of a file":      {terminal: true, want: "nothing was written"},
	} {
		t.Run(name, func(t *testing.T) {
			streams, in, out, errOut := genericiooptions.NewTestIOStreams()
			in.WriteString(tc.answer)
			env := NewEnv(streams)
			env.IsTerminal = func(any) bool { return tc.terminal }
			err := env.Confirm(tc.yes, "This goes.\n")
			if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || CodeOf(err) != ExitRefused) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if out.Len() > 0 || !strings.HasPrefix(errOut.String(), "This goes.\n") {
				t.Errorf("what goes is shown, and not in the output: %q, %q", out, errOut)
			}
		})
	}
}
