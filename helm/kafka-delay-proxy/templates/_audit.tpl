{{/* Parts of the pods of both audits: the CronJob and the continuous audit. */}}

{{- define "proxy.hasAudit" -}}
{{- if or .Values.audit.enabled .Values.audit.follow.enabled }}true{{ end -}}
{{- end -}}

{{- define "proxy.isSparkOnKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.audit.spark.master }}true{{ end -}}
{{- end -}}

{{- define "proxy.auditImage" -}}
{{- $own := .Values.audit.image -}}
{{- $tag := printf "%s%s" (.Values.image.tag | default .Chart.AppVersion) $own.tagSuffix -}}
{{- include "proxy.imageOf" (list . $own ($own.tag | default $tag)) -}}
{{- end -}}

{{/* Metadata of a pod. Takes a list: the root, and the name of the component. */}}
{{- define "proxy.auditMetadata" -}}
{{- $root := index . 0 -}}
{{- $spark := include (print $root.Template.BasePath "/audit-spark-configmap.yaml") $root -}}
{{- $checksums := dict "checksum/config" (include "proxy.settings" $root | sha256sum) "checksum/spark" ($spark | sha256sum) -}}
{{- include "proxy.podMetadata" (dict "root" $root "component" (index . 1) "container" "audit" "checksums" $checksums) -}}
{{- end -}}

{{- define "proxy.auditPodSettings" -}}
{{- if include "proxy.isSparkOnKubernetes" . -}}
serviceAccountName: {{ include "proxy.fullname" . }}-audit
{{ include "proxy.podSettings" . | replace "automountServiceAccountToken: false" "automountServiceAccountToken: true" }}
{{- else -}}
serviceAccountName: {{ include "proxy.serviceAccountName" . }}
{{ include "proxy.podSettings" . }}
{{- end }}
{{- end -}}

{{- define "proxy.auditArguments" -}}
- audit
- --config={{ include "proxy.configFile" . }}
{{- range .Values.audit.targets }}
- {{ printf "--target=%s" . | quote }}
{{- end }}
{{- range .Values.audit.maxLateness }}
- {{ printf "--max-lateness=%s" . | quote }}
{{- end }}
- {{ printf "--master=%s" .Values.audit.spark.master | quote }}
- --driver-memory={{ .Values.audit.spark.driverMemory }}
{{- end -}}

{{/* The container, from its image on. */}}
{{- define "proxy.auditContainer" -}}
{{- $sasl := .Values.audit.saslSecret | default .Values.credentials.sasl.existingSecret -}}
{{- $mounts := list (dict "name" "results" "mountPath" "/audit") (dict "name" "spark" "mountPath" "/etc/spark" "readOnly" true) -}}
{{- include "proxy.container" (dict "root" . "image" (include "proxy.auditImage" .) "resources" .Values.audit.resources "sasl" $sasl "variables" (include "proxy.auditVariables" .) "mounts" $mounts) -}}
{{- end -}}

{{- define "proxy.auditVariables" -}}
- name: SPARK_CONF_DIR
  value: /etc/spark
{{- if include "proxy.isSparkOnKubernetes" . }}
- name: SPARK_LOCAL_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
{{- end -}}

{{/* The volume of the results. The default is here and not in values.yaml: Helm would merge it with another source. */}}
{{- define "proxy.auditVolume" -}}
{{- if .Values.audit.volume -}}
{{- toYaml .Values.audit.volume }}
{{- else if hasPrefix "/" .Values.audit.output -}}
persistentVolumeClaim:
  claimName: {{ include "proxy.fullname" . }}-audit
{{- else -}}
emptyDir: {}
{{- end }}
{{- end -}}

{{/* All volumes except the volume of the results. */}}
{{- define "proxy.auditVolumes" -}}
- name: spark
  configMap:
    name: {{ include "proxy.fullname" . }}-spark
{{ include "proxy.volumes" (list . (include "proxy.fullname" .)) }}
{{- end -}}
