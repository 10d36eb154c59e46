{{/* Names, labels and metadata. */}}

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

{{/*
Metadata of a resource. Takes a dict: root, and as needed name (after the full name), component, labels and
annotations.
*/}}
{{- define "proxy.metadata" -}}
{{- $own := include "proxy.labels" .root | fromYaml -}}
{{- with .component }}{{ $_ := set $own "app.kubernetes.io/component" . }}{{ end -}}
name: {{ include "proxy.fullname" .root }}{{ with .name }}-{{ . }}{{ end }}
labels:
  {{- mergeOverwrite (dict) .root.Values.commonLabels (.labels | default dict) $own | toYaml | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Metadata of a pod. A changed checksum restarts it. Takes a dict: root, component, container (the first one)
and checksums.
*/}}
{{- define "proxy.podMetadata" -}}
{{- $values := .root.Values -}}
{{- $own := include "proxy.identity" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
labels:
  {{- mergeOverwrite (dict) $values.commonLabels $values.podLabels $own | toYaml | nindent 2 }}
annotations:
  {{- $main := dict "kubectl.kubernetes.io/default-container" .container }}
  {{- mergeOverwrite $main (.checksums | default dict) $values.podAnnotations | toYaml | nindent 2 }}
{{- end -}}

{{/* The Secret with the token of the admin port: the named one, else the chart's own. Empty = no token. */}}
{{- define "proxy.adminTokenSecret" -}}
{{- with .Values.credentials.adminToken -}}
{{- .existingSecret | default (ternary (printf "%s-admin-token" (include "proxy.fullname" $)) "" .create) -}}
{{- end -}}
{{- end -}}

{{- define "proxy.hasToken" -}}
{{- if or (include "proxy.adminTokenSecret" .) .Values.credentials.adminTokens .Values.config.admin.tokens }}true{{ end -}}
{{- end -}}

{{/* Whether the admin port speaks TLS: "https", else "http". */}}
{{- define "proxy.adminScheme" -}}
{{- $isTls := or .Values.credentials.adminTls.existingSecret .Values.config.admin.tls.certificate -}}
{{- ternary "https" "http" (not (empty $isTls)) -}}
{{- end -}}

{{- define "proxy.serviceAccountName" -}}
{{- $own := ternary (include "proxy.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{/* An image. Takes a list: the root, its values, its tag. The proxy's image has what these values lack. */}}
{{- define "proxy.imageOf" -}}
{{- $proxys := (index . 0).Values.image -}}{{- $image := index . 1 -}}
{{- $repository := $image.repository | default $proxys.repository -}}
{{- $registry := $image.registry -}}
{{- if not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $repository) -}}
{{- $registry = $registry | default $proxys.registry | default (index . 0).Values.global.imageRegistry -}}
{{- end -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ index . 2 }}{{ end -}}
{{- end -}}

{{- define "proxy.image" -}}
{{- include "proxy.imageOf" (list . .Values.image (.Values.image.tag | default .Chart.AppVersion)) -}}
{{- end -}}
