"""Requests and answers of the API. The OpenAPI document is made from these models."""

from typing import Annotated, Any, ClassVar, Final, Literal

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

from proxy.config.settings import MOST_PER_SECOND, OverdueLimit, TargetLimit
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
"""Each alternative is shorter than the longest delay in settings."""


def whole(value: object) -> object:
    """Return 2.0 as 2: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def given(value: object) -> object:
    """Refuse null for an optional field."""
    if value is None:
        raise ValueError("leave it out rather than say null")
    return value


def without_null(schema: dict[str, Any]) -> None:
    """Take null out of a schema: None stands for a missing value."""
    schema.update(schema.pop("anyOf")[0])


def pattern_of(text: str) -> str:
    """Check a pattern of targets. Raises ValueError."""
    if TARGETS_PATTERN.fullmatch(text) is None:
        raise ValueError(
            "A pattern of targets has 1 to 249 of the characters a-z A-Z 0-9 . _ - * ? [ ] !"
        )
    return text


def id_text(text: str) -> str:
    """Check the length of an id, or of its beginning. Raises ValueError."""
    if len(text.encode()) > LONGEST_ID_BYTES:
        raise ValueError(f"an id has at most {LONGEST_ID_BYTES} bytes of UTF-8")
    return text


Whole = BeforeValidator(whole)
Count = Annotated[int, Field(ge=0)]
Time = Annotated[int, Field(description="Epoch milliseconds.")]
Origin = Annotated[str, Field(description="topic/partition/offset of the ingress record.")]
Partitions = Annotated[
    list[Count],
    Field(description="Those of the ingress that the answer is about, of this process alone."),
]
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
    "description": "Epoch ms, or RFC 3339 with a zone. A time in the past means at once. "
    "At most `max_delay` from now.",
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": LATEST_MS},
        {"type": "string", "format": "date-time"},
    ],
}


def example(value: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a body with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Body(BaseModel):
    """A body of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """A body of a reply. Fields that were not set are left out."""

    model_config = ConfigDict(extra="forbid")
    later: ClassVar[str | None] = None
    """The meaning of status 202, if the answer can have it."""

    def status_code(self) -> int:
        return 200


class Refused(Answer):
    """A refusal."""

    error: str = Field(description="A code word for programs.")
    detail: str = Field(description="A sentence for people.")


class Pending(Answer):
    """Records that wait, by target."""

    pending: Count
    by_target: dict[str, Count]
    others: Count = Field(
        description="Records for targets that are not shown: those beyond the 1,000 with most "
        "records, and those beyond the 10,000 that an ingress partition counts by name."
    )
    partitions: Partitions


class Bucket(Answer):
    """Records that fire within a length of time, and not within the one before it."""

    within: str | None
    until: int | None
    pending: Count


class PendingByTime(Answer):
    """Buckets from short to long. The last has no end."""

    now: Time
    buckets: list[Bucket] = Field(min_length=2)
    cancelled: Count = Field(description="How many of them were cancelled or replaced.")
    held: Count = Field(
        description="How many of them wait for paused targets. They wait until a resume, "
        "whichever bucket counts them."
    )
    counted_all: bool = Field(
        True, description="With `target`: whether the time was enough to count all."
    )
    partitions: Partitions


class HalfMessages(Answer):
    """Undecided half messages."""

    undecided: Count
    by_partition: dict[str, Count]


class Part(Answer):
    """The first 65,536 bytes of a value, or 4,096 of a key or header. `text` if they are UTF-8,
    else `base64`."""

    text: str = ""
    base64: str = ""
    bytes: Count = Field(description="The whole size.")
    cut: bool = Field(description="Whether there is more than is shown.")


class Header(Answer):
    """A header of a record."""

    name: str
    value: Part | None


class Content(Answer):
    """Key, value and headers of a record."""

    key: Part | None = None
    value: Part | None = None
    headers: list[Header] = Field([], max_length=100)
    headers_left_out: Count = 0


