// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// NewCommand is `comity probe`; version is that of the binary.
func NewCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "probe",
		Short: "Check which API servers and addresses can be reached from here; used by kubectl comity join",
		Long: `Read a request as JSON from standard input and print the response as JSON:

  in:  {"servers": [{"url": "https://10.0.0.1:6443", "ca": "<base64 of PEM>"}], "addresses": ["10.244.1.5:8081"], "timeoutSeconds": 5}
  out: {"version": "...", "servers": [{"target": "...", "error": "...", "milliseconds": 1.2}], "addresses": [...]}

The exit code is 0 if the checks were made, whatever they found. No credential is sent.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var request Request
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&request); err != nil {
				return fmt.Errorf("standard input is no request: %w; expected JSON, see comity probe --help", err)
			}
			response := Run(cmd.Context(), request)
			response.Version = version
			return json.NewEncoder(cmd.OutOrStdout()).Encode(response)
		},
	}
}
