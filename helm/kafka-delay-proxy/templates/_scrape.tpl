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
  {{- $secret := include "proxy.adminTokenSecret" .root }}
  {{- if and $secret (eq .port "admin") }}
  authorization:
    type: Bearer
    credentials:
      name: {{ $secret }}
      key: {{ .root.Values.credentials.adminToken.key | quote }}
  {{- end }}
  {{- range $field := list "relabelings" "metricRelabelings" }}
  {{- with index $monitor $field }}
  {{- dict $field . | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end -}}
