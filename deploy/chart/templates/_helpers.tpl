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

{{- define "waterline.schedulerLabels" -}}
app.kubernetes.io/name: waterline-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: waterline
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The image of a repository, from a list of the root context and the repository. A repository with a digest has no tag. */}}
{{- define "waterline.image" -}}
{{- $root := index . 0 }}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ index . 1 }}
{{- if not (contains "@" (index . 1)) }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "waterline.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  {{- if eq .Values.scheduler.name "default-scheduler" }}
  # The Lease of the cluster's own scheduler: while one of the two places pods, the other stands by.
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  {{- else }}
  resourceName: waterline-scheduler
  resourceNamespace: {{ .Release.Namespace }}
  {{- end }}
clientConnection: {qps: 500, burst: 1000}
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
    plugins:
      multiPoint:
        enabled:
        {{- range $name, $weight := .Values.scheduler.plugins }}
        {{- if $weight }}
          - {name: {{ $name }}, weight: {{ $weight }}}
        {{- end }}
        {{- end }}
    {{- with .Values.scheduler.args }}
    pluginConfig:
    {{- range $name, $args := . }}
      - name: {{ $name }}
        args: {{- toYaml $args | nindent 10 }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "waterline.policy" -}}
{{- $sell := dict "cpu" dict "memory" dict "protect" (dict "memory" true "interference" true "eviction" dict) }}
{{- $presets := dict
  "weights" (dict "weight" (dict "scope" "Node"))
  "cpu-share-syncer" (dict "weight" (dict "quota" "Unlimited" "max" 262144))
  "cpusets" (dict "privileges" (list (dict "namespaceSelector" dict "allow" (list "ShareCPUs" "ExclusiveCPUs"))))
  "sell" $sell
  "yarn" $sell }}
{{- toYaml (mergeOverwrite (get $presets .Values.profile | default dict) (deepCopy .Values.policy)) }}
{{- end }}

{{- /*
The policy of a profile on canary nodes: the same, but carried out, on the nodes with the label. It has no batchPods, whose
rules count in the whole cluster.
*/}}
{{- define "waterline.canary" -}}
{{- $policy := omit (include "waterline.policy" . | fromYaml) "rollout" "batchPods" }}
{{- $mode := ternary "Disabled" "Enforce" (eq (default "" $policy.mode) "Disabled") }}
{{- $label := dict "matchLabels" (dict "waterline.io/canary" "true") }}
{{- toYaml (mergeOverwrite $policy
  (dict "mode" $mode "priority" (add1 (int (default 0 $policy.priority))) "nodeSelector" $label)) }}
{{- end }}

{{- /* The namespaces that may have worker pools, as JSON. */}}
{{- define "waterline.poolNamespaces" -}}
{{- $profile := ternary (list "yarn") list (eq .Values.profile "yarn") }}
{{- toJson (default $profile .Values.manager.pools.namespaces) }}
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

{{- /*
The affinity of agents that stay off the nodes of some variants, from a list of their own affinity and the variants. A node
belongs to a variant if it has all of its labels, so it is none of the variant's if one label differs. The terms of a node
affinity are alternatives: each is written once for each label.
*/}}
{{- define "waterline.apart" -}}
{{- $affinity := deepCopy (default dict (index . 0)) }}
{{- $terms := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity }}
{{- range $variant := index . 1 }}
{{- $apart := list }}
{{- range $term := $terms }}
{{- range $label, $value := $variant.nodeSelector }}
{{- $other := dict "key" $label "operator" "NotIn" "values" (list $value) }}
{{- $apart = append $apart (set (deepCopy $term) "matchExpressions" (append (default list $term.matchExpressions) $other)) }}
{{- end }}
{{- end }}
{{- $terms = $apart }}
{{- end }}
{{- if index . 1 }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $required) }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}
