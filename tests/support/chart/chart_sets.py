"""Typical sets of values for the chart."""

from __future__ import annotations

from typing import Any, Final

RESTRICTED: Final[dict[str, Any]] = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
}
ONE_REPLICA: Final[dict[str, Any]] = {"replicas": 1, "persistence": {"enabled": False}}
TLS_AND_SASL: Final[dict[str, Any]] = {
    "config": {
        "kafka": {
            "bootstrap.servers": "one:9093, two:9094",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
        }
    },
    "credentials": {
        "sasl": {"existingSecret": "kafka-user"},
        "tls": {
            "existingSecret": "kafka-tls",
            "certificateKey": "tls.crt",
            "privateKeyKey": "tls.key",
            "privateKeyPasswordKey": "password",
        },
        "adminToken": {"existingSecret": "admin"},
        "adminTls": {"existingSecret": "admin-tls"},
    },
}
TOPICS_BY_THE_HOOK: Final[dict[str, Any]] = {
    "config": {"topics": {"create": False}},
    "topicsJob": {"saslSecret": "topics-user"},
}
LOCAL_AUDIT: Final[dict[str, Any]] = {"audit": {"enabled": True, "targets": ["orders", "bills-*"]}}
GATEWAY: Final[dict[str, Any]] = {
    "credentials": {
        "adminToken": {"create": True},
        "adminTokens": {
            "prometheus": {"role": "metrics", "existingSecret": "scraper"},
            "support": {
                "role": "viewer",
                "contents": True,
                "existingSecret": "people",
                "key": "support",
            },
        },
    },
    "httpRoute": {
        "enabled": True,
        "annotations": {"example.com/owner": "payments"},
        "parentRefs": [{"name": "gateway", "namespace": "gateways"}],
        "hostnames": ["delays.example.com"],
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "audit": {"follow": {"enabled": True}},
}
EVERYTHING: Final[dict[str, Any]] = {
    **TLS_AND_SASL,
    "config": {
        **TLS_AND_SASL["config"],
        "topics": {"create": False, "partitions": 12},
        "workers": 2,
        "levels": "1s 1m",
        "roll_after": "3d",
        "retry": {"groups": {"billing": {"policy": "custom", "delays": "10s 1m"}}},
        "release": {"per_target": {"orders-*": 500}, "max_per_second": 1000},
        "targets": {"allow": ["orders", "bills.*"], "deny": "secret,other"},
        "header_aliases": ["cesium"],
        "recovery": {"accept_loss_below": {"0": 1200}},
    },
    "replicas": 3,
    "image": {"registry": "registry.example.com", "digest": "sha256:" + "0a" * 32},
    "imagePullSecrets": [{"name": "registry"}],
    "persistence": {
        "storageClass": "fast",
        "size": "200Gi",
        "retentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
    },
    "minReadySeconds": 10,
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
    "commonLabels": {"team": "platform", "cost-centre": "42", "release": "mine"},
    "podLabels": {"team": "payments"},
    "podAnnotations": {"example.com/owner": "payments"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "kafka", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "high",
    "extraEnv": [
        {"name": "DELAY_PROXY_LOG__LEVEL", "value": "debug"},
        {
            "name": "DELAY_PROXY_KAFKA__SSL_KEYSTORE_PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "other", "key": "password"}},
        },
    ],
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["kafka"]}],
    "envFrom": [{"secretRef": {"name": "login"}}, {"configMapRef": {"name": "before"}}],
    "initContainers": [{"name": "first", "image": "first:1", **RESTRICTED}],
    "extraContainers": [{"name": "beside", "image": "beside:1", **RESTRICTED}],
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "more"},
            "data": {"release": "{{ .Release.Name }}"},
        },
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}\n",
    ],
    "extraVolumes": [{"name": "more", "configMap": {"name": "before"}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "serviceAccount": {"annotations": {"example.com/role": "kafka"}},
    "adminService": {"annotations": {"example.com/lb": "internal"}, "type": "LoadBalancer"},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/affinity": "cookie"},
        "hosts": ["delays.example.com"],
        "tls": [{"secretName": "delays-tls", "hosts": ["delays.example.com"]}],
    },
    "networkPolicy": {
        "kafkaTo": [{"namespaceSelector": {"matchLabels": {"name": "kafka"}}}],
        "kafkaPorts": [9093],
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 6443}]}],
    },
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "relabelings": [{"action": "labeldrop", "regex": "pod_ip"}],
        "metricRelabelings": [{"action": "drop", "regex": "python_.*"}],
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Kafka"}},
    "audit": {
        "enabled": True,
        "size": "50Gi",
        "targets": ["orders"],
        "maxLateness": ["2s", "orders-*=500ms"],
        "spark": {
            "master": "k8s://https://kubernetes.default.svc",
            "conf": {"spark.executor.instances": "4"},
        },
        "follow": {"enabled": True, "everySeconds": 30},
    },
}
AUDIT_AT_A_URI: Final[dict[str, Any]] = {"audit": {"enabled": True, "output": "s3a://audits/kafka"}}
FOLLOWING_AUDIT: Final[dict[str, Any]] = {
    "audit": {"follow": {"enabled": True}, "targets": ["orders"]},
    "serviceMonitor": {"enabled": True},
}
SETS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "one replica without a volume": ONE_REPLICA,
    "TLS and SASL": TLS_AND_SASL,
    "topics by the hook": TOPICS_BY_THE_HOOK,
    "local audit": LOCAL_AUDIT,
    "audit at a URI": AUDIT_AT_A_URI,
    "audit that goes on": FOLLOWING_AUDIT,
    "gateway and pod monitor": GATEWAY,
    "everything": EVERYTHING,
}
