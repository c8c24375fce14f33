// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const built = "built from the module proxy"

// newProvider gives a Provider whose download sites are the server, and whose builds write the word built.
func newProvider(t *testing.T, server string) (p *Provider, out *bytes.Buffer, builds *int) {
	t.Helper()
	out, builds = &bytes.Buffer{}, new(int)
	p = &Provider{
		Cache: t.TempDir(), Out: out, client: http.DefaultClient, goos: "linux", goarch: "amd64",
		sources:   sources{kubernetes: server + "/k8s", github: server + "/gh", githubAPI: server + "/api", helm: server + "/helm"},
		reachable: map[string]bool{}, kubernetes: newestKubernetes,
	}
	p.build = func(_ context.Context, _ program, out string) error {
		*builds++
		return os.WriteFile(out, []byte(built), 0o600)
	}
	return p, out, builds
}

func digest(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

func archive(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{{"README.md", "not this"}, {name, content}} {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEnsureTakesTheFirstSourceThatIsGood(t *testing.T) {
	const apiserver, kwok = "/k8s/v1.36.3/bin/linux/amd64/kube-apiserver", "/gh/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-linux-amd64"
	const etcd = "/gh/etcd-io/etcd/releases/download/v3.6.5"
	etcdArchive := archive(t, "etcd-v3.6.5-linux-amd64/etcd", "prebuilt")
	tests := map[string]struct {
		name    string
		answers map[string]string
		want    string
		says    string
	}{
		"a download whose published digest matches is used": {
			name: APIServer, answers: map[string]string{apiserver: "prebuilt", apiserver + ".sha256": digest("prebuilt")},
			want: "prebuilt", says: "fetch kube-apiserver v1.36.3: done",
		},
		"a member of an archive is taken out of it": {
			name: Etcd,
			answers: map[string]string{
				etcd + "/etcd-v3.6.5-linux-amd64.tar.gz": etcdArchive,
				etcd + "/SHA256SUMS":                     digest("other") + "  other.zip\n" + digest(etcdArchive) + "  etcd-v3.6.5-linux-amd64.tar.gz\n",
			},
			want: "prebuilt",
		},
		"the digest in the description of a release counts": {
			name: Kwok,
			answers: map[string]string{kwok: "prebuilt", "/api/repos/kubernetes-sigs/kwok/releases/tags/v0.8.0": `{"assets": [
				{"name": "kwokctl-linux-amd64", "digest": "sha256:` + digest("other") + `"},
				{"name": "kwok-linux-amd64", "digest": "sha256:` + digest("prebuilt") + `"}]}`},
			want: "prebuilt",
		},
		"a download with another digest is built instead": {
			name: APIServer, answers: map[string]string{apiserver: "tampered", apiserver + ".sha256": digest("prebuilt")},
			want: built, says: "was published for it",
		},
		"a download without a published digest is built instead": {
			name: APIServer, answers: map[string]string{apiserver: "prebuilt"},
			want: built, says: "published checksum",
		},
		"a download that is not there is built instead": {
			name: APIServer, answers: map[string]string{apiserver + ".sha256": digest("prebuilt")},
			want: built, says: "404",
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, ok := test.answers[r.URL.Path]
				if !ok {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write([]byte(text))
			}))
			defer server.Close()
			p, out, _ := newProvider(t, server.URL)
			paths, err := p.Ensure(t.Context(), test.name)
			if err != nil {
				t.Fatalf("Ensure: %v\n%s", err, out)
			}
			content, err := os.ReadFile(paths[test.name])
			if err != nil || string(content) != test.want {
				t.Errorf("it holds %q, %v; want %q", content, err, test.want)
			}
			if info, err := os.Stat(paths[test.name]); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("it cannot be executed: %v, %v", info, err)
			}
			if !strings.Contains(out.String(), test.says) {
				t.Errorf("progress lacks %q:\n%s", test.says, out)
			}
			if left, _ := filepath.Glob(filepath.Join(p.Cache, "bin", ".*.partial*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestAnUnreachableSiteIsAskedOnce(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	p, out, builds := newProvider(t, server.URL)
	if _, err := p.Ensure(t.Context(), APIServer, Kubectl, Kwok); err != nil {
		t.Fatal(err)
	}
	if *builds != 3 || strings.Count(out.String(), "cannot be reached") != 1 {
		t.Errorf("%d builds, want 3, and one probe:\n%s", *builds, out)
	}
}

func TestWhatIsThereIsUsedAndNothingIsMade(t *testing.T) {
	p, out, builds := newProvider(t, "http://127.0.0.1:1")
	p.AssetsDir = t.TempDir()
	executable(t, filepath.Join(p.AssetsDir, Etcd))
	executable(t, filepath.Join(p.Cache, "bin", "etcd-v3.6.5"))
	executable(t, filepath.Join(p.Cache, "bin", "kwok-v0.8.0"))
	paths, err := p.Ensure(t.Context(), Etcd, Kwok)
	if err != nil || *builds != 0 || out.Len() != 0 {
		t.Fatalf("%v, %d builds, said %q", err, *builds, out)
	}
	if want := filepath.Join(p.AssetsDir, Etcd); paths[Etcd] != want {
		t.Errorf("etcd is %s, want that of %s: %s", paths[Etcd], AssetsEnv, want)
	}
	if want := filepath.Join(p.Cache, "bin", "kwok-v0.8.0"); paths[Kwok] != want {
		t.Errorf("kwok is %s, want the cached %s", paths[Kwok], want)
	}
}

func TestEachVersionOfKubernetesHasPlacesOfItsOwn(t *testing.T) {
	t.Setenv(CacheEnv, t.TempDir())
	places := map[string]bool{}
	for _, which := range []string{"newest", "oldest"} {
		t.Setenv(KubernetesEnv, which)
		p, err := New()
		if err != nil {
			t.Fatal(err)
		}
		p.AssetsDir, p.Out, p.reachable = "", io.Discard, map[string]bool{"dl.k8s.io": false, "github.com": false}
		p.build = func(_ context.Context, p program, out string) error {
			return os.WriteFile(out, []byte(p.version), 0o600)
		}
		paths, err := p.Ensure(t.Context(), APIServer)
		if err != nil {
			t.Fatal(err)
		}
		assets, err := p.Assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		places[paths[APIServer]], places[assets] = true, true
		if version, err := os.ReadFile(filepath.Join(assets, APIServer)); err != nil || string(version) != p.kubernetes {
			t.Errorf("with %s=%s the assets hold kube-apiserver %s, %v; want %s", KubernetesEnv, which, version, err, p.kubernetes)
		}
	}
	if len(places) != 4 {
		t.Errorf("both versions use %v, want two programs and two directories", places)
	}
	t.Setenv(KubernetesEnv, "1.32")
	if _, err := New(); err == nil || !strings.Contains(err.Error(), "newest or oldest") {
		t.Errorf("COMITY_KUBERNETES=1.32 gives error %v", err)
	}
}

func TestAssetsHavePlainNames(t *testing.T) {
	p, _, _ := newProvider(t, "http://127.0.0.1:1")
	for range 2 { // the second time the links are there
		dir, err := p.Assets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{Etcd, APIServer, Kubectl} {
			if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(content) != built {
				t.Errorf("%s holds %q, %v", name, content, err)
			}
		}
	}
	p.AssetsDir = t.TempDir()
	for _, name := range []string{Etcd, APIServer, Kubectl} {
		executable(t, filepath.Join(p.AssetsDir, name))
	}
	if dir, err := p.Assets(t.Context()); err != nil || dir != p.AssetsDir {
		t.Errorf("Assets() = %s, %v; want the caller's own directory", dir, err)
	}
}

func TestAFailedBuildLeavesNothing(t *testing.T) {
	p, _, _ := newProvider(t, "http://127.0.0.1:1")
	p.build = func(_ context.Context, _ program, out string) error {
		_ = os.WriteFile(out, []byte("half"), 0o600)
		return errors.New("compiler says no")
	}
	_, err := p.Ensure(t.Context(), Kind)
	if err == nil || !strings.Contains(err.Error(), "provide kind v0.33.0: compiler says no") {
		t.Errorf("error %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(p.Cache, "bin", "*kind*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestVersionsAreThoseOfTheModfiles(t *testing.T) {
	for _, p := range slices.Concat(catalog(newestKubernetes), catalog(oldestKubernetes)) {
		text, err := os.ReadFile(filepath.Join("..", "..", "tools", p.modfile+".mod"))
		if err != nil {
			t.Fatal(err)
		}
		// The module is the longest prefix of the package that the modfile requires.
		module := p.pkg
		for module != "." && !strings.Contains(string(text), "require "+module+" "+p.version+"\n") {
			module = filepath.Dir(module)
		}
		if module == "." {
			t.Errorf("test/tools/%s.mod does not require %s at %s", p.modfile, p.pkg, p.version)
		}
	}
}

func executable(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("there"), 0o755); err != nil {
		t.Fatal(err)
	}
}
