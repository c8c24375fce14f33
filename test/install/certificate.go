// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"net"

	certutil "k8s.io/client-go/util/cert"
)

// Certificate is a serving certificate and the authority that vouches for it.
type Certificate struct {
	// CA, Cert and Key are PEM. CA is what a caBundle holds.
	CA, Cert, Key []byte
}

// NewCertificate makes one that is valid for loopback and for the webhook's
// Service in namespace.
func NewCertificate(namespace string) (Certificate, error) {
	service := "comity-webhook." + namespace + ".svc"
	cert, key, err := certutil.GenerateSelfSignedCertKey(service, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{service, "localhost"})
	if err != nil {
		return Certificate{}, fmt.Errorf("make the webhook's certificate: %w", err)
	}
	// The generated PEM holds the certificate followed by its authority.
	return Certificate{CA: cert, Cert: cert, Key: key}, nil
}
