{{/* Checks beyond the schema. The ConfigMap includes them, so that they always run. */}}
{{- define "proxy.refusals" -}}
{{- range $other, $ours := .Files.Get "files/other-names.yaml" | fromYaml -}}
  {{- $parts := splitList "." $other -}}
  {{- $section := len $parts | eq 1 | ternary $.Values (index $.Values (first $parts) | default dict) -}}
  {{- if hasKey $section (last $parts) -}}
    {{- fail (printf "\n\n%s is a name of other charts. This chart has %s." $other $ours) -}}
  {{- end -}}
{{- end -}}
{{- range $name := concat (keys .Values.commonLabels) (keys .Values.podLabels) -}}
  {{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|version|managed-by)|helm\\.sh/chart)$" $name -}}
    {{- fail (printf "\n\nThe chart sets the label %s. Remove it from commonLabels and podLabels." $name) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
  {{- fail "\n\nserviceMonitor and podMonitor are both enabled. Prometheus would count each pod twice. Enable one of them." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
  {{- fail "\n\ningress.enabled needs ingress.hosts, for example [delays.example.com]." -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
  {{- fail "\n\nhttpRoute.enabled needs httpRoute.parentRefs, for example [{name: my-gateway, namespace: gateways}]." -}}
{{- end -}}
{{- if and (or .Values.ingress.enabled .Values.httpRoute.enabled) (not (include "proxy.hasToken" .)) -}}
  {{- fail "\n\ningress and httpRoute need a token, since without one the admin port answers only to local names. Set credentials.adminToken.existingSecret or credentials.adminTokens." -}}
{{- end -}}
{{- range $name, $value := .Values.config.kafka -}}
  {{- if regexMatch "(password|secret|key\\.pem$|jaas)" $name -}}
    {{- fail (printf "\n\nconfig.kafka.%q is a secret, and everybody in the namespace can read a ConfigMap. Put it into a Secret, and name the Secret under `credentials`. Or take it from a Secret with `extraEnv` (DELAY_PROXY_KAFKA__%s)." $name ($name | replace "." "_" | upper)) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if not .name -}}
    {{- fail "\n\nextraEnv: each entry needs a name." -}}
  {{- end -}}
  {{- if and (hasKey . "value") (regexMatch "(?i)^delay_proxy_.*(password|secret|__token|key_pem)" .name) -}}
    {{- fail (printf "\n\nextraEnv: %s is a secret, and everybody who sees the pod can read it. Take it from a Secret with `valueFrom`." .name) -}}
  {{- end -}}
{{- end -}}
{{- $protocol := index .Values.config.kafka "security.protocol" | default "PLAINTEXT" | upper -}}
{{- if and .Values.credentials.sasl.existingSecret (not (hasPrefix "SASL_" $protocol)) -}}
  {{- fail "\n\ncredentials.sasl needs config.kafka.\"security.protocol\": SASL_SSL (or SASL_PLAINTEXT), and \"sasl.mechanism\"." -}}
{{- end -}}
{{- if and (hasPrefix "SASL_" $protocol) (not (index .Values.config.kafka "sasl.mechanism")) -}}
  {{- fail "\n\nconfig.kafka.\"security.protocol\" is SASL, but config.kafka.\"sasl.mechanism\" is missing. Set it to SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER." -}}
{{- end -}}
{{- if regexMatch "^(127\\.|localhost$|::1$)" .Values.config.admin.host -}}
  {{- fail (printf "\n\nconfig.admin.host is %s. The kubelet's probes and Prometheus cannot reach it from outside the pod, and the pod would be restarted for ever. Leave it at 0.0.0.0 (or \"::\" for IPv6 only)." .Values.config.admin.host) -}}
{{- end -}}
{{- $isAuto := eq (toString .Values.config.workers) "auto" -}}
{{- if and $isAuto (not (dig "limits" "cpu" "" (.Values.resources | default dict))) -}}
  {{- fail "\n\nconfig.workers is auto, but resources.limits.cpu is missing. The pod would start a worker for each core of the node. Set resources.limits.cpu, or a number of workers." -}}
{{- end -}}
{{- if and (or $isAuto (gt (int .Values.config.workers) 1)) (le (int64 .Values.terminationGracePeriodSeconds) 30) -}}
  {{- fail "\n\nterminationGracePeriodSeconds must be longer than 30 s, since several workers get 30 s to end (config.workers)." -}}
{{- end -}}
{{- if and .Values.credentials.tls.existingSecret (not (hasSuffix "SSL" $protocol)) -}}
  {{- fail "\n\ncredentials.tls needs config.kafka.\"security.protocol\": SSL or SASL_SSL." -}}
{{- end -}}
{{- if regexMatch "^/(tmp|etc/kafka-delay-proxy)(/|$)" .Values.config.data_dir -}}
  {{- fail (printf "\n\nconfig.data_dir is %s, but another volume is mounted there. Leave it at /data." .Values.config.data_dir) -}}
{{- end -}}
{{- $transaction := index .Values.config.kafka "transaction.timeout.ms" | default 10000 | int64 -}}
{{- if le (mul 1000 (int64 .Values.terminationGracePeriodSeconds)) $transaction -}}
  {{- fail (printf "\n\nterminationGracePeriodSeconds (%d) must be longer than a transaction (%d ms). A pod killed in a transaction delays its successor." (int64 .Values.terminationGracePeriodSeconds) $transaction) -}}
{{- end -}}
{{- end -}}
