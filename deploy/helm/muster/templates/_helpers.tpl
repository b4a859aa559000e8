{{- define "muster.selectorLabels" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.labels" -}}
{{ include "muster.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "muster.agentLabels" -}}
app.kubernetes.io/name: muster-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Whether agents call the API: to write what they find, or to ask who may read their metrics. */}}
{{- define "muster.agentsCall" -}}
{{- with .Values.agents.daemonSet }}{{ if and .enabled (or .publish (and .metricsPort $.Values.metrics.secure)) }}true{{ end }}{{ end }}
{{- end }}

{{- define "muster.serviceAccount" -}}
{{- .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- define "muster.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- .Values.image.repository }}{{ if hasPrefix "sha256:" $tag }}@{{ else }}:{{ end }}{{ $tag }}
{{- end }}

{{- /* The keys by which pods say in which queue they are, and whose, as CEL: all that the code reads as such. */}}
{{- define "muster.chargeKeys" -}}
['muster.sh/queue', 'kai.scheduler/queue', 'runai/queue', 'kueue.x-k8s.io/queue-name', 'volcano.sh/queue-name', 'scheduling.volcano.sh/queue-name',
'yunikorn.apache.org/queue', 'queue', 'yunikorn.apache.org/app-id', 'applicationId', 'quota.scheduling.koordinator.sh/name',
'muster.sh/user', 'yunikorn.apache.org/username', 'yunikorn.apache.org/user.info']
{{- end }}
