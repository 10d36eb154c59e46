{{/* Parts of the pods of both audits: the CronJob and the continuous audit. */}}

{{- define "proxy.hasAudit" -}}
{{- if or .Values.audit.enabled .Values.audit.follow.enabled }}true{{ end -}}
{{- end -}}

{{- define "proxy.isSparkOnKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.audit.spark.master }}true{{ end -}}
{{- end -}}

{{- define "proxy.auditImage" -}}
{{- $own := .Values.audit.image -}}
{{- $repository := $own.repository | default .Values.image.repository -}}
{{- if $own.digest -}}
{{ $repository }}@{{ $own.digest }}
{{- else -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ $repository }}:{{ $own.tag | default (printf "%s%s" $tag $own.tagSuffix) }}
{{- end -}}
{{- end -}}

{{/* Metadata of a pod. Takes a list: the root, and the name of the component. */}}
{{- define "proxy.auditMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- with $root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "proxy.identity" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
annotations:
  checksum/config: {{ include "proxy.settings" $root | sha256sum }}
  checksum/spark: {{ include (print $root.Template.BasePath "/audit-spark-configmap.yaml") $root | sha256sum }}
  {{- with $root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
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
image: {{ include "proxy.auditImage" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [kafka-delay-proxy]
env:
  {{- if include "proxy.isSparkOnKubernetes" . }}
  - name: SPARK_LOCAL_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  {{- end }}
  - name: SPARK_CONF_DIR
    value: /etc/spark
  {{- include "proxy.variables" (list . (.Values.audit.saslSecret | default .Values.credentials.sasl.existingSecret)) | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.audit.resources | nindent 2 }}
volumeMounts:
  - name: results
    mountPath: /audit
  - name: spark
    mountPath: /etc/spark
    readOnly: true
  {{- include "proxy.mounts" . | nindent 2 }}
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
