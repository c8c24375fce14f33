// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package reference writes pages of documentation from cobra commands, so that
// no command or flag is missing there or explained in two ways.
//
// It takes commands and gives Markdown. It knows no command by name, and neither
// program imports it: it is for the generators of docs.
package reference

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Write writes a page to the file that the first argument of the process names,
// without one to standard output.
func Write(page string) error {
	if len(os.Args) < 2 {
		_, err := os.Stdout.WriteString(page)
		return err
	}
	return os.WriteFile(os.Args[1], []byte(page), 0o644)
}

// Leaves are the commands that do something, in the order of their names.
func Leaves(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range cmd.Commands() {
		switch {
		case !child.IsAvailableCommand():
		case child.HasAvailableSubCommands():
			all = append(all, Leaves(child)...)
		default:
			all = append(all, child)
		}
	}
	return all
}

// Index is a table of commands with links to their sections.
func Index(commands []*cobra.Command) string {
	var out strings.Builder
	out.WriteString("| command | what it does |\n|---|---|\n")
	for _, cmd := range commands {
		fmt.Fprintf(&out, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	return out.String()
}

// Section explains one command, with the flags that its parents do not have.
func Section(cmd *cobra.Command) string {
	var out strings.Builder
	out.WriteString("## " + cmd.CommandPath() + "\n\n")
	fmt.Fprintf(&out, "```console\n%s\n```\n\n", cmd.UseLine())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	out.WriteString(Block(text))
	if cmd.Example != "" {
		fmt.Fprintf(&out, "\n```console\n%s\n```\n", unindented(cmd.Example))
	}
	if own := cmd.NonInheritedFlags(); own.HasAvailableFlags() {
		out.WriteString("\n" + Flags(own))
	}
	return out.String()
}

// Block keeps the lines of a help text, which lists and examples depend on.
func Block(text string) string { return "```text\n" + strings.TrimSpace(text) + "\n```\n" }

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// Flags is a table of flags.
func Flags(set *pflag.FlagSet) string {
	var out strings.Builder
	out.WriteString("| flag | default | what it does |\n|---|---|---|\n")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := ""
		switch f.DefValue {
		case "", "false", "[]":
		default:
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
	return out.String()
}
