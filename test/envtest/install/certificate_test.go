// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"crypto/tls"
	"net/http/httptest"

	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/test/install"
)

// certificateOf gives a server a certificate and returns the CA that verifies it.
func certificateOf(server *httptest.Server) []byte {
	certificate, err := install.NewCertificate(install.Namespace)
	Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(certificate.Cert, certificate.Key)
	Expect(err).NotTo(HaveOccurred())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return certificate.CA
}
