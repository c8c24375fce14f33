// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package arrows

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clientPlaces are where the agent makes a client, or a configuration for one, and what that
// leads to. Another cluster is reached only through remote.Transport, which bounds what is read.
var clientPlaces = map[string]string{
	"cmd/comity/app/run.go, 1: client.New":                             "its own cluster",
	"cmd/comity/app/run.go, 2: controller-runtime.NewManager":          "its own cluster",
	"cmd/comity/install/command.go, 1: client.New":                     "the cluster of the Job",
	"cmd/comity/install/command.go, 2: rest.InClusterConfig":           "the cluster of the Job",
	"cmd/comity/install/command.go, 3: clientcmd.BuildConfigFromFlags": "the cluster of whoever runs it",

	"sync/remote/transport.go, 1: http.Client":                        "a fresh connection, through remote.Transport",
	"sync/remote/transport.go, 2: rest.TLSConfigFor":                  "remote.Transport itself",
	"sync/remote/transport.go, 3: http.Transport":                     "remote.Transport itself",
	"sync/remote/transport.go, 4: coordination.NewForConfigAndClient": "the Lease of a peer, over a fresh connection",
	"sync/remote/transport.go, 5: kubeconfig.Sanitize":                "a configuration for a fresh connection",
	"sync/remote/transport.go, 6: core.NewForConfigAndClient":         "a token of a peer or of the hub, over a fresh connection",
	"sync/remote/feed.go, 1: rest.RESTClientForConfigAndClient":       "a peer, through the next one",
	"sync/remote/feed.go, 2: http.Client":                             "a peer, through remote.Transport",
	"sync/remote/kubeconfig/kubeconfig.go, 1: rest.Config":            "the credentials for remote.Transport",
	"sync/members/member.go, 1: kubeconfig.Sanitize":                  "a configuration for remote.Connect",

	"sync/hub/link.go, 1: kubeconfig.Sanitize": "the credentials for remote.Transport",
	"sync/hub/link.go, 2: rest.Config":         "an address that resolves nowhere",
	"sync/hub/hub.go, 1: http.Client":          "the hub, through its link, which has a remote.Transport",
	"sync/hub/hub.go, 2: cache.New":            "the hub, through the first one",
	"sync/hub/hub.go, 3: client.New":           "the hub, through the first one",
}

// makesClient finds what makes a client: types of which a value is made, and functions. The key is
// an import path, or the last element of one.
func makesClient(importPath, name string) bool {
	switch importPath {
	case "net/http":
		return slices.Contains([]string{"Client", "Transport", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"}, name)
	case "k8s.io/client-go/rest":
		return name == "Config" || strings.Contains(name, "InCluster") || strings.Contains(name, "For") && name != "DefaultServerUrlFor"
	case "k8s.io/client-go/transport":
		return name == "New"
	case "k8s.io/client-go/tools/clientcmd":
		return strings.Contains(name, "Config") && name != "ClientConfig"
	case "sigs.k8s.io/controller-runtime", "sigs.k8s.io/controller-runtime/pkg/client/config":
		return strings.HasPrefix(name, "GetConfig") || name == "NewManager"
	case module + "/sync/remote/kubeconfig":
		return name == "Sanitize"
	}
	if strings.HasPrefix(importPath, "sigs.k8s.io/controller-runtime/pkg/") {
		return slices.Contains([]string{"client", "cache", "cluster", "manager"}, path.Base(importPath)) && (name == "New" || name == "NewWithWatch")
	}
	return strings.HasPrefix(name, "NewForConfig")
}

// TestTheAgentReachesOtherClustersThroughOneTransport compares the places with the list. Joining is what
// the plugin does, with the rights of whoever calls it; probes reach no API server.
func TestTheAgentReachesOtherClustersThroughOneTransport(t *testing.T) {
	found := map[string]bool{}
	for _, p := range list(t) {
		if !under("sync", "webhook", "status", "policies", "cmd/comity")(p.name()) || under("sync/join", "cmd/comity/probe")(p.name()) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(shipped, filepath.FromSlash(p.name()), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for i, what := range clientsMadeIn(t, file) {
				found[fmt.Sprintf("%s/%s, %d: %s", p.name(), filepath.Base(file), i+1, what)] = true
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if clientPlaces[place] == "" {
			t.Errorf("every request of the agent to another cluster passes remote.Transport, which bounds what is read: "+
				"but %s makes a client; use one whose transport is a remote.Transport, and list the place", place)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(clientPlaces)) {
		if !found[place] {
			t.Errorf("%s is listed, and is gone", place)
		}
	}
}

// clientsMadeIn names what makes a client in a file, with the last element of its import path.
func clientsMadeIn(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]string{}
	for _, spec := range parsed.Imports {
		importPath := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		} else if importPath == "sigs.k8s.io/controller-runtime" {
			name = "controllerruntime"
		}
		imported[name] = importPath
	}
	pointers := map[ast.Expr]bool{} // *http.Client is a type; a value of it was made elsewhere
	var out []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if star, is := n.(*ast.StarExpr); is {
			pointers[star.X] = true
		}
		selector, is := n.(*ast.SelectorExpr)
		if !is || pointers[selector] {
			return true
		}
		if name, is := selector.X.(*ast.Ident); is && makesClient(imported[name.Name], selector.Sel.Name) {
			base := path.Base(imported[name.Name])
			if base == "v1" || base == "v1beta1" {
				base = path.Base(path.Dir(imported[name.Name]))
			}
			out = append(out, base+"."+selector.Sel.Name)
		}
		return true
	})
	return out
}
