"""Bodies of requests and replies of the API. The OpenAPI document is made from these models."""

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from proxy.admin.answers import Answer, Count, OfGroup, WithPartitions
from proxy.config.settings import MOST_PER_SECOND, OverdueLimit, Role, TargetLimit
from proxy.logs import Level
from proxy.protocol.header_values import LONGEST_ID_BYTES
from proxy.protocol.policy import TARGETS_PATTERN
from proxy.protocol.times import LATEST_MS, parse_delay_ms

MOST_FILTERS: Final = 20
MOST_PLACES: Final = 1_000
LAST_PARTITION: Final = 2**31 - 1
LAST_OFFSET: Final = 10**18 - 1
PATTERN: Final = rf"^{TARGETS_PATTERN.pattern}$".replace("!-", r"!\-")
TOPIC: Final = r"^[a-zA-Z0-9._\-]{1,249}$"
OLDER_THAN: Final = (
    r"^([1-9][0-9]{0,11}ms|[1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,4}h|[1-9][0-9]{0,3}d)$"
)
"""The numbers of digits keep each duration below the longest delay that the settings allow."""


def whole(value: object) -> object:
    """Return a whole float as an int, for example 2.0 as 2. JSON has only one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def given(value: object) -> object:
    """Raise ValueError for null in an optional field."""
    if value is None:
        raise ValueError("leave the field out instead of sending null")
    return value


def without_null(schema: dict[str, Any]) -> None:
    """Remove null from the schema of an optional field. None stands for a field that was left
    out."""
    schema.update(schema.pop("anyOf")[0])


def pattern_of(text: str) -> str:
    """Check a pattern of targets. Raises ValueError."""
    if TARGETS_PATTERN.fullmatch(text) is None:
        raise ValueError(
            "A pattern of targets has 1 to 249 of the characters a-z A-Z 0-9 . _ - * ? [ ] !"
        )
    return text


def id_text(text: str) -> str:
    """Check the length of an id or of an id's prefix. Raises ValueError."""
    if len(text.encode()) > LONGEST_ID_BYTES:
        raise ValueError(f"an id has at most {LONGEST_ID_BYTES} bytes of UTF-8")
    return text


Whole = BeforeValidator(whole)
Time = Annotated[int, Field(description="Epoch milliseconds.")]
Origin = Annotated[str, Field(description="topic/partition/offset of the ingress record.")]
Pattern = Annotated[str, AfterValidator(pattern_of), Field(json_schema_extra={"pattern": PATTERN})]
Rate = Annotated[int, Field(ge=1, le=MOST_PER_SECOND), Whole]
Moment = Annotated[int, Field(ge=0, le=LATEST_MS), Whole] | None
PartitionNumber = Annotated[int, Field(ge=0, le=LAST_PARTITION), Whole]
FilterText = Annotated[str, StringConstraints(min_length=1, max_length=249)]
LetterPlace = Annotated[str, Field(json_schema_extra={"pattern": r"^[0-9]{1,10}/[0-9]{1,18}$"})]
LetterRate = Annotated[str, Field(json_schema_extra={"pattern": "^[1-9][0-9]{0,8}/(s|m|h)$"})]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[^=]{1,249}$")]
HeaderText = Annotated[str, StringConstraints(max_length=4096)]
Ident = Annotated[str, Field(min_length=1, max_length=LONGEST_ID_BYTES), AfterValidator(id_text)]
IdPrefix = Annotated[str, Field(max_length=LONGEST_ID_BYTES), AfterValidator(id_text)]
Source = Literal["run-time", "settings"]
DELIVER_AT: Final = {
    "description": "Epoch milliseconds, or RFC 3339 with a zone. At most `max_delay` from now. "
    "With a past time the record is delivered at once.",
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": LATEST_MS},
        {"type": "string", "format": "date-time"},
    ],
}


