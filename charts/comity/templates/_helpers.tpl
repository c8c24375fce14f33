{{/*
Copyright The Comity Authors
SPDX-License-Identifier: Apache-2.0
*/}}

{{/* Name of every object of the release; the longest suffix has 25 characters. */}}
{{- define "comity.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default "comity" -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc (sub 37 (len $name) | int) | trimSuffix "-") $name -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "comity.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "comity.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "comity.certSecret" -}}
{{- .Values.webhook.certificate.existingSecret | default (printf "%s-webhook-cert" (include "comity.fullname" .)) -}}
{{- end }}

{{- define "comity.image" -}}
{{- $repository := list (.Values.global.imageRegistry | default .Values.image.registry) .Values.image.repository | compact | join "/" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* Those of a parent chart may be names, as other charts expect them. */}}
{{- define "comity.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{/* Selector labels of the agent's Pods. Pods of Jobs must not have them: the Service of the webhook would select these Pods. */}}
{{- define "comity.selectorLabels" -}}
app.kubernetes.io/name: comity
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "comity.commonLabels" -}}
app.kubernetes.io/part-of: comity
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Labels and annotations of an object. It takes the chart's context, or:
  root         the chart's context
  labels       of this object, besides those of every object
  annotations  of this object, besides those of every object
  selector     the template with the labels by which the object's Pods are selected, if these are not the agent's
*/}}
{{- define "comity.metadata" -}}
{{- $root := .root | default . -}}
labels:
  {{- include (.selector | default "comity.selectorLabels") $root | nindent 2 }}
  {{- include "comity.commonLabels" $root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Selector labels of the Pods that install and test. They are not endpoints of the webhook. */}}
{{- define "comity.jobSelectorLabels" -}}
app.kubernetes.io/name: comity-install
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The part of config/webhook that is the same for every webhook: clientConfig, policy, timeout and namespaces. */}}
{{- define "comity.webhooks" -}}
{{- $root := .root -}}
{{- $webhooks := list -}}
{{- range (.root.Files.Get .file | fromYaml).webhooks -}}
{{- $client := dict "service" (dict "name" (printf "%s-webhook" (include "comity.fullname" $root)) "namespace" $root.Release.Namespace "path" .clientConfig.service.path "port" 443) -}}
{{- if $root.Values.webhook.certificate.existingSecret -}}
{{- $_ := set $client "caBundle" ($root.Values.webhook.certificate.caBundle | b64enc) -}}
{{- end -}}
{{- $_ := set . "clientConfig" $client -}}
{{- $_ := set . "failurePolicy" $root.Values.webhook.failurePolicy -}}
{{- $_ := set . "timeoutSeconds" $root.Values.webhook.timeoutSeconds -}}
{{- if .namespaceSelector -}}
{{- /* The namespaces of config/webhook, with the names that those of Comity and of cert-manager have here. */ -}}
{{- $excluded := list -}}
{{- range (index .namespaceSelector.matchExpressions 0).values -}}
{{- if eq . "comity-system" -}}
{{- $excluded = append $excluded $root.Release.Namespace -}}
{{- else if ne . "cert-manager" -}}
{{- $excluded = append $excluded . -}}
{{- else if not $root.Values.webhook.certificate.existingSecret -}}
{{- $excluded = append $excluded $root.Values.webhook.certificate.certManager.namespace -}}
{{- end -}}
{{- end -}}
{{- $excluded = concat $excluded $root.Values.webhook.excludedNamespaces | uniq -}}
{{- $_ := set . "namespaceSelector" (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $excluded))) -}}
{{- end -}}
{{- $webhooks = append $webhooks . -}}
{{- end -}}
{{- toYaml $webhooks -}}
{{- end }}

{{/* Inject the CA, not the serving certificate, so that the API server trusts a new CA before a replica uses it. */}}
{{- define "comity.webhookAnnotations" -}}
{{- if not .Values.webhook.certificate.existingSecret -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "comity.fullname" . }}-webhook-ca
{{- end -}}
{{- end }}
