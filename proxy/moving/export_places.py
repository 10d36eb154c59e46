"""Places that hold an export: a file, a pipe, or a topic.

A topic holds the same bytes as a file, in pieces, in partition 0. The key of a piece is the
export's random id and the piece's number. So a reader can leave out repeated pieces and other
exports.
"""

import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from proxy.config.settings import Settings
from proxy.errors import ProxyError
from proxy.kafka.access import TopicUnknown, client_config
from proxy.kafka.reader import READER_CONFIG, TopicReader
from proxy.kafka.topics import admin_client, create_kept_topic
from proxy.moving.export_file import LONGEST_LINE_BYTES, ExportDamaged

STANDARD: Final = "-"
PIECE_BYTES: Final = 512 * 1024
KEY: Final = re.compile(rb"([0-9a-f]{32})/([0-9]{12})")
WRITE_WITHIN_S: Final = 60.0
GROUP: Final = "kafka-delay-proxy-export"
"""The client library requires a group. No consumer joins this group or commits offsets."""

Write = Callable[[bytes], object]
Lines = Callable[[], Iterator[bytes]]
"""A function that returns the lines of an export from its start."""


@contextmanager
def written_file(name: str) -> Iterator[Write]:
    """Yield a function that writes to the file. After an error there is no file of this name."""
    if name == STANDARD:
        try:
            yield sys.stdout.buffer.write
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise ProxyError("The program that reads the export has ended.") from None
        return
    path, part = Path(name), Path(name + ".part")
    if path.exists():
        raise ProxyError(f"{path} exists already.", "Name a new file, or remove it first.")
    try:
        with part.open("wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        raise ProxyError(
            f"{path} cannot be written: {error.strerror}.", "Choose a folder with enough room."
        ) from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def read_file(name: str) -> Iterator[Lines]:
    """Yield a function that returns the lines of a file. A pipe is first copied to a temporary
    file."""
    try:
        file = sys.stdin.buffer if name == STANDARD else Path(name).open("rb")  # noqa: SIM115
    except OSError as error:
        raise ProxyError(f"{name} cannot be read: {error.strerror}.", "Correct its name.") from None
    with file:
        if file.seekable():
            yield partial(_lines_of, file)
            return
        with TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            yield partial(_lines_of, copy)


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    return iter(partial(file.readline, LONGEST_LINE_BYTES), b"")


@contextmanager
def written_topic(settings: Settings, topic: str) -> Iterator[Write]:
    """Yield a function that writes to the topic. A missing topic is created."""
    if topic in settings.topics.never_targets:
        raise ProxyError(f"{topic} is one of the proxy's own topics.", "Name another topic.")
    admin = admin_client(settings)
    try:
        admin.describe_topic(topic, "Write")
    except TopicUnknown:
        create_kept_topic(topic, settings, admin)
    writer = _PieceWriter(
        Producer(client_config(settings, enable_idempotence=True)), topic, uuid.uuid4().hex
    )
    yield writer.write
    writer.end()


class _PieceWriter:
    def __init__(self, producer: Producer, topic: str, ident: str) -> None:
        self._producer, self._topic, self._ident = producer, topic, ident
        self._pieces, self._left = 0, bytearray()
        self._errors: list[KafkaError] = []

    def write(self, line: bytes) -> None:
        self._left += line
        while len(self._left) >= PIECE_BYTES:
            self._send(bytes(self._left[:PIECE_BYTES]))
            del self._left[:PIECE_BYTES]

    def end(self) -> None:
        self._send(bytes(self._left))
        if self._producer.flush(WRITE_WITHIN_S) and not self._errors:
            self._errors.append(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        self._check()

    def _send(self, piece: bytes) -> None:
        key = b"%s/%012d" % (self._ident.encode(), self._pieces)
        self._pieces += 1
        while True:
            try:
                self._producer.produce(self._topic, piece, key, 0, on_delivery=self._note)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        self._check()

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _check(self) -> None:
        if self._errors:
            raise KafkaException(self._errors[0])


@contextmanager
def read_topic(settings: Settings, topic: str) -> Iterator[Lines]:
    """Yield a function that returns the lines of the newest export in a topic."""
    admin_client(settings).describe_topic(topic, "Read")
    config = client_config(settings, group_id=GROUP, **READER_CONFIG)
    reader = TopicReader(partial(Consumer, config), topic, [0])
    span = reader.spans()[0]
    keys = (KEY.fullmatch(one.key() or b"") for one in reader.records(0, span))
    idents = [found[1] for found in keys if found and found[2] == b"%012d" % 0]
    if not idents:
        raise ExportDamaged(f"The topic {topic}", "it holds no export")

    def lines() -> Iterator[bytes]:
        return _split(_pieces(reader, span, idents[-1]))

    yield lines


def _pieces(reader: TopicReader, span: range, ident: bytes) -> Iterator[bytes]:
    """Yield the pieces of one export in order, up to the first missing piece."""
    number = 0
    for message in reader.records(0, span):
        if message.key() == b"%s/%012d" % (ident, number):
            number += 1
            yield message.value() or b""


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    left = bytearray()
    for piece in pieces:
        left += piece
        *whole, rest = bytes(left).split(b"\n") if b"\n" in piece else (bytes(left),)
        yield from (line + b"\n" for line in whole)
        left = bytearray(rest)
        if len(left) > LONGEST_LINE_BYTES:
            break
    if left:
        yield bytes(left)
