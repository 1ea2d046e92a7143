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

{{- /* What is there only while the release is uninstalled. */}}
{{- define "waterline.preDelete" -}}
labels:
    app.kubernetes.io/name: waterline-uninstall
    app.kubernetes.io/instance: {{ .Release.Name }}
    app.kubernetes.io/part-of: waterline
    app.kubernetes.io/managed-by: {{ .Release.Service }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* The level of Pod Security by the label of the release's namespace. Empty without a label, and without a cluster. */}}
{{- define "waterline.podSecurity" -}}
{{- dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "" (lookup "v1" "Namespace" "" .Release.Namespace) }}
{{- end }}
