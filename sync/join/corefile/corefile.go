// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coredns/corefile-migration/migration/corefile"
)

// Zone is the clusterset's, in the KEP's words its "clusterset.local".
const Zone = "clusterset.local"

// pluginName and optionName are where CoreDNS's configuration names the zone.
const (
	pluginName = "kubernetes"
	optionName = "multicluster"
)

// byHand is the advice where the change is not certain.
const byHand = "change the Corefile by hand: write " + Zone + " behind the cluster's own domain on the line of plugin " + pluginName +
	", and the line \"" + optionName + " " + Zone + "\" into its block, { ... }"

// Enable gives text with the zone. It gives text itself if the zone is there.
func Enable(text string) (string, error) {
	file, err := read(text)
	if err != nil || file.served() {
		return text, err
	}
	if file.ownBlock() {
		return "", errors.New("a server block takes all queries for " + Zone + "; expected that the block of the cluster's own domain serves the zone; remove that block")
	}
	domain, plugin, err := file.domain(text)
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if !names(line, domain) {
			continue
		}
		if !slices.Contains(words(line), Zone) {
			lines[i] = regexp.MustCompile(`(\s`+regexp.QuoteMeta(domain)+`)(\s|$)`).ReplaceAllString(line, "${1} "+Zone+"${2}")
		}
		begun := slices.ContainsFunc(plugin.Options, func(o *corefile.Option) bool { return o.Name == optionName })
		if words(line)[0] == pluginName && !begun {
			lines[i] += option(line, lines[min(i+1, len(lines)-1)])
		}
	}
	return check(text, strings.Join(lines, ""), true)
}

// option is the line that names the zone in the block of the plugin. It is indented as next.
func option(plugin, next string) string {
	indent := next[:len(next)-len(strings.TrimLeft(next, " \t"))]
	if outer := plugin[:strings.Index(plugin, pluginName)]; len(indent) <= len(outer) {
		indent = outer + "    "
	}
	end := "\n"
	if strings.HasSuffix(plugin, "\r\n") {
		end = "\r\n"
	}
	return indent + optionName + " " + Zone + end
}

var zoneWord = regexp.MustCompile(`[ \t]` + regexp.QuoteMeta(Zone) + `(\s|$)`)

// Disable gives text without what Enable adds.
func Disable(text string) (string, error) {
	file, err := read(text)
	if err != nil || !strings.Contains(text, Zone) {
		return text, err
	}
	if file.ownBlock() {
		return "", errors.New("the server block for " + Zone + " was not made by this command; remove it by hand")
	}
	domain, _, err := file.domain(text)
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(text) {
		if slices.Equal(words(line), []string{optionName, Zone}) {
			continue
		}
		if names(line, domain) {
			line = zoneWord.ReplaceAllString(line, "${1}")
		}
		lines = append(lines, line)
	}
	return check(text, strings.Join(lines, ""), false)
}

// words are those of a line before its comment.
func words(line string) []string {
	code, _, _ := strings.Cut(line, "#")
	return strings.Fields(code)
}

// names is true for the line of the plugin, and for those that keep the cluster's domain out
// of the cache: an answer for the zone would be out of date for the same reason.
func names(line, domain string) bool {
	w := words(line)
	return len(w) > 1 && (w[0] == pluginName || w[0] == "disable") && slices.Contains(w[1:], domain)
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

// domain is the first zone of the plugin that is not for reverse lookups: the cluster's own.
// It refuses a file in which the change is not one of single words and a line.
func (f file) domain(text string) (string, *corefile.Plugin, error) {
	var begins []string
	for line := range strings.Lines(text) {
		if w := words(line); len(w) > 0 && w[0] == pluginName {
			begins = append(begins, line)
		}
	}
	found := f.plugins()
	if len(found) != 1 || len(begins) != 1 {
		return "", nil, fmt.Errorf("expected plugin %s once, in a server block for the root zone \".\", and on a line of its own; %s", pluginName, byHand)
	}
	plugin := found[0]
	at := slices.IndexFunc(plugin.Args, func(zone string) bool { return !reverse(zone) && !isZone(zone) })
	switch {
	case at < 0 || !names(begins[0], plugin.Args[at]):
		return "", nil, fmt.Errorf("plugin %s does not name the cluster's own domain, such as \"%s cluster.local in-addr.arpa ip6.arpa\"; %s", pluginName, pluginName, byHand)
	case !strings.HasSuffix(begins[0], "\n") || !slices.Equal(words(begins[0]), append(append([]string{pluginName}, plugin.Args...), "{")):
		return "", nil, fmt.Errorf("plugin %s has no block, or more than one option on a line; %s", pluginName, byHand)
	}
	return plugin.Args[at], plugin, nil
}

// check reads the changed text again: the zone is there, or not, and nothing else is different.
func check(before, after string, enabled bool) (string, error) {
	was, errWas := read(before)
	is, errIs := read(after)
	if err := errors.Join(errWas, errIs); err != nil {
		return "", err
	}
	if is.served() != enabled || was.without() != is.without() {
		return "", errors.New("the changed Corefile would not be what is expected; " + byHand)
	}
	return after, nil
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

// NodeLocal takes the Corefile of NodeLocal DNSCache and gives the server block
// that it lacks: the one of the cluster's domain, for the zone. It is empty if
// the zone has a block already, or there is none to go by.
func NodeLocal(text string) string {
	f, err := read(text)
	if err != nil || f.ownBlock() {
		return ""
	}
	for _, server := range f.Servers {
		if zoneOf(server.DomPorts[0]) == "." || reverse(server.DomPorts[0]) {
			continue
		}
		server.DomPorts = []string{Zone + ":53"}
		// One block alone may listen on the address of the health check.
		server.Plugins = slices.DeleteFunc(server.Plugins, func(p *corefile.Plugin) bool { return p.Name == "health" })
		return strings.TrimSuffix(server.ToString(), "\n")
	}
	return ""
}
