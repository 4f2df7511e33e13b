{{/* A parent chart may give this one an alias, which is then its name, with capitals and underscores as variables have. */}}
{{- define "tunnelgw.name" -}}
{{- $chart := .Chart.Name | lower | replace "_" "-" | trunc 40 | trimAll "-" -}}
{{- default $chart .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The beginning of all names; short enough for the longest ending and what a ReplicaSet and a Pod add. A release may have
dots in its name, a Service may not. */}}
{{- define "tunnelgw.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "tunnelgw.name" . -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if contains $name $release -}}
{{- $release | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tunnelgw.controller" -}}
{{ include "tunnelgw.fullname" . }}-controller
{{- end -}}

{{- define "tunnelgw.proxy" -}}
{{ include "tunnelgw.fullname" . }}-proxy
{{- end -}}

{{/* The Service by which the controller finds the proxies. */}}
{{- define "tunnelgw.configService" -}}
{{ include "tunnelgw.proxy" . }}-config
{{- end -}}

{{/* The Service for direct clients. */}}
{{- define "tunnelgw.directService" -}}
{{ include "tunnelgw.fullname" . }}-direct
{{- end -}}

{{/* What selects Pods; given the root and a component. */}}
{{- define "tunnelgw.selector" -}}
app.kubernetes.io/name: {{ include "tunnelgw.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of every object; given the root, a component, and `more` of the values for this object. */}}
{{- define "tunnelgw.labels" -}}
{{- $own := include "tunnelgw.ownLabels" . | fromYaml -}}
{{- $common := .root.Values.commonLabels | default dict -}}
{{- range $name, $_ := $common -}}
{{- if hasKey $own $name -}}
{{- fail (printf "commonLabels: %s is set by the chart" $name) -}}
{{- end -}}
{{- end -}}
{{- merge (dict) (.more | default dict) $common $own | toYaml -}}
{{- end -}}

{{- define "tunnelgw.ownLabels" -}}
{{ include "tunnelgw.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_" }}
{{- end -}}

{{- define "tunnelgw.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository is not set: build the image with containers/Containerfile, push it, and name it here" $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tunnelgw.serviceAccount" -}}
{{- $account := .Values.controller.serviceAccount -}}
{{- if $account.name -}}
{{ $account.name }}
{{- else if $account.create -}}
{{ include "tunnelgw.controller" . }}
{{- end -}}
{{- end -}}

{{/* The Secret with the token of the proxies' config API. */}}
{{- define "tunnelgw.authSecret" -}}
{{- if .Values.proxy.authSecret.name -}}
{{ .Values.proxy.authSecret.name }}
{{- else if .Values.controller.enabled -}}
{{ include "tunnelgw.proxy" . }}-auth-token
{{- else -}}
{{- fail "proxy.authSecret.name is not set: without controller.enabled nothing creates the Secret with the token of the config API" -}}
{{- end -}}
{{- end -}}

{{/* Where Pods run: spread over the nodes, unless the values say otherwise; given the root and a component. A constraint
without a labelSelector gets one for our Pods: otherwise it would select none. A DaemonSet is spread anyway. */}}
{{- define "tunnelgw.placement" -}}
{{- $component := . -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (include "tunnelgw.selector" . | fromYaml)) -}}
{{- with index .root.Values .component -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .topologySpreadConstraints (ne (.kind | default "Deployment") "DaemonSet") }}
topologySpreadConstraints:
{{- range .topologySpreadConstraints }}
  {{- list (merge (dict) . (hasKey . "labelSelector" | ternary dict $ours)) | toYaml | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tunnelgw.selector" $component | nindent 8 }}
    # Pods of an older revision do not count: they are about to go, and would push all new ones onto one node.
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* More containers of a Pod, beside the one that has the component's name; given the root and a component. */}}
{{- define "tunnelgw.extraContainers" -}}
{{- $containers := index .root.Values .component "extraContainers" -}}
{{- range $containers -}}
{{- if eq .name $.component -}}
{{- fail (printf "%s.extraContainers: %s is the chart's container" $.component .name) -}}
{{- end -}}
{{- end -}}
{{- with $containers -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* How Pods find the addresses of names; given the root and a component. */}}
{{- define "tunnelgw.names" -}}
{{- with index .root.Values .component -}}
{{- $policy := .dnsPolicy | default (.hostNetwork | default false | ternary "ClusterFirstWithHostNet" "") -}}
{{- if and (eq $policy "None") (not .dnsConfig) -}}
{{- fail (printf "%s.dnsPolicy is None: set the servers in %s.dnsConfig" $.component $.component) -}}
{{- end -}}
{{- with $policy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Variables of a container, or volumes: the chart's, and those of the value `name`, which must not repeat any of them: the
API server refuses a list with two of one name, and the programs a secret given both as a value and as a file. */}}
{{- define "tunnelgw.named" -}}
{{- range .own | fromYamlArray -}}
{{- $own := .name -}}
{{- range $.extra -}}
{{- if eq .name $own -}}
{{- fail (printf "%s: %s is set by the chart; see whether values.yaml has a value for it" $.name $own) -}}
{{- else if eq (.name | trimSuffix "_FILE") ($own | trimSuffix "_FILE") -}}
{{- fail (printf "%s: the chart sets %s, and only one of it and %s may be set; see whether values.yaml has a value for it" $.name $own .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- .own -}}
{{- with .extra }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* The groups of the alerts of a component, as the values change them; given the root and a component. */}}
{{- define "tunnelgw.alerts" -}}
{{- $value := printf "%s.prometheusRule.alerts" .component -}}
{{- $changes := (index .root.Values .component).prometheusRule.alerts | default dict -}}
{{- $groups := list -}}
{{- $names := list -}}
{{- range (.root.Files.Get (printf "files/alerts/%s.yaml" .component) | fromYaml).groups -}}
{{- $rules := list -}}
{{- range $rule := .rules -}}
{{- $names = append $names .alert -}}
{{- $change := index $changes .alert | default dict -}}
{{- $threshold := "> [0-9.]+(\\s*)$" -}}
{{- if hasKey $change "threshold" -}}
{{- if not (regexMatch $threshold .expr) -}}
{{- fail (printf "%s.%s.threshold: its condition compares with no number: %s" $value .alert (.expr | squote)) -}}
{{- end -}}
{{- $_ := set $rule "expr" (regexReplaceAll $threshold .expr (printf "> %v${1}" $change.threshold)) -}}
{{- end -}}
{{- if ne (get $change "enabled" | toString) "false" -}}
{{- $rules = append $rules (merge (omit $change "enabled" "threshold" | deepCopy) $rule) -}}
{{- end -}}
{{- end -}}
{{- $groups = append $groups (dict "name" .name "rules" $rules) -}}
{{- end -}}
{{- range $name, $_ := $changes -}}
{{- if not (has $name $names) -}}
{{- fail (printf "%s: there is no alert %s, there are %s" $value $name (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{/* Labels that the values add to Pods; those that select the Pods are refused. Given the root and a component. */}}
{{- define "tunnelgw.podLabels" -}}
{{- $own := include "tunnelgw.selector" . | fromYaml -}}
{{- $labels := index .root.Values .component "podLabels" -}}
{{- range $name, $_ := $labels -}}
{{- if hasKey $own $name -}}
{{- fail (printf "%s.podLabels: %s is set by the chart, which selects the Pods by it" $.component $name) -}}
{{- end -}}
{{- end -}}
{{- with merge (dict) ($labels | default dict) (.root.Values.commonLabels | default dict) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Annotations of Pods: those of the values, and one that declares these volumes expendable. Without it the cluster
autoscaler would never remove a node with such a Pod. */}}
{{- define "tunnelgw.podAnnotations" -}}
{{- merge (dict) (.annotations | default dict) (dict "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes" .volumes) | toYaml -}}
{{- end -}}
