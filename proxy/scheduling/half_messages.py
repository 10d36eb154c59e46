"""Undecided half messages (docs/exactly-once.md#half-messages). Beyond HELD_BYTES their bodies are
not kept in memory, but read back from the ingress."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from proxy.protocol.body import BY_KEY, GONE, IngressPartition, Purpose, delivery_of, packer
from proxy.protocol.headers import CHECK, CHECK_BACK, EXPIRE, HOP_FROM, ID, PREFIX, TRANSACTION
from proxy.protocol.parsed import ParsedRecord, Prepare
from proxy.protocol.position import Position, Watermark
from proxy.scheduling.batch import OutgoingRecord, auxiliary_ref
from storage.store import Entry, Named

HELD_BYTES: Final = 32 * 1024 * 1024
READ_AT_ONCE: Final = 32
CHECK_BACK_BYTES: Final = 8 * 1024 * 1024
"""Check-backs carry the whole message. A transaction with this many bytes of check-backs takes no
further check-back."""
LOST: Final = 0
"""Stands for a check-back's number, if the half message is no longer in the ingress."""

AgendaItem = tuple[int, int, int]
"""(fires_ms, offset, check): the next event of a half message."""
ReadBack = Callable[[Sequence[int]], Mapping[int, ParsedRecord]]
"""Ascending offsets -> the parsed records that the ingress still has."""


class HalfMessageEvent(NamedTuple):
    """A half message's check-back with the number `check`, or its expiry (`is_last`)."""

    fires_ms: int
    offset: int
    ident: bytes
    check: int
    prepare: Prepare | None

    @property
    def is_last(self) -> bool:
        return self.prepare is None or self.check > self.prepare.max_checks


class DueEvents(NamedTuple):
    """Events in their order. `is_all`: no other event is due."""

    events: list[HalfMessageEvent]
    is_all: bool


class HalfMessages:
    """The undecided half messages of a shard, in offset order. Check-backs are numbered 1 to
    `max_checks`. The next number is the expiry. The agenda holds the next event of each half
    message. Events at or below the watermark of `position` have happened."""

    def __init__(self, read_back: ReadBack, position: Position) -> None:
        self._read_back, self.position = read_back, position
        self.idents: OrderedDict[int, bytes] = OrderedDict()
        self._prepares: dict[int, Prepare] = {}
        self._unread: list[int] = []
        self._sizes: dict[int, int] = {}
        self.held_bytes = 0
        self._agenda: list[AgendaItem] = []

    def __len__(self) -> int:
        return len(self.idents)

    @property
    def first_offset(self) -> int | None:
        return next(iter(self.idents), None)

    @property
    def oldest_ms(self) -> int | None:
        """Time at which the first half message was written. None until that message is read."""
        first = self.first_offset
        prepare = None if first is None else self._prepares.get(first)
        return prepare and prepare.written_ms

    def load(self, known: Iterable[tuple[int, bytes]]) -> None:
        """Note half messages by offset and id. Their records are read back when first needed."""
        for offset, ident in sorted(known):
            self.idents[offset] = ident
            self._unread.append(offset)

    def beyond(self, offset: int, most: int) -> list[tuple[int, bytes, int | None]]:
        """Return offset, id and known size of the first `most` half messages beyond `offset`."""
        offsets = list(self.idents)
        first = bisect_right(offsets, offset)
        return [(at, self.idents[at], self._sizes.get(at)) for at in offsets[first : first + most]]

    def passed(self, offset: int, prepare: Prepare) -> list[HalfMessageEvent]:
        happened = self.position.ended_upto(offset)
        return [
            HalfMessageEvent(fires_ms, offset, prepare.ident, check, prepare)
            for fires_ms, _offset, check in _items(prepare, offset)
            if (fires_ms, offset) <= happened
        ]

    def add(self, offset: int, prepare: Prepare) -> None:
        self.idents[offset] = prepare.ident
        self._keep(offset, prepare)
        self._schedule(offset, prepare)

    def discard(self, offset: int) -> None:
        """Forget a half message that was decided, or whose id names another record now."""
        self.idents.pop(offset, None)
        kept = self._prepares.pop(offset, None)
        self._sizes.pop(offset, None)
        if kept is not None:
            self.held_bytes -= len(kept.entry[3])
        if not self.idents:
            self._agenda.clear()

    def forget_bodies(self) -> None:
        if self.held_bytes:
            kept = self._prepares.items()
            self._prepares = {offset: _without_body(prepare) for offset, prepare in kept}
            self.held_bytes = 0

    def prepare(self, offset: int) -> Prepare | None:
        """Return the half message. None if the ingress has deleted it."""
        return self._whole([offset]).get(offset)

    def due(self, upto: Watermark, max_events: int) -> DueEvents:
        """Return the first `max_events` events at or below `upto`. Stop earlier once check-backs
        reach CHECK_BACK_BYTES."""
        self._read_unread()
        if not self._agenda:
            return DueEvents([], is_all=True)
        agenda, items = self._first_items(upto, max_events), list[AgendaItem]()
        size_bytes = 0
        while agenda and len(items) < max_events and size_bytes < CHECK_BACK_BYTES:
            items.append(item := heappop(agenda))
            _fires_ms, offset, check = item
            if check == LOST:
                continue
            after = next(_items(self._prepares[offset], offset, check + 1), None)
            size_bytes += self._sizes[offset] if after is not None else 0
            if after is not None and after[:2] <= upto:
                heappush(agenda, after)
        is_all = not agenda and len(items) < max_events
        return DueEvents(self._events(items), is_all)

    def next_ms(self) -> int | None:
        """Return the time of the next event. While half messages are unread, return a time that has
        passed, so that `due` reads them."""
        if self._unread:
            return self.position.watermark_ms
        return self._agenda[0][0] if self._agenda else None

    def advance(self) -> None:
        """Replace each item at or below the watermark with its half message's next event."""
        watermark = self.position.watermark
        while self._agenda and self._agenda[0][:2] <= watermark:
            _fires_ms, offset, _check = heappop(self._agenda)
            prepare = self._prepares.get(offset)
            if prepare is not None:
                self._schedule(offset, prepare)

    def _events(self, items: Sequence[AgendaItem]) -> list[HalfMessageEvent]:
        """Make the events. Check-backs have the whole message. An expiry has no body."""
        known = {o: self._prepares[o] for _, o, check in items if check != LOST}
        asked = {o for _, o, check in items if check != LOST and check <= known[o].max_checks}
        whole = self._whole(sorted(asked))
        prepares = {o: whole.get(o) if o in asked else prepare for o, prepare in known.items()}
        return [
            HalfMessageEvent(fires_ms, offset, self.idents[offset], check, prepares.get(offset))
            for fires_ms, offset, check in items
        ]

    def _first_items(self, upto: Watermark, max_events: int) -> list[AgendaItem]:
        """Return the first items of the agenda, and leave them there. Items of decided half
        messages are removed."""
        items: list[AgendaItem] = []
        while self._agenda and len(items) < max_events and self._agenda[0][:2] <= upto:
            item = heappop(self._agenda)
            if item[1] in self.idents:
                items.append(item)
        for item in items:
            heappush(self._agenda, item)
        return items

    def _keep(self, offset: int, prepare: Prepare) -> None:
        self._sizes[offset] = len(prepare.entry[3])
        if self.held_bytes + len(prepare.entry[3]) > HELD_BYTES:
            prepare = _without_body(prepare)
        self._prepares[offset] = prepare
        self.held_bytes += len(prepare.entry[3])

    def _whole(self, offsets: Sequence[int]) -> dict[int, Prepare]:
        kept = {o: self._prepares[o] for o in offsets if o in self._prepares}
        whole = {offset: prepare for offset, prepare in kept.items() if prepare.entry[3]}
        missing = [offset for offset in offsets if offset not in whole]
        return {**whole, **self._read_again(missing)} if missing else whole

    def _read_again(self, offsets: Sequence[int]) -> dict[int, Prepare]:
        parsed = self._read_back(offsets).items()
        return {offset: one for offset, one in parsed if isinstance(one, Prepare)}

    def _read_unread(self) -> None:
        while self._unread:
            offsets, self._unread = self._unread[:READ_AT_ONCE], self._unread[READ_AT_ONCE:]
            wanted = [offset for offset in offsets if offset in self.idents]
            prepares = self._read_again(wanted) if wanted else {}
            for offset in wanted:
                if offset in prepares:
                    self._keep(offset, prepares[offset])
                    self._schedule(offset, prepares[offset])
                else:
                    heappush(self._agenda, (self.position.watermark_ms + 1, offset, LOST))

    def _schedule(self, offset: int, prepare: Prepare) -> None:
        """Put the first event beyond the watermark on the agenda."""
        happened = self.position.ended_upto(offset)
        asked = (happened.fires_ms - prepare.first_check_ms) // prepare.interval_ms
        items = (item for item in _items(prepare, offset, asked + 1) if item[:2] > happened)
        if (item := next(items, None)) is not None:
            heappush(self._agenda, item)