class Record(Content):
    """What is known of an ingress record. Key, value and headers come with `body=true`."""

    origin: Origin
    id: str | None
    state: Literal["pending", "half-message", "ended"]
    target: str | None
    due: int | None = Field(description="What it asked for.")
    fires: int | None = Field(
        description="When the proxy looks at it next. Differs from `due` after a roll or in line."
    )


class Records(Answer):
    """Records with one id."""

    records: list[Record] = Field(min_length=1)
    partitions: Partitions


class WaitingRecord(Answer):
    """A record in a list of what waits."""

    origin: Origin
    id: str | None
    due: int = Field(description="What it asked for.")
    fires: int | None = Field(
        description="When the proxy looks at it next. Null for an undecided half message."
    )
    target: str
    bytes: int | None = Field(
        description="About the size of key, value and headers. Null where it is not known."
    )
    why: Literal[
        "scheduled", "overdue", "paused", "held-back", "requeued", "undecided", "unread"
    ] = Field(
        description="scheduled: its due is to come. overdue: it is next in line. paused: its "
        "target was paused when it fell due. held-back: it was put back because its target was at "
        "its rate. requeued: publishing it failed `attempt` times. undecided: a half message. "
        "unread: its body is in the ingress alone (setting `bodies: kafka`), so its id is not "
        "known here, and `due` is when it fires."
    )
    attempt: Count = Field(description="How often publishing it has failed.")
    reason: str | None = Field(
        description="requeued: why its target does not take records now. Null where no attempt "
        "has failed since the worker's start."
    )


class RecordPage(Answer):
    """A page of records that wait."""

    records: list[WaitingRecord] = Field(max_length=1000)
    cursor: str | None = Field(
        description="Goes on where the page ends. Null when there is no more."
    )
    partitions: Partitions


class Written(Answer):
    """A control record that was written to the ingress."""

    later = "It was written. What becomes of it is not known yet."
    origin: str = Field(description="Where it lies in the ingress.")
    outcome: str | None
    detail: str | None

    def status_code(self) -> int:
        return 202 if self.outcome is None else 200


class CancelWritten(Written):
    """A cancel. Its outcome is `applied`, or `missed` where nothing waited with that id."""

    id: str


class RecallWritten(Written):
    """A recall. Its outcome is `applied`, `missed` where the record had ended, or `dead-lettered`
    where it is not there."""

    recalls: str = Field(description="The origin of the record that is taken back.")


class MoveWritten(Written):
    """A move. Its outcome is `replaced`, `requeued` where the time stays the same, or `missed`
    where the record had ended and nothing was changed."""

    moves: str = Field(description="The origin that was asked about.")


class CancelBody(Body):
    """What to cancel."""

    model_config = example({"id": "order-17"})
    id: Ident
    partition: PartitionNumber | None = None
    key: str | None = Field(None, max_length=1024)


class MoveBody(Body):
    """The new time."""

    model_config = example({"deliver_at": "2030-01-01T09:00:00+01:00"})
    deliver_at: Annotated[int | str, Whole, WithJsonSchema(DELIVER_AT)]


class Step(Answer):
    """A step in a record's life."""

    time_ms: int | None = Field(description="Epoch milliseconds. Null where it is not known.")
    what: str = Field(
        description="What happened, for example `ingested` or `retry 1`. docs/trace.md lists them."
    )
    where: str | None = Field(description="The record that shows it, topic/partition/offset.")
    detail: str = Field(description="A sentence without times.")
    origin: str = Field(description="The ingress record to which it happened.")
    due_ms: int | None = Field(description="Until when it waits.")
    late_ms: int | None = Field(description="Of a delivery.")


class Trace(Answer):
    """A record's life."""

    origin: str = Field(description="The ingress record that was meant.")
    first_origin: str = Field(description="The first record of its chain.")
    state: str = Field(
        description="The state of the last record: `delivered`, `waiting`, an outcome, `unknown`."
    )
    trace_id: str | None = Field(description="Of its W3C `traceparent`.")
    steps: list[Step] = Field(description="In order of time.")
    unknown: list[str] = Field(description="What cannot be told, in sentences.")
    is_whole: bool = Field(description="Whether everything was read.")


