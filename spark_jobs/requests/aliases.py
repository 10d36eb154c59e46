"""Headers of other schedulers, translated to ours by the tables of docs/aliases.md.
The translations are added behind the record's own headers. If a record has one of our headers, that
header wins over other schedulers' headers with the same purpose. For policies without aliases no
step is added. In the SQL, `has`, `raw` and `text` look up a header by name.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from spark_jobs.records import headers as names
from spark_jobs.records.hashes import letter_hash
from spark_jobs.records.headers import HEADERS, has_any, is_legal, with_headers
from spark_jobs.requests.error_codes import first_code
from spark_jobs.requests.times import rfc_3339_ms
from spark_jobs.runtime.frames import quoted

LATEST_MS: Final = 10**15 - 1
LARGEST_PARTITION: Final = 2**31 - 1
DECIMAL: Final = "decimal(38,0)"
UNSIGNED_LONG: Final = "decimal(20,0)"
LOOKUP: Final = {
    "has": "(by_name['{}'] IS NOT NULL)",
    "raw": "by_name['{}'].value",
    "text": "coalesce(CAST(by_name['{}'].value AS string), '')",
}
Check = tuple[str, str]
"""A `timer-error` code, and SQL of its condition."""


class Piece(NamedTuple):
    """A header (if `name` is given) and error codes. Both apply only if `holds` (SQL) is true."""

    holds: str
    name: str | None
    value: str = ""
    checks: tuple[Check, ...] = ()

    def only(self, holds: str) -> "Piece":
        return self._replace(holds=f"({holds}) AND ({self.holds})")

    @property
    def code(self) -> str:
        return f"IF({self.holds}, {first_code(*self.checks)}, NULL)"

    @property
    def added(self) -> str:
        header = f"named_struct('key', '{self.name}', 'value', CAST({self.value} AS binary))"
        return f"IF({self.holds}, CAST(array({header}) AS {HEADERS}), {names.NO_HEADERS})"


def _refusal(holds: str, code: str) -> Piece:
    return Piece(holds, None, checks=((code, "true"),))


def _where(holds: str, *pieces: Piece) -> tuple[Piece, ...]:
    return tuple(piece.only(holds) for piece in pieces)


def _number(name: str, sign: str = "") -> str:
    pattern = rf"R'\A{sign}[0-9]{{1,19}}\z'"
    return f"IF(text({name}) RLIKE {pattern}, try_cast(text({name}) AS {DECIMAL}), NULL)"


def _text_of(number: str) -> str:
    return f"CAST(CAST({number} AS {DECIMAL}) AS string)"


SIGNED: Final = "[+-]?"
NEEDS_TIME: Final = f"NOT {has_any((*names.TIMES, names.RETRY_GROUP))}"
IS_DELETION: Final = f"""
(value IS NULL AND NOT exists(map_keys(by_name),
  name -> startswith(name, '{names.PREFIX}') AND name NOT IN {quoted(names.STAMPS)}))
"""
"""Whether etf1's scheduler reads a record as a cancel: no value, none of our request headers."""
_NO_KEY: Final = (
    "header-unreadable",
    r"key IS NULL OR CAST(key AS string) RLIKE R'\A[ \t\n\r\x0B\f]*\z'",
)
_IDENTITY: Final = Piece(f"NOT has({names.ID})", names.ID, "key", (_NO_KEY,))
_CANCEL: Final = Piece("true", names.CANCEL, "key", (_NO_KEY,))


def _time(ours: str, name: str, unit_ms: int = 1, sign: str = "") -> Piece:
    """Return a header with a time in units of `unit_ms`. A negative time counts as zero."""
    number = _number(name, sign)
    length_ms = f"greatest({number}, CAST(0 AS {DECIMAL})) * {unit_ms}"
    is_bad = f"{number} IS NULL OR {length_ms} > {LATEST_MS}"
    return Piece(NEEDS_TIME, ours, _text_of(length_ms), (("time-unreadable", is_bad),))


def _due_at(name: str, unit_ms: int = 1, sign: str = "") -> Piece:
    return _time(names.DELIVER_AT, name, unit_ms, sign)


