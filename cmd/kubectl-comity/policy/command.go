// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/engine"
)

const long = `Write, check, test and try policies before they are enforced.

Every command compiles and evaluates with the engine of the agent.`

// New gives the command policy, with the commands below it.
func New(env *command.Env) *cobra.Command {
	timeout := engine.DefaultTimeout
	evaluating := []*cobra.Command{newTest(env, &timeout), newEval(env, &timeout)}
	for _, one := range evaluating {
		one.Flags().DurationVar(&timeout, "timeout", timeout, "How long one evaluation or test may take: by default as long as in the agent; longer on a slow machine")
	}
	return command.Group("policy", "Write, check, test and try policies", long,
		append(evaluating, newCheck(env), newNew(env), newBuild(env), newSimulate(env))...)
}

// formatJUnit is JUnit XML, which CI systems show.
const formatJUnit = "junit"

type suite struct {
	Name     string  `xml:"name,attr"`
	Tests    int     `xml:"tests,attr"`
	Failures int     `xml:"failures,attr"`
	Errors   int     `xml:"errors,attr"`
	Skipped  int     `xml:"skipped,attr"`
	Cases    []tcase `xml:"testcase"`
}

type tcase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	File    string    `xml:"file,attr,omitempty"`
	Seconds string    `xml:"time,attr,omitempty"`
	Failure *detail   `xml:"failure,omitempty"`
	Error   *detail   `xml:"error,omitempty"`
	Skipped *struct{} `xml:"skipped,omitempty"`
	Output  string    `xml:"system-out,omitempty"`
}

// detail has the first line of the text as message, and all of it as content.
type detail struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func newDetail(text string) *detail {
	first, _, _ := strings.Cut(text, "\n")
	return &detail{Message: first, Text: text}
}

// exitCode is 2 if something could not be evaluated, 1 if there is a problem, and 0 otherwise.
func exitCode(incomplete, problem bool) error {
	if incomplete {
		return command.Printed(command.ExitRefused)
	}
	return command.PrintedIf(problem)
}

// printResults prints suites if o is JUnit XML, and v or what is for people otherwise.
func printResults(out io.Writer, o command.Output, kind string, v any, suites []suite, people func()) error {
	if o.Format != formatJUnit {
		return o.Print(out, kind, v, people)
	}
	text, _ := xml.MarshalIndent(struct { // strings and numbers
		XMLName xml.Name `xml:"testsuites"`
		Suites  []suite  `xml:"testsuite"`
	}{Suites: suites}, "", "  ")
	_, err := fmt.Fprintf(command.Whole(out), "%s%s\n", xml.Header, text)
	return err
}