class InForce(Answer):
    """A change that was written to the settings topic."""

    later = "It was written. A worker that starts or recovers has not noticed it yet."
    in_force: bool = Field(
        description="Whether all workers of this process go by it. Others follow within a second."
    )

    def status_code(self) -> int:
        return 200 if self.in_force else 202


class Pauses(Answer):
    """Paused patterns of targets."""

    paused: list[Pattern]
    release_rates: dict[str, Rate] = Field(
        description="Patterns that were resumed at a rate: records a second, over all partitions."
    )


class Pause(InForce):
    """A pause or a resume."""

    pattern: Pattern
    paused: bool
    per_second: int | None = Field(description="The rate at which held back records are released.")


class Ingest(Answer):
    """The ingest of this process."""

    paused: bool
    unread: Count = Field(
        description="Ingress records that are not read yet, in this process's partitions."
    )


class IngestPaused(InForce):
    """Whether the ingest is paused."""

    paused: bool


class OverdueRule(Body):
    """What becomes of records that would be delivered later than this."""

    older_than: Annotated[str, StringConstraints(pattern=OLDER_THAN)]
    action: Literal["deliver", "dead-letter", "drop"]


class ShownRule(Answer):
    """What becomes of records that would be delivered later than this."""

    older_than: str
    action: Literal["deliver", "dead-letter", "drop"]


class LimitBody(Body):
    """A cap, a rule for overdue records, or both."""

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
    """A cap and a rule."""

    pattern: str
    per_second: int | None
    overdue: ShownRule | None


class ShownLimit(LimitParts):
    """A limit, and where it comes from."""

    source: Source


class LimitSet(InForce, LimitParts):
    """A limit that was set or cleared at run time."""


class WorkersLimit(Answer):
    """The cap on each worker as a whole."""

    max_per_second: int | None = Field(description="Null where there is no cap.")
    max_per_second_source: Source


class Limits(WorkersLimit):
    """Limits in the order in which patterns are tried. The first that fits a target counts."""

    limits: list[ShownLimit]


class WorkersLimitSet(InForce, WorkersLimit):
    """The cap on each worker, set or cleared at run time."""


class RateBody(Body):
    """A cap on each worker."""

    model_config = example({"per_second": 2000})
    per_second: Rate


class PurgeBody(Body):
    """What to purge."""

    model_config = example({"targets": "orders-*", "due_to": 1_800_000_000_000, "dry_run": True})
    targets: Pattern
    due_from: Moment = None
    due_to: Moment = None
    dry_run: bool = Field(description="Only count.")


class Purged(Answer):
    """A purge, or the count of what it would end."""

    later = "It was written. Some partitions have not read it yet. It counts as soon as they do."
    targets: Pattern
    due_from: int | None
    due_to: int | None
    dry_run: bool
    records: int = Field(description="How many waited, counted just before.")
    counted_all: bool = Field(description="Whether the time was enough to count all of them.")
    partitions: Partitions
    purges: list[str] = Field([], description="Where it lies in each partition of the ingress.")
    applied: bool = Field(True, description="Whether every partition has read it.")

    def status_code(self) -> int:
        return 200 if self.applied else 202


class SkipBody(Body):
    """The batch to skip: the place that the log and `/readyz` name."""

    partition: PartitionNumber
    offset: Annotated[int, Field(ge=0, le=10**18), Whole] = Field(
        description="The first offset of the batch."
    )
    dry_run: bool = Field(False, description="Find the batch and change nothing.")


class Skipped(InForce):
    """A batch that is skipped."""

    partition: int
    offset: int
    end: int = Field(description="The first offset behind the batch.")
    why: str
    dry_run: bool

    def status_code(self) -> int:
        return 200 if self.dry_run else super().status_code()


class LetterTopic(Answer):
    """A topic of dead letters."""

    topic: str
    group: str | None
    offsets: int | None = Field(
        description="How many offsets it spans, at least as many as letters. Null where the broker "
        "does not say."
    )


class LetterTopics(Answer):
    """The proxy's own topic, and those of consumer groups; 200 at most."""

    topics: list[LetterTopic]


