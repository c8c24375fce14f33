// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMergedKubeconfigsKeepTheirCredentialsApart(t *testing.T) {
	one := func(token string) *clientcmdapi.Config {
		config := clientcmdapi.NewConfig()
		config.Clusters["kind"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1"}
		config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["admin@kind"] = &clientcmdapi.Context{Cluster: "kind", AuthInfo: "admin"}
		config.CurrentContext = "admin@kind"
		return config
	}
	all := clientcmdapi.NewConfig()
	for _, name := range []string{"b", "a"} {
		if err := merge(all, name, "https://"+name, one("token-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string][2]string{}
	for name, context := range all.Contexts {
		got[name] = [2]string{all.Clusters[context.Cluster].Server, all.AuthInfos[context.AuthInfo].Token}
	}
	want := map[string][2]string{"a": {"https://a", "token-a"}, "b": {"https://b", "token-b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if all.CurrentContext != "b" {
		t.Errorf("the current context is %q, want the first", all.CurrentContext)
	}
}

func TestAKubeconfigThatNamesWhatItDoesNotHaveIsRefused(t *testing.T) {
	dangling := clientcmdapi.NewConfig()
	dangling.Contexts["a"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "c"}
	dangling.CurrentContext = "a"
	for name, config := range map[string]*clientcmdapi.Config{"no context": clientcmdapi.NewConfig(), "no cluster": dangling} {
		err := merge(clientcmdapi.NewConfig(), "cluster-1", "https://1", config)
		if err == nil || !strings.Contains(err.Error(), "cluster-1") {
			t.Errorf("%s: got error %v, want one that names cluster-1", name, err)
		}
	}
}
