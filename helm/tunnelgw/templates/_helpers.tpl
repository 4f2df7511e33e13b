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

{{/* Refuses combinations of values that cannot work, and says what to do. */}}
{{- define "tunnelgw.checked" -}}
{{- if not (or .Values.controller.enabled .Values.proxy.enabled) -}}
{{- fail "neither controller.enabled nor proxy.enabled: there is nothing to install" -}}
{{- end -}}
{{- if and .Values.controller.enabled .Values.gatewayClass.create (not .Values.tunnel.id) (not .Values.direct.enabled) -}}
{{- fail "neither tunnel nor direct: set tunnel.id with tunnel.tokenSecret.name, or direct.enabled, or both (or set gatewayClass.create=false, and create the class yourself)" -}}
{{- end -}}
{{- $tokens := list -}}
{{- range .Values.proxy.extraEnv -}}
{{- if has .name (list "TUNNEL_TOKEN" "TUNNEL_TOKEN_FILE") -}}
{{- $tokens = append $tokens .name -}}
{{- end -}}
{{- end -}}
{{- if and .Values.proxy.enabled .Values.tunnel.id (not .Values.tunnel.tokenSecret.name) (not $tokens) -}}
{{- fail "tunnel.tokenSecret.name is not set: the proxies open the tunnel with the token in that Secret (for a token that comes as a file, set TUNNEL_TOKEN_FILE in proxy.extraEnv)" -}}
{{- end -}}
{{- with .Values.controller -}}
{{- if and .enabled (not .serviceAccount.create) (not .serviceAccount.name) -}}
{{- fail "controller.serviceAccount.name is not set: without controller.serviceAccount.create the controller would use the namespace's default account, and so share its permissions with other Pods" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tunnel.credentialsSecret.name (not .Values.tunnel.id) -}}
{{- fail "tunnel.credentialsSecret.name without tunnel.id: the credentials serve to publish the hostnames of that tunnel" -}}
{{- end -}}
{{- if and .Values.gatewayClass.create (eq .Values.gatewayClass.publish "Tunnel") (not .Values.tunnel.id) -}}
{{- fail "gatewayClass.publish is Tunnel, without tunnel.id" -}}
{{- end -}}
{{- if and .Values.gatewayClass.create (eq .Values.gatewayClass.publish "Direct") (not .Values.direct.enabled) -}}
{{- fail "gatewayClass.publish is Direct, without direct.enabled" -}}
{{- end -}}
{{- if and .Values.proxy.enabled .Values.proxy.configTLS.secretName (not .Values.proxy.configTLS.serverName) -}}
{{- fail "proxy.configTLS.serverName is not set: set it to the name in the certificate, which the controller verifies" -}}
{{- end -}}
{{- if and .Values.direct.enabled (not .Values.proxy.enabled) -}}
{{- fail "direct.enabled without proxy.enabled: its Service selects the proxies of this release (for others set gatewayClass.create=false, and create the class yourself)" -}}
{{- end -}}
{{- if and .Values.controller.enabled .Values.gatewayClass.create (.Capabilities.APIVersions.Has "gateway.networking.k8s.io/v1/GatewayClass") -}}
{{- /* Without this an upgrade stops half way, with a controller that has no class and so serves nothing. */ -}}
{{- with lookup "gateway.networking.k8s.io/v1" "GatewayClass" "" .Values.gatewayClass.name -}}
{{- if ne .spec.controllerName $.Values.controller.name -}}
{{- fail (printf "controller.name: the GatewayClass %s exists with controllerName %s, which cannot be changed: keep that name, set another gatewayClass.name, or delete the class first" .metadata.name .spec.controllerName) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.controller.enabled .Values.controller.rbac.create -}}
{{- range .Values.controller.secretNamespaces -}}
{{- /* Without this an upgrade stops half way, with a controller that may read no Secrets. Left out without a cluster,
as for a mere rendering, and before the release's own namespace exists. */ -}}
{{- if lookup "v1" "Namespace" "" $.Release.Namespace -}}
{{- $there := lookup "v1" "Namespace" "" . -}}
{{- if not $there -}}
{{- fail (printf "controller.secretNamespaces: namespace %s does not exist, so there can be no Role: create it first, or remove it from the list" .) -}}
{{- else if dig "metadata" "deletionTimestamp" "" $there -}}
{{- fail (printf "controller.secretNamespaces: namespace %s is being deleted, so there can be no Role: remove it from the list" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Without this an upgrade stops half way, with Services that select no Pods. */ -}}
{{- range $component, $kind := dict "controller" "Deployment" "proxy" .Values.proxy.kind -}}
{{- if (index $.Values $component).enabled -}}
{{- $name := include (printf "tunnelgw.%s" $component) $ -}}
{{- $own := include "tunnelgw.selector" (dict "root" $ "component" $component) | fromYaml -}}
{{- $there := lookup "apps/v1" $kind $.Release.Namespace $name | default dict | dig "spec" "selector" "matchLabels" dict -}}
{{- $label := "app.kubernetes.io/name" -}}
{{- if ne (omit $there $label | toJson) (omit $own $label | toJson) -}}
{{- /* Not there, or somebody else's, as helm will say. */ -}}
{{- else if ne (get $there $label) (get $own $label) -}}
{{- fail (printf "nameOverride: the %s %s exists and selects Pods by the name %s, which cannot be changed: set nameOverride to that, or another fullnameOverride" $kind $name (get $there $label)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $name := include "tunnelgw.fullname" . -}}
{{- if and .Values.proxy.enabled (regexMatch "^[0-9]" $name) (semverCompare "<1.36-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "%s: before Kubernetes 1.36, names of Services must begin with a letter: give the release another name, or set fullnameOverride" $name) -}}
{{- end -}}
{{- if and .Values.direct.enabled (not .Values.direct.ports) -}}
{{- fail "direct.ports is empty: add each port that a listener uses" -}}
{{- end -}}
{{- range $name := list "type" "selector" "ports" "externalTrafficPolicy" "ipFamilyPolicy" "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if hasKey ($.Values.direct.spec | default dict) $name -}}
{{- fail (printf "direct.spec: %s is set by the chart%s" $name (eq $name "selector" | ternary "" (printf ", from direct.%s" $name))) -}}
{{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $port := .Values.direct.enabled | ternary .Values.direct.ports list -}}
{{- if eq (int .targetPort) 8082 -}}
{{- fail (printf "direct.ports: targetPort 8082 of %s is the port of the config API" .name) -}}
{{- end -}}
{{- if and (hasKey $port "nodePort") (eq $.Values.direct.type "ClusterIP") -}}
{{- fail (printf "direct.ports: nodePort of %s with direct.type ClusterIP, which has no ports on nodes: remove it, or set direct.type to NodePort" .name) -}}
{{- end -}}
{{- range $field := list "name" "port" "nodePort" -}}
{{- if hasKey $port $field -}}
{{- $value := printf "%s %s" $field (index $port $field | toString) -}}
{{- if hasKey $taken $value -}}
{{- fail (printf "direct.ports: %s is used twice, which a Service does not allow" $value) -}}
{{- end -}}
{{- $_ := set $taken $value true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.proxy.networkPolicy.enabled .Values.proxy.hostNetwork -}}
{{- fail "proxy.networkPolicy.enabled with proxy.hostNetwork: NetworkPolicies do not apply to Pods on the node's network" -}}
{{- end -}}
{{- end -}}
