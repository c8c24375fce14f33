// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// hostOf is the clusterset name of a service.
func hostOf(ns, name string) string { return name + "." + ns + ".svc.clusterset.local." }

// lookup asks m's CoreDNS: addresses, or port and target of SRV records, sorted;
// the code if it is an error.
func lookup(m *clusterset.Member, name string, kind uint16) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		question := new(dns.Msg)
		question.SetQuestion(name, kind)
		answer, _, err := (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, question, m.DNSAddress())
		if err != nil {
			return nil, err
		}
		if answer.Rcode != dns.RcodeSuccess {
			return []string{dns.RcodeToString[answer.Rcode]}, nil
		}
		out := []string{}
		for _, record := range answer.Answer {
			switch r := record.(type) {
			case *dns.A:
				out = append(out, r.A.String())
			case *dns.AAAA:
				address, _ := netip.AddrFromSlice(r.AAAA)
				out = append(out, address.String())
			case *dns.SRV:
				out = append(out, fmt.Sprintf("%d %s", r.Port, r.Target))
			}
		}
		slices.Sort(out)
		return out, nil
	}
}