def _due_after(name: str, unit_ms: int = 1, sign: str = "") -> Piece:
    return _time(names.DELAY, name, unit_ms, sign)


def _target(name: str) -> Piece:
    return Piece(
        f"NOT {has_any((names.TOPIC, names.RETRY_GROUP, names.TRANSACTION))}",
        names.TOPIC,
        f"raw({name})",
        (
            ("target-missing", f"raw({name}) IS NULL"),
            ("target-illegal", f"NOT {is_legal(f'text({name})')}"),
        ),
    )


def _target_key(name: str) -> Piece:
    return Piece(f"NOT has({names.KEY})", names.KEY, f"raw({name})")


def _karafka() -> tuple[Piece, ...]:
    """Return pieces of a schedule or its cancel. A separate key for the partition is an error."""
    kind, partition = "text(schedule_source_type)", _number("schedule_target_partition")
    is_served = "(NOT has(schedule_schema_version) OR text(schedule_schema_version) = '1.0.0')"
    ends = f"({is_served} AND {kind} IN ('cancel', 'tombstone'))"
    schedules = f"({is_served} AND {kind} = 'schedule')"
    other_key = (
        f"has(schedule_target_partition_key) AND NOT has({names.PARTITION}) AND NOT"
        " raw(schedule_target_partition_key) <=> raw(schedule_target_key)"
    )
    is_bad = f"{partition} IS NULL OR {partition} > {LARGEST_PARTITION}"
    return (
        _refusal(f"NOT {is_served}", "header-unsupported"),
        _refusal(f"NOT {ends} AND NOT {schedules}", "header-unreadable"),
        _CANCEL.only(ends),
        *_where(
            schedules,
            _refusal(other_key, "header-unsupported"),
            _target("schedule_target_topic"),
            _due_at("schedule_target_epoch", 1_000),
            _target_key("schedule_target_key"),
            Piece(
                f"has(schedule_target_partition) AND NOT has({names.PARTITION})",
                names.PARTITION,
                _text_of(partition),
                (("partition-bad", is_bad),),
            ),
            _IDENTITY,
        ),
    )


def _rocketmq() -> tuple[Piece, ...]:
    """Return a delete, or a time with an id.
    The first of several times counts: level, seconds, milliseconds, instant. The instant that
    cloud services write must agree with it.
    """
    level, is_delete = _number("DELAY", SIGNED), "has(TIMER_DEL_UNIQKEY)"
    has_level = f"has(DELAY) AND ({level} IS NULL OR {level} > 0)"
    times = (
        (
            has_level,
            Piece("true", names.LEVEL, _text_of(level), (("level-unknown", f"{level} IS NULL"),)),
        ),
        ("has(TIMER_DELAY_SEC)", _due_after("TIMER_DELAY_SEC", 1_000, SIGNED)),
        ("has(TIMER_DELAY_MS)", _due_after("TIMER_DELAY_MS", 1, SIGNED)),
        ("has(TIMER_DELIVER_MS)", _due_at("TIMER_DELIVER_MS", 1, SIGNED)),
    )
    earlier, by_time = ["false"], list[Piece]()
    for holds, piece in times:
        none_before = f"NOT ({' OR '.join(f'({one})' for one in earlier)})"
        by_time.append(piece.only(f"{none_before} AND {holds} AND {NEEDS_TIME}"))
        earlier.append(holds)
    deleted = "substring_index(text(TIMER_DEL_UNIQKEY), '+', -1)"
    has_identity = f"NOT has({names.ID}) AND octet_length(raw(UNIQ_KEY)) > 0"
    return (
        Piece(is_delete, names.CANCEL, deleted, (("header-unreadable", f"{deleted} = ''"),)),
        *_where(
            f"NOT {is_delete}",
            *by_time,
            Piece(has_identity, names.ID, "raw(UNIQ_KEY)"),
            _due_at("__STARTDELIVERTIME", 1, SIGNED).only("has(__STARTDELIVERTIME)"),
        ),
    )


