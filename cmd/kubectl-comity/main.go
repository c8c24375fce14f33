// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-comity is the kubectl plugin that joins clusters and shows
// how they work together. kubectl runs it as `kubectl comity`.
package main

import (
	"os"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
)

func main() { os.Exit(app.Main(os.Args[1:])) }
