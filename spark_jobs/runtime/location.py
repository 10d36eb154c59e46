"""Where results lie: a folder of this machine, or a URI of whatever file system Hadoop knows."""

import re
from pathlib import Path
from typing import Final, NamedTuple

URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.*")
ON_THIS_MACHINE: Final = "file://"


class Location(NamedTuple):
    """A place by its URI, such as `file:///srv/audits`, `hdfs://…`, `s3a://…` or `abfs://…`.

    On this machine's disk it is named as Hadoop takes it: not as `as_uri` does, since an escaped
    blank would be part of the name."""

    uri: str

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return str(self.folder or self.uri)

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one of this machine; else None."""
        return Path(self.uri[len(ON_THIS_MACHINE) :]) if self._is_here else None

    @property
    def _is_here(self) -> bool:
        return self.uri.startswith(f"{ON_THIS_MACHINE}/")


def location(text: str | Path) -> Location:
    """The place that a person names: a path (of this machine), or a URI."""
    if isinstance(text, str) and URI.fullmatch(text):
        return Location(text.rstrip("/"))
    return Location(f"{ON_THIS_MACHINE}{Path(text).absolute()}")