def _without_body(prepare: Prepare) -> Prepare:
    return prepare._replace(entry=(*prepare.entry[:3], b""))


def _items(prepare: Prepare, offset: int, first: int = 1) -> Iterator[AgendaItem]:
    """Yield the check-backs from number `first` on, and the expiry."""
    expiry = prepare.max_checks + 1
    for check in range(max(first, 1 if prepare.check_topic else expiry), expiry + 1):
        yield prepare.first_check_ms + (check - 1) * prepare.interval_ms, offset, check


def record_of(ingress: IngressPartition, event: HalfMessageEvent) -> OutgoingRecord | None:
    """Return the record of the event: an expiry request or a check-back."""
    return expiry_request(ingress, event) if event.is_last else check_back(ingress, event)


def check_back(ingress: IngressPartition, event: HalfMessageEvent) -> OutgoingRecord | None:
    """Return the check-back, or None if the half message is lost or has no check topic."""
    prepare = event.prepare
    if prepare is None or prepare.check_topic is None:
        return None
    asked = delivery_of((0, event.offset, *prepare.entry[2:]))
    headers = [header for header in asked.headers if header[0][:6] != PREFIX]
    headers += [
        (TRANSACTION, CHECK_BACK),
        (ID, event.ident),
        (CHECK, str(event.check).encode()),
    ]
    ref = auxiliary_ref(ingress, prepare.check_topic, event.offset)
    return OutgoingRecord(prepare.check_topic, asked.value, asked.key, BY_KEY, headers, ref)


def expiry_request(ingress: IngressPartition, event: HalfMessageEvent) -> OutgoingRecord:
    """Return the ingress record that makes a half message expire. The ingress also has the
    producer's commit. So a replay reads expiry and commit in the same order as before."""
    headers: list[tuple[str, bytes | None]] = [
        (TRANSACTION, EXPIRE),
        (ID, event.ident),
        (HOP_FROM, str(event.offset).encode()),
    ]
    topic, partition = ingress
    ref = auxiliary_ref(ingress, topic, event.offset)
    return OutgoingRecord(topic, None, event.ident, partition, headers, ref)


def entry_of_lost(offset: int, half: Named) -> Entry:
    """Return the entry of a half message gone from the ingress. The entry becomes a dead letter."""
    purpose = Purpose(half.due_ms, half.origin, half.due_ms)
    return half.due_ms, offset, half.target, packer()((purpose, GONE, None, None, []))
