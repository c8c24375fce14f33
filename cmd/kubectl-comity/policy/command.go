// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/authoring"
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

// Result is what one test, or the evaluation of one export, gave. Of the latter, Class is
// ServiceExport, or ServiceImport for the import of what a member exports, and Place the
// manifest of the export.
type Result struct {
	authoring.Result
	Operation decision.Operation `json:"operation,omitempty"`
	// Problem says why it could not be evaluated, or of a denial by no policy, why the
	// webhook refuses the request.
	Problem    string               `json:"problem,omitempty"`
	Violations []decision.Violation `json:"violations,omitempty"`
	Warnings   []decision.Violation `json:"warnings,omitempty"`
}

// elements are those of JUnit XML in which the messages of an outcome are.
var elements = map[string]string{
	authoring.Failed: "failure", authoring.Skipped: "skipped",
	decision.Denied.String(): "failure", decision.NotEvaluated.String(): "error",
}

type suite struct {
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Cases    []testcase `xml:"testcase"`
}

type testcase struct {
	Class string `xml:"classname,attr"`
	Name  string `xml:"name,attr"`
	File  string `xml:"file,attr,omitempty"`
	Text  element
}

// element has the first line of the text as message, and all of it as content.
type element struct {
	XMLName xml.Name
	Message string `xml:"message,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// conclude prints results: as JUnit XML, or with what else is in content, or for people a table
// and then what there is to say of each. The exit code is 2 if something could not be evaluated,
// 1 if something failed or is denied, and 0 otherwise.
func conclude(out io.Writer, o command.Output, kind string, content map[string]any, results []Result, table func(io.Writer)) error {
	all, counts := suite{Name: "policies", Tests: len(results)}, map[string]int{}
	for _, r := range results {
		one := element{Text: strings.Join(r.Messages, "\n")}
		if one.XMLName.Local = elements[r.Outcome]; one.XMLName.Local != "" {
			one.Message, _, _ = strings.Cut(one.Text, "\n")
		}
		counts[one.XMLName.Local]++
		one.XMLName.Local = cmp.Or(one.XMLName.Local, "system-out")
		file, _, _ := strings.Cut(r.Place, ":")
		all.Cases = append(all.Cases, testcase{r.Class, r.Name, file, one})
	}
	all.Failures, all.Errors, all.Skipped = counts["failure"], counts["error"], counts["skipped"]
	content["results"] = results
	var err error
	if o.Format == formatJUnit {
		text, _ := xml.MarshalIndent(struct { // strings and numbers
			XMLName xml.Name `xml:"testsuites"`
			Suite   suite    `xml:"testsuite"`
		}{Suite: all}, "", "  ")
		_, err = fmt.Fprintf(command.Whole(out), "%s%s\n", xml.Header, text)
	} else {
		err = o.Print(out, kind, content, func() {
			table(out)
			for i, r := range results {
				if text := all.Cases[i].Text.Text; text != "" {
					_, _ = fmt.Fprintf(out, "\n%s: %s (%s)\n  %s\n", r.Name, r.Outcome, cmp.Or(r.Place, r.Class), strings.ReplaceAll(text, "\n", "\n  "))
				}
			}
		})
	}
	return cmp.Or(err, exitCode(all.Errors > 0, all.Failures > 0))
}

// exitCode is 2 if something could not be evaluated, 1 if there is a problem, and 0 otherwise.
func exitCode(incomplete, problem bool) error {
	if incomplete {
		return command.Printed(command.ExitRefused)
	}
	return command.PrintedIf(problem)
}
