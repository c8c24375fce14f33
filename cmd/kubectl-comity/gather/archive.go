// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// archive is a compressed tar file that several goroutines add to.
type archive struct {
	root string
	now  time.Time
	gzip *gzip.Writer

	mu  sync.Mutex
	tar *tar.Writer
}

func newArchive(file io.Writer, root string, now time.Time) *archive {
	compressed := gzip.NewWriter(file)
	return &archive{root: root, now: now, gzip: compressed, tar: tar.NewWriter(compressed)}
}

// add writes one file, without secrets. Parts of its name are escaped: a context may be
// named like a path.
func (a *archive) add(content []byte, name ...string) error {
	content = secrets.ReplaceAll(content, []byte(leftOut))
	full := a.root
	for _, part := range name {
		full = path.Join(full, url.QueryEscape(part))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.tar.WriteHeader(&tar.Header{Name: full, Mode: 0o600, Size: int64(len(content)), ModTime: a.now})
	if err == nil {
		_, err = a.tar.Write(content)
	}
	return err
}

const leftOut = "(left out)"

var (
	// secrets are what no file has, since logs, messages and annotations are of others: JSON
	// web tokens, the header with one, private keys, and passwords in addresses.
	secrets = regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?i:bearer)\s+[\w.~+/-]{16,}=*|` +
		`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*-----END [A-Z ]*PRIVATE KEY-----|://[^/\s:@"]+:[^/\s@"]+@`)
	// directive is a line of a Corefile that names a credential.
	directive = regexp.MustCompile(`(?im)^(\s*\S*(?:password|secret|token|access_key|credentials)\S*\s+)\S.*$`)
)

// redact removes what may be secret, and what nobody reads, from an object.
func redact(object *unstructured.Unstructured) {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(annotations)
	withoutEnv(object.Object)
	data, _ := object.Object["data"].(map[string]any)
	switch object.GetKind() {
	case "ConfigMap": // a Corefile may have the credentials of a plugin
		for key, text := range data {
			data[key] = directive.ReplaceAllString(fmt.Sprint(text), "${1}"+leftOut)
		}
	case "Secret":
		object.Object["keys"] = slices.Sorted(maps.Keys(data))
		delete(object.Object, "data")
		object.SetLabels(nil)
		object.SetAnnotations(nil)
	case "Node":
		unstructured.RemoveNestedField(object.Object, "status", "images")
		object.SetAnnotations(nil) // of network plugins, with keys of tunnels
	}
}

// withoutEnv removes the values of environment variables, wherever a Pod is described.
func withoutEnv(value any) {
	list, _ := value.([]any)
	for _, item := range list {
		withoutEnv(item)
	}
	fields, _ := value.(map[string]any)
	for key, item := range fields {
		withoutEnv(item)
		if variables, _ := item.([]any); key == "env" {
			for _, variable := range variables {
				named, _ := variable.(map[string]any)
				delete(named, "value")
			}
		}
	}
}