def _nats() -> tuple[Piece, ...]:
    text = "text(Nats-Schedule)"
    due_ms = rfc_3339_ms(f"substr({text}, 5)")
    checks = (
        ("time-unreadable", f"{text} = ''"),
        ("header-unsupported", f"NOT startswith({text}, '@at ')"),
        ("time-unreadable", f"{due_ms} IS NULL"),
    )
    recurs = "has(Nats-Schedule-Source) OR has(Nats-Schedule-Time-Zone)"
    value = _text_of(f"greatest({due_ms}, 0)")
    return (
        _refusal("text(Nats-Schedule-Next) = 'purge'", "header-unsupported"),
        *_where(
            "has(Nats-Schedule) OR has(Nats-Schedule-Target)",
            _refusal(recurs, "header-unsupported"),
            Piece(NEEDS_TIME, names.DELIVER_AT, value, checks),
            _target("Nats-Schedule-Target"),
        ),
    )


def _spring() -> tuple[Piece, ...]:
    """Return the due and the attempt, from big-endian bytes.
    Spring writes the number of the next delivery, which is 2 after the first failure.
    """
    due, count = ("retry_topic-backoff-timestamp", "retry_topic-attempts")

    def size(name: str) -> str:
        return f"coalesce(octet_length(raw({name})), 0)"

    def unsigned(name: str) -> str:
        return f"try_cast(conv(substring(hex(raw({name})), 1, 16), 16, 10) AS {UNSIGNED_LONG})"

    zero = f"CAST(0 AS {UNSIGNED_LONG})"
    due_ms = f"IF(hex(raw({due})) >= '8', {zero}, {unsigned(due)})"
    bad_due = f"{size(due)} NOT BETWEEN 1 AND 8"
    bad_count = f"{size(count)} NOT IN (1, 4) OR ({size(count)} = 4 AND hex(raw({count})) >= '8')"
    failures = f"greatest({unsigned(count)} - 2, {zero})"
    return (
        Piece(
            f"{NEEDS_TIME} AND has({due})",
            names.DELIVER_AT,
            f"IF(NOT ({bad_due}), {_text_of(due_ms)}, NULL)",
            (("time-unreadable", bad_due), ("time-unreadable", f"{due_ms} > {LATEST_MS}")),
        ),
        Piece(
            f"has({names.RETRY_GROUP}) AND NOT has({names.ATTEMPT}) AND has({count})",
            names.ATTEMPT,
            f"IF(NOT ({bad_count}), {_text_of(failures)}, NULL)",
            (("header-unreadable", bad_count),),
        ),
    )


DELAYS: Final = _number("x-delay", SIGNED)
ALIASES: Final[dict[str, tuple[tuple[str, ...], tuple[Piece, ...]]]] = {
    "cesium": (
        ("cesium-delay-ms", "cesium-deliver-at"),
        (
            _due_at("cesium-deliver-at").only("has(cesium-deliver-at)"),
            _due_after("cesium-delay-ms").only("NOT has(cesium-deliver-at)"),
        ),
    ),
    "etf1": (
        ("scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"),
        (
            _CANCEL.only(IS_DELETION),
            *_where(
                f"NOT {IS_DELETION}",
                _target("scheduler-target-topic"),
                _due_at("scheduler-epoch", 1_000),
                _target_key("scheduler-target-key"),
                _IDENTITY,
            ),
        ),
    ),
    "karafka": (
        (
            *("schedule_schema_version", "schedule_source_type", "schedule_target_epoch"),
            *("schedule_target_topic", "schedule_target_key", "schedule_target_partition"),
            "schedule_target_partition_key",
        ),
        _karafka(),
    ),
    "rocketmq": (
        (
            *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"),
            *("__STARTDELIVERTIME", "TIMER_DEL_UNIQKEY"),
        ),
        _rocketmq(),
    ),
    "rabbitmq": (
        ("x-delay",),
        (_due_after("x-delay", 1, SIGNED).only(f"{DELAYS} IS NULL OR {DELAYS} > 0"),),
    ),
    "nats": (("Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Next"), _nats()),
    "spring": (("retry_topic-backoff-timestamp", "retry_topic-attempts"), _spring()),
}
"""Other schedulers in the order of reading: the headers that identify their records, and the
translation.
"""
DELETING: Final = "etf1"
"""The alias that reads a record without value and without any request as a cancel."""
UNCHANGED: Final = (
    *("partition", "offset", "timestamp_ms", "key", "value", "large_bytes"),
    *("is_blurred", "policy_number"),
)


