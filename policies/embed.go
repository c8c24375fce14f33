// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies holds the policies of this repository, one folder a policy, and
// gives the Rego library that every policy may use.
//
// A folder has policy.rego, the module; params.yaml, its parameters, if it has any;
// policy.yaml, every other field of the spec; and tests. Three of them, the baseline,
// come with Comity; the others are there to be copied. README.md is for authors,
// INPUT.md describes the input and the answer of a policy. Package source reads folders,
// and test/tools/manifests turns them into manifests.
//
// It gives the library as it is and knows neither Rego nor a cluster: the engine
// compiles it. Tests beside it are left out.
package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// files holds a directory rather than patterns of files, so that a new file in it cannot
// be forgotten here.
//
//go:embed lib input-*.schema.json
var files embed.FS

// InputSchemaFile is the file here with the JSON Schema of the input of policies with a stage.
func InputSchemaFile(stage string) string { return "input-" + strings.ToLower(stage) + ".schema.json" }

// InputSchema is the content of InputSchemaFile.
func InputSchema(stage string) []byte { return content(InputSchemaFile(stage)) }

// Library is the Rego source of every library module by file name.
func Library() map[string]string {
	modules := map[string]string{}
	names, _ := fs.Glob(files, "lib/*.rego") // it fails for a malformed pattern alone
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.rego") {
			modules[name] = string(content(name))
		}
	}
	return modules
}

func content(file string) []byte {
	text, err := files.ReadFile(file)
	if err != nil { // nothing but the compiler fills files
		panic(fmt.Sprintf("policies: embedded file: %v", err))
	}
	return text
}
