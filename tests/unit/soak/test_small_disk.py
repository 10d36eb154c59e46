"""A disk that is full during a fault of the soak."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path

import pytest

from tools.soak.small_disk import fill, free, small_disk


def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with small_disk(folder) as is_mounted:
        if not is_mounted:
            pytest.skip("only root may mount a file system")
        (folder / "before").write_bytes(b"kept")
        fill(folder)
        with pytest.raises(OSError, match="No space left") as refused:
            (folder / "more").write_bytes(b"x" * 5_000)
        assert refused.value.errno == ENOSPC
        assert (folder / "before").read_bytes() == b"kept"
        free(folder)
        (folder / "more").write_bytes(b"x" * 5_000)
    assert not any(folder.iterdir())
