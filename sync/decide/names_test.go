// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

// Two imports never hold one name, in whatever order names are chosen and given back.
func TestNamesAreHeldByOneImportEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := NewNames()
		imports := []types.NamespacedName{key("svc-adb"), key("svc-bbc"), key("web")}
		holds := map[types.NamespacedName]string{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := rapid.SampledFrom(imports).Draw(t, "import")
			giveBack := rapid.Bool().Draw(t, "give back")
			n.Choose(k, func(taken []string) string {
				holds[k] = ""
				if giveBack {
					return ""
				}
				for _, name := range []string{model.DerivedName(k.Name), model.AlternateDerivedName(k.Name)} {
					free := true
					for _, other := range taken {
						free = free && other != name
					}
					if free {
						holds[k] = name
						break
					}
				}
				if holds[k] == "" {
					t.Fatalf("no name left for %s", k)
				}
				return holds[k]
			})
			for a, name := range holds {
				for b, other := range holds {
					if a != b && name != "" && name == other {
						t.Fatalf("%s and %s both hold %s", a, b, name)
					}
				}
			}
		}
	})
}
