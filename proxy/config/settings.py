"""The settings as typed, frozen values (docs/operations/settings.md).

`default.yaml` documents every key. Attribute names add units: `max_delay` is `max_delay_ms`.
"""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from proxy.config.machine import MemoryShares, memory_shares
from proxy.config.values import (
    Aliases,
    AutoDurationMs,
    AutoReserveBytes,
    AutoWorkers,
    DurationMs,
    KafkaName,
    KafkaText,
    LevelsMs,
    Patterns,
    Requests,
    SizeBytes,
    check_topic,
    refuse_no_addresses,
)
from proxy.protocol.policy import DEFAULT_LEVELS, REQUEST_KINDS
from proxy.protocol.times import parse_levels
from storage.options import StoreKind

DEFAULT_BOOTSTRAP = "localhost:9092"
MOST_PER_SECOND = 1_000_000
SHORTEST_TOKEN = 16
FIRST_DELAY_MS = 5_000
MAX_RETRY_DELAY_MS = 7_200_000


class Section(BaseModel):
    """A section of the settings. It is frozen and rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class TopicSettings(Section):
    """Names of the proxy's topics, and how `run` creates missing ones."""

    ingress: str = "timer.ingress"
    dead_letters: str = "timer.dead-letters"
    outcomes: str = "timer.outcomes"
    settings: str = "timer.settings"
    audit: str = "timer.audit"
    changes: str = "timer.changes"
    retry_prefix: str = "retry."
    dlq_prefix: str = "dlq."
    allow_create_time: bool = False
    create: bool = True
    partitions: int = Field(4, ge=1, le=10_000)
    replication_factor: int | None = Field(None, ge=1, le=100)
    min_insync_replicas: int | None = Field(None, ge=1, le=100)

    _names = field_validator("ingress", "dead_letters", "outcomes", "settings", "audit", "changes")(
        check_topic
    )

    @property
    def own(self) -> tuple[str, ...]:
        return (self.ingress, self.dead_letters, self.outcomes, self.settings)

    @property
    def never_targets(self) -> tuple[str, ...]:
        return (*self.own, self.audit, self.changes, self.replay_marks)

    def dead_letters_of(self, group: str | None) -> str:
        """Return the topic of the records that `group` gave up. For None, return the proxy's
        topic."""
        return self.dead_letters if group is None else self.dlq_prefix + group

    @property
    def replay_marks(self) -> str:
        """Return the topic of marks, which say which dead letters were replayed. The topic is
        created on first use."""
        return self.replay_marks_of(self.dead_letters)

    def replay_marks_of(self, dead_letters: str) -> str:
        return f"{dead_letters}.replayed"

    def replay_id_of(self, dead_letters: str) -> str:
        """Return the transactional id of all replays of these letters. A later replay fences an
        earlier one."""
        return f"{dead_letters}.replay"

    @model_validator(mode="after")
    def _consistent(self) -> "TopicSettings":
        if len({*self.own, self.audit, self.changes}) < len(self.own) + 2:
            raise ValueError(
                "ingress, dead_letters, outcomes, settings, audit and changes must be six topics"
            )
        if (self.min_insync_replicas or 1) > (self.replication_factor or 100):
            raise ValueError(
                "min_insync_replicas is more than replication_factor: no write would succeed"
            )
        return self


class WheelSettings(Section):
    """Width and number of the wheel's slots. An entry that fires after the last slot waits in a
    slot for a later lap."""

    precision_ms: int = Field(1000, ge=1, le=60_000)
    slots: int = Field(604_800, ge=2, le=10_000_000)


