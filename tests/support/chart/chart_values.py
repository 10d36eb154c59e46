"""Model of the chart's values, the source of `values.schema.json`. `config` is the proxy's own
settings model, so that new settings are known here. Maps that Kubernetes checks (labels, resources,
affinity, ...) are not checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proxy.config.settings import Role, Settings, TokenName

Free = dict[str, Any]
FreeList = list[dict[str, Any]]
Texts = dict[str, str]
Quantity = str | int
Tag = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$")]
Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Registry = Annotated[str, Field(pattern=r"^([^/\s](\S*[^/\s])?)?$")]
SecretName = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]
Seconds = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]


class Part(BaseModel):
    """Part of the values that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class Image(Part):
    registry: Registry
    repository: str = Field(min_length=1)
    tag: Tag
    digest: Digest
    pull_policy: Literal["Always", "IfNotPresent", "Never"]


class SaslCredentials(Part):
    existing_secret: SecretName
    username_key: str
    password_key: str


class TlsCredentials(Part):
    """Certificates for the connection to the broker. Empty keys are not used."""

    existing_secret: SecretName
    ca_key: str
    certificate_key: str
    private_key_key: str
    private_key_password_key: str


class AdminTokenCredentials(Part):
    existing_secret: SecretName
    key: str
    create: bool


class RoleToken(Part):
    """A token in a Secret. The other fields are as in `AdminToken` of the settings."""

    role: Role
    contents: bool = False
    trusted: bool = False
    existing_secret: SecretName = Field(min_length=1)
    key: str = "token"


class AdminTlsCredentials(Part):
    existing_secret: SecretName
    certificate_key: str
    private_key_key: str
    ca_key: str
    server_name: str


class Credentials(Part):
    sasl: SaslCredentials
    tls: TlsCredentials
    admin_token: AdminTokenCredentials
    admin_tokens: dict[TokenName, RoleToken]
    admin_tls: AdminTlsCredentials


class Persistence(Part):
    enabled: bool
    size: Quantity
    storage_class: str
    access_modes: list[str]
    retention_policy: Free


class ServiceAccount(Part):
    create: bool
    name: str
    annotations: Texts


class AdminService(Part):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"]
    annotations: Texts


class Ingress(Part):
    enabled: bool
    class_name: str
    annotations: Texts
    hosts: list[Annotated[str, Field(min_length=1)]]
    tls: FreeList


class HttpRoute(Part):
    enabled: bool
    annotations: Texts
    parent_refs: FreeList
    hostnames: list[str]


class PodDisruptionBudget(Part):
    enabled: bool
    max_unavailable: Quantity
    unhealthy_pod_eviction_policy: Literal["", "IfHealthyBudget", "AlwaysAllow"]


class NetworkPolicy(Part):
    enabled: bool
    admin_from: FreeList
    kafka_to: FreeList
    kafka_ports: list[Port]
    extra_egress: FreeList


class ServiceMonitor(Part):
    enabled: bool
    interval: str
    scrape_timeout: str
    labels: Texts
    relabelings: FreeList
    metric_relabelings: FreeList


class PodMonitor(ServiceMonitor):
    """The values of a ServiceMonitor, with other descriptions."""


class PrometheusRule(Part):
    enabled: bool
    labels: Texts
    runbook_url: str = Field(pattern=r"^(https?://[^#\s]+)?$")


class Dashboard(Part):
    enabled: bool
    labels: Texts
    annotations: Texts


class TopicsJob(Part):
    enabled: bool
    sasl_secret: SecretName
    backoff_limit: int = Field(ge=0)
    active_deadline_seconds: Seconds
    resources: Free


class AuditImage(Part):
    """Image of the audit. An empty repository means the proxy's repository, and `tag_suffix` is
    added to the tag."""

    registry: Registry
    repository: str
    tag: Tag
    tag_suffix: str
    digest: Digest


class AuditSpark(Part):
    master: str = Field(pattern=r"^(local(\[.+\])?|k8s://.+)$")
    driver_memory: str = Field(pattern=r"^[0-9]+[kmgtKMGT]$")
    executor_image: str
    conf: Texts


class AuditFollow(Part):
    enabled: bool
    every_seconds: Seconds
    metrics_port: Port
    size: Quantity


class Audit(Part):
    enabled: bool
    schedule: str = Field(min_length=1)
    output: str = Field(pattern=r"^(/|[a-z][a-z0-9+.-]*://).+")
    size: Quantity
    sasl_secret: SecretName
    targets: list[str]
    max_lateness: list[str]
    spark: AuditSpark
    image: AuditImage
    follow: AuditFollow
    active_deadline_seconds: Seconds
    history_limit: int = Field(ge=0)
    volume: Free
    resources: Free


class ChartValues(Part):
    global_: Free = Field(alias="global")
    name_override: str
    fullname_override: str
    replicas: int = Field(ge=0)
    image: Image
    image_pull_secrets: FreeList
    config: Settings
    credentials: Credentials
    persistence: Persistence
    resources: Free
    termination_grace_period_seconds: Seconds
    startup_probe: Free
    liveness_probe: Free
    readiness_probe: Free
    min_ready_seconds: int = Field(ge=0)
    update_strategy: Free
    common_labels: Texts
    pod_labels: Texts
    pod_annotations: Texts
    pod_security_context: Free
    security_context: Free
    node_selector: Texts
    tolerations: FreeList
    affinity: Free
    topology_spread_constraints: FreeList
    priority_class_name: str
    host_aliases: FreeList
    extra_env: FreeList
    env_from: FreeList
    extra_volumes: FreeList
    extra_volume_mounts: FreeList
    init_containers: FreeList
    extra_containers: FreeList
    extra_objects: list[Free | str]
    service_account: ServiceAccount
    admin_service: AdminService
    ingress: Ingress
    http_route: HttpRoute
    pod_disruption_budget: PodDisruptionBudget
    network_policy: NetworkPolicy
    service_monitor: ServiceMonitor
    pod_monitor: PodMonitor
    prometheus_rule: PrometheusRule
    dashboard: Dashboard
    topics_job: TopicsJob
    audit: Audit
