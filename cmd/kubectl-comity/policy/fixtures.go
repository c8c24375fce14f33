// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
)

// readFixtures are the manifests in fixtures/ and testdata/ as tests find them in
// data.fixtures, by the name of the file without its suffix:
//
//	input     the input of a CREATE of the file's ServiceExport, as from the webhook
//	audit     the input of an audit of it
//	imports   the inputs of what the members of the file's Clusterset export, for
//	          policies with stage Import, by "<cluster>/<namespace>/<name>"
//
// input and audit are there if the file has a ServiceExport; more than one are an error.
func readFixtures(ctx context.Context, paths []string) (map[string]any, error) {
	all := map[string]any{}
	for _, path := range paths {
		base := filepath.Base(path)
		name := strings.TrimSuffix(base, filepath.Ext(base))
		if all[name] != nil {
			return nil, fmt.Errorf("%s: data.fixtures[%q] is of another file already; expected another name", path, name)
		}
		fixture, err := readFixture(ctx, path)
		if err != nil {
			return nil, err
		}
		all[name] = fixture
	}
	return all, nil
}

func readFixture(ctx context.Context, path string) (map[string]any, error) {
	m := newManifests()
	err := m.readFile(path, true)
	if err != nil {
		return nil, err
	}
	imports := map[string]any{}
	for _, in := range m.imports() {
		if imports[importName(in)], err = engine.InputJSON(engine.Writer{}.Import(in)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	fixture := map[string]any{"imports": imports}
	exports := m.keys()
	switch len(exports) {
	case 0:
		return fixture, nil
	case 1:
	default:
		return nil, fmt.Errorf("%s: the file has %d ServiceExports; expected one, whose input the fixture is", path, len(exports))
	}
	for key, operation := range map[string]decision.Operation{"input": decision.Create, "audit": decision.Audit} {
		request, _, refused := m.admit(m.request(exports[0], operation, nil))
		if refused != nil {
			return nil, fmt.Errorf("%s: %w", path, refused)
		}
		in, err := m.facts().Input(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; expected the Namespace in the same file", path, err)
		}
		if fixture[key], err = engine.InputJSON(engine.Writer{}.Export(in)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return fixture, nil
}