class Mark(Answer):
    """When a letter was replayed, and the ingress record that it was sent in as."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)
    at: Time
    sent_as: str = Field(alias="as")


class LetterHead(Answer):
    """What a list shows of a dead letter, and its own page too."""

    partition: Count
    offset: Count
    written: Time
    reason: str | None = Field(
        description="The code. Of a group's letter the first line of the exception. Null where "
        "somebody else wrote the record."
    )
    detail: str | None
    target: str | None = Field(
        description="The topic that it asked for. Of a group's letter, where it first came from."
    )
    origin: str | None
    first_origin: str | None
    replayed: Mark | None


class ListedLetter(LetterHead):
    """A dead letter in a list."""

    key: str | None = Field(description="The first 200 bytes.")
    bytes: int | None = Field(description="Of its value. Null where it has none.")


class LetterPage(Answer):
    """A page of dead letters."""

    topic: str
    letters: list[ListedLetter] = Field(max_length=1000)
    replays_known: bool = Field(
        description="Whether there was time to see which were replayed. If not, `replayed` says "
        "nothing."
    )
    cursor: str | None = Field(
        description="Goes on where the page ends. Null when there is no more."
    )


class Letter(LetterHead, Content):
    """A dead letter."""

    topic: str
    meaning: str | None = Field(description="What the code says.")
    remedy: str | None = Field(description="What to do.")
    value_in_ingress: bool = Field(description="Whether the value was read from the ingress.")


class ReplayBody(Body):
    """Letters to replay, chosen by filters, by places, or both. Without these: all in the topic."""

    model_config = example(
        {"topic": "timer.dead-letters", "reasons": ["target-unknown"], "dry_run": True}
    )
    topic: Annotated[str, Field(json_schema_extra={"pattern": TOPIC})]
    places: Annotated[list[LetterPlace], Field(min_length=1, max_length=MOST_PLACES)] | None = (
        Field(None, description="partition/offset of letters in the topic.")
    )
    reasons: list[FilterText] = Field([], max_length=MOST_FILTERS)
    targets: list[Pattern] = Field([], max_length=MOST_FILTERS)
    origins: list[FilterText] = Field(
        [],
        max_length=MOST_FILTERS,
        description="Shell patterns of topic/partition/offset, of the origin or the first one.",
    )
    since: Moment = Field(None, description="Written then or later.")
    until: Moment = Field(None, description="Written before.")
    set: dict[HeaderName, HeaderText] = Field(
        {},
        max_length=MOST_FILTERS,
        description="Headers to be given a value.",
        json_schema_extra={"additionalProperties": False},
    )
    unset: list[HeaderName] = Field(
        [], max_length=MOST_FILTERS, description="Headers to be taken out."
    )
    limit: Annotated[int, Field(ge=1, le=10**15), Whole] | None = Field(
        None, description="So many, the oldest of each partition first."
    )
    rate: LetterRate | None = Field(
        None, description="At most so many, like `100/s`, `30/m`, `5/h`."
    )
    again: bool = Field(False, description="Also letters that were replayed already.")
    dry_run: bool = Field(description="Only count. Nothing is written.")


class ReplayedTarget(Answer):
    """Where letters go. Beyond 1,000 topics the rest together."""

    target: str
    letters: Count
    first_due: Time
    last_due: Time


class LeftLetters(Answer):
    """Letters that are not replayed, with detail and place of the first."""

    reason: str
    letters: Count
    detail: str
    first: str


class Replay(Answer):
    """A replay or a dry run."""

    later = "It goes on. `id` is for asking again."
    id: str
    topic: str
    dry_run: bool
    state: Literal["running", "finished", "stopped", "failed"]
    replayed: Count = Field(description="So far. Of a dry run, how many would be.")
    by_target: list[ReplayedTarget]
    left: list[LeftLetters]
    missing: list[str] = Field(description="The places asked for at which no letter lies.")
    error: str | None = Field(description="Why it failed.")
    started: Time
    ended: int | None

    def status_code(self) -> int:
        return 202 if self.state == "running" else 200


class LogLevel(Answer, Body):
    """From which level on the process logs."""

    level: Level
