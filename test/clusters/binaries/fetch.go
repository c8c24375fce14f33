// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

const (
	// probeTimeout is how long a download site may take to show that it can be reached.
	probeTimeout = 3 * time.Second
	// fetchTimeout bounds one download, of 110 MB at most.
	fetchTimeout = 10 * time.Minute
	// maxChecksum bounds what is read of a list of checksums.
	maxChecksum = 4 << 20
)

// errNoRelease says that a program has no download for this machine, or that its site cannot be reached.
var errNoRelease = errors.New("no public download")

// fetch downloads a program into out and checks it. Any error means: build it.
func (p *Provider) fetch(ctx context.Context, prog program, out string) error {
	r := prog.release(p.sources, p.goos, p.goarch)
	if r == nil || !p.canReach(ctx, r.url) {
		return errNoRelease
	}
	return p.clock().Step("fetch "+prog.String(), func() error {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		want, err := p.publishedChecksum(ctx, r)
		if err != nil {
			return fmt.Errorf("read its published checksum: %w", err)
		}
		body, err := p.get(ctx, r.url)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		archive := out + ".download"
		defer func() { _ = os.Remove(archive) }()
		have, err := save(archive, body)
		if err != nil {
			return fmt.Errorf("download %s: %w", r.url, err)
		}
		if have != want {
			return fmt.Errorf("%s has SHA-256 %s, but %s was published for it", r.url, have, want)
		}
		if r.member == "" {
			return os.Rename(archive, out)
		}
		return extract(archive, r.member, out)
	})
}

// canReach asks the site once per run. An answer of any kind will do: what
// matters is not to wait for minutes where there is no way out.
func (p *Provider) canReach(ctx context.Context, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	if known, ok := p.reachable[u.Host]; ok {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	u.Path, u.RawQuery = "/", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), nil)
	if err != nil {
		return false
	}
	resp, err := p.client.Do(req)
	ok := err == nil
	if ok {
		_ = resp.Body.Close()
		ok = resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusProxyAuthRequired
	}
	p.reachable[u.Host] = ok
	if !ok {
		p.clock().Say("%s cannot be reached: building instead", u.Host)
	}
	return ok
}

func (p *Provider) get(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("get %s: %s", address, resp.Status)
	}
	return resp.Body, nil
}

func (p *Provider) publishedChecksum(ctx context.Context, r *release) (string, error) {
	body, err := p.get(ctx, r.checksum)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, maxChecksum))
	if err != nil {
		return "", err
	}
	return parseChecksum(text, path.Base(r.url))
}

// parseChecksum finds the SHA-256 of file in a bare digest, in lines of
// "digest  name", or in GitHub's description of a release.
func parseChecksum(text []byte, file string) (string, error) {
	var described struct {
		Assets []struct{ Name, Digest string }
	}
	if json.Unmarshal(text, &described) == nil {
		for _, a := range described.Assets {
			if digest, ok := strings.CutPrefix(a.Digest, "sha256:"); ok && a.Name == file && isDigest(digest) {
				return digest, nil
			}
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || !isDigest(fields[0]):
		case len(fields) == 1, path.Base(strings.TrimPrefix(fields[len(fields)-1], "*")) == file:
			return strings.ToLower(fields[0]), nil
		}
	}
	return "", fmt.Errorf("it has no SHA-256 for %s", file)
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// save writes a file and gives its SHA-256.
func save(name string, from io.Reader) (digest string, err error) {
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), from)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// extract takes one member out of a tar.gz archive.
func extract(archive, member, out string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", path.Base(archive), err)
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if err != nil {
			return fmt.Errorf("find %s in the archive: %w", member, err)
		}
		if path.Clean(header.Name) == member && header.Typeflag == tar.TypeReg {
			_, err := save(out, r)
			return err
		}
	}
}
