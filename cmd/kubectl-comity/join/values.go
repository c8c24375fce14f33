// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/comity-mcs/comity/sync/join"
)

// perCluster is what is given for clusters by id, such as --server a=https://….
type perCluster map[string]*map[string]string

func (v perCluster) addFlag(flags *pflag.FlagSet, name, usage string) {
	v[name] = flags.StringToString(name, nil, usage+" (repeatable)")
}

// setters put the value of a flag into a cluster.
var setters = map[string]func(*join.Cluster, string) error{
	"server":            func(c *join.Cluster, text string) error { c.Server = text; return nil },
	"ca":                func(c *join.Cluster, text string) (err error) { c.CAData, err = readCA(text); return err },
	"pod-cidrs":         func(c *join.Cluster, text string) (err error) { c.PodCIDRs, err = parseRanges(text); return err },
	"service-cidrs":     func(c *join.Cluster, text string) (err error) { c.ServiceCIDRs, err = parseRanges(text); return err },
	"accept-cidrs":      func(c *join.Cluster, text string) (err error) { c.AcceptedCIDRs, err = parseRanges(text); return err },
	"accept-namespaces": func(c *join.Cluster, text string) error { c.AcceptedNamespaces = strings.Split(text, ","); return nil },
}

// apply sets the values on clusters, and on hub, which may be nil.
func (v perCluster) apply(clusters []join.Cluster, hub *join.Cluster) error {
	for _, flag := range slices.Sorted(maps.Keys(v)) {
		for _, id := range slices.Sorted(maps.Keys(*v[flag])) {
			text := (*v[flag])[id]
			c := hub
			if i := slices.IndexFunc(clusters, func(c join.Cluster) bool { return string(c.ID) == id }); i >= 0 {
				c = &clusters[i]
			} else if hub == nil || id != string(join.HubID) || flag != "server" && flag != "ca" {
				return fmt.Errorf("--%s %s=%s: no given cluster has the id %s; expected one of: %s", flag, id, text, id, idsOf(clusters))
			}
			if err := setters[flag](c, text); err != nil {
				return fmt.Errorf("--%s %s=%s: %w", flag, id, text, err)
			}
		}
	}
	return nil
}

func parseRanges(text string) (ranges []netip.Prefix, err error) {
	ranges = []netip.Prefix{}
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range; expected ranges separated by commas, such as 10.1.0.0/16,fd00:1::/48", part)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func readCA(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		err = errors.New("the file holds no PEM certificate; expected the bundle that verifies the API server")
	}
	return data, err
}
