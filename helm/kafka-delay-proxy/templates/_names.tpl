{{/* Names and labels. */}}

{{- define "proxy.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
At most 40 characters: Kubernetes extends the names of pods and Jobs, and a label holds 63. A longer name
is cut and ends with a digest, so that two long names stay different.
*/}}
{{- define "proxy.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $whole = .Values.fullnameOverride | default $whole -}}
{{- if gt (len $whole) 40 -}}
{{- printf "%s-%s" ($whole | trunc 31 | trimSuffix "-") ($whole | sha256sum | trunc 8) -}}
{{- else -}}
{{- $whole | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change after the install, for selectors and volumes. */}}
{{- define "proxy.identity" -}}
app.kubernetes.io/name: {{ include "proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "proxy.selector" -}}
{{ include "proxy.identity" . }}
app.kubernetes.io/component: proxy
{{- end -}}

{{- define "proxy.labels" -}}
{{ include "proxy.identity" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{/* The Secret with the token of the admin port: the named one, else the chart's own. Empty = no token. */}}
{{- define "proxy.adminTokenSecret" -}}
{{- with .Values.credentials.adminToken -}}
{{- .existingSecret | default (ternary (printf "%s-admin-token" (include "proxy.fullname" $)) "" .create) -}}
{{- end -}}
{{- end -}}

{{- define "proxy.serviceAccountName" -}}
{{- $own := ternary (include "proxy.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{- define "proxy.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}
