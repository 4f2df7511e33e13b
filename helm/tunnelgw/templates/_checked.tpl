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
