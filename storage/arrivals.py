"""Entries not yet on disk: the near ones as tuples, ready to fire, the others encoded."""

from collections.abc import Generator
from itertools import compress

from storage.encoded import COLUMNS_BYTES, Encoded, Encoder
from storage.recent import Recent
from storage.records import Column
from storage.store import Codec, Entry

NEAR_MS = 1_000
"""Entries due within this time of being looked for are kept as tuples."""


class Arrivals(Recent):
    """A table whose entries due at or beyond `horizon_ms` are encoded as they arrive.

    They are hot in the caches then, take a third of the memory, and are ready to be written."""

    def __init__(self, codec: Codec, scanned_ms: int) -> None:
        super().__init__(scanned_ms)
        self._codec = codec
        self._encoder = Encoder(codec)
        self._horizon_ms = scanned_ms + NEAR_MS
        self._parts: list[Encoded] = []
        self._first_ms = 2**63 - 1

    def take(self, entries: list[Entry], dues_ms: Column) -> None:
        """Take `entries`, in ingress offset order, with their dues."""
        is_far = dues_ms >= self._horizon_ms
        if is_far.all():
            near, far = [], entries
        else:
            near = list(compress(entries, (~is_far).tolist()))
            far = list(compress(entries, is_far.tolist()))
            dues_ms = dues_ms[is_far]
        weight_bytes = self._codec.weight_bytes(near) if near else 0
        if far:
            encoded = self._encoder.encode(far, dues_ms)
            self._parts.append(encoded)
            self._first_ms = min(self._first_ms, int(dues_ms.min()))
            weight_bytes += sum(map(len, encoded.bodies)) + COLUMNS_BYTES * len(far)
        self._note(entries, weight_bytes)
        self._index(near)

    def encode_all(self, most: int) -> Generator[int, None, Encoded]:
        """All entries, encoded, in no order; yields how many each step has encoded.

        What ends or comes near meanwhile may or may not be among them, once."""
        parts = [self._far()]
        for entries in self.slices(self.dues_in_order(), most):
            parts.append(self._encoder.encode(entries))
            yield len(entries)
        return self._encoder.joined(parts)

    def _scan(self, until_ms: int) -> None:
        if until_ms >= self._horizon_ms:
            self._bring_near(until_ms + NEAR_MS)
        super()._scan(until_ms)

    def _bring_near(self, until_ms: int) -> None:
        self._horizon_ms = until_ms + 1
        if self._first_ms > until_ms:
            return
        near, far = self._far().split(until_ms)
        self._parts = [far]
        self._first_ms = int(far.dues_ms.min()) if len(far) else 2**63 - 1
        self._index(near.decoded(self._codec))

    def _far(self) -> Encoded:
        """Everything far, as one part."""
        self._parts = [self._encoder.joined(self._parts)]
        return self._parts[0]
