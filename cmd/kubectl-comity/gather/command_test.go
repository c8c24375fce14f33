// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}

func TestRedact(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{
			"of a Secret, names and keys stay",
			`{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: peer-b, namespace: n, uid: u, labels: {l: SECRET}, annotations: {a: SECRET}}, data: {kubeconfig: SECRET, a: SECRET}}`,
			`{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: peer-b, namespace: n, uid: u}, keys: [a, kubeconfig]}`,
		},
		{
			"a Secret without data",
			`{apiVersion: v1, kind: Secret, metadata: {name: s}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: s}, keys: null}`,
		},
		{
			"managed fields and what kubectl applied last go",
			`{apiVersion: v1, kind: Service, metadata: {name: s, managedFields: [{manager: m}], annotations: {kubectl.kubernetes.io/last-applied-configuration: SECRET, a: b}}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: s, annotations: {a: b}}}`,
		},
		{
			"values of environment variables go, also those of init containers and templates",
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {initContainers: [{env: [{name: A, value: SECRET}]}], containers: [{name: c, args: [--a=b], env: [{name: B, value: SECRET}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {initContainers: [{env: [{name: A}]}], containers: [{name: c, args: [--a=b], env: [{name: B}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}}}`,
		},
		{
			"something named env that is no list of variables stays",
			`{apiVersion: policy.comity.dev/v1alpha1, kind: ExportPolicy, metadata: {name: p}, spec: {parameters: {env: prod, list: [{env: [a, 1]}]}}}`,
			`{apiVersion: policy.comity.dev/v1alpha1, kind: ExportPolicy, metadata: {name: p}, spec: {parameters: {env: prod, list: [{env: [a, 1]}]}}}`,
		},
		{
			"credentials in a Corefile go",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata:\n  Corefile: |\n    .:53 {\n      route53 example.org.:Z1 {\n        aws_access_key ID SECRET\n      }\n      etcd {\n        credentials USER SECRET\n      }\n      kubernetes cluster.local {\n        multicluster clusterset.local\n      }\n    }\n",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata:\n  Corefile: |\n    .:53 {\n      route53 example.org.:Z1 {\n        aws_access_key (left out)\n      }\n      etcd {\n        credentials (left out)\n      }\n      kubernetes cluster.local {\n        multicluster clusterset.local\n      }\n    }\n",
		},
		{
			"of a Node, what network plugins wrote goes",
			`{apiVersion: v1, kind: Node, metadata: {name: n, labels: {topology.kubernetes.io/zone: z}, annotations: {wireguard: SECRET}}, spec: {podCIDRs: [10.0.0.0/24]}, status: {images: [{names: [i]}], nodeInfo: {kubeletVersion: v1.36.0}}}`,
			`{apiVersion: v1, kind: Node, metadata: {name: n, labels: {topology.kubernetes.io/zone: z}}, spec: {podCIDRs: [10.0.0.0/24]}, status: {nodeInfo: {kubeletVersion: v1.36.0}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := parse(t, c.object)
			redact(object)
			got, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := yaml.Marshal(parse(t, c.want).Object)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
			if bytes.Contains(got, []byte("SECRET")) {
				t.Errorf("a secret is left: %s", got)
			}
		})
	}
}

// unpack gives the files of an archive.
func unpack(t *testing.T, packed io.Reader) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

func TestNoFileOfTheArchiveHasASecret(t *testing.T) {
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	for _, c := range []struct{ name, text, want string }{
		{"a token", "token: " + token + "\n", "token: (left out)\n"},
		{"a header", "Authorization: Bearer abcdefghijklmnop0123456789==", "Authorization: (left out)"},
		{"a private key", "key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  AAAA\n  -----END RSA PRIVATE KEY-----\nnext: 1\n", "key: |\n  (left out)\nnext: 1\n"},
		{"a password in an address", "https_proxy=http://user:word@proxy:3128", "https_proxy=http(left out)proxy:3128"},
		{"an address without", "https://10.0.0.1:6443/api?x=a@b", "https://10.0.0.1:6443/api?x=a@b"},
		{"a certificate stays", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
		{"a name stays", "kubeconfigSecret: peer-b\nreason: SecretMissing", "kubeconfigSecret: peer-b\nreason: SecretMissing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var packed bytes.Buffer
			if err := write(&packed, "root", time.Unix(0, 0), map[string][]byte{"file": []byte(c.text)}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"root/file": c.want}, unpack(t, &packed)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheNameOfAContextLeadsNowhere(t *testing.T) {
	for _, name := range []string{"../../etc", "arn:aws:eks:eu-west-1:1:cluster/a", "..", "ä b"} {
		c := newCluster(name)
		c.took(nil, nil, 0, "folder", "../f")
		var packed bytes.Buffer
		if err := write(&packed, "root", time.Unix(0, 0), c.files); err != nil {
			t.Fatal(err)
		}
		files := unpack(t, &packed)
		for name := range files {
			if strings.Count(name, "/") != 3 || !strings.HasPrefix(name, "root/cluster-") {
				t.Errorf("file %q", name)
			}
		}
		if len(files) != 1 {
			t.Errorf("files %v", files)
		}
	}
}

func TestTheSizeOfAClusterIsBounded(t *testing.T) {
	r := newCluster("a")
	r.bytes = maxBytes - 10
	r.took(make([]byte, 10), nil, 1, "comity", "fits.yaml")
	r.took(make([]byte, 1), nil, 1, "comity", "too-much.yaml")
	if diff := cmp.Diff(map[string]int{"comity/fits.yaml": 1}, r.Taken); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"comity/too-much.yaml": "more than 256 MiB of this cluster"}, r.NotTaken); diff != "" {
		t.Error(diff)
	}
}
