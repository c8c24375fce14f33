// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command comity is the agent that runs in every member cluster: webhook,
// status controller and sync loop in one process.
package main

import (
	"os"

	"github.com/comity-mcs/comity/cmd/comity/app"
)

func main() { os.Exit(app.Main(app.DefaultOptions(), os.Args[1:])) }