class RetryGroupSettings(Section):
    """The retries of one consumer group.

    `exponential` doubles `first_delay` up to `max_delay`. `custom` repeats the last of `delays`.
    """

    policy: Literal["levels", "exponential", "custom"] = "levels"
    first_level: int | None = Field(None, ge=1, le=1000)
    max_attempts: int | None = Field(None, ge=1, le=1000)
    first_delay_ms: DurationMs = Field(FIRST_DELAY_MS, alias="first_delay")
    max_delay_ms: DurationMs = Field(MAX_RETRY_DELAY_MS, alias="max_delay")
    delays_ms: LevelsMs = Field((), alias="delays", max_length=1000)

    @model_validator(mode="after")
    def _consistent(self) -> "RetryGroupSettings":
        if (self.policy == "custom") != bool(self.delays_ms):
            raise ValueError("set `delays` (1s 10s 1m) with `policy: custom`, and only with it")
        asked = self.first_delay_ms, self.max_delay_ms
        if self.policy != "exponential" and asked != (FIRST_DELAY_MS, MAX_RETRY_DELAY_MS):
            raise ValueError("`first_delay` and `max_delay` need `policy: exponential`")
        if self.policy != "levels" and self.first_level is not None:
            raise ValueError("`first_level` needs `policy: levels`")
        return self


class RetrySettings(Section):
    """Retries of records at which consumers have failed."""

    first_level: int = Field(3, ge=1, le=1000)
    max_attempts: int = Field(16, ge=1, le=1000)
    unnamed_groups: int = Field(100, ge=0, le=100_000)
    groups: dict[str, RetryGroupSettings] = Field(default_factory=dict)


class TransactionSettings(Section):
    """Check-backs for half messages (docs/guide.md#half-messages)."""

    immunity_ms: DurationMs = Field(6_000, alias="immunity")
    check_interval_ms: DurationMs = Field(30_000, alias="check_interval")
    max_checks: int = Field(15, ge=1, le=1000)


class MemorySettings(Section):
    """Memory of a worker (docs/operations/sizing.md#memory)."""

    per_worker_bytes: SizeBytes = Field(512 * 2**20, alias="per_worker")


class AdmissionSettings(Section):
    """Limits on pending records, and on their bytes in `data_dir`, for each ingress partition."""

    records: int | None = Field(None, ge=1)
    per_target: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, max_length=1000
    )
    size_bytes: SizeBytes | None = Field(None, alias="bytes")
    bytes_per_target: dict[str, SizeBytes] = Field(default_factory=dict, max_length=1000)


class OverdueLimit(Section):
    """The treatment of records that would be delivered later than `older_than` after their due."""

    older_than_ms: DurationMs = Field(alias="older_than")
    action: Literal["deliver", "dead-letter", "drop"]


class OverdueSettings(OverdueLimit):
    """The treatment of overdue records for a shell pattern of targets."""

    targets: str = Field(min_length=1)


class ReleaseSettings(Section):
    """Delivery rates, and the size of one Kafka transaction."""

    max_per_second: int | None = Field(None, ge=1, le=MOST_PER_SECOND)
    per_target: dict[str, Annotated[int, Field(ge=1, le=MOST_PER_SECOND)]] = Field(
        default_factory=dict, max_length=1000
    )
    overdue: tuple[OverdueSettings, ...] = Field((), max_length=1000)
    transaction_records: int = Field(10_000, ge=1, le=1_000_000)
    transaction_interval_ms: int = Field(50, ge=0, le=10_000)


class TargetSettings(Section):
    """Shell patterns of allowed and denied targets. `deny` wins."""

    allow: Patterns = ("*",)
    deny: Patterns = ()

    @field_validator("allow", "deny")
    @classmethod
    def _no_empty_pattern(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if any(not pattern for pattern in patterns):
            raise ValueError("an empty pattern matches no topic; write [] for none and * for all")
        return patterns


class RequestSettings(Section):
    """Kinds of requests, beside deliveries, that producers may make. Records with other requests
    become dead letters."""

    serve: Requests = REQUEST_KINDS
    unproven_recalls: bool = False


class ClockSettings(Section):
    """How far the wall clock may be ahead before the broker's clock is used (`proxy.clock`)."""

    max_step_ms: DurationMs = Field(5_000, alias="max_step")


class RecoverySettings(Section):
    """An operator's decisions after losses."""

    accept_loss_below: dict[int, int] = Field(default_factory=dict)
    """Ingress partition -> offset. The proxy starts even if records below this offset are lost."""
    set_back_watermark: tuple[int, ...] = ()
    """Ingress partitions whose watermark is set back, because a wrong clock has advanced it."""


def checked_token(token: str) -> str:
    """Return a token that callers can send and cannot guess. Raises ValueError."""
    if not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ValueError(
            "it cannot be sent in a header: it begins or ends with a blank or a line break, or "
            "it has characters that are not visible ASCII"
        )
    if len(token) < SHORTEST_TOKEN:
        raise ValueError(
            f"it has {len(token)} characters and can be guessed: use {SHORTEST_TOKEN} or more "
            "random characters, as `openssl rand -hex 20` prints them"
        )
    return token


Role = Literal["metrics", "viewer", "operator", "admin"]
"""The role of a caller of the admin port. Each role includes the rights of the roles before it."""
TokenName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,62}$")]
HeaderName = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9-]{0,99}$")]
LONGEST_USER_NAME = 200
UserName = Annotated[str, Field(min_length=1, max_length=LONGEST_USER_NAME)]
EnvironmentName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")]
Colour = Annotated[
    str, Field(pattern="^(red|orange|yellow|green|blue|purple|grey|#[0-9a-fA-F]{6})$")
]
WebAddress = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9][^\s\"'<>\\`]*$", max_length=500)]


