{{- define "weir.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weir.adminSecret" -}}
{{ .Values.adminSecret | default (printf "%s-admin" (include "weir.name" .)) }}
{{- end }}

{{/* Two pods of one node cannot have the same ports of its network. */}}
{{- define "weir.rolling" -}}
{{- if .Values.hostNetwork -}}
{ maxUnavailable: 1, maxSurge: 0 }
{{- else -}}
{ maxUnavailable: 0, maxSurge: 1 }
{{- end }}
{{- end }}

{{/* In the node's network, 0.0.0.0 would include public addresses of the node, and metrics need no token. So the admin
API listens for the node alone, or, if Prometheus is to scrape it, at the address by which the cluster knows the node. */}}
{{- define "weir.adminAddress" -}}
{{- if .Values.config.admin.address -}}
{{ .Values.config.admin.address }}
{{- else if not .Values.hostNetwork -}}
0.0.0.0:9180
{{- else if .Values.serviceMonitor.enabled -}}
${POD_IP}:9180
{{- else -}}
127.0.0.1:9180
{{- end }}
{{- end }}

{{/* The kubelet shares the node's network, so it reaches a loopback address there; otherwise it asks the pod's. */}}
{{- define "weir.probeHost" -}}
{{- if and .Values.hostNetwork (hasPrefix "127." (include "weir.adminAddress" .)) -}}
, host: 127.0.0.1
{{- end }}
{{- end }}

{{- define "weir.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config.admin "address" (include "weir.adminAddress" .) -}}
{{ toYaml $config }}
{{- end }}
