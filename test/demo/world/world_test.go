// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMergedKubeconfigsKeepTheirCredentialsApart(t *testing.T) {
	one := func(server, token string) *clientcmdapi.Config {
		config := clientcmdapi.NewConfig()
		config.Clusters["kind"] = &clientcmdapi.Cluster{Server: server}
		config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["admin@kind"] = &clientcmdapi.Context{Cluster: "kind", AuthInfo: "admin"}
		config.CurrentContext = "admin@kind"
		return config
	}
	all := clientcmdapi.NewConfig()
	for name, from := range map[string]*clientcmdapi.Config{"cluster-1": one("https://1", "t1"), "cluster-2": one("https://2", "t2")} {
		if err := merge(all, name, from); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string][2]string{}
	for name, context := range all.Contexts {
		got[name] = [2]string{all.Clusters[context.Cluster].Server, all.AuthInfos[context.AuthInfo].Token}
	}
	want := map[string][2]string{"cluster-1": {"https://1", "t1"}, "cluster-2": {"https://2", "t2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAKubeconfigThatNamesWhatItDoesNotHaveIsRefused(t *testing.T) {
	dangling := clientcmdapi.NewConfig()
	dangling.Contexts["a"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "c"}
	dangling.CurrentContext = "a"
	for name, config := range map[string]*clientcmdapi.Config{"no context": clientcmdapi.NewConfig(), "no cluster": dangling} {
		err := merge(clientcmdapi.NewConfig(), "cluster-1", config)
		if err == nil || !strings.Contains(err.Error(), "cluster-1") {
			t.Errorf("%s: got error %v, want one that names cluster-1", name, err)
		}
	}
}

func TestOutputIsComparedWithoutItsLayout(t *testing.T) {
	const out = "NAME      LABELS   EXPORT TO\ninternal  <none>   b,c\n"
	if err := Contains(out, "internal <none> b,c", "EXPORT TO"); err != nil {
		t.Error(err)
	}
	err := Contains(out, "internal", "Forbidden")
	if err == nil || !strings.Contains(err.Error(), `"Forbidden"`) || !strings.Contains(err.Error(), out) {
		t.Errorf("got error %v, want one with the text that is missing and the output", err)
	}
}

func TestRecordsAreSortedValues(t *testing.T) {
	var answer []dns.RR
	for _, line := range []string{"a. 5 IN A 10.0.0.2", "a. 5 IN A 10.0.0.1", "a. 5 IN AAAA fd00::1", "_h._tcp.a. 5 IN SRV 0 50 80 b.a.", "a. 5 IN CNAME c."} {
		record, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		answer = append(answer, record)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "80 b.a.", "fd00::1"}, records(answer)); diff != "" {
		t.Error(diff)
	}
}
