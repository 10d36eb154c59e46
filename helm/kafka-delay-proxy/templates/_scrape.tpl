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
  {{- range $field := list "relabelings" "metricRelabelings" }}
  {{- with index $monitor $field }}
  {{- dict $field . | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end -}}
