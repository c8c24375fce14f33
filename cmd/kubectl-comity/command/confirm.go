// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Confirmation is the flag --yes of commands that ask before they write what cannot be
// taken back.
type Confirmation struct{ Yes bool }

// AddFlags registers --yes.
func (c *Confirmation) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.Yes, "yes", "y", false, "Do not ask; required if the input is not a terminal")
}

// Ask shows what will happen and gives an error unless the user agrees to it.
func (c *Confirmation) Ask(env *Env, what string) error {
	_, _ = fmt.Fprint(env.ErrOut, what)
	if c.Yes {
		return nil
	}
	if !env.IsTerminal(env.In) {
		return fmt.Errorf("the input is not a terminal, so nobody can be asked; pass --yes to continue")
	}
	_, _ = fmt.Fprint(env.ErrOut, "Continue? [y/N] ")
	answer, err := bufio.NewReader(env.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return fmt.Errorf("the answer was not yes; nothing was written")
	}
	return nil
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
