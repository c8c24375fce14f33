// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

func TestAPeerBeyondALimitHasAnswered(t *testing.T) {
	request := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: fmt.Errorf("read: %w", err)}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no answer":                {request(syscall.ECONNREFUSED), true},
		"closed before an answer":  {errClosedEarly, true},
		"more than is read of it":  {request(&budget.Exceeded{Limit: "1 byte"}), false},
		"what it answers, refused": {apierrors.NewUnauthorized("expired"), false},
	} {
		if got := unanswered(c.err); got != c.want {
			t.Errorf("%s: unanswered is %v", name, got)
		}
	}
}

// What a peer's server answers and nobody can decode is no fault of the network.
func TestDescribeTellsWhatCannotBeDecoded(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := exchangev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	const list = `{"apiVersion":"exchange.comity.dev/v1alpha1","kind":"ExportRecordList","items":[{"spec":{%s}}]}`
	for name, field := range map[string]string{
		"a port that is a word":   `"ports":[{"port":"evil"}]`,
		"a time that is none":     `"exportedAt":"yesterday"`,
		"a map that is a list":    `"labels":["a"]`,
		"a reference that is nil": `"service":7`,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(fmt.Sprintf(list, field)), nil, nil)
			if err == nil {
				t.Fatal("it can be decoded")
			}
			got := describe("b", &feed{kind: "ExportRecords", namespace: "comity-b"}, fmt.Errorf("list: %w", err))
			if got.Reason != model.ReasonInvalidRecord || !strings.Contains(got.Message, "cluster b") || strings.Contains(got.Message, "evil") {
				t.Errorf("%s: %s (%v)", got.Reason, got.Message, err)
			}
		})
	}
}
