// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"compress/gzip"
	"errors"
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
	"sigs.k8s.io/yaml"
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

func (a *archive) addYAML(value any, name ...string) error {
	content, err := yaml.Marshal(value)
	return errors.Join(err, a.add(content, name...))
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
	strip(object.Object)
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

// strip removes, wherever they are, the values of environment variables, managed fields and
// what kubectl applied last.
func strip(value any) {
	list, _ := value.([]any)
	for _, item := range list {
		strip(item)
	}
	fields, _ := value.(map[string]any)
	delete(fields, "managedFields")
	delete(fields, corev1.LastAppliedConfigAnnotation)
	for key, item := range fields {
		strip(item)
		variables, _ := item.([]any)
		for _, variable := range variables {
			if named, is := variable.(map[string]any); is && key == "env" {
				delete(named, "value")
			}
		}
	}
}
