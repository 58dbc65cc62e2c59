{{- define "blockd.name" -}}
{{- if contains "blockd" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-blockd" (.Release.Name | trunc 45 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- define "blockd.selector" -}}
app.kubernetes.io/name: blockd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "blockd.labels" -}}
{{ include "blockd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The doors that are enabled, as the containers' ports: privileged ones need no capability, because the service maps them. */ -}}
{{- define "blockd.check" -}}
{{- if and (or .Values.doors.milter.enabled .Values.doors.policy.enabled) (not .Values.allowFrom) }}
{{- fail "allowFrom: want the networks of the mail servers that ask the milter or the policy service, such as {10.0.0.0/8}; all others are turned away" }}
{{- end }}
{{- if not (or .Values.doors.smtp.enabled .Values.doors.milter.enabled .Values.doors.policy.enabled) }}
{{- fail "doors: none is enabled" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.http.tokenSecret) }}
{{- fail "serviceMonitor.enabled: metrics are at the HTTP door, which needs http.tokenSecret" }}
{{- end }}
{{- range $name, $value := .Values.env }}
{{- if not (hasPrefix "BLOCKD_" $name) }}
{{- fail (printf "env: %s: want names that begin with BLOCKD_" $name) }}
{{- end }}
{{- end }}
{{- end }}
