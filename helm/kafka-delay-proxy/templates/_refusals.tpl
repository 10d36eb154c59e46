{{/* What the schema cannot say in a sentence. Included by the ConfigMap, so that it is always judged. */}}
{{- define "proxy.refusals" -}}
{{- range $name, $value := .Values.config.kafka -}}
  {{- if regexMatch "(password|secret|key\\.pem$|jaas)" $name -}}
    {{- fail (printf "\n\nconfig.kafka.%q is a secret, and everybody may read a ConfigMap. Put it into a Secret and name that under `credentials`, or take it from one by `extraEnv` (DELAY_PROXY_KAFKA__%s)." $name ($name | replace "." "_" | upper)) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if and (hasKey . "value") (regexMatch "(?i)^delay_proxy_.*(password|secret|__token|key_pem)" .name) -}}
    {{- fail (printf "\n\nextraEnv: %s is a secret, and everybody who sees the pod could read it. Take it from a Secret by `valueFrom`." .name) -}}
  {{- end -}}
{{- end -}}
{{- $protocol := index .Values.config.kafka "security.protocol" | default "PLAINTEXT" | upper -}}
{{- if and .Values.credentials.sasl.existingSecret (not (hasPrefix "SASL_" $protocol)) -}}
  {{- fail "\n\ncredentials.sasl needs config.kafka.\"security.protocol\": SASL_SSL (or SASL_PLAINTEXT), and \"sasl.mechanism\"." -}}
{{- end -}}
{{- if and .Values.credentials.tls.existingSecret (not (hasSuffix "SSL" $protocol)) -}}
  {{- fail "\n\ncredentials.tls needs config.kafka.\"security.protocol\": SSL or SASL_SSL." -}}
{{- end -}}
{{- $transaction := index .Values.config.kafka "transaction.timeout.ms" | default 10000 | int64 -}}
{{- if le (mul 1000 (int64 .Values.terminationGracePeriodSeconds)) $transaction -}}
  {{- fail (printf "\n\nterminationGracePeriodSeconds (%d) must be longer than a transaction may take (%d ms): a pod killed in one holds up its successor." (int64 .Values.terminationGracePeriodSeconds) $transaction) -}}
{{- end -}}
{{- end -}}
