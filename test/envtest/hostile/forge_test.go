// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// evil is part of everything that an attack would leave behind, if it succeeded.
const evil = "evil"

// Where b publishes: for everybody, and for a alone.
var (
	shared = model.ExchangeNamespace("b")
	scoped = model.ScopedExchangeNamespace("b", "a")
)

// forged is one object as the attacker stores it.
type forged struct {
	path string
	body map[string]any
}

// change makes a valid object an attack.
type change func(body map[string]any)

// set sets one field; a nil value removes it. JSON decides what a value is, so
// that none is too wrong to be stored.
func set(value any, fields ...string) change {
	return func(body map[string]any) {
		if value == nil {
			unstructured.RemoveNestedField(body, fields...)
			return
		}
		Expect(unstructured.SetNestedField(body, plain(value), fields...)).To(Succeed())
	}
}

// plain is value as JSON has it.
func plain(value any) any {
	data, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	var out any
	Expect(json.Unmarshal(data, &out)).To(Succeed())
	return out
}

// forge makes what is stored of object. A name with a slash in it is the one
// thing that not even this API server would serve.
func forge(resource, namespace, name string, object any, changes ...change) forged {
	body := plain(object).(map[string]any)
	for _, c := range append([]change{
		set(namespace, "metadata", "namespace"), set(name, "metadata", "name"),
		set(time.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp"),
		set(fmt.Sprintf("00000000-0000-4000-8000-%012d", number.Add(1)), "metadata", "uid"),
		set("v", "metadata", "labels", "attack"),
	}, changes...) {
		c(body)
	}
	name, _, _ = unstructured.NestedString(body, "metadata", "name")
	return forged{path: resource + "/" + namespace + "/" + name, body: body}
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

const exchangeVersion = "exchange.comity.dev/v1alpha1"

// record is a valid ExportRecord of a Service with port http, then changed. It
// is called as the Service in the end, unless a change says otherwise.
func record(key types.NamespacedName, changes ...change) forged {
	object := &exchangev1alpha1.ExportRecord{
		TypeMeta: kind(exchangeVersion, "ExportRecord"),
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
			ExportUID:         "11111111-1111-4111-8111-111111111111",
			ExportedAt:        metav1.NewTime(time.Now().Add(-time.Hour)),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
			Namespace:         &exchangev1alpha1.NamespaceRecordSpec{},
		},
	}
	return forge("exchange.comity.dev/exportrecords", shared, model.RecordName(key.Namespace, key.Name), object, changes...)
}

// slice is a valid copy of an EndpointSlice of a Service, then changed.
func slice(key types.NamespacedName, source string, addresses []string, changes ...change) forged {
	object := &discoveryv1.EndpointSlice{
		TypeMeta: kind("discovery.k8s.io/v1", "EndpointSlice"),
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{
				"service.kubernetes.io/headless": "", discoveryv1.LabelManagedBy: model.ManagedBy,
				model.LabelExportNamespace: key.Namespace, model.LabelExportName: key.Name,
			},
			Annotations: map[string]string{model.AnnotationSourceSlice: source},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, a := range addresses {
		object.Endpoints = append(object.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return forge("endpointslices", shared, model.RecordSliceName(key.Namespace, source), object, changes...)
}

// put stores objects in b.
func put(ctx context.Context, objects ...forged) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(store.Put(ctx, o.path, o.body)).To(Succeed())
	}
}

func withdraw(ctx context.Context, objects ...forged) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(store.Delete(ctx, o.path)).To(Succeed())
	}
}

// memberRecord is what b says of itself.
func memberRecord(changes ...change) forged {
	return forge("exchange.comity.dev/memberrecords", shared, "b", &exchangev1alpha1.MemberRecord{
		TypeMeta: kind(exchangeVersion, "MemberRecord"),
		Spec:     exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: clusterset, Version: "1.0", ClusterUID: attackerUID},
	}, changes...)
}

func namespaceRecord(name string, changes ...change) forged {
	return forge("exchange.comity.dev/namespacerecords", shared, name,
		&exchangev1alpha1.NamespaceRecord{TypeMeta: kind(exchangeVersion, "NamespaceRecord")}, changes...)
}

// heartbeat is the Lease that says that b is there.
func heartbeat(at time.Time, changes ...change) forged {
	renewed := metav1.NewMicroTime(at)
	return forge("leases", shared, "b", &coordinationv1.Lease{
		TypeMeta: kind("coordination.k8s.io/v1", "Lease"),
		Spec:     coordinationv1.LeaseSpec{HolderIdentity: ptr.To("b"), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &renewed},
	}, changes...)
}

// impersonate makes b look like a member with an agent, for as long as the
// suite runs.
func impersonate(ctx context.Context) {
	GinkgoHelper()
	put(ctx, memberRecord(), heartbeat(time.Now()), namespaceRecord("default"))
	beating, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Second); ; {
			select {
			case <-beating.Done():
				tick.Stop()
				return
			case at := <-tick.C:
				o := heartbeat(at)
				_ = store.Put(beating, o.path, o.body) // the next one comes soon
			}
		}
	}()
	DeferCleanup(func() { stop(); <-ended })
}
