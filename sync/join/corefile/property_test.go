// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/join/corefile"
)

// drawCorefile gives files as people write them: comments, tabs, quotes, blank
// lines, several server blocks, options in any order, the zone half configured.
func drawCorefile(t *rapid.T) string {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	comment := func() string { return pick("comment", "", "", " # why", " # { not a brace", " #\"") }
	var out strings.Builder
	end := pick("line end", "\n", "\n", "\r\n")
	line := func(indent, text string) {
		if rapid.IntRange(0, 9).Draw(t, "blank") == 0 {
			out.WriteString(indent + pick("empty line", "", "# a comment", "\t") + end)
		}
		out.WriteString(indent + text + comment() + end)
	}
	tab := pick("indent", "    ", "\t", "  ")
	for range rapid.IntRange(1, 3).Draw(t, "servers") {
		line("", pick("key", ".:53", ".", "dns://.:1053", "example.org:53", "cluster.local", "\".:53\"", "clusterset.local:53")+" {")
		for range rapid.IntRange(0, 4).Draw(t, "plugins") {
			switch pick("plugin", "plain", "block", "cache", "kubernetes", "kubernetes") {
			case "plain":
				line(tab, pick("name", "errors", "ready", "reload", "forward . \"/etc/resolv.conf\"", "prometheus :9153"))
			case "block":
				line(tab, "health {")
				line(tab+tab, "lameduck 5s")
				line(tab, "}")
			case "cache":
				line(tab, "cache 30 {")
				line(tab+tab, "disable success "+pick("zones", "cluster.local", "k8s.example cluster.local", "clusterset.local", "cluster.local clusterset.local"))
				line(tab, "}")
			case "kubernetes":
				zones := pick("zones", "cluster.local", "cluster.local in-addr.arpa ip6.arpa", "in-addr.arpa k8s.example", "cluster.local clusterset.local", "CLUSTER.local.", "")
				if rapid.Bool().Draw(t, "no block") {
					line(tab, strings.TrimSpace("kubernetes "+zones))
					continue
				}
				line(tab, strings.TrimSpace("kubernetes "+zones)+" {")
				for range rapid.IntRange(0, 3).Draw(t, "options") {
					line(tab+tab, pick("option", "ttl 30", "pods insecure", "multicluster other.example", "multicluster clusterset.local", "fallthrough in-addr.arpa"))
				}
				line(tab, "}")
			}
		}
		line("", "}")
	}
	return out.String()
}

var comments = regexp.MustCompile(`#[^\r\n]*`)

// ours is the line that the commands write and remove, with what is behind it.
var ours = regexp.MustCompile(`(?m)^\s*multicluster clusterset.local.*$`)

// both gives what Enable and Disable make of text; ok is false if one refuses.
func both(text string) (enabled, disabled string, ok bool) {
	enabled, errEnable := corefile.Enable(text)
	disabled, errDisable := corefile.Disable(text)
	return enabled, disabled, errEnable == nil && errDisable == nil
}

// checkProperties is what holds for every text that is not refused, whoever wrote it.
func checkProperties(text string) error {
	enabled, without, ok := both(text)
	if !ok {
		return nil // A refusal changes nothing.
	}
	if !corefile.Enabled(enabled) {
		return fmt.Errorf("it is not enabled after Enable:\n%s", enabled)
	}
	again, disabled, ok := both(enabled)
	if !ok || again != enabled {
		return fmt.Errorf("a second Enable or the Disable behind it is refused (%t), or changes something:\n%s", !ok, again)
	}
	if was, is := comments.FindAllString(ours.ReplaceAllString(text, ""), -1), comments.FindAllString(enabled, -1); len(is) < len(was) {
		return fmt.Errorf("comments %q became %q", was, is)
	}
	if again, err := corefile.Disable(disabled); err != nil || again != disabled {
		return fmt.Errorf("a second Disable is refused (%t), or changes something:\n%s", err != nil, again)
	}
	// What was there before by hand goes as well.
	want := without
	if !strings.Contains(strings.ToLower(text), corefile.Zone) {
		want = text
	}
	if disabled != want {
		return fmt.Errorf("the Disable does not undo Enable:\n%q\n%q", want, disabled)
	}
	return nil
}

func TestDisableUndoesEnableInAnyFile(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawCorefile(t)
		if _, err := corefile.Enable(text); err == nil {
			accepted++
		}
		if err := checkProperties(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
	if accepted == 0 {
		t.Error("no drawn file was accepted: the property was not tested")
	}
}

func FuzzEnableDisable(f *testing.F) {
	for _, seed := range []string{kubeadm, kubeadmEnabled, ".:53 {\n kubernetes cluster.local # x\n}", ".{\nkubernetes a#b\n}", "\uFEFF. {\r\n kubernetes \"cl\nuster\" {\n}\n}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := checkProperties(text); err != nil {
			t.Fatal(err)
		}
	})
}
