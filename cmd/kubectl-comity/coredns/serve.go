// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"time"

	"github.com/miekg/dns"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

// askTimeout bounds one question to one replica. A server that forwards the zone
// to nobody takes some seconds to say so.
const askTimeout = 10 * time.Second

// servesZone asks one replica whether it answers for the zone by itself. The
// question goes through the API server, so that it needs no way into the cluster.
func servesZone(ctx context.Context, target *command.Target, pod string, port int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	address, err := agent.Forward(ctx, target, namespace, pod, port)
	if err != nil {
		return false, err
	}
	question := new(dns.Msg)
	question.SetQuestion(corefile.Zone+".", dns.TypeSOA)
	client := dns.Client{Net: "tcp", Timeout: askTimeout}
	answer, _, err := client.ExchangeContext(ctx, question, address)
	if err != nil {
		return false, err
	}
	return answer.Rcode == dns.RcodeSuccess && answer.Authoritative && len(answer.Answer) > 0, nil
}
