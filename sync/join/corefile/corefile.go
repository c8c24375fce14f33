// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/coredns/corefile-migration/migration/corefile"

	"github.com/comity-mcs/comity/sync/model"
)

// Zone is the clusterset's, in the KEP's words its "clusterset.local".
const Zone = "clusterset.local"

// pluginName and optionName are where CoreDNS's configuration names the zone.
const (
	pluginName = "kubernetes"
	optionName = "multicluster"
)

// Enable gives text with the zone. It gives text itself if the zone is there.
func Enable(text string) (string, error) { return edit(text, true) }

// Disable gives text without what Enable adds.
func Disable(text string) (string, error) { return edit(text, false) }

var zoneWord = regexp.MustCompile(`[ \t]` + regexp.QuoteMeta(Zone) + `(\s|$)`)

// edit changes single words and one line, so that comments and the rest of the form stay. What
// was begun by hand is taken out first.
func edit(text string, enable bool) (string, error) {
	before, err := read(text)
	if err != nil || enable && before.served() || !enable && !strings.Contains(text, Zone) {
		return text, err
	}
	if before.ownBlock() {
		return "", errors.New("a server block takes all queries for " + Zone + "; expected that the block of the cluster's own domain serves the zone; remove that block by hand")
	}
	domain := before.domain()
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		w := words(line)
		if slices.Equal(w, []string{optionName, Zone}) {
			continue
		}
		if !slices.Contains(w, domain) || w[0] != "disable" && (w[0] != pluginName || w[len(w)-1] != "{" || i+1 == len(lines)) {
			out.WriteString(line)
			continue
		}
		line = zoneWord.ReplaceAllString(line, "${1}")
		if enable {
			line = regexp.MustCompile(`(\s`+regexp.QuoteMeta(domain)+`)(\s|$)`).ReplaceAllString(line, "${1} "+Zone+"${2}")
		}
		out.WriteString(line)
		if enable && w[0] == pluginName {
			next := lines[i+1]
			out.WriteString(next[:len(next)-len(strings.TrimLeft(next, " \t"))] + optionName + " " + Zone + "\n")
		}
	}
	// Read again, the zone is there, or not, and nothing else is different.
	after, err := read(out.String())
	if err != nil || domain == "" || after.served() != enable || before.without() != after.without() {
		return "", errors.New("the place for the zone is not certain; expected plugin " + pluginName + " once, in a server block for the root zone \".\", with the cluster's own domain " +
			"on its line, each option on a line of its own, and no other zone of option " + optionName + "; change the Corefile by hand: write " + Zone +
			" behind the cluster's own domain, and the line \"" + optionName + " " + Zone + "\" into the block of the plugin, { ... }")
	}
	return out.String(), nil
}

// words are those of a line before its comment.
func words(line string) []string {
	code, _, _ := strings.Cut(line, "#")
	return strings.Fields(code)
}

// file is a Corefile as the library of kubeadm reads it.
type file struct{ *corefile.Corefile }

func read(text string) (f file, err error) {
	defer func() {
		if recover() != nil { // the library panics where braces do not match
			err = errors.New("the Corefile cannot be read; expected server blocks in matching braces")
		}
	}()
	parsed, err := corefile.New(text)
	return file{parsed}, err
}

// plugins are all plugins kubernetes that get queries for the zone.
func (f file) plugins() (found []*corefile.Plugin) {
	for _, server := range f.Servers {
		if slices.ContainsFunc(server.DomPorts, covers) {
			for _, plugin := range server.Plugins {
				if plugin.Name == pluginName {
					found = append(found, plugin)
				}
			}
		}
	}
	return found
}

// served is true if some server block has the zone and the option.
func (f file) served() bool {
	return slices.ContainsFunc(f.plugins(), func(plugin *corefile.Plugin) bool {
		return slices.ContainsFunc(plugin.Args, isZone) && slices.ContainsFunc(plugin.Options, func(option *corefile.Option) bool {
			return option.Name == optionName && slices.ContainsFunc(option.Args, isZone)
		})
	})
}

// ownBlock is true if there is a server block for the zone alone.
func (f file) ownBlock() bool {
	return slices.ContainsFunc(f.Servers, func(server *corefile.Server) bool { return slices.ContainsFunc(server.DomPorts, isZone) })
}

// domain is the first zone of the plugin that is not for reverse lookups: the cluster's own. It
// is empty where not one plugin alone may get the zone. An answer for the zone must stay out of
// the cache for the same reason as one for this domain, so that it is beside it there.
func (f file) domain() string {
	found := f.plugins()
	if len(found) != 1 || slices.ContainsFunc(found[0].Options, func(o *corefile.Option) bool {
		return o.Name == optionName && (len(o.Args) != 1 || !isZone(o.Args[0]))
	}) {
		return ""
	}
	domain, _ := model.Find(found[0].Args, func(zone string) bool { return !reverse(zone) && !isZone(zone) })
	return domain
}

// without is what a Corefile says apart from the zone. It changes f.
func (f file) without() string {
	for _, server := range f.Servers {
		for _, plugin := range server.Plugins {
			if plugin.Name == pluginName {
				plugin.Args = slices.DeleteFunc(plugin.Args, isZone)
			}
			for _, option := range plugin.Options {
				if option.Name == optionName || option.Name == "disable" {
					option.Args = slices.DeleteFunc(option.Args, isZone)
				}
			}
			plugin.Options = slices.DeleteFunc(plugin.Options, func(o *corefile.Option) bool { return o.Name == optionName && len(o.Args) == 0 })
		}
	}
	return f.ToString()
}

// zoneOf is the zone that a key of a server block, or an argument, names: no
// scheme, no port, lower case, with a final dot.
func zoneOf(key string) string {
	if _, rest, found := strings.Cut(key, "://"); found {
		key = rest
	}
	if at := strings.LastIndexByte(key, ':'); at >= 0 && strings.Trim(key[at+1:], "0123456789") == "" {
		key = key[:at]
	}
	return strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(key, ",")), ".") + "."
}

func isZone(word string) bool { return zoneOf(word) == Zone+"." }

// covers is true if queries for the zone arrive in the server block of a key.
func covers(key string) bool {
	zone := zoneOf(key)
	return zone == "." || zone == "local." || isZone(key)
}

// reverse is true for zones of reverse lookups, as names or as address ranges.
func reverse(zone string) bool {
	return strings.HasSuffix(zoneOf(zone), ".arpa.") || strings.Contains(zone, "/")
}
