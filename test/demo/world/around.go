// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import "net"

// LookAround says how to use the clusters while they run.
func (w *World) LookAround() {
	w.Tell.Say("\nAll of it runs until you press Ctrl-C. In another terminal:")
	w.Tell.Output("export KUBECONFIG=" + w.Kubeconfig() + "\n" +
		w.kubectl + " --context cluster-2 get serviceimports -A")
	for _, m := range w.Members {
		w.Tell.Output(w.backend.logs(m.ID()))
	}
	for _, m := range w.Members {
		if host, port, err := net.SplitHostPort(m.DNSAddress()); err == nil {
			w.Tell.Output("dig +short @" + host + " -p " + port + " web-service.default.svc.clusterset.local   # CoreDNS of " + m.ID())
		}
	}
}
