{{- define "sheaf.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "sheaf.labels" -}}
app.kubernetes.io/name: sheaf
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sheaf.secret" -}}
{{- .Values.existingSecret | default (include "sheaf.name" .) -}}
{{- end -}}

{{- /* The first member founds the group, and the others join it: each kind is a StatefulSet of its own, since
all pods of one have the same settings. Called with a list: the root, the name of the set, its size, the member
to join. */ -}}
{{- define "sheaf.statefulset" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $size := index . 2 -}}
{{- $join := index . 3 -}}
{{- $members := printf "%s-members" (include "sheaf.name" $root) -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels: {{- include "sheaf.labels" $root | nindent 4 }}
spec:
  serviceName: {{ $members }}
  replicas: {{ $size }}
  # Members find each other, and vote, before they are ready.
  podManagementPolicy: Parallel
  {{- if gt (int $root.Values.members) 1 }}
  # Each of the two sets would restart a pod of its own: two of three members at once, and no majority. The guide
  # (docs/guides/kubernetes.md) deletes one pod after the other.
  updateStrategy: { type: OnDelete }
  {{- end }}
  selector:
    matchLabels:
      {{- include "sheaf.labels" $root | nindent 6 }}
      set: {{ $name }}
  template:
    metadata:
      labels:
        {{- include "sheaf.labels" $root | nindent 8 }}
        set: {{ $name }}
      {{- if $root.Values.scrape }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "5984"
      {{- end }}
    spec:
      automountServiceAccountToken: false
      # For a Service named `sheaf`, Kubernetes would set SHEAF_PORT, a setting of the server, to tcp://IP:PORT.
      enableServiceLinks: false
      terminationGracePeriodSeconds: 90
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: { type: RuntimeDefault }
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {{- include "sheaf.labels" $root | nindent 20 }}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: sheaf
          image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          env:
            - name: POD_NAME
              valueFrom: { fieldRef: { fieldPath: metadata.name } }
            - name: SHEAF_REQUIREPASS
              valueFrom: { secretKeyRef: { name: {{ include "sheaf.secret" $root }}, key: password } }
            {{- if gt (int $root.Values.members) 1 }}
            - name: SHEAF_MASTERAUTH
              valueFrom: { secretKeyRef: { name: {{ include "sheaf.secret" $root }}, key: password } }
            - name: SHEAF_GROUP
              value: {{ $root.Values.group | quote }}
            - name: SHEAF_GROUP_HOST
              value: "$(POD_NAME).{{ $members }}.{{ $root.Release.Namespace }}.svc"
            {{- if $join }}
            - name: SHEAF_JOIN
              value: "{{ $join }}.{{ $members }}.{{ $root.Release.Namespace }}.svc:6379"
            {{- end }}
            {{- end }}
            {{- range $setting, $value := $root.Values.settings }}
            - name: SHEAF_{{ $setting | upper | replace "-" "_" }}
              {{- /* A number of a values file is a float in Helm, and would be written 3.221225472e+09. */}}
              value: {{ kindIs "float64" $value | ternary (int64 $value) $value | toString | quote }}
            {{- end }}
          ports:
            - { name: redis, containerPort: 6379 }
            - { name: http, containerPort: 5984 }
          # It listens at once. While it loads its data, or takes no writes, it is not ready.
          livenessProbe:
            tcpSocket: { port: redis }
            periodSeconds: 10
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /_up, port: http }
            periodSeconds: 5
          resources: {{- toYaml $root.Values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: data, mountPath: /data }
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $root.Values.storage.className }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources:
          requests:
            storage: {{ $root.Values.storage.size }}
{{- end -}}
