{{/*
An endpoint of a monitor for the Prometheus operator. Takes a dict: root, port, and the monitor's values.
Only the port `admin` gets the token.
*/}}
{{- define "proxy.endpoint" -}}
{{- $monitor := .monitor -}}
- port: {{ .port }}
  path: /metrics
  interval: {{ $monitor.interval }}
  scrapeTimeout: {{ $monitor.scrapeTimeout }}
  {{- $token := include "proxy.metricsToken" .root }}
  {{- if and $token (eq .port "admin") }}
  authorization:
    type: Bearer
    credentials:
      {{- $token | nindent 6 }}
  {{- end }}
  {{- if and (eq .port "admin") (eq (include "proxy.adminScheme" .root) "https") }}
  scheme: https
  tlsConfig:
    {{- with .root.Values.credentials.adminTls }}
    {{- if and .existingSecret .caKey }}
    ca:
      secret:
        name: {{ .existingSecret }}
        key: {{ .caKey | quote }}
    {{- end }}
    serverName: {{ .serverName | default (printf "%s-admin.%s.svc" (include "proxy.fullname" $.root) $.root.Release.Namespace) }}
    {{- end }}
  {{- end }}
  {{- range $field := list "relabelings" "metricRelabelings" }}
  {{- with index $monitor $field }}
  {{- dict $field . | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end -}}