def example(value: dict[str, Any]) -> ConfigDict:
    """Return the model configuration of a body that has this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Body(BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Refused(Answer):
    """A refusal."""

    error: str = Field(description="A code for programs.")
    detail: str = Field(description="A sentence for people.")


class Me(Answer):
    """The caller."""

    name: str = Field(description="Name of the token.")
    role: Role
    contents: bool = Field(
        description="True if the caller may read keys, values and headers of records."
    )


class Pending(WithPartitions):
    """Pending records by target."""

    pending: Count
    by_target: dict[str, Count]
    others: Count = Field(
        description="Pending records of all targets that are not in `by_target`. `by_target` has "
        "the 1,000 targets with the most records. If an ingress partition has over 10,000 "
        "targets, `by_target` may lack some large targets."
    )


class Bucket(Answer):
    """Pending records that fire up to `until`, without the records of earlier buckets."""

    within: str | None
    until: int | None
    pending: Count


class PendingByTime(WithPartitions):
    """Buckets in order of time. The last bucket has no end."""

    now: Time
    buckets: list[Bucket] = Field(min_length=2)
    cancelled: Count = Field(
        description="Counted records that were cancelled or replaced. Subtract them from the sum."
    )
    paused: Count = Field(
        description="Counted records of paused targets. They are not delivered before a resume, "
        "even if their bucket ends earlier. When such a record becomes due, it is written "
        "again with a later time, so it is then in a later bucket."
    )
    counted_all: bool = Field(
        True, description="Only with `target`. False if time ran out before all were counted."
    )


class HalfMessages(OfGroup):
    """Undecided half messages."""

    undecided: Count
    by_partition: dict[str, Count]

    def covered(self) -> list[int] | None:
        return [int(partition) for partition in self.by_partition]


class Part(Answer):
    """The beginning of a value (65,536 bytes), or of a key or header (4,096 bytes). UTF-8 is in
    `text`, other bytes are in `base64`."""

    text: str = ""
    base64: str = ""
    bytes: Count = Field(description="The full size.")
    cut: bool = Field(description="True if only the beginning is shown.")


class Header(Answer):
    """A header of a record."""

    name: str
    value: Part | None


class Content(Answer):
    """Key, value and headers of a record."""

    key: Part | None
    value: Part | None
    headers: list[Header] = Field(max_length=100)
    headers_left_out: Count = Field(description="Number of headers beyond the first 100.")


class Record(Answer):
    """The state of an ingress record. With `body=true` also its key, value and headers."""

    origin: Origin
    id: str | None
    state: Literal["pending", "half-message", "ended"]
    target: str | None
    due: int | None = Field(description="The time that the record asked for.")
    fires: int | None = Field(
        description="The time at which the proxy looks at the record next. Earlier than `due` if "
        "the record must be rewritten before its due. Later if it was requeued."
    )
    key: Part | None = None
    value: Part | None = None
    headers: list[Header] = Field([], max_length=100)
    headers_left_out: Count = 0


class Records(WithPartitions):
    """Pending records with one id."""

    records: list[Record]


class PendingRecord(Answer):
    """A record in the list of pending records."""

    origin: Origin
    id: str | None
    due: int = Field(description="The time that the record asked for.")
    fires: int | None = Field(
        description="The time at which the proxy looks at the record next. Null for an undecided "
        "half message."
    )
    target: str
    bytes: int | None = Field(
        description="Approximate size of key, value and headers. Null if unknown."
    )
    why: Literal[
        "scheduled", "overdue", "paused", "rate-limited", "requeued", "undecided", "unread"
    ] = Field(
        description="Why the record is pending. `scheduled`: it is not due yet. `overdue`: it is "
        "due, and is delivered next. `paused`: its target was paused when it became due. "
        "`rate-limited`: it is in a queue, because its target had reached its rate or was "
        "resumed at a rate. `requeued`: publishing it failed `attempt` times. `undecided`: it is "
        "a half message. `unread`: its body is only in the ingress (setting `bodies: kafka`), "
        "where `GET /records/...` reads it. Its id is unknown, and `due` is the time at which it "
        "fires."
    )
    attempt: Count = Field(description="Number of failed publish attempts.")
    reason: str | None = Field(
        description="Only for `requeued`: why the target does not take records now. Null if no "
        "attempt has failed since the worker's start."
    )


class RecordPage(WithPartitions):
    """A page of pending records."""

    records: list[PendingRecord] = Field(max_length=1000)
    cursor: str | None = Field(description="Send it to get the next page. Null on the last page.")
    cursors: list[str] = Field(
        [], description="The cursor after each record. Only in the answer of a single instance."
    )


class Written(Answer):
    """A control record that was written to the ingress."""

    later = "The record was written to the ingress. Its outcome is not known yet."
    origin: str = Field(description="topic/partition/offset of the written record.")
    outcome: str | None
    detail: str | None

    def status_code(self) -> int:
        return 202 if self.outcome is None else 200


class CancelWritten(Written):
    """A cancel. Its outcome is `applied`, or `missed` if no record with that id was pending."""

    id: str


class RecallWritten(Written):
    """A recall. Its outcome is `applied`, `missed` if the record had ended, or `dead-lettered` if
    there is no such record."""

    recalls: str = Field(description="The origin of the recalled record.")


class MoveWritten(Written):
    """A move to another time. Its outcome is `replaced`, or `requeued` if the time is unchanged.
    `missed` means that the record had ended, and nothing was changed."""

    moves: str = Field(description="The origin in the request.")


class CancelBody(Body):
    """The id to cancel. The record's ingress partition is `partition`. By default it is the
    partition of `key`, or without a key the partition of the id."""

    model_config = example({"id": "order-17"})
    id: Ident
    partition: PartitionNumber | None = None
    key: str | None = Field(None, max_length=1024)


class MoveBody(Body):
    """The new delivery time."""

    model_config = example({"deliver_at": "2030-01-01T09:00:00+01:00"})
    deliver_at: Annotated[int | str, Whole, WithJsonSchema(DELIVER_AT)]


class Step(Answer):
    """A step in the history of a record."""

    time_ms: int | None = Field(description="Epoch milliseconds. Null if unknown.")
    what: str = Field(
        description="The event, for example `ingested` or `retry 1`. docs/trace.md lists all."
    )
    where: str | None = Field(
        description="topic/partition/offset of the record that shows this step."
    )
    detail: str = Field(description="An explanation, without times.")
    origin: str = Field(description="Origin of the ingress record of this step.")
    due_ms: int | None = Field(description="The time until which the record is pending.")
    late_ms: int | None = Field(description="Lateness in milliseconds, for a delivery.")


class Trace(Answer):
    """The history of a record."""

    origin: str = Field(description="Origin of the requested record.")
    first_origin: str = Field(description="Origin of the first record, before all rewrites.")
    state: str = Field(
        description="State of the last record: `delivered`, `pending`, `unknown`, or an outcome."
    )
    trace_id: str | None = Field(description="Trace id of the W3C `traceparent`.")
    steps: list[Step] = Field(description="All steps in order of time.")
    unknown: list[str] = Field(description="Sentences about missing parts of the history.")
    is_whole: bool = Field(description="True if everything was read.")


class InForce(Answer):
    """A change that was written to the settings topic."""

    later = "The change was written. A starting or recovering worker does not apply it yet."
    in_force: bool = Field(
        description="True if all workers of this process apply it. Others follow within a second."
    )

    def status_code(self) -> int:
        return 200 if self.in_force else 202


class Pauses(Answer):
    """Paused patterns of targets."""

    paused: list[Pattern]
    release_rates: dict[str, Rate] = Field(
        description="Resumed patterns that have a rate, with the rate in records per second over "
        "all partitions."
    )


class Pause(InForce):
    """A pause or a resume."""

    pattern: Pattern
    paused: bool
    per_second: int | None = Field(
        description="Paused records delivered per second after the resume."
    )


class Ingest(OfGroup):
    """State of the ingest."""

    paused: bool
    unread: Count = Field(description="Unread ingress records.")


class IngestPaused(InForce):
    """Whether the ingest is paused."""

    paused: bool


class OverdueRule(Body):
    """The action for records that would be delivered later than `older_than` after their due."""

    older_than: Annotated[str, StringConstraints(pattern=OLDER_THAN)]
    action: Literal["deliver", "dead-letter", "drop"]


class ShownRule(Answer):
    """The action for records that would be delivered later than `older_than` after their due."""

    older_than: str
    action: Literal["deliver", "dead-letter", "drop"]


class LimitBody(Body):
    """A rate cap, a rule for overdue records, or both."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [
                {"per_second": 500, "overdue": {"older_than": "1h", "action": "dead-letter"}}
            ],
        }
    )
    per_second: Annotated[Rate | None, BeforeValidator(given)] = Field(
        None, json_schema_extra=without_null
    )
    overdue: Annotated[OverdueRule | None, BeforeValidator(given)] = Field(
        None, json_schema_extra=without_null
    )

    @model_validator(mode="after")
    def _says_something(self) -> "LimitBody":
        if self.per_second is None and self.overdue is None:
            raise ValueError("name per_second, overdue, or both")
        return self

    def limit(self) -> TargetLimit:
        asked = self.overdue
        rule = asked and OverdueLimit(
            older_than_ms=parse_delay_ms(asked.older_than), action=asked.action
        )
        return TargetLimit(per_second=self.per_second, overdue=rule)


