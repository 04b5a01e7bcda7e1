{{- define "applecart.full" -}}
{{- default (printf "%s-%s" .Release.Name .Chart.Name) .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "applecart.provider" -}}
{{ include "applecart.full" . }}-capi-scaleway-applesilicon
{{- end -}}

{{- define "applecart.fleet" -}}
{{- default (printf "%s-macos-fleet" (include "applecart.full" .)) .Values.macosFleet.name -}}
{{- end -}}

{{- define "applecart.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "applecart.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
