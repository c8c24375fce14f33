// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is longer than any cluster of a developer stays up.
const certificateLife = 30 * 24 * time.Hour

// authority is a certificate authority whose files are <dir>/<name>.crt and .key.
type authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(dir, name string) (*authority, error) {
	a := &authority{dir: dir, name: name}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.key = key
	if a.pem, err = a.sign(template, template, key); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pem)
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return a, a.write(name, a.pem, keyPEM)
}

func (a *authority) certFile(name string) string { return filepath.Join(a.dir, name+".crt") }
func (a *authority) keyFile(name string) string  { return filepath.Join(a.dir, name+".key") }

// issue writes a certificate and key for name, and gives them as PEM. With hosts it serves as well.
func (a *authority) issue(name, user string, groups []string, hosts ...string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if cert, err = a.sign(template, a.cert, private); err != nil {
		return nil, nil, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	return cert, key, a.write(name, cert, key)
}

func (a *authority) sign(template, parent *x509.Certificate, subject *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = time.Now().Add(certificateLife)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func (a *authority) write(name string, cert, key []byte) error {
	if err := os.WriteFile(a.certFile(name), cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(a.keyFile(name), key, 0o600)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeAccountKey writes the key that signs service account tokens, and its public half.
func writeAccountKey(private, public string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(private, keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}
