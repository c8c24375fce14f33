{{/*
Copyright The Comity Authors
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
Labels and annotations of an object that installs or tests. Helm deletes the objects of a hook, except for a failed Job with its log.
  root    the chart's context
  events  when Helm makes the object
  weight  the order among objects of the same event
  job     true if it runs the image
*/}}
{{- define "comity.hookMetadata" -}}
{{- $annotations := include "comity.hookAnnotations" . | fromYaml -}}
{{- include "comity.metadata" (dict "root" .root "annotations" $annotations "selector" "comity.jobSelectorLabels") -}}
{{- end }}

{{- define "comity.hookAnnotations" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- if .job }}
helm.sh/hook-output-log-policy: hook-failed
{{- end }}
{{- end }}

{{/*
A Job of the chart and its rights.
  root    the chart's context
  name    crds or policies
  events  when Helm runs it
  rules   of its ClusterRole
  args    of the container
  configMap  that is mounted at /etc/comity, or ""
*/}}
{{- define "comity.job" -}}
{{- $root := .root -}}
{{- $name := printf "%s-install-%s" (include "comity.fullname" .root) .name -}}
{{- $metadata := include "comity.hookMetadata" (dict "root" .root "events" .events "weight" -10) -}}
{{- $spec := include "comity.jobSpec" (set . "account" $name) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- $metadata | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- $metadata | nindent 2 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: batch/v1
kind: Job
metadata:
  # A Job is immutable. Another spec has another name, so that the manifests can be applied again.
  name: {{ $name }}-{{ printf "%s%s" $spec (.content | default "") | sha256sum | trunc 8 }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "comity.hookMetadata" (dict "root" .root "events" .events "weight" 0 "job" true) | nindent 2 }}
spec: {{- $spec | nindent 2 }}
{{- end }}

{{- define "comity.jobSpec" -}}
{{- with .root.Values -}}
backoffLimit: {{ .install.backoffLimit }}
ttlSecondsAfterFinished: {{ .install.ttlSecondsAfterFinished }}
{{- end }}
template:
  metadata:
    labels: {{- include "comity.jobSelectorLabels" .root | nindent 6 }}
  spec:
    serviceAccountName: {{ .account }}
    restartPolicy: Never
    {{- include "comity.jobPod" .root | trim | nindent 4 }}
    containers:
      - name: {{ .name }}
        image: {{ include "comity.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args: {{- .args | nindent 10 }}
        {{- with .root.Values.install.resources }}
        resources: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with .root.Values.securityContext }}
        securityContext: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- if .configMap }}
        volumeMounts:
          - name: manifests
            mountPath: /etc/comity
            readOnly: true
        {{- end }}
    {{- if .configMap }}
    volumes:
      - name: manifests
        configMap:
          name: {{ .configMap }}
    {{- end }}
{{- end }}

{{/* Placement and security context of a Pod that installs or tests. */}}
{{- define "comity.jobPod" -}}
{{- with include "comity.imagePullSecrets" . }}
{{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
