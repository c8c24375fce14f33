// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Zone is the clusterset's, in the KEP's words its "clusterset.local".
const Zone = "clusterset.local"

// pluginName and optionName are where CoreDNS's configuration names the zone.
const (
	pluginName = "kubernetes"
	optionName = "multicluster"
)

// blockNote is behind the option where Enable had to make the block around it,
// so that Disable removes the block as well.
const blockNote = "# with this block by kubectl comity"

// place is where the cluster's own domain is served.
type place struct {
	server, plugin *statement
	// domain is the first zone that is not for reverse lookups: the cluster's own.
	domain token
}

// Enable gives text with the zone. It gives text itself if the zone is there.
func Enable(text string) (string, error) {
	servers, err := read(text)
	if err != nil {
		return "", err
	}
	if served(servers) {
		return text, nil
	}
	if own := ownBlock(servers); own != nil {
		return "", fmt.Errorf("line %d: the server block %q takes all queries for %s; expected that the block of the cluster's own domain serves the zone; remove that block",
			own.words[0].line, own.name(), Zone)
	}
	at, err := find(servers)
	if err != nil {
		return "", err
	}
	edits, err := at.enable(text)
	if err != nil {
		return "", err
	}
	changed, err := apply(text, edits)
	if err != nil {
		return "", err
	}
	return check(text, changed, true)
}

// Disable gives text without what Enable adds.
func Disable(text string) (string, error) {
	servers, err := read(text)
	if err != nil {
		return "", err
	}
	if own := ownBlock(servers); own != nil {
		return "", fmt.Errorf("line %d: the server block %q was not made by this command; remove it by hand", own.words[0].line, own.name())
	}
	var edits []edit
	for _, server := range servers {
		for _, plugin := range server.inner {
			if plugin.name() == pluginName && covers(server) {
				edits = append(edits, place{server: server, plugin: plugin}.disable(text)...)
			}
		}
	}
	// Two plugins in one server block share its cache.
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	changed, err := apply(text, slices.Compact(edits))
	if err != nil {
		return "", err
	}
	return check(text, changed, false)
}

// Enabled is true if text serves the zone.
func Enabled(text string) bool {
	servers, err := read(text)
	return err == nil && served(servers)
}

// Reloads is true if CoreDNS reads a changed Corefile by itself.
func Reloads(text string) bool {
	return slices.ContainsFunc(parse(text), func(server *statement) bool { return server.has("reload") })
}

func (s *statement) has(plugin string) bool {
	return slices.ContainsFunc(s.inner, func(p *statement) bool { return p.name() == plugin })
}

// read parses text and refuses what cannot be edited word by word.
func read(text string) ([]*statement, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("the Corefile is empty; expected a server block with the plugin %s", pluginName)
	}
	servers := parse(text)
	// The library panics where braces do not match, so it comes last.
	if !utf8.ValidString(text) || servers == nil || !agrees(servers, text) {
		return nil, errUncertain
	}
	return servers, nil
}

// byHand is the advice where no place is certain.
const byHand = "write " + Zone + " behind the cluster's domain on the line of plugin " + pluginName + ", and \"" + optionName + " " + Zone + "\" into its block"

var errUncertain = errors.New("the Corefile cannot be read with certainty (quotes, braces or comments in unusual places); change it by hand: " + byHand)

// served is true if some server block has the zone and the option.
func served(servers []*statement) bool {
	for _, server := range servers {
		for _, plugin := range server.inner {
			at := place{server: server, plugin: plugin}
			if plugin.name() == pluginName && covers(server) && at.zone() != nil && at.option() != nil {
				return true
			}
		}
	}
	return false
}

// ownBlock is the server block for the zone alone, if there is one.
func ownBlock(servers []*statement) *statement {
	for _, server := range servers {
		if slices.ContainsFunc(server.words, func(key token) bool { return zoneOf(key.text) == Zone+"." }) {
			return server
		}
	}
	return nil
}

