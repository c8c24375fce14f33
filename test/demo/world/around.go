// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import "net"

// LookAround says how to use the clusters while they run.
func (w *World) LookAround() {
	w.Out.Print("\nEverything runs until you press Ctrl-C. In another terminal:")
	w.Out.Output("export KUBECONFIG=" + w.Kubeconfig() + "\n" +
		w.kubectl + " --context cluster-2 get serviceimports -A")
	for _, m := range w.Members {
		w.Out.Output(w.backend.logs(m.ID()))
	}
	for _, m := range w.Members {
		if host, port, err := net.SplitHostPort(m.DNSAddress()); err == nil {
			w.Out.Output("dig +short @" + host + " -p " + port + " web-service.default.svc.clusterset.local   # CoreDNS of " + m.ID())
		}
	}
}
