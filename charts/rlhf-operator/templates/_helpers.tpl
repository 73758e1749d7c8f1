{{- define "rlhf-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rlhf-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "rlhf-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "rlhf-operator.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of objects that all namespaces share hold the release's namespace: two releases must not take each other's. */}}
{{- define "rlhf-operator.clusterName" -}}
{{- if eq .Release.Namespace (include "rlhf-operator.fullname" .) -}}
{{- include "rlhf-operator.fullname" . }}
{{- else -}}
{{- printf "%s-%s" .Release.Namespace (include "rlhf-operator.fullname" .) }}
{{- end }}
{{- end }}

{{- define "rlhf-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rlhf-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rlhf-operator.labels" -}}
{{- $own := include "rlhf-operator.selectorLabels" . | fromYaml -}}
{{- $about := dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge dict $own $about .Values.commonLabels) }}
{{- end }}

{{- define "rlhf-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "rlhf-operator.fullname" .) }}
{{- end }}

{{- define "rlhf-operator.keySecret" -}}
{{- .Values.key.existingSecret | default (printf "%s-key" (include "rlhf-operator.fullname" .)) }}
{{- end }}

{{/* The name of an image. Takes a list: the root, and the values of the image. */}}
{{- define "rlhf-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with $root.Values.imageRegistry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest }}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* The namespaces of scope Namespaced, as YAML below `namespaces`. */}}
{{- define "rlhf-operator.namespaces" -}}
{{- if eq .Values.scope "Namespaced" -}}
{{- dict "namespaces" (.Values.watchNamespaces | default (list .Release.Namespace) | uniq) | toYaml }}
{{- else -}}
namespaces: []
{{- end }}
{{- end }}

{{/* What contradicts itself is refused here; what is misspelled, by values.schema.json. */}}
{{- define "rlhf-operator.validate" -}}
{{- with .Values -}}
{{- if and (eq .scope "Cluster") .watchNamespaces -}}
{{- fail "`watchNamespaces` must be empty with `scope: Cluster`, which looks after all namespaces; set `scope: Namespaced` to be limited to them" -}}
{{- end -}}
{{- if and (gt (int .replicas) 1) (not .leaderElection.enabled) -}}
{{- fail "`leaderElection.enabled` must be true with more than one of `replicas`, since two operators must not work at once" -}}
{{- end -}}
{{- if and .metrics.serviceMonitor.enabled .metrics.podMonitor.enabled -}}
{{- fail "`metrics.serviceMonitor.enabled` and `metrics.podMonitor.enabled` must not both be true: everything would be counted twice" -}}
{{- end -}}
{{- if and .metrics.serviceMonitor.enabled (not .metrics.service.enabled) -}}
{{- fail "`metrics.service.enabled` must be true for `metrics.serviceMonitor.enabled`; or set `metrics.podMonitor.enabled`, which needs no Service" -}}
{{- end -}}
{{- if eq (int .metrics.port) (int .health.port) -}}
{{- fail (printf "`metrics.port` and `health.port` must differ, both are %d" (int .health.port)) -}}
{{- end -}}
{{- if and (not .serviceAccount.create) (not .serviceAccount.name) -}}
{{- fail "`serviceAccount.name` must be given when `serviceAccount.create` is false: else the namespace's default account would get the operator's rights" -}}
{{- end -}}
{{- end -}}
{{- end }}
