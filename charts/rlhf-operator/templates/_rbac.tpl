{{/*
What the operator may do in the namespaces of jobs. Why each right is needed is told in docs/rbac.md, which a test
compares with this.
*/}}
{{- define "rlhf-operator.jobRules" -}}
- apiGroups: [rlhf.dev]
  resources: [rlhfjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [rlhf.dev]
  resources: [rlhfjobs/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch]
{{- if .Values.jobs.networkPolicies }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
{{- end }}
{{- if .Values.jobs.podMonitors.enabled }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end }}

{{/* The service account, as the subject of a binding. */}}
{{- define "rlhf-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "rlhf-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
