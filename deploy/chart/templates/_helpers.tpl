{{- define "waterline.labels" -}}
app.kubernetes.io/name: waterline-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: waterline
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "waterline.managerLabels" -}}
app.kubernetes.io/name: waterline-manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: waterline
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "waterline.policy" -}}
{{- $preset := dict }}
{{- if eq .Values.profile "cpu-share-syncer" }}
{{- $preset = dict "weight" (dict "quota" "Unlimited" "max" 262144) }}
{{- end }}
{{- toYaml (mergeOverwrite $preset (deepCopy .Values.policy)) }}
{{- end }}
