// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/webhook/admit"
)

// handler answers one request.
type handler func(ctx context.Context, req *admissionRequest) admit.Answer

// onWrite answers requests that write an object, and allows any other. answer gets the object
// and, if the request is an update, the one that it replaces, else nil. Unknown fields are
// ignored: the fields that are read here are the same in all versions, and a label that
// Kubernetes will refuse is no error yet.
func onWrite[T any, P interface {
	*T
	metav1.Object
}](answer func(ctx context.Context, req *admissionRequest, now, was P) admit.Answer) handler {
	return func(ctx context.Context, req *admissionRequest) admit.Answer {
		if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return admit.Allow()
		}
		now, was := P(new(T)), P(nil)
		if err := unmarshal(req.Object.Raw, now); err != nil {
			return admit.Malformed(fmt.Sprintf("%s could not be read: %v. Remedy: compare it with the schema of %s/%s", named(req), err, req.Kind.Group, req.Kind.Version))
		}
		now.SetNamespace(req.Namespace) // what the API server authorized
		if req.Operation == admissionv1.Update {
			was = new(T)
			if err := unmarshal(req.OldObject.Raw, was); err != nil {
				return admit.Malformed(fmt.Sprintf("%s as it is stored could not be read: %v. Remedy: delete it and create it again", named(req), err))
			}
		}
		return answer(ctx, req, now, was)
	}
}

// named is kind, namespace and name of the object of a request.
func named(req *admissionRequest) string {
	return req.Kind.Kind + " " + strings.TrimPrefix(req.Namespace+"/"+req.Name, "/")
}

// unmarshal reads an object. It passes over the managedFields of a ServiceExport, of which most
// requests are: they are a twentieth of all that is allocated for one.
func unmarshal(raw []byte, into metav1.Object) error {
	defer into.SetManagedFields(nil) // no policy sees them
	if export, is := into.(*mcsv1beta1.ServiceExport); is {
		return json.Unmarshal(raw, &struct {
			*mcsv1beta1.ServiceExport
			Metadata metadata `json:"metadata"`
		}{export, metadata{ObjectMeta: &export.ObjectMeta}})
	}
	return json.Unmarshal(raw, into)
}

// metadata hides the metadata of the object beside which it is embedded.
type metadata struct {
	*metav1.ObjectMeta
	ManagedFields skipped `json:"managedFields"` // hides that of ObjectMeta
}

// skipped is a field that is not read.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }
