"""Received records, and the retry requests of failed records (docs/client.md#retries)."""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import Message

from kafka_delay import protocol
from kafka_delay.errors import ConfigRefused
from kafka_delay.kafka import Place, UnreadableHeaders, headers_of, last_header, place_of
from kafka_delay.request import Delay, Request, WireHeaders, delay_text

MAX_ATTEMPTS: Final = 16
BEYOND_ALL_ATTEMPTS: Final = 1_000
"""An attempt number at which the proxy always gives up: its largest allowed `max_attempts`."""
HISTORY_HEADERS: Final = (
    *(protocol.ORIGINAL_TOPIC, protocol.ORIGINAL_PARTITION, protocol.ORIGINAL_OFFSET),
    *(protocol.ATTEMPT, protocol.EXCEPTION, protocol.SIGNATURE),
)
DELAYS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Default delays of the orderly mode: the proxy's level table."""
MOST_DIGITS: Final = 18
LONGEST_EXCEPTION: Final = 1_000
"""Limit of characters in the header `retry-exception`."""
SHORTEST_KEY: Final = 16
"""Smallest number of bytes in a signing key."""
BY_PATTERN: Final = "^"
"""For librdkafka, a topic name that begins with this character is a regular expression."""
SIGNED: Final = re.compile(rb"(?P<failures>[0-9]{1,9}) (?P<mac>[0-9a-f]{64})")

SigningKey: TypeAlias = str | bytes | Sequence[str | bytes | None]
"""A key of at least 16 bytes, or a list: the first key signs, each key verifies.

None in the list accepts unsigned retries.
"""
Exceptions: TypeAlias = Sequence[type[Exception]]


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a handler gets it."""

    read_from: Place
    """Topic, partition and offset from which the consumer read the record."""
    original: Place
    """The record's first place. It differs from `read_from` after a retry."""
    attempt: int
    """The number of earlier failures, 0 in the first delivery attempt."""
    key: bytes | None
    value: bytes | None
    headers: WireHeaders
    timestamp_ms: int
    """Kafka's timestamp at `read_from`, epoch milliseconds."""

    @property
    def topic(self) -> str:
        """Return the record's first topic, which is never the retry topic."""
        return self.original.topic

    @property
    def size_bytes(self) -> int:
        """Return the bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    def header(self, name: str) -> bytes | None:
        """Return the last header of that name, or None."""
        return last_header(self.headers, name)


class DeadLetter(Exception):
    """Raised by a handler to send its record to `dlq.<group>` without a retry, with a reason."""

    def __init__(self, reason: str | BaseException) -> None:
        self.reason = text_of(reason)
        super().__init__(self.reason)


class RetryLater(Exception):
    """Raised by a handler to retry its record after `delay`: a timedelta, or text such as `5m`.

    The record counts as failed, as after any other exception.
    With a delay beyond the proxy's `max_delay`, the record becomes a dead letter of the proxy.
    Raises RequestRefused if the delay is unreadable.
    """

    def __init__(self, delay: Delay, reason: str | BaseException = "") -> None:
        self.delay = delay_text(delay, "RetryLater's delay")
        self.reason = text_of(reason) or f"RetryLater: {self.delay}"
        super().__init__(self.reason)


class HandlerTimedOut(Exception):
    """A handler did not return in time."""


class Failure(NamedTuple):
    """A handler's failure, or a refused retry."""

    reason: str
    is_final: bool = False
    """The record becomes a dead letter without a retry."""
    delay: str | None = None
    """The delay of the retry, or None for the delay of its retry level."""
    is_refused: bool = False
    """The retry may be forged, so its dead letter is not signed."""


class FailureRules:
    """Rules for exceptions by class. If several classes match, the most specific one applies.

    Raises ConfigRefused for a class in two lists.
    """

    def __init__(
        self, retry: Exceptions = (), give_up: Exceptions = (), ignore: Exceptions = ()
    ) -> None:
        self._rules: dict[type, str] = {}
        for rule, named in {"retry": retry, "give_up": give_up, "ignore": ignore}.items():
            for one in _checked_classes(rule, named):
                other = self._rules.setdefault(one, rule)
                if other != rule:
                    raise ConfigRefused(
                        f"{one.__name__} is in {other} and in {rule}: name it in one of them"
                    )

    def failure_of(self, error: Exception) -> Failure | None:
        """Return the failure that a handler's exception means, or None if it is ignored."""
        if isinstance(error, HandlerTimedOut):
            return Failure(described(error))
        if isinstance(error, DeadLetter | RetryLater):
            # A subclass may not have called `__init__`.
            reason, delay = text_of(getattr(error, "reason", error)), getattr(error, "delay", None)
            is_final = isinstance(error, DeadLetter)
            return Failure(reason, is_final, None if is_final else delay)
        named = (self._rules[one] for one in type(error).__mro__ if one in self._rules)
        rule = next(named, "retry")
        if rule == "ignore":
            return None
        return Failure(described(error), is_final=rule == "give_up")


def orderly_delays_ms(orderly: object, delays: object) -> Sequence[int]:
    """Return the delays of the orderly mode in milliseconds. They are empty without this mode.

    Raises ConfigRefused.
    """
    if not isinstance(orderly, bool):
        raise ConfigRefused(f"orderly is {orderly!r}: it must be True or False")
    if not orderly and delays is not None:
        raise ConfigRefused("orderly_delays needs orderly=True: add it, or leave the delays out")
    if not orderly:
        return ()
    given = DELAYS if delays is None else delays
    if not isinstance(given, str):
        raise ConfigRefused(f"orderly_delays is {given!r}: put blanks between delays ('1s 5s')")
    try:
        for one in given.split():
            delay_text(one, "one of the delays")
        return protocol.parse_levels(given)
    except ValueError as error:
        raise ConfigRefused(f"orderly_delays is no table of delays: {error}") from None


class Signer:
    """A group's signatures on retry requests. Any program could forge unsigned requests.

    Raises ConfigRefused.
    """

    def __init__(self, group: str, given: SigningKey) -> None:
        one = isinstance(given, str | bytes) or not isinstance(given, Sequence)
        keys = [given] if one else list(given)
        self._group = group.encode()
        self._keys = [_checked_key(key) for key in keys if key is not None]
        self.takes_unsigned = None in keys
        """Whether unsigned retries are accepted. This helps while members get their first key."""
        if not self._keys or keys[0] is None:
            raise ConfigRefused(
                "signing_key has no key at its first place: put the signing key there"
            )

    def signature(
        self, original: Place, failures: int, key: bytes | None, value: bytes | None
    ) -> bytes:
        mac = self._mac(self._keys[0], original, failures, key, value)
        return b"%d %s" % (failures, mac)

    def is_valid(
        self,
        signature: bytes,
        original: Place,
        failures: int | None,
        key: bytes | None,
        value: bytes | None,
    ) -> bool:
        """Return whether a key signed the retry. `failures` is None for a replayed dead letter."""
        found = SIGNED.fullmatch(signature)
        if found is None or failures not in {None, int(found["failures"])}:
            return False
        signed = int(found["failures"])
        macs = [self._mac(one, original, signed, key, value) for one in self._keys]
        return any(hmac.compare_digest(found["mac"], mac) for mac in macs)

    def _mac(self, key: bytes, original: Place, failures: int, *content: bytes | None) -> bytes:
        topic, partition, offset = original
        fields = [self._group, topic.encode("utf-8", "replace")]
        numbers = [b"%d" % number for number in (partition, offset, failures)]
        signed = hmac.new(key, b"retry-1", "sha256")
        for part in (*fields, *numbers, *content):
            signed.update(b"-" if part is None else b"%d:" % len(part))
            signed.update(part or b"")
        return signed.hexdigest().encode()


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """A group's rules for failed records: delays, dead letters, and genuine retries."""

    group: str
    topics: Sequence[str]
    retry_topic: str
    max_attempts: int = MAX_ATTEMPTS
    rules: FailureRules = field(default_factory=FailureRules)
    target: str | None = None
    """The retry topic, if it is not the proxy's `retry.<group>`."""
    delays_ms: Sequence[int] = ()
    """Delays of the orderly mode. The last one repeats. Empty without the orderly mode."""
    signer: Signer | None = None

    def received(self, message: Message) -> tuple[Received, str | None]:
        """Return a message's record, and the reason why no handler may get it, or None.

        Retry headers are read only in the retry topic. In other topics other groups wrote them.
        """
        read_from = place_of(message)
        headers: WireHeaders = []
        refusal = None
        try:
            headers = headers_of(message)
        except UnreadableHeaders as error:
            refusal = str(error)
        history = dict(headers) if read_from.topic == self.retry_topic else {}
        record = Received(
            read_from,
            _original(history) or read_from,
            _number(history.get(protocol.ATTEMPT)) or 0,
            message.key(),
            message.value(),
            headers,
            message.timestamp()[1],
        )
        refusal = refusal or self.refusal(record)
        if refusal is not None:
            record = replace(record, original=read_from, attempt=0)
        return record, refusal

    def refusal(self, record: Received) -> str | None:
        """Return why a record of the retry topic may be forged, or None if it is genuine.

        With a signing key, a record is genuine if its signature is valid. Without a key, and for
        accepted unsigned records, it is genuine if the consumer reads its first topic.
        """
        if record.read_from.topic != self.retry_topic:
            return None
        signature = record.header(protocol.SIGNATURE)
        if self.signer is not None and signature is not None:
            failures = None if record.header(protocol.ATTEMPT) is None else record.attempt
            signed = (signature, record.original, failures, record.key, record.value)
            if not self.signer.is_valid(*signed):
                return "the signature of the retry is wrong, so it may be forged"
        elif self.signer is not None and not self.signer.takes_unsigned:
            return "the retry is not signed, so it may be forged: this consumer has a signing_key"
        elif not any(
            _matches(one, record.topic) if one.startswith(BY_PATTERN) else one == record.topic
            for one in (*self.topics, self.retry_topic)
        ):
            return (
                f"the retry says that it came from {record.topic!r}, which this consumer does not "
                "read: it may be forged"
            )
        return None

    def wait_s(self, record: Received, failure: Failure) -> float | None:
        """Return the seconds until the orderly mode's next delivery attempt.

        None means that the record leaves the consumer.
        """
        if not self.delays_ms or failure.is_final or record.attempt >= self.max_attempts:
            return None
        if failure.delay is not None:
            return protocol.parse_delay_ms(failure.delay) / 1000
        return self.delays_ms[min(record.attempt, len(self.delays_ms) - 1)] / 1000

    def request(self, record: Received, failure: Failure) -> Request:
        """Return the request to retry a record, or to end it in `dlq.<group>`.

        `timer-attempt` is the number of failures before this one.
        In the orderly mode each request makes a dead letter.
        """
        last = BEYOND_ALL_ATTEMPTS if self.delays_ms else self.max_attempts
        failures = last if failure.is_final or self.delays_ms else record.attempt
        asked: WireHeaders = [
            (protocol.RETRY_GROUP, self.group.encode()),
            (protocol.TIMER_ATTEMPT, b"%d" % failures),
        ]
        if failure.delay is not None and not self.delays_ms:
            asked.append((protocol.DELAY, failure.delay.encode()))
        if self.target is not None and failures < last:
            asked.append((protocol.TOPIC, self.target.encode()))
        own = [
            (name, value)
            for name, value in record.headers
            if not name.startswith(protocol.PREFIX) and name not in HISTORY_HEADERS
        ]
        topic, partition, offset = record.original
        history: WireHeaders = [
            (protocol.ORIGINAL_TOPIC, topic.encode()),
            (protocol.ORIGINAL_PARTITION, b"%d" % partition),
            (protocol.ORIGINAL_OFFSET, b"%d" % offset),
            (protocol.ATTEMPT, b"%d" % (record.attempt + 1)),
            (
                protocol.EXCEPTION,
                failure.reason[:LONGEST_EXCEPTION].encode("utf-8", "backslashreplace"),
            ),
        ]
        if self.signer is not None and not failure.is_refused:
            signed = record.original, record.attempt + 1, record.key, record.value
            history.append((protocol.SIGNATURE, self.signer.signature(*signed)))
        return Request(record.key, record.value, asked + own + history)


def text_of(given: object) -> str:
    """Return an exception or reason as text, or the name of its class if `str` fails."""
    try:
        return str(given)
    except Exception:  # noqa: BLE001 (a user's `__str__` must not end the consumer)
        return type(given).__name__


def described(error: BaseException) -> str:
    """Return class and text of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"


def _checked_classes(rule: str, named: object) -> Sequence[type]:
    if isinstance(named, type) or not isinstance(named, Sequence):
        raise ConfigRefused(
            f"{rule} is {named!r}: give a list or tuple of exception classes, {rule}=[ValueError]"
        )
    for one in named:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise ConfigRefused(
                f"{rule} names {one!r}: name subclasses of Exception, because other exceptions end "
                "`run`"
            )
        if issubclass(one, DeadLetter | RetryLater):
            raise ConfigRefused(
                f"{rule} names {one.__name__}, which says by itself what happens to the record: "
                "leave it out"
            )
    return named


def _checked_key(given: object) -> bytes:
    raw = given.encode() if isinstance(given, str) else given
    if not isinstance(raw, bytes):
        raise ConfigRefused(f"signing_key has a {type(given).__name__}: give str or bytes")
    if len(raw) < SHORTEST_KEY:
        raise ConfigRefused(
            f"signing_key has a key of {len(raw)} bytes: use {SHORTEST_KEY} or more random ones "
            "(python -c 'import secrets; print(secrets.token_hex(32))')"
        )
    return raw


def _matches(pattern: str, topic: str) -> bool:
    """Return whether librdkafka's regular expression may match the topic.

    True for expressions that Python cannot read.
    """
    try:
        return re.match(pattern, topic) is not None
    except re.error:
        return True


def _original(history: dict[str, bytes | None]) -> Place | None:
    topic = history.get(protocol.ORIGINAL_TOPIC)
    partition = _number(history.get(protocol.ORIGINAL_PARTITION))
    offset = _number(history.get(protocol.ORIGINAL_OFFSET))
    if topic is None or partition is None or offset is None:
        return None
    return Place(topic.decode("utf-8", "replace"), partition, offset)


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() and len(raw) <= MOST_DIGITS else None
