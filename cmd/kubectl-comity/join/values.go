// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/x509"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// hubID is what the hub is called in --server and --ca.
const hubID = "hub"

// perCluster is what is given for clusters by id, such as --server a=https://….
type perCluster struct {
	servers, cas, podCIDRs, serviceCIDRs, accepted, namespaces, ids []string
}

// apply sets the values on clusters, and on hub, which may be nil.
func (v perCluster) apply(sites []site, clusters []join.Cluster, hub *join.Hub) error {
	for _, set := range []struct {
		flag   string
		values []string
		put    func(*join.Cluster, string) error
	}{
		{"--server", v.servers, func(c *join.Cluster, text string) error { c.Server = text; return nil }},
		{"--ca", v.cas, func(c *join.Cluster, text string) (err error) { c.CAData, err = readCA(text); return err }},
		{"--pod-cidrs", v.podCIDRs, func(c *join.Cluster, text string) (err error) { c.PodCIDRs, err = parseRanges(text); return err }},
		{"--service-cidrs", v.serviceCIDRs, func(c *join.Cluster, text string) (err error) { c.ServiceCIDRs, err = parseRanges(text); return err }},
	} {
		for _, value := range set.values {
			id, text, err := split(set.flag, value)
			if err != nil {
				return err
			}
			if err := putOne(sites, clusters, hub, set.flag, id, text, set.put); err != nil {
				return err
			}
		}
	}
	return v.applyAccepted(sites, clusters)
}

func putOne(sites []site, clusters []join.Cluster, hub *join.Hub, flag, id, text string, put func(*join.Cluster, string) error) error {
	i := slices.IndexFunc(clusters, func(c join.Cluster) bool { return string(c.ID) == id })
	if i < 0 && id == hubID && hub != nil && (flag == "--server" || flag == "--ca") {
		at := join.Cluster{Server: hub.Server, CAData: hub.CAData}
		if err := put(&at, text); err != nil {
			return command.Refusedf("%s %s=%s: %w", flag, id, text, err)
		}
		hub.Server, hub.CAData = at.Server, at.CAData
		return nil
	}
	if i < 0 {
		return command.Refusedf("%s %s=%s: no given cluster has the id %s; expected one of: %s", flag, id, text, id, idsOf(sites))
	}
	if err := put(&clusters[i], text); err != nil {
		return command.Refusedf("%s %s=%s: %w", flag, id, text, err)
	}
	return nil
}

// applyAccepted sets what all other clusters accept from the one that is named.
func (v perCluster) applyAccepted(sites []site, clusters []join.Cluster) error {
	err := forOthers(sites, clusters, "--accept-cidrs", v.accepted, func(text string) (func(*join.Cluster, model.ClusterID), error) {
		ranges, err := parseRanges(text)
		return func(c *join.Cluster, from model.ClusterID) {
			if c.AcceptedFrom == nil {
				c.AcceptedFrom = map[model.ClusterID][]netip.Prefix{}
			}
			c.AcceptedFrom[from] = ranges
		}, err
	})
	if err != nil {
		return err
	}
	return forOthers(sites, clusters, "--accept-namespaces", v.namespaces, func(text string) (func(*join.Cluster, model.ClusterID), error) {
		namespaces, err := parseNamespaces(text)
		return func(c *join.Cluster, from model.ClusterID) {
			if c.NamespacesFrom == nil {
				c.NamespacesFrom = map[model.ClusterID]model.Namespaces{}
			}
			c.NamespacesFrom[from] = namespaces
		}, err
	})
}

// forOthers applies each value, ID=TEXT, to all clusters but the one that it names.
func forOthers(sites []site, clusters []join.Cluster, flag string, values []string, parse func(string) (func(*join.Cluster, model.ClusterID), error)) error {
	for _, value := range values {
		id, text, err := split(flag, value)
		if err != nil {
			return err
		}
		put, err := parse(text)
		if err != nil {
			return command.Refusedf("%s %s: %w", flag, value, err)
		}
		if !slices.ContainsFunc(clusters, func(c join.Cluster) bool { return string(c.ID) == id }) {
			return command.Refusedf("%s %s: no given cluster has the id %s; expected one of: %s", flag, value, id, idsOf(sites))
		}
		for i := range clusters {
			if string(clusters[i].ID) != id {
				put(&clusters[i], model.ClusterID(id))
			}
		}
	}
	return nil
}

// checkIDs refuses ids that differ from those of the agents.
func (v perCluster) checkIDs(sites []site) error {
	for _, value := range v.ids {
		name, id, err := split("--id", value)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(sites, func(s site) bool { return s.target.Context == name })
		if i < 0 {
			return command.Refusedf("--id %s: %q is not among the given contexts", value, name)
		}
		if has := sites[i].agent.ID; string(has) != id {
			return command.Refusedf("--id %s: the agent in context %q says that its cluster is %s; install it again with clusterID=%s, or correct the flag", value, name, has, id)
		}
	}
	return nil
}

func split(flag, value string) (key, text string, err error) {
	key, text, found := strings.Cut(value, "=")
	if !found || key == "" || text == "" {
		return "", "", command.Refusedf("%s %q: expected KEY=VALUE, such as %s", flag, value, examples[flag])
	}
	return key, text, nil
}

var examples = map[string]string{
	"--accept-namespaces": "a=shop,team-*",
	"--server":            "a=https://10.0.0.1:6443",
	"--ca":                "a=ca.crt",
	"--pod-cidrs":         "a=10.1.0.0/16,fd00:1::/48",
	"--service-cidrs":     "a=10.96.0.0/12",
	"--accept-cidrs":      "a=10.1.0.0/16",
	"--id":                "CONTEXT=ID",
}

func parseRanges(text string) ([]netip.Prefix, error) {
	ranges := []netip.Prefix{}
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil || prefix != prefix.Masked() {
			return nil, command.Refusedf("%q is not an address range; expected ranges separated by commas, such as 10.1.0.0/16,fd00:1::/48, with no bit set behind the prefix", part)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func readCA(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return nil, command.Refusedf("the file holds no PEM certificate; expected the bundle that verifies the API server")
	}
	return data, nil
}