def translation(named: Collection[str]) -> list[list[str]]:
    """Return the selects that add the headers for these aliases to a record.
    An alias applies if the record's `policy` names it. `alias_code`: why a record is refused.
    `raw_letter_hash`: the letter hash before the translation, if it differs.
    """
    aliases = [name for name in ALIASES if name in named]
    if not aliases:
        nothing = "CAST(NULL AS string) AS alias_code", "CAST(NULL AS bigint) AS raw_letter_hash"
        return [["*", *nothing]]
    is_of = {name: f"({_counts(name)} AND {has_any(ALIASES[name][0])})" for name in aliases}
    deletes = f"({IS_DELETION} AND {_counts(DELETING)})"
    our_own = f"has({names.CANCEL}) OR has({names.HOP_FROM})"
    recalls = f"has({names.RECALL}) AND policy.recalls_in IS NOT NULL"
    is_aliased = f"""
      ({" OR ".join(is_of.values())} OR {deletes}) AND NOT ({our_own}) AND NOT ({recalls})"""
    pieces = [piece.only(is_of[name]) for name in aliases for piece in ALIASES[name][1]]
    pieces.append(_CANCEL.only(f"NOT ({' OR '.join(is_of.values())}) AND {deletes}"))
    code = f"coalesce({', '.join(piece.code for piece in pieces if piece.checks)})"
    added = f"concat({', '.join(piece.added for piece in pieces if piece.name)})"
    request = f"IF(is_aliased, named_struct('code', {code}, 'pieces', {added}), NULL)"
    return [
        ["*", "map_from_arrays(headers.key, headers) AS by_name"],
        ["*", with_headers(f"{is_aliased} AS is_aliased", LOOKUP)],
        ["*", with_headers(f"{request} AS translated", LOOKUP)],
        [
            "*",
            "translated.pieces AS pieces",
            f"IF(is_aliased, coalesce(translated.code, {CONTRADICTION}), NULL) AS alias_code",
        ],
        [
            *UNCHANGED,
            "alias_code",
            f"IF(size(pieces) > 0, {letter_hash('key', 'headers')}, NULL) AS raw_letter_hash",
            f"""IF(size(pieces) > 0, concat(headers,
              IF(alias_code IS NULL, array_distinct(pieces), {names.NO_HEADERS})), headers)
              AS headers""",
        ],
    ]


def _counts(name: str) -> str:
    return f"coalesce(array_contains(policy.aliases, '{name}'), false)"


TIME: Final = "time"


def _about(piece: str) -> str:
    return f"IF({piece}.key IN {quoted(names.TIMES)}, '{TIME}', {piece}.key)"


_FIRST_OTHER: Final = f"""
get(filter(translated.pieces, (piece, number) -> exists(slice(translated.pieces, 1, number),
  before -> {_about("before")} = {_about("piece")} AND NOT before <=> piece)), 0)
"""
_MATTERS: Final = f"array_distinct(transform(translated.pieces, piece -> {_about('piece')}))"
_WRONG: Final = _about(_FIRST_OTHER)
CONTRADICTION: Final = first_code(
    ("time-unreadable", f"{_WRONG} = '{TIME}'"),
    ("target-illegal", f"{_WRONG} = '{names.TOPIC}'"),
    ("partition-bad", f"{_WRONG} = '{names.PARTITION}'"),
    ("header-unreadable", f"{_WRONG} IS NOT NULL"),
    (
        "header-unreadable",
        f"array_contains({_MATTERS}, '{names.CANCEL}') AND size({_MATTERS}) > 1",
    ),
)
"""SQL of the code if two pieces contradict each other, or a cancel has other requests."""
