// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
)

// exportDefinition reads the CustomResourceDefinition of ServiceExports, and whether
// one ServiceExport is really gone. Both are read from the API server each time, after
// the ServiceExport was not found in the cache: a cache that begins may be behind, and
// nobody takes a statement back. That the definition does not exist is remembered for
// a moment, because then every export is looked for.
type exportDefinition struct {
	reader client.Reader // without a cache
	clock  clock.PassiveClock

	mu     sync.Mutex
	absent decide.Definition // what was read last, if it had a problem
	until  time.Time         // how long that is used
}

// exportDefinitionName is the name of the definition.
var exportDefinitionName = "serviceexports." + mcsv1beta1.GroupVersion.Group

// definitionTimeout bounds one request: a worker waits for it.
const definitionTimeout = 10 * time.Second

func (e *exportDefinition) read(ctx context.Context, key types.NamespacedName) decide.Definition {
	if absent, ok := e.remembered(); ok {
		return absent
	}
	bounded, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	found := e.readDefinition(bounded)
	if ctx.Err() == nil {
		e.remember(ctx, found)
	}
	if found.Problem == "" {
		found.Problem = e.stillExists(bounded, key)
	}
	return found
}

// stillExists says why the ServiceExport of key is not known to be gone; empty if it is.
func (e *exportDefinition) stillExists(ctx context.Context, key types.NamespacedName) string {
	export := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName}}
	switch err := e.reader.Get(ctx, key, export); {
	case apierrors.IsNotFound(err), err == nil && export.DeletionTimestamp != nil:
		return ""
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	}
	return "the API server has it, and the cache of the agent is behind; it is read again in a moment"
}

// exists reports whether the API server has exactly this ServiceExport.
func (e *exportDefinition) exists(ctx context.Context, export *mcsv1beta1.ServiceExport) bool {
	bounded, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName}}
	err := e.reader.Get(bounded, types.NamespacedName{Namespace: export.Namespace, Name: export.Name}, found)
	return err == nil && found.UID == export.UID
}

func (e *exportDefinition) readDefinition(ctx context.Context) decide.Definition {
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
	err := e.reader.Get(ctx, types.NamespacedName{Name: exportDefinitionName}, object)
	found := decide.Definition{Created: object.CreationTimestamp.Time}
	switch {
	case apierrors.IsNotFound(err):
		found.Problem = fmt.Sprintf("CustomResourceDefinition %s does not exist; apply that of the MCS API again", exportDefinitionName)
	case err != nil:
		found.Problem = fmt.Sprintf("CustomResourceDefinition %s cannot be read: %v", exportDefinitionName, err)
	case object.DeletionTimestamp != nil:
		found.Problem = fmt.Sprintf("CustomResourceDefinition %s is being deleted; apply that of the MCS API again when it is gone", exportDefinitionName)
	}
	return found
}

func (e *exportDefinition) remembered() (decide.Definition, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.absent, e.absent.Problem != "" && e.clock.Now().Before(e.until)
}

// remember keeps a definition with a problem, and logs each problem once.
func (e *exportDefinition) remember(ctx context.Context, found decide.Definition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	log := ctrl.LoggerFrom(ctx).WithValues("definition", exportDefinitionName)
	switch {
	case found.Problem != "" && found.Problem != e.absent.Problem:
		log.Info("no export is withdrawn because its ServiceExport does not exist", "reason", found.Problem)
	case found.Problem == "" && e.absent.Problem != "":
		log.Info("ServiceExports are defined again")
	}
	e.absent, e.until = found, e.clock.Now().Add(missingRetry)
}
