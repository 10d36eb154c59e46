"""What each call of the API does."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, cast

from pydantic import BeforeValidator, Field

from proxy.admin.broker_access import Cancelled
from proxy.admin.exchange import Problem, Reply, Request, as_json, bad_request
from proxy.admin.listing.by_time import dues_by_time, waiting_by_time
from proxy.admin.listing.listing_calls import ListingCalls
from proxy.admin.listing.record_content import content_of
from proxy.admin.query_mailbox import FindId, FindRecord
from proxy.admin.query_values import (
    SPAN,
    Body,
    flag,
    place_in_path,
    read_body,
    wait_s_of,
    whole,
)
from proxy.admin.release.limit_calls import LimitCalls, LimitPort
from proxy.admin.release.moves import MoveBody, MovePort, Moves
from proxy.admin.release.pause_calls import PauseCalls, PausePort
from proxy.admin.release.purge_calls import PurgeCalls, PurgePort
from proxy.admin.release.skip_calls import SkipCalls, SkipPort
from proxy.admin.workers import Workers
from proxy.clock import wall_clock_ms
from proxy.config.settings import ReleaseSettings
from proxy.logs import Level
from proxy.protocol.header_values import LONGEST_ID_BYTES
from proxy.protocol.times import parse_delay_ms
from proxy.scheduling.pending import Found
from proxy.telemetry.status import Status, covered_by
from storage.store import added

STATUS_OLD_S: Final = 1.0
LOOK_EVERY_S: Final = 0.05
SPANS: Final = "0s,1m,10m,1h,6h,1d,7d"
MOST_SPANS: Final = 50
TARGETS_SHOWN: Final = 1_000


class BrokerPort(PurgePort, MovePort, PausePort, LimitPort, SkipPort, Protocol):
    """What the calls ask of `proxy.admin.broker_access.BrokerAccess`."""

    def cancel(
        self, ident: bytes, key: bytes | None, partition: int | None, wait_s: float
    ) -> Cancelled: ...
    def recall(self, partition: int, origin: str, wait_s: float) -> Cancelled: ...


class CancelBody(Body):
    """Body of a cancellation."""

    id: str = Field(min_length=1, max_length=LONGEST_ID_BYTES)
    partition: Annotated[int | None, BeforeValidator(whole)] = Field(None, ge=0, lt=2**31)
    key: str | None = Field(None, max_length=1024)


class LevelBody(Body):
    """Body that names a log level."""

    level: Level


class Calls:
    """`ingress`: the topic. `level`: what the process logs from. `release`: what the settings say
    about giving out. All calls raise Problem."""

    def __init__(
        self,
        ingress: str,
        level: Level,
        release: ReleaseSettings,
        read_statuses: Callable[[], Sequence[Status]],
        workers: Workers,
        broker: BrokerPort,
    ) -> None:
        self._ingress, self._level = ingress, level
        self._read_statuses, self._workers, self._broker = read_statuses, workers, broker
        self.listing = ListingCalls(read_statuses, workers)
        self.purges = PurgeCalls(read_statuses, workers, broker)
        self._moves = Moves(workers, broker)
        self.pauses = PauseCalls(read_statuses, broker)
        self.limits = LimitCalls(release, read_statuses, broker)
        self.skips = SkipCalls(read_statuses, broker)

    def pending(self, request: Request) -> Reply:
        """How many records pend, by target."""
        request.query()
        statuses = self._read_statuses()
        counts = added([status.pending_by_target for status in statuses])
        shown, others = counts.largest(TARGETS_SHOWN)
        reply = {"pending": counts.total, "by_target": shown, "others": others}
        return as_json(200, {**reply, "partitions": covered_by(statuses)})

    def pending_by_time(self, request: Request) -> Reply:
        """About how many pend until when; of some targets exactly."""
        query = request.query("within", "target")
        spans = _spans(query.get("within", SPANS))
        now_ms, statuses = wall_clock_ms(), self._read_statuses()
        edges_ms = [now_ms + span_ms for _, span_ms in spans]
        among: dict[str, object]
        if (targets := query.get("target")) is None:
            waiting = waiting_by_time(self._workers, statuses, edges_ms)
            counts, among = waiting.counts, {"cancelled": waiting.cancelled, "held": waiting.held}
        else:
            dues = dues_by_time(self._workers, statuses, targets, edges_ms)
            counts = dues.counts
            among = {"cancelled": 0, "held": dues.held, "counted_all": dues.is_all}
        names: list[str | None] = [name for name, _ in spans]
        buckets = [
            {"within": name, "until": edge_ms, "pending": count}
            for name, edge_ms, count in zip([*names, None], [*edges_ms, None], counts, strict=True)
        ]
        reply = {"now": now_ms, "buckets": buckets, **among}
        return as_json(200, {**reply, "partitions": covered_by(statuses)})

    def half_messages(self, request: Request) -> Reply:
        """How many half messages are undecided."""
        request.query()
        shards = [shard for status in self._read_statuses() for shard in status.shards]
        by_partition = {str(shard.partition): shard.undecided for shard in shards}
        return as_json(200, {"undecided": sum(by_partition.values()), "by_partition": by_partition})

    def records(self, request: Request) -> Reply:
        """What waits with an id."""
        ident = request.query("id").get("id")
        if ident is None:
            raise bad_request("Name the `id` in the query.")
        answers = self._workers.ask(FindId(_ident(ident)))
        found = [cast(Found, one) for answer in answers for one in answer]
        if not found:
            detail = "Nothing that this process serves waits with this id."
            raise Problem(404, "not-found", detail)
        partitions = covered_by(self._read_statuses())
        return as_json(200, {"records": [_shown(one) for one in found], "partitions": partitions})

    def record(self, request: Request, topic: str, partition: str, offset: str) -> Reply:
        """What has become of an ingress record, and what it holds."""
        wants_body = flag(request.query("body"), "body")
        place = place_in_path(partition, offset)
        self._refuse_unread(topic, *place)
        record = self._broker.read(*place)
        if record is None:
            detail = "The ingress has no record there any more; its targets and outcomes may."
            raise Problem(404, "not-found", detail)
        key, value, headers = record.key(), record.value(), record.headers()
        answers = self._workers.ask(FindRecord(place, (key, value, headers), record.timestamp()))
        found = [cast(Found, one) for answer in answers for one in answer]
        if not found:
            raise Problem(404, "not-served-here", "The partition has just gone to another worker.")
        content = content_of(key, value, headers or []) if wants_body else {}
        return as_json(200, {**_shown(found[0]), **content})

    def cancel(self, request: Request) -> Reply:
        """Write a cancel, and wait for what becomes of it as long as is wanted."""
        wait_s = wait_s_of(request.query("wait").get("wait", "0s"))
        body = read_body(CancelBody, request.json())
        ident, key = _ident(body.id), None if body.key is None else body.key.encode()
        partition = body.partition
        if partition is None and key is None:
            partition = self._partition_of(ident)
        done = self._broker.cancel(ident, key, partition, wait_s)
        return _taken_back({"id": body.id}, done)

    def recall(self, request: Request, topic: str, partition: str, offset: str) -> Reply:
        """Write a recall of the record there, and wait likewise."""
        wait_s = wait_s_of(request.query("wait").get("wait", "0s"))
        number, _offset = place_in_path(partition, offset)
        if topic != self._ingress:
            raise Problem(404, "not-found", f"Records are recalled in {self._ingress}.")
        recalled = f"{topic}/{partition}/{offset}"
        return _taken_back({"recalls": recalled}, self._broker.recall(number, recalled, wait_s))

    def move(self, request: Request, topic: str, partition: str, offset: str) -> Reply:
        """Write the record there anew, with another time, in its own place; wait likewise."""
        wait_s = wait_s_of(request.query("wait").get("wait", "0s"))
        body = read_body(MoveBody, request.json())
        place = place_in_path(partition, offset)
        deliver_at_ms = self._moves.check_time(body, wall_clock_ms())
        self._refuse_unread(topic, *place)
        done = self._moves.move(*place, deliver_at_ms, wait_s)
        return _taken_back({"moves": f"{topic}/{partition}/{offset}"}, done)

    def log_level(self, request: Request) -> Reply:
        """From which level on the process logs."""
        request.query()
        return as_json(200, {"level": self._level})

    def set_log_level(self, request: Request) -> Reply:
        """Change it, for all workers of this process, until it ends."""
        request.query()
        self._level = read_body(LevelBody, request.json()).level
        self._workers.set_level(self._level)
        return as_json(200, {"level": self._level})

    def _partition_of(self, ident: bytes) -> int | None:
        """Where it waits; None where it does not, as the workers here know. Raises NoAnswer."""
        answers = self._workers.ask(FindId(ident))
        origins = [cast(Found, one).origin for answer in answers for one in answer]
        if len(origins) > 1:
            detail = f"Several records wait with this id, from {origins}: name the partition."
            raise Problem(409, "ambiguous", detail)
        return int(origins[0].split("/")[1]) if origins else None

    def _refuse_unread(self, topic: str, partition: int, offset: int) -> None:
        """A status is a moment old: what has just been read shows in the next one."""
        until_s = time.monotonic() + STATUS_OLD_S
        while True:
            next_offsets = self._next_offsets()
            if topic != self._ingress or partition not in next_offsets:
                detail = f"This process serves of {self._ingress} the partitions {[*next_offsets]}."
                raise Problem(404, "not-served-here", detail)
            if offset < next_offsets[partition]:
                return
            if time.monotonic() > until_s:
                detail = f"Partition {partition} is read up to offset {next_offsets[partition]}."
                raise Problem(404, "not-read-yet", detail)
            time.sleep(LOOK_EVERY_S)

    def _next_offsets(self) -> dict[int, int]:
        return {
            shard.partition: shard.next_offset
            for status in self._read_statuses()
            for shard in status.shards
        }


def _taken_back(named: Mapping[str, str], done: Cancelled) -> Reply:
    reply = {**named, "origin": done.origin, "outcome": done.outcome, "detail": done.detail}
    return as_json(202 if done.outcome is None else 200, reply)


def _ident(text: str) -> bytes:
    ident = text.encode("utf-8", "replace")
    if not 1 <= len(ident) <= LONGEST_ID_BYTES:
        raise bad_request(f"An id has 1 to {LONGEST_ID_BYTES} bytes of UTF-8.")
    return ident


def _spans(text: str) -> list[tuple[str, int]]:
    """The lengths of time asked for, short to long, each under its name."""
    names = text.split(",")
    if len(names) > MOST_SPANS or not all(map(SPAN.fullmatch, names)):
        raise bad_request(f"`within` is up to {MOST_SPANS} lengths of time like 30s,5m,2h,7d.")
    spans = {name: parse_delay_ms(name) for name in names}
    return sorted(spans.items(), key=lambda span: span[1])


def _shown(found: Found) -> Mapping[str, Any]:
    ident = None if found.ident is None else found.ident.decode("utf-8", "backslashreplace")
    return {
        "origin": found.origin,
        "id": ident,
        "state": found.state,
        "target": found.target,
        "due": found.due_ms,
        "fires": found.fires_ms,
    }