// find gives the one place where the cluster's domain is served and queries for
// the zone arrive.
func find(servers []*statement) (place, error) {
	var found []place
	var elsewhere *statement
	for _, server := range servers {
		for _, plugin := range server.inner {
			if plugin.name() != pluginName {
				continue
			}
			if elsewhere = plugin; covers(server) {
				found = append(found, place{server: server, plugin: plugin})
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0].withDomain()
	case len(found) > 1:
		return place{}, fmt.Errorf("lines %d and %d: plugin %s is there more than once, and it is not certain which one serves the cluster's Pods; add the zone by hand: %s",
			found[0].plugin.words[0].line, found[1].plugin.words[0].line, pluginName, byHand)
	case elsewhere != nil:
		return place{}, fmt.Errorf("line %d: plugin %s is in a server block that gets no queries for %s; expected one for the root zone \".\"; add a server block %s:53 by hand, with \"%s %s { %s %s }\"",
			elsewhere.words[0].line, pluginName, Zone, Zone, pluginName, Zone, optionName, Zone)
	}
	return place{}, fmt.Errorf("no server block has plugin %s; expected the Corefile of a cluster's own DNS", pluginName)
}

func (p place) withDomain() (place, error) {
	for _, zone := range p.plugin.args() {
		if !reverse(zone.text) && zoneOf(zone.text) != Zone+"." {
			p.domain = zone
			return p, nil
		}
	}
	return p, fmt.Errorf("line %d: plugin %s names no zone but those for reverse lookups, so that it serves those of its server block; name them, such as \"%s cluster.local in-addr.arpa ip6.arpa\"",
		p.plugin.words[0].line, pluginName, pluginName)
}

// zone is the word that names the zone on the plugin's line.
func (p place) zone() *token { return zoneAmong(p.plugin.args()) }

// option is the word that names the zone in the option multicluster.
func (p place) option() *token {
	for _, option := range p.plugin.inner {
		if option.name() == optionName {
			if zone := zoneAmong(option.args()); zone != nil {
				return zone
			}
		}
	}
	return nil
}

func zoneAmong(words []token) *token {
	for i, word := range words {
		if zoneOf(word.text) == Zone+"." {
			return &words[i]
		}
	}
	return nil
}

// covers is true if queries for the zone arrive in server.
func covers(server *statement) bool {
	return slices.ContainsFunc(server.words, func(key token) bool {
		zone := zoneOf(key.text)
		return zone == "." || zone == "local." || zone == Zone+"."
	})
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

// reverse is true for zones of reverse lookups, as names or as address ranges.
func reverse(zone string) bool {
	return strings.HasSuffix(zoneOf(zone), ".arpa.") || strings.Contains(zone, "/")
}

// Port is where the server block that serves the zone listens: 53 if it says nothing.
func Port(text string) int {
	for _, server := range parse(text) {
		if !covers(server) || !server.has(pluginName) {
			continue
		}
		for _, key := range server.words {
			_, after, _ := strings.Cut(strings.TrimPrefix(key.text, "dns://"), ":")
			if port, err := strconv.Atoi(after); err == nil {
				return port
			}
		}
	}
	return 53
}

// NodeLocal takes the Corefile of NodeLocal DNSCache and gives the server block
// that it lacks: the one of the cluster's domain, for the zone. It is empty if
// the zone has a block already, or there is none to go by.
func NodeLocal(text string) string {
	servers := parse(text)
	if ownBlock(servers) != nil {
		return ""
	}
	for _, server := range servers {
		zone := zoneOf(server.name())
		if zone == "." || reverse(server.name()) || server.closing == nil {
			continue
		}
		key := server.words[0]
		edits := []edit{{start: key.start, end: key.end, with: Zone + ":53"}}
		for _, plugin := range server.inner {
			// One block alone may listen on the address of the health check.
			if plugin.name() == "health" {
				edits = append(edits, removeLine(text, plugin))
			}
		}
		for i := range edits {
			edits[i].start, edits[i].end = edits[i].start-key.start, edits[i].end-key.start
		}
		block, err := apply(text[key.start:server.closing.end], edits)
		if err != nil {
			return ""
		}
		return block
	}
	return ""
}