class LimitParts(Answer):
    """A rate cap and a rule for overdue records."""

    pattern: str
    per_second: int | None
    overdue: ShownRule | None


class ShownLimit(LimitParts):
    """A limit and its source."""

    source: Source


class LimitSet(InForce, LimitParts):
    """A limit that was set or cleared at run time."""


class WorkersLimit(Answer):
    """The rate cap of each worker for all targets together."""

    max_per_second: int | None = Field(description="Records per second. Null without a cap.")
    max_per_second_source: Source


class Limits(WorkersLimit):
    """Limits in the order in which patterns are tried. The first matching pattern applies."""

    limits: list[ShownLimit]


class WorkersLimitSet(InForce, WorkersLimit):
    """The rate cap of each worker, set or cleared at run time."""


class RateBody(Body):
    """A rate cap of each worker."""

    model_config = example({"per_second": 2000})
    per_second: Rate


class PurgeBody(Body):
    """The records to purge, by target and due."""

    model_config = example({"targets": "orders-*", "due_to": 1_800_000_000_000, "dry_run": True})
    targets: Pattern
    due_from: Moment = Field(None, description="Only records due at this time or later.")
    due_to: Moment = Field(None, description="Only records due at this time or earlier.")
    dry_run: bool = Field(description="If true, the records are only counted.")


