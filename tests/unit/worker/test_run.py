"""What a start is refused for before a broker is asked."""

from pathlib import Path

import pytest

from proxy.config.settings import Settings
from proxy.errors import DiskReserveTooLarge
from proxy.worker.run import run


def test_a_reserve_larger_than_the_disk_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(DiskReserveTooLarge, match="no record would ever be read"):
        run(Settings(data_dir=tmp_path, disk_reserve_bytes=1 << 59))
