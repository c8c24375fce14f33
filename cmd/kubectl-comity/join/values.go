// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// perCluster is what is given for clusters by id, such as --server a=https://….
type perCluster map[string]*map[string]string

func (v perCluster) addFlag(flags *pflag.FlagSet, name, usage string) {
	v[name] = flags.StringToString(name, nil, usage+" (repeatable)")
}

// set puts the value of a flag into a cluster.
func set(c *join.Cluster, flag, text string) (err error) {
	items := strings.Split(text, ",")
	switch flag {
	case "server":
		c.Server = text
	case "ca":
		c.CAData, err = readCA(text)
	case "pod-cidrs":
		c.PodCIDRs, err = model.ParsePrefixes(items)
	case "service-cidrs":
		c.ServiceCIDRs, err = model.ParsePrefixes(items)
	case "accept-cidrs":
		c.AcceptedCIDRs, err = model.ParsePrefixes(items)
	case "accept-namespaces":
		c.AcceptedNamespaces = items
	}
	return err
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
			if err := set(c, flag, text); err != nil {
				return fmt.Errorf("--%s %s=%s: %w", flag, id, text, err)
			}
		}
	}
	return nil
}

func readCA(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		err = errors.New("the file holds no PEM certificate; expected the bundle that verifies the API server")
	}
	return data, err
}
