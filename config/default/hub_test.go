// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"path"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTheHubIsReachedByTheSecretThatJoiningMakes(t *testing.T) {
	component := read[struct {
		APIVersion string              `json:"apiVersion"`
		Kind       string              `json:"kind"`
		Patches    []map[string]string `json:"patches"`
	}](t, "hub/kustomization.yaml")
	if component.Kind != "Component" || len(component.Patches) != 1 || component.Patches[0]["path"] != "deployment.yaml" {
		t.Errorf("config/hub is no component that patches the Deployment: %+v", component)
	}
	patch := read[appsv1.Deployment](t, "hub/deployment.yaml")
	pod, container := patch.Spec.Template.Spec, patch.Spec.Template.Spec.Containers[0]
	volume, mount := pod.Volumes[0], container.VolumeMounts[0]
	if patch.Name != "comity" || container.Name != "comity" || volume.Name != mount.Name || !mount.ReadOnly {
		t.Errorf("the patch does not fit the Deployment, or itself: %+v", patch)
	}
	if volume.Secret.SecretName != model.ExchangeSecret || volume.Secret.Optional == nil || !*volume.Secret.Optional {
		t.Errorf("mounts Secret %+v; expected %s, and that a Pod starts without it", volume.Secret, model.ExchangeSecret)
	}
	want := path.Join(mount.MountPath, join.KubeconfigKey)
	if env := container.Env[0]; env.Name != "COMITY_EXCHANGE_KUBECONFIG" || env.Value != want {
		t.Errorf("%s is %q; expected %q", env.Name, env.Value, want)
	}
}
