// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// dnsTimeout bounds one question; the answer comes from CoreDNS's memory.
const dnsTimeout = 2 * time.Second

// Lookup asks the cluster's CoreDNS for records of a type (A, AAAA or SRV) and
// gives them in order: addresses, or "port target". No such name is no records.
func (m *Member) Lookup(ctx context.Context, name, recordType string) ([]string, error) {
	kind, known := dns.StringToType[recordType]
	if !known {
		return nil, fmt.Errorf("%q is no type of DNS records", recordType)
	}
	// Headless answers may be many; TCP cuts none of them off.
	client := dns.Client{Net: "tcp", Timeout: dnsTimeout}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	answer, _, err := client.ExchangeContext(ctx, question, m.DNSAddress())
	if err != nil {
		return nil, fmt.Errorf("ask CoreDNS of %s at %s for %s %s: %w", m.ID(), m.DNSAddress(), recordType, name, err)
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("CoreDNS of %s answers %s to %s %s", m.ID(), dns.RcodeToString[answer.Rcode], recordType, name)
	}
	return records(answer.Answer), nil
}

// records are the values of resource records, sorted.
func records(answer []dns.RR) []string {
	var values []string
	for _, record := range answer {
		switch r := record.(type) {
		case *dns.A:
			values = append(values, r.A.String())
		case *dns.AAAA:
			values = append(values, r.AAAA.String())
		case *dns.SRV:
			values = append(values, fmt.Sprintf("%d %s", r.Port, r.Target))
		}
	}
	slices.Sort(values)
	return values
}
