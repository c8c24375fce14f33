// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// write packs files, by name, in a compressed archive with one folder, and leaves secrets out.
func write(to io.Writer, folder string, now time.Time, files map[string][]byte) (err error) {
	compressed := gzip.NewWriter(to)
	packed := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := secrets.ReplaceAll(files[name], []byte(leftOut))
		errHeader := packed.WriteHeader(&tar.Header{Name: path.Join(folder, name), Mode: 0o600, Size: int64(len(content)), ModTime: now})
		_, errContent := packed.Write(content)
		err = cmp.Or(err, errHeader, errContent)
	}
	return errors.Join(err, packed.Close(), compressed.Close())
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