class Purged(WithPartitions):
    """A purge, or the number of records that it would end."""

    later = "The purge was written. Each ingress partition applies the purge after reading it."
    targets: Pattern
    due_from: int | None
    due_to: int | None
    dry_run: bool
    records: int = Field(
        description="Matching pending records, counted before the purge. With `due_from` or "
        "`due_to` they are counted one by one, for at most 20 s."
    )
    counted_all: bool = Field(description="False if time ran out before all were counted.")
    purges: list[str] = Field(
        [], description="Origins of the purge, one in each ingress partition."
    )
    applied: bool = Field(True, description="True if every partition has read the purge.")

    def status_code(self) -> int:
        return 200 if self.applied else 202


class SkipBody(Body):
    """The batch to skip. The log and `/readyz` name its partition and offset."""

    partition: PartitionNumber
    # The OpenAPI document writes bounds as floats, which would round 2**63 - 1 up.
    offset: Annotated[int, Field(ge=0, le=10**18), Whole] = Field(
        description="The first offset of the batch."
    )
    dry_run: bool = Field(False, description="If true, the batch is found but not skipped.")


class Skipped(InForce):
    """A skipped batch."""

    partition: int
    offset: int
    end: int = Field(description="The first offset after the batch.")
    why: str
    dry_run: bool

    def status_code(self) -> int:
        return 200 if self.dry_run else super().status_code()


class LetterTopic(Answer):
    """A topic of dead letters."""

    topic: str
    group: str | None
    offsets: int | None = Field(
        description="Number of offsets in the topic. The number of letters may be lower. Null if "
        "unknown."
    )


class LetterTopics(Answer):
    """The dead-letter topics of the proxy and of consumer groups, at most 200."""

    topics: list[LetterTopic]


