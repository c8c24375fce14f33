{{/*
Copyright The Comity Authors
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
Checks before anything is installed. Each failure names the value or object, what was expected and what to do.
Checks of the cluster run only if Helm has access to one; `helm template` has none.
*/}}
{{- define "comity.check" -}}
{{- if not .Values.enabled -}}
{{- fail "enabled is false, but only a parent chart reads this value: expected a dependency on comity with `condition: comity.enabled` in the Chart.yaml of the parent chart; add the condition, or remove the value" -}}
{{- end -}}
{{- include "comity.checkIdentity" . -}}
{{- include "comity.checkCertificate" . -}}
{{- include "comity.checkPods" . -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- include "comity.checkClusterProperty" . -}}
{{- include "comity.checkCertManager" . -}}
{{- include "comity.checkOtherRelease" . -}}
{{- include "comity.checkDefinitions" . -}}
{{- end -}}
{{- end }}

{{- define "comity.checkIdentity" -}}
{{- if .Values.clusterID -}}
{{- if or (gt (len .Values.clusterID) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .Values.clusterID)) -}}
{{- fail (printf "clusterID: %q is not one RFC 1123 label: expected lower-case letters, digits and '-', at most 63 characters, no dot; choose an id such as \"cluster-1\"" .Values.clusterID) -}}
{{- end -}}
{{- else if not .Values.clusterProperty -}}
{{- fail "clusterID is not set: expected the id of this cluster, unique in the clusterset; add --set clusterID=…, or clusterProperty=true to take it from ClusterProperty cluster.clusterset.k8s.io" -}}
{{- end -}}
{{- if .Values.clusterset -}}
{{- if or (gt (len .Values.clusterset) 63) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .Values.clusterset)) -}}
{{- fail (printf "clusterset: %q is not a DNS subdomain of at most 63 characters: expected lower-case letters, digits, '-' and '.'; choose a name such as \"example\"" .Values.clusterset) -}}
{{- end -}}
{{- else if not .Values.clusterProperty -}}
{{- fail "clusterset is not set: expected the name of the clusterset, the same in every member; add --set clusterset=…, or clusterProperty=true to take it from ClusterProperty clusterset.k8s.io" -}}
{{- end -}}
{{- end }}

{{- define "comity.checkCertificate" -}}
{{- with .Values.webhook.certificate -}}
{{- if and .existingSecret (not (contains "-----BEGIN CERTIFICATE-----" .caBundle)) -}}
{{- fail (printf "webhook.certificate.caBundle: expected PEM certificates that verify the one in Secret %s (webhook.certificate.existingSecret); add --set-file webhook.certificate.caBundle=ca.crt" .existingSecret) -}}
{{- end -}}
{{- if and .caBundle (not .existingSecret) -}}
{{- fail "webhook.certificate.caBundle is set and webhook.certificate.existingSecret is not: expected the Secret whose certificate the bundle verifies; set both, or neither to use cert-manager" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "comity.checkPods" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: expected the ServiceAccount that the agent runs as; name it, or set serviceAccount.create=true" -}}
{{- end -}}
{{- if and (not .Values.leaderElect) (gt (int .Values.replicaCount) 1) -}}
{{- fail (printf "leaderElect is false and replicaCount is %d: expected one replica without an election, or all of them write; set leaderElect=true or replicaCount=1" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if and (eq .Values.sync.takeover "sveltos") (not .Values.sync.import) -}}
{{- fail "sync.takeover is sveltos and sync.import is false, with which Comity does not write these objects: expected takeover=none or import=true" -}}
{{- end -}}
{{- range .Values.networkPolicy.apiServerCIDRs -}}
{{- if not (contains "/" .) -}}
{{- fail (printf "networkPolicy.apiServerCIDRs: %q is not an address range: expected one such as \"10.0.0.1/32\"" .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "comity.checkClusterProperty" -}}
{{- if .Values.clusterProperty -}}
{{- range $value, $property := dict "clusterID" "cluster.clusterset.k8s.io" "clusterset" "clusterset.k8s.io" -}}
{{- if and (not (get $.Values $value)) (not (lookup "about.k8s.io/v1beta1" "ClusterProperty" "" $property)) -}}
{{- fail (printf "clusterProperty is true and %s is not set, but this cluster has no ClusterProperty %s (about.k8s.io/v1beta1): create it, or set %s" $value $property $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "comity.checkCertManager" -}}
{{- if and (not .Values.webhook.certificate.existingSecret) (not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate")) -}}
{{- fail "cert-manager is not installed in this cluster (no cert-manager.io/v1 Certificate is served): expected cert-manager 1.19 or newer, which issues the webhook's certificate; install it first (https://cert-manager.io/docs/installation/helm), or set webhook.certificate.existingSecret and webhook.certificate.caBundle" -}}
{{- end -}}
{{- end }}

{{/* Two agents in one cluster would undo each other's writes. Every installation has this configuration. */}}
{{- define "comity.checkOtherRelease" -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "").items -}}
{{- if eq (dig "metadata" "labels" "app.kubernetes.io/name" "" .) "comity" -}}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . -}}
{{- if not $release -}}
{{- fail (printf "Comity is installed in this cluster already, without Helm (ValidatingWebhookConfiguration %s): expected none; remove that installation first" .metadata.name) -}}
{{- else if or (ne $release $.Release.Name) (ne $namespace $.Release.Namespace) -}}
{{- fail (printf "Comity is installed in this cluster already, as release %s in namespace %s: expected one release for each cluster; upgrade that one (helm upgrade %s … --namespace %s), or uninstall it first" $release $namespace $release $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The Job also refuses them, but later, and with crds.enabled=false there is no Job. */}}
{{- define "comity.checkDefinitions" -}}
{{- range $name := list "serviceexports.multicluster.x-k8s.io" "serviceimports.multicluster.x-k8s.io" -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
{{- if ne (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" .) "comity-install" -}}
{{- $served := list -}}
{{- range .spec.versions -}}
{{- if .served -}}{{- $served = append $served .name -}}{{- end -}}
{{- end -}}
{{- if not (has "v1beta1" $served) -}}
{{- fail (printf "CustomResourceDefinition %s is too old: it serves %s, expected v1beta1 (mcs-api v0.5.2 has it). Something else installed it, so this chart does not change it: upgrade what did, or delete the definition, with all its objects, and install again" $name (join ", " $served)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
