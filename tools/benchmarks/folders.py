import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_folder(kept: Path | None, name: str) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as temporary:
            yield Path(temporary)
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix=f"{name}-", dir=kept))