def checked_peer(text: str) -> str:
    """Return the URL of another instance's admin port. Raises ValueError."""
    url = urlsplit(text)
    is_plain = not (url.path.strip("/") or url.query or url.fragment or "@" in url.netloc)
    if url.scheme not in {"http", "https"} or not url.hostname or not url.port or not is_plain:
        raise ValueError("write a peer as http://host:port or https://host:port")
    return text.rstrip("/")


PeerUrl = Annotated[str, AfterValidator(checked_peer)]


class AdminToken(Section):
    """A token of the admin port. Each line of its file is a valid token."""

    role: Role
    file: Path
    contents: bool = False
    """Whether a viewer may read keys, values and headers of records."""
    trusted: bool = False
    """Whether a login proxy sends the token, with a user's name in the header `trusted_header`."""


class AdminTls(Section):
    """TLS for the admin port. Commands use `ca`, and the server uses the other fields."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    @model_validator(mode="after")
    def _both(self) -> "AdminTls":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("set both certificate and key, or neither")
        return self


class AdminSettings(Section):
    """The admin port: /metrics, /healthz, /readyz and the API. Port 0 picks a free one."""

    host: str = "127.0.0.1"
    port: int = Field(9464, ge=0, le=65_535)
    token: str | None = None
    tokens: dict[TokenName, AdminToken] = Field(default_factory=dict, max_length=100)
    trusted_header: HeaderName | None = None
    users: dict[UserName, Role] = Field(default_factory=dict, max_length=1_000)
    tls: AdminTls = AdminTls()
    peers: list[PeerUrl] = Field(default_factory=list, max_length=50)
    targets_shown: int = Field(50, ge=0, le=1_000)
    environment: EnvironmentName | None = None
    colour: Colour | None = None
    docs_url: WebAddress | None = None
    runbook_url: WebAddress | None = None

    @field_validator("token")
    @classmethod
    def _can_be_sent(cls, token: str | None) -> str | None:
        return None if token is None else checked_token(token)

    @model_validator(mode="after")
    def _header_has_senders(self) -> "AdminSettings":
        is_trusted = any(entry.trusted for entry in self.tokens.values())
        if is_trusted != (self.trusted_header is not None):
            raise ValueError(
                "trusted_header has an effect only with the token of a trusted proxy: set both, "
                "`trusted_header` and `trusted: true` for an entry of `tokens`, or neither"
            )
        if self.users and not is_trusted:
            raise ValueError("users needs trusted_header")
        return self

    @property
    def scheme(self) -> str:
        return "http" if self.tls.certificate is None else "https"

    @property
    def has_tokens(self) -> bool:
        return self.token is not None or bool(self.tokens)


class TracingSettings(Section):
    """OpenTelemetry spans (`proxy.tracing`). Variables `OTEL_*` set their destination."""

    enabled: bool = False


class LogSettings(Section):
    """Lowest level that is logged, and the line format."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(Section):
    """All settings of an operator."""

    kafka: dict[KafkaName, KafkaText] = Field(
        default_factory=lambda: {"bootstrap.servers": DEFAULT_BOOTSTRAP}
    )
    topics: TopicSettings = TopicSettings()
    group_id: str = Field("delay-proxy", min_length=1, max_length=200)
    instance_id: str | None = Field(None, min_length=1, max_length=200)
    data_dir: Path = Path("data")
    disk_reserve_bytes: AutoReserveBytes = Field(None, alias="disk_reserve")
    workers: AutoWorkers = 1
    memory: MemorySettings = Field(MemorySettings(), validate_default=True)
    store: StoreKind = "wheel"
    bodies: Literal["local", "kafka"] = "local"
    wheel: WheelSettings = WheelSettings()
    levels_ms: LevelsMs = Field(
        parse_levels(DEFAULT_LEVELS), alias="levels", min_length=1, max_length=1000
    )
    max_delay_ms: DurationMs = Field(366 * 86_400_000, alias="max_delay")
    max_past_ms: DurationMs | None = Field(None, alias="max_past")
    roll_after_ms: AutoDurationMs = Field(None, alias="roll_after")
    retry: RetrySettings = RetrySettings()
    transactions: TransactionSettings = TransactionSettings()
    admission: AdmissionSettings = AdmissionSettings()
    release: ReleaseSettings = ReleaseSettings()
    targets: TargetSettings = TargetSettings()
    requests: RequestSettings = RequestSettings()
    header_aliases: Aliases = ()
    clock: ClockSettings = ClockSettings()
    recovery: RecoverySettings = RecoverySettings()
    admin: AdminSettings = AdminSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _bytes_are_local(self) -> "Settings":
        limits = self.admission
        if self.bodies == "kafka" and (limits.size_bytes or limits.bytes_per_target):
            raise ValueError(
                "admission.bytes and bytes_per_target limit bytes in data_dir. With `bodies: "
                "kafka` few bytes are there: use admission.records and per_target"
            )
        return self

    @property
    def instance_name(self) -> str:
        return self.instance_id or socket.gethostname()

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka["bootstrap.servers"]

    @property
    def memory_shares(self) -> MemoryShares:
        return memory_shares(self.memory.per_worker_bytes, self.kafka)

    @field_validator("memory")
    @classmethod
    def _enough_memory(cls, memory: MemorySettings, others: ValidationInfo) -> MemorySettings:
        memory_shares(memory.per_worker_bytes, others.data.get("kafka", {}))
        return memory

    @field_validator("kafka", mode="before")
    @classmethod
    def _default_bootstrap(cls, section: object) -> object:
        if not isinstance(section, Mapping):
            return section
        return {"bootstrap.servers": DEFAULT_BOOTSTRAP, **section}

    @field_validator("kafka")
    @classmethod
    def _addresses(cls, kafka: dict[str, str]) -> dict[str, str]:
        refuse_no_addresses(kafka["bootstrap.servers"])
        return kafka


WILDCARDS = frozenset("*?[")


class Resumed(NamedTuple):
    """The end of a pause, and the rate for the records that it held back."""

    at_ms: int
    per_second: int | None = None
    """Limit for all partitions together. None: no limit."""


class TargetLimit(Section):
    """Limits for each target of a pattern: a rate cap, an overdue rule, or both."""

    per_second: int | None = Field(None, ge=1, le=MOST_PER_SECOND)
    overdue: OverdueLimit | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "TargetLimit":
        if self.per_second is None and self.overdue is None:
            raise ValueError("set per_second, overdue, or both")
        return self

    def rules_json(self, pattern: str) -> str | None:
        if self.overdue is None:
            return None
        return json.dumps([{"targets": pattern, **self.overdue.model_dump()}], sort_keys=True)


def by_precedence(limits: Mapping[str, TargetLimit]) -> dict[str, TargetLimit]:
    """Sort limits in matching order: topic names, then patterns, longest first."""
    return dict(sorted(limits.items(), key=_place))


def _place(item: tuple[str, TargetLimit]) -> tuple[bool, int, str]:
    pattern = item[0]
    return not WILDCARDS.isdisjoint(pattern), -len(pattern), pattern
