// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command reference writes docs/comity.md and docs/kubectl-comity.md, the
// references of both command lines, from the cobra commands themselves, so that no
// command or flag is missing there or explained in two ways. In docs/imports.md, which
// is otherwise written by hand, it writes the tables by which imports are decided, as the
// comments of sync/decide have them.
//
// It takes the folder of these pages. It is a program of its own so that neither
// comity nor kubectl-comity carries it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	all, err := pages(folder)
	if err != nil {
		return err
	}
	for name, page := range all {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pages are all pages, by file name; folder has them as they were generated last.
func pages(folder string) (map[string]string, error) {
	decided, err := tables(filepath.Join(folder, ".."))
	if err != nil {
		return nil, err
	}
	imports, err := importsPage(folder, decided)
	return map[string]string{"comity.md": comityPage(), "kubectl-comity.md": pluginPage(), importsName: imports}, err
}

// leaves are the commands that do something, in the order of their names.
func leaves(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range cmd.Commands() {
		switch {
		case !child.IsAvailableCommand():
		case child.HasAvailableSubCommands():
			all = append(all, leaves(child)...)
		default:
			all = append(all, child)
		}
	}
	return all
}

// index is a table of commands with links to their sections.
func index(commands []*cobra.Command) string {
	var out strings.Builder
	out.WriteString("| command | what it does |\n|---|---|\n")
	for _, cmd := range commands {
		fmt.Fprintf(&out, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	return out.String()
}

// section explains one command, with the flags that its parents do not have.
func section(cmd *cobra.Command) string {
	var out strings.Builder
	out.WriteString("## " + cmd.CommandPath() + "\n\n")
	fmt.Fprintf(&out, "```console\n%s\n```\n\n", cmd.UseLine())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	out.WriteString(block(text))
	if cmd.Example != "" {
		fmt.Fprintf(&out, "\n```console\n%s\n```\n", unindented(cmd.Example))
	}
	if own := cmd.NonInheritedFlags(); own.HasAvailableFlags() {
		out.WriteString("\n" + flagTable(own))
	}
	return out.String()
}

// block keeps the lines of a help text, which lists and examples depend on.
func block(text string) string { return "```text\n" + strings.TrimSpace(text) + "\n```\n" }

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// flagTable is a table of flags.
func flagTable(set *pflag.FlagSet) string {
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
