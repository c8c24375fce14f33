// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/comity-mcs/comity/test/install"
)

// dumpTimeout bounds the diagnosis of both clusters.
const dumpTimeout = 90 * time.Second

// dump writes what tells why a spec failed: objects, events and Comity's logs. No Secrets.
func dump() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	for _, m := range bothMembers() {
		if m == nil {
			continue
		}
		for _, args := range [][]string{
			{"get", "pods,services,endpointslices", "-A", "-o", "wide", "--show-labels"},
			{"describe", "serviceexports,serviceimports", "-A"},
			{"get", "exportrecords,namespacerecords,memberrecords,exportpolicies", "-A"},
			{"describe", "peers"},
			{"get", "events", "-A", "--sort-by", ".lastTimestamp"},
			{"describe", "pods", "-n", install.Namespace},
			{"logs", "-n", install.Namespace, "-l", "app.kubernetes.io/name=comity", "--prefix", "--tail", "150"},
		} {
			GinkgoWriter.Printf("\n---- cluster %s: kubectl %s\n%s", m.ID(), strings.Join(args, " "), m.run(ctx, args...))
		}
	}
}
