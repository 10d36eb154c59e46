"""How much of the disk under `data_dir` is left free of new records
(docs/operations/sizing.md#limits-on-what-may-wait)."""

from pathlib import Path
from typing import Final

from proxy.config.sizes import shown_size
from proxy.errors import DiskReserveTooLarge

AUTO_BYTES: Final = 256 << 20
AUTO_SHARE: Final = 20
"""`auto` is the smaller of so many bytes, and one part in so many of the disk."""
SLACK_SHARE: Final = 8
"""One part in so many of the reserve has to be free beyond it before reading goes on."""


class DiskReserve:
    """Whether the disk has less left than is to be left free; handed the numbers, it only decides.

    `wanted_bytes`: None is `auto`, 0 none.
    """

    def __init__(self, wanted_bytes: int | None) -> None:
        self._wanted_bytes = wanted_bytes
        self.is_short = False

    def of(self, size_bytes: int) -> int:
        """The reserve on a disk of this size, in bytes."""
        if self._wanted_bytes is not None:
            return self._wanted_bytes
        return min(AUTO_BYTES, size_bytes // AUTO_SHARE)

    def enough(self, size_bytes: int) -> int:
        """What has to be free before reading goes on: more than the reserve, so that what is just
        given back does not fill it again at once."""
        reserve_bytes = self.of(size_bytes)
        return reserve_bytes + reserve_bytes // SLACK_SHARE

    def observe(self, size_bytes: int, free_bytes: int) -> None:
        """So much is free of so much."""
        wanted_bytes = self.enough(size_bytes) if self.is_short else self.of(size_bytes)
        self.is_short = free_bytes < wanted_bytes

    def refuse_unreachable(self, data_dir: Path, size_bytes: int) -> None:
        """Raise DiskReserveTooLarge where even an empty disk would not have enough."""
        if self.enough(size_bytes) > size_bytes:
            raise DiskReserveTooLarge(
                str(data_dir), shown_size(self.of(size_bytes)), shown_size(size_bytes)
            )
