{{/* Base of every object's name. */}}
{{- define "chandlery.fullname" -}}
{{- $name := .Values.nameOverride | default "chandlery" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "chandlery.operator" -}}
{{- include "chandlery.fullname" . }}-operator
{{- end }}

{{- define "chandlery.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "chandlery.operator" .) -}}
{{- else -}}
{{- required "serviceAccount.create is false: set serviceAccount.name to the ServiceAccount to use" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* What selects the operator's pods. The gateways' NetworkPolicies select by the name and the component. */}}
{{- define "chandlery.selector" -}}
app.kubernetes.io/name: chandlery
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "chandlery.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" "chandlery"
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "chandlery"
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.commonLabels) $labels) }}
{{- end }}

{{/* Takes (list image defaultTag). */}}
{{- define "chandlery.image" -}}
{{- $image := first . -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (last .)) -}}
{{- end -}}
{{- end }}

{{- define "chandlery.testNamespace" -}}
{{- if .Values.test.namespace -}}
{{- .Values.test.namespace -}}
{{- else if and .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) -}}
{{- first .Values.watchNamespaces -}}
{{- else -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end }}
