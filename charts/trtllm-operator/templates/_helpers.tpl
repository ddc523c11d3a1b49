{{/* Base of every object's name: the release's, so that several installations can live beside each other. */}}
{{- define "trtllm-operator.name" -}}
{{- .Values.nameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the webhook's Service, Secret and configuration; empty where there is no webhook. */}}
{{- define "trtllm-operator.webhook" -}}
{{- if and .Values.webhook.enabled (not .Values.watchNamespaces) -}}
{{ include "trtllm-operator.name" . }}-webhook
{{- end -}}
{{- end -}}

{{- define "trtllm-operator.selector" -}}
app.kubernetes.io/name: trtllm-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* No app.kubernetes.io/managed-by=trtllm-operator here: that label selects the operator's own children. */}}
{{- define "trtllm-operator.labels" -}}
{{ include "trtllm-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Image reference of a value {repository, tag, digest}; call with (list $ .Values.x). */}}
{{- define "trtllm-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What the operator may do where its users' objects live: the verbs that its calls use, no more. */}}
{{- define "trtllm-operator.rules" -}}
- apiGroups: [inference.trtllm-operator.dev]
  resources: [llmdeployments]
  verbs: [get, list, watch]
- apiGroups: [inference.trtllm-operator.dev]
  resources: [llmengines]
  verbs: [get, list, watch, create, delete]
- apiGroups: [inference.trtllm-operator.dev]
  resources: [llmdeployments/status, llmengines/status]
  verbs: [patch]
# For owner references that block deletion, where the admission plugin OwnerReferencesPermissionEnforcement is on.
- apiGroups: [inference.trtllm-operator.dev]
  resources: [llmdeployments/finalizers, llmengines/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, create, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
{{- if not .Values.watchNamespaces }}
# Where free GPUs are, and which nodes are lost. No Role can grant it: without it replicas are replaced one by one.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}
# Deleted are only pods whose node is lost.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# The progress of a build is read from its pods' logs.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
