// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// Explain says in plain words why a connection failed. The cases are those that
// an administrator fixes in different places: DNS, the server, a firewall, the
// route, the CA, the address in the certificate, the clock.
func Explain(err error) string {
	if text := explainTLS(err); text != "" {
		return text
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("cannot resolve %s: no such host", dns.Name)
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot resolve %s: the DNS server does not answer (%s)", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens there, or a firewall rejects it"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the address"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the other side or a firewall"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "timed out: no answer; a firewall may drop the packets, or no route leads back"
	case strings.Contains(err.Error(), http.ErrSchemeMismatch.Error()):
		return "answers HTTP, expected HTTPS"
	}
	return err.Error()
}

// explainTLS explains why a certificate is refused, "" for other errors.
func explainTLS(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		header  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknown):
		return "certificate not signed by the CA" + issuer(unknown.Cert)
	case errors.As(err, &name):
		return fmt.Sprintf("certificate is not valid for %s, only for %s", name.Host, names(name.Certificate))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("certificate is valid from %s to %s, not now",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &header):
		return "does not answer with TLS"
	}
	return ""
}

func issuer(certificate *x509.Certificate) string {
	if certificate == nil || certificate.Issuer.String() == "" {
		return ""
	}
	return fmt.Sprintf(" (its issuer is %q)", certificate.Issuer)
}

func names(certificate *x509.Certificate) string {
	if certificate == nil {
		return "other names"
	}
	all := append([]string(nil), certificate.DNSNames...)
	for _, ip := range certificate.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name at all"
	}
	return strings.Join(all, ", ")
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
