// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/facts"
)

// manifests are what a cluster would hold if they were applied. Kinds that no policy
// sees are left out.
type manifests struct {
	exports    map[types.NamespacedName]*mcsv1beta1.ServiceExport
	services   map[types.NamespacedName]*corev1.Service
	namespaces map[types.NamespacedName]*corev1.Namespace
	policies   []source.Policy
	clusterset *Clusterset
	// places says where each object is, by kind and name.
	places map[string]string
}

func newManifests() *manifests {
	return &manifests{
		exports:    map[types.NamespacedName]*mcsv1beta1.ServiceExport{},
		services:   map[types.NamespacedName]*corev1.Service{},
		namespaces: map[types.NamespacedName]*corev1.Namespace{},
		clusterset: &Clusterset{},
		places:     map[string]string{},
	}
}

// readManifests reads files, and the files in folders. A field that a kind does not
// have, and an object that is there twice, are errors.
func readManifests(paths []string) (*manifests, error) {
	m := newManifests()
	for _, path := range paths {
		found := 0
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && file != path && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			if entry.IsDir() || file != path && !source.IsManifest(file) {
				return nil
			}
			found++
			return m.readFile(file)
		})
		if err != nil {
			return nil, err
		}
		if found == 0 {
			return nil, fmt.Errorf("%s: no manifest is here; expected files with the suffix .yaml, .yml or .json", path)
		}
	}
	return m, nil
}

func (m *manifests) readFile(path string) error {
	documents, err := source.Documents(path)
	if err != nil {
		return err
	}
	for _, document := range documents {
		if document.Kind == "" || document.APIVersion == "" {
			return fmt.Errorf("%s: apiVersion or kind is not set; expected a Kubernetes object", document.Place)
		}
		if _, err := m.add(path, document); err != nil {
			return err
		}
	}
	return nil
}

// add keeps the object of a document; false for a kind that no policy sees.
func (m *manifests) add(path string, document source.Document) (known bool, err error) {
	version, err := schema.ParseGroupVersion(document.APIVersion)
	if err != nil {
		return false, fmt.Errorf("%s: %w", document.Place, err)
	}
	switch version.WithKind(document.Kind) {
	case corev1.SchemeGroupVersion.WithKind("Namespace"):
		return true, keep(m, document, m.namespaces, &corev1.Namespace{}, false)
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return true, keep(m, document, m.services, &corev1.Service{}, true)
	}
	switch document.Kind {
	case mcsv1beta1.ServiceExportKindName:
		if !slices.Contains([]string{mcsv1beta1.GroupVersion.String(), mcsv1alpha1.GroupVersion.String()}, document.APIVersion) {
			return false, nil
		}
		// Either version has the same fields.
		return true, keep(m, document, m.exports, &mcsv1beta1.ServiceExport{}, true)
	case kindClusterset:
		return true, m.addClusterset(document)
	case source.Kind:
		policy, err := source.DecodePolicy(path, document)
		m.policies = append(m.policies, policy)
		return true, err
	}
	return false, nil
}

func (m *manifests) addClusterset(document source.Document) error {
	given := &Clusterset{}
	if err := document.Decode(given); err != nil {
		return err
	}
	if err := given.validate(); err != nil {
		return fmt.Errorf("%s: %w", document.Place, err)
	}
	given.setDefaults()
	if m.clusterset.Kind != "" && !equality.Semantic.DeepEqual(m.clusterset, given) {
		return fmt.Errorf("%s: a second Clusterset; expected one, or the same", document.Place)
	}
	m.clusterset = given
	return nil
}

// keep decodes a document and keeps the object.
func keep[T client.Object](m *manifests, document source.Document, all map[types.NamespacedName]T, object T, namespaced bool) error {
	if err := document.Decode(object); err != nil {
		return err
	}
	setDefaults(object)
	key := client.ObjectKeyFromObject(object)
	name := document.Kind + " " + strings.TrimPrefix(key.String(), "/")
	switch {
	case key.Name == "":
		return fmt.Errorf("%s: %s: metadata.name is not set", document.Place, document.Kind)
	case namespaced && key.Namespace == "":
		return fmt.Errorf("%s: %s: metadata.namespace is not set; expected the namespace that it is applied in", document.Place, name)
	case m.places[name] != "" && document.Kind != mcsv1beta1.ServiceExportKindName && equality.Semantic.DeepEqual(all[key], object):
		return nil // fixtures of several policies repeat a Namespace, say
	case m.places[name] != "":
		return fmt.Errorf("%s: %s is in %s already; expected each object once", document.Place, name, m.places[name])
	}
	m.places[name] = document.Place
	all[key] = object
	return nil
}

// keys are those of the exports, sorted.
func (m *manifests) keys() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m.exports), model.CompareKeys)
}

// facts reads what policies may know from the manifests.
func (m *manifests) facts() facts.Reader {
	return facts.Reader{
		Client: m, Cluster: model.ClusterID(m.clusterset.cluster()), Peers: peers{m.clusterset},
		Published: func(_ context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error) {
			return decision.Publication{Published: slices.Contains(m.clusterset.Published, client.ObjectKeyFromObject(export).String())}, nil
		},
	}
}

// request is the request, or the audit, of an export. before has what an UPDATE replaces;
// what it lacks is updated without a change.
func (m *manifests) request(key types.NamespacedName, operation decision.Operation, before *manifests) facts.Request {
	request := facts.Request{Operation: operation, Export: m.exports[key]}
	if operation != decision.Audit {
		request.User = m.clusterset.User
		if request.User == nil {
			request.User = &decision.UserInfo{Groups: []string{}}
		}
	}
	if operation == decision.Update {
		request.OldExport = m.exports[key]
		if before != nil && before.exports[key] != nil {
			request.OldExport = before.exports[key]
		}
	}
	return request
}

// imports are what the members export, in the order of the Clusterset.
func (m *manifests) imports() (all []decision.ImportInput) {
	for _, member := range m.clusterset.Members {
		for _, export := range member.Exports {
			in := decision.ImportInput{
				APIVersion: decision.InputVersion, Cluster: m.clusterset.cluster(),
				Source: decision.ImportSource{Cluster: member.ID, Labels: member.Labels},
				Export: export, Namespace: m.namespaces[types.NamespacedName{Name: export.Namespace}],
			}
			in.Imported = slices.Contains(m.clusterset.Imported, importName(in))
			all = append(all, in)
		}
	}
	return all
}

func importName(in decision.ImportInput) string {
	return in.Source.Cluster + "/" + in.Export.Namespace + "/" + in.Export.Name
}

// Get implements client.Reader.
func (m *manifests) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found := false
	switch into := into.(type) {
	case *corev1.Namespace:
		found = read(m.namespaces, key, into)
	case *corev1.Service:
		found = read(m.services, key, into)
	case *mcsv1beta1.ServiceExport:
		found = read(m.exports, key, into)
	}
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.String())
	}
	return nil
}

func read[T interface{ DeepCopyInto(T) }](all map[types.NamespacedName]T, key types.NamespacedName, into T) bool {
	found, has := all[key]
	if has {
		found.DeepCopyInto(into)
	}
	return has
}

// List implements client.Reader; nothing of what policies see is listed.
func (m *manifests) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("manifests cannot be listed")
}
