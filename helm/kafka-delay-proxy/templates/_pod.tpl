{{/* Parts of the pods of the proxy, the topics' Job, the audit and the test. */}}

{{- define "proxy.configFolder" -}}/etc/kafka-delay-proxy{{- end -}}
{{- define "proxy.configFile" -}}{{ include "proxy.configFolder" . }}/proxy.yaml{{- end -}}
{{- define "proxy.tlsFolder" -}}/etc/kafka-tls{{- end -}}
{{- define "proxy.tokensFolder" -}}/etc/delay-proxy-tokens{{- end -}}
{{- define "proxy.adminTlsFolder" -}}/etc/admin-tls{{- end -}}

{{/* Security and placement of a pod. */}}
{{- define "proxy.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- $secrets := .Values.imagePullSecrets -}}
{{- range .Values.global.imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- range $field := list "hostAliases" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $.Values $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
A container, from its image on. Takes a dict: root, image, resources, and as needed sasl (the Secret with user
and password), variables (YAML) and mounts (a list).
*/}}
{{- define "proxy.container" -}}
image: {{ .image }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [kafka-delay-proxy]
env:
  {{- with .variables }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- include "proxy.variables" (list .root .sasl) | nindent 2 }}
{{- with .root.Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  {{- with .mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "proxy.mounts" .root | nindent 2 }}
{{- end -}}

{{/* A variable from a Secret. Takes a list: name, Secret, key. No variable if the key is empty. */}}
{{- define "proxy.secretVariable" -}}
{{- $name := index . 0 -}}{{- $secret := index . 1 -}}{{- $key := index . 2 -}}
{{- if and $secret $key }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ $key | quote }}
{{- end }}
{{- end -}}

{{/* Variables of the proxy's own pods: their name, and the admin token. */}}
{{- define "proxy.podVariables" -}}
- name: DELAY_PROXY_INSTANCE_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- include "proxy.secretVariable" (list "DELAY_PROXY_ADMIN__TOKEN" (include "proxy.adminTokenSecret" .) .Values.credentials.adminToken.key) }}
{{- with .Values.credentials.adminTls }}
{{- if .existingSecret }}
- name: DELAY_PROXY_ADMIN__TLS__CERTIFICATE
  value: {{ include "proxy.adminTlsFolder" $ }}/{{ .certificateKey }}
- name: DELAY_PROXY_ADMIN__TLS__KEY
  value: {{ include "proxy.adminTlsFolder" $ }}/{{ .privateKeyKey }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secret and key of the token for /metrics: one with the role metrics, else the admin token. Empty = none. */}}
{{- define "proxy.metricsToken" -}}
{{- $found := dict "name" (include "proxy.adminTokenSecret" .) "key" .Values.credentials.adminToken.key -}}
{{- range .Values.credentials.adminTokens -}}
{{- if and (eq .role "metrics") (not .trusted) -}}
{{- $found = dict "name" .existingSecret "key" (.key | default "token") -}}
{{- end -}}
{{- end -}}
{{- if $found.name }}{{ toYaml $found }}{{ end -}}
{{- end -}}

{{/* Variables for Kafka, then extraEnv. Takes a list: the root, and the Secret with user and password. */}}
{{- define "proxy.variables" -}}
{{- $root := index . 0 -}}{{- $sasl := index . 1 -}}
{{- with $root.Values.credentials -}}
- name: DELAY_PROXY_CONFIG
  value: {{ include "proxy.configFile" $root }}
{{- include "proxy.secretVariable" (list "DELAY_PROXY_KAFKA__SASL_USERNAME" $sasl .sasl.usernameKey) }}
{{- include "proxy.secretVariable" (list "DELAY_PROXY_KAFKA__SASL_PASSWORD" $sasl .sasl.passwordKey) }}
{{- if .tls.existingSecret }}
{{- include "proxy.tlsVariable" (list $root "CA" .tls.caKey) }}
{{- include "proxy.tlsVariable" (list $root "CERTIFICATE" .tls.certificateKey) }}
{{- include "proxy.tlsVariable" (list $root "KEY" .tls.privateKeyKey) }}
{{- include "proxy.secretVariable" (list "DELAY_PROXY_KAFKA__SSL_KEY_PASSWORD" .tls.existingSecret .tls.privateKeyPasswordKey) }}
{{- end }}
{{- end }}
{{- with $root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "proxy.tlsVariable" -}}
{{- $root := index . 0 -}}{{- $what := index . 1 -}}{{- $key := index . 2 -}}
{{- if $key }}
- name: DELAY_PROXY_KAFKA__SSL_{{ $what }}_LOCATION
  value: {{ include "proxy.tlsFolder" $root }}/{{ $key }}
{{- end }}
{{- end -}}

{{- define "proxy.mounts" -}}
- name: config
  mountPath: {{ include "proxy.configFolder" . }}
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if .Values.credentials.tls.existingSecret }}
- name: tls
  mountPath: {{ include "proxy.tlsFolder" . }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod. Takes a list: the root, and the ConfigMap with the settings. */}}
{{- define "proxy.volumes" -}}
{{- $root := index . 0 -}}
- name: config
  configMap:
    name: {{ index . 1 }}
- name: tmp
  emptyDir: {}
{{- with $root.Values.credentials.tls }}
{{- if .existingSecret }}
- name: tls
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items:
      {{- range $key := compact (list .caKey .certificateKey .privateKeyKey) }}
      - key: {{ $key | quote }}
        path: {{ $key | quote }}
      {{- end }}
{{- end }}
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "proxy.settings" -}}
{{- $config := deepCopy .Values.config -}}
{{- range $name, $token := .Values.credentials.adminTokens -}}
{{- $file := printf "%s/%s" (include "proxy.tokensFolder" $) $name -}}
{{- $_ := set $config.admin.tokens $name (set (omit $token "existingSecret" "key") "file" $file) -}}
{{- end -}}
{{- range $key, $url := dict "docs_url" .Chart.Home "runbook_url" .Values.prometheusRule.runbookUrl -}}
{{- if and $url (not (get $config.admin $key)) }}{{ $_ := set $config.admin $key $url }}{{ end -}}
{{- end -}}
{{- if not $config.admin.peers -}}
{{- $pods := printf "%s-pods.%s.svc" (include "proxy.fullname" .) .Release.Namespace -}}
{{- $_ := set $config.admin "peers" (list (printf "%s://%s:%v" (include "proxy.adminScheme" .) $pods $config.admin.port)) -}}
{{- end -}}
proxy.yaml: |
  # From the values of the release {{ .Release.Name }}; secrets come as environment variables and files.
  {{- toYaml $config | nindent 2 }}
{{- end -}}