class Mark(Answer):
    """The time of a letter's replay, and the new ingress record."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)
    at: Time
    sent_as: str = Field(alias="as")


class LetterHead(Answer):
    """The fields of a dead letter that are also in lists."""

    partition: Count
    offset: Count
    written: Time
    reason: str | None = Field(
        description="The code of `timer-error`. For a group's letter, the first line of the "
        "exception. Null if another program wrote the record."
    )
    detail: str | None
    target: str | None = Field(
        description="The requested topic. For a group's letter, the topic it first came from."
    )
    origin: str | None
    first_origin: str | None
    replayed: Mark | None


class ListedLetter(LetterHead):
    """A dead letter in a list."""

    key: str | None = Field(
        description="The first 200 bytes of the key. Null if the caller may not read contents. "
        "Then the `detail` of a consumer group's letter is null, too."
    )
    bytes: int | None = Field(description="Size of the value. Null without a value.")


class LetterPage(Answer):
    """A page of dead letters."""

    topic: str
    letters: list[ListedLetter] = Field(max_length=1000)
    replays_known: bool = Field(
        description="False if there was no time to find the replayed letters. Then all letters "
        "have `replayed: null`."
    )
    cursor: str | None = Field(description="Send it to get the next page. Null on the last page.")


class Letter(LetterHead, Content):
    """A dead letter."""

    topic: str
    meaning: str | None = Field(description="The meaning of the code.")
    remedy: str | None = Field(description="What to do about the error.")
    value_in_ingress: bool = Field(description="True if the value was read from the ingress.")


class ReplayBody(Body):
    """The letters to replay, by filters and `places`. Without these, all letters are replayed."""

    model_config = example(
        {"topic": "timer.dead-letters", "reasons": ["target-unknown"], "dry_run": True}
    )
    topic: Annotated[str, Field(json_schema_extra={"pattern": TOPIC})]
    places: Annotated[list[LetterPlace], Field(min_length=1, max_length=MOST_PLACES)] | None = (
        Field(None, description="Letters of the topic, as partition/offset.")
    )
    reasons: list[FilterText] = Field([], max_length=MOST_FILTERS)
    targets: list[Pattern] = Field([], max_length=MOST_FILTERS)
    origins: list[FilterText] = Field(
        [],
        max_length=MOST_FILTERS,
        description="Shell patterns of topic/partition/offset, for the origin or the first origin.",
    )
    since: Moment = Field(None, description="Only letters written at this time or later.")
    until: Moment = Field(None, description="Only letters written before this time.")
    set: dict[HeaderName, HeaderText] = Field(
        {},
        max_length=MOST_FILTERS,
        description="Headers to set.",
        json_schema_extra={"additionalProperties": False},
    )
    unset: list[HeaderName] = Field([], max_length=MOST_FILTERS, description="Headers to remove.")
    limit: Annotated[int, Field(ge=1, le=10**15), Whole] | None = Field(
        None, description="At most this many letters, the oldest of each partition first."
    )
    rate: LetterRate | None = Field(
        None, description="The highest rate of the replay, for example `100/s`, `30/m` or `5/h`."
    )
    again: bool = Field(False, description="If true, also letters that were already replayed.")
    dry_run: bool = Field(description="If true, letters are only counted. Nothing is written.")


class ReplayedTarget(Answer):
    """Letters of one target. Beyond 1,000 targets, all others share one entry."""

    target: str
    letters: Count
    first_due: Time
    last_due: Time


class LeftLetters(Answer):
    """Letters left out for the same reason. `detail` and `first` describe the first of them."""

    reason: str
    letters: Count
    detail: str
    first: str


class Replay(Answer):
    """A replay or a dry run."""

    later = "The replay is running. Ask again with its `id`."
    id: str
    topic: str
    dry_run: bool
    state: Literal["running", "finished", "stopped", "failed"]
    replayed: Count = Field(
        description="Letters replayed so far. In a dry run, letters that would be replayed."
    )
    by_target: list[ReplayedTarget]
    left: list[LeftLetters]
    missing: list[str] = Field(description="Requested places without a letter.")
    error: str | None = Field(description="Why the replay failed.")
    started: Time
    ended: int | None

    def status_code(self) -> int:
        return 202 if self.state == "running" else 200


class LogLevel(Answer, Body):
    """The lowest level that the process logs."""

    level: Level
