"""`export` and `import`: pending records moved to another cluster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from proxy.cli.terminal import (
    AtBroker,
    StopAsked,
    argument,
    counted,
    flag,
    option,
    progress,
    say,
    say_json,
    stop_raises,
)
from proxy.errors import ProxyError
from proxy.kafka.access import explained
from proxy.logs import plain
from proxy.moving.export_file import ExportReader, ExportWriter
from proxy.moving.export_places import (
    STANDARD,
    Lines,
    Write,
    read_file,
    read_topic,
    written_file,
    written_topic,
)
from proxy.moving.imports import Checked, Importer
from proxy.worker.stop_signals import stop_signals

if TYPE_CHECKING:
    from proxy.moving.export import Export, LeftBehind

SHOWN_AT_MOST: Final = 10
IS_LIVE: Final = (
    "The group is not stopped, so delivery goes on. Records that are delivered after this export "
    "are delivered again after an import. Stop all proxies of the group first."
)


class NotAllExported(ProxyError):
    """Some pending records cannot be exported."""

    def __init__(self, left: "LeftBehind") -> None:
        super().__init__(
            f"Nothing is exported, because some records cannot be exported:\n{_left_lines(left)}",
            "Commit or roll back the half messages, or wait until they expire. Or give --partial "
            "to export the other records.",
        )


@dataclass(frozen=True, kw_only=True)
class Moving(AtBroker):
    """Options that name an export."""

    file: str | None = argument("The file of the export, or - for a pipe.", default=None)
    topic: str | None = option("The topic of the export, instead of a file.", "--topic")

    def check(self) -> None:
        if (self.file is None) is (self.topic is None):
            raise typer.BadParameter("name either a file or a --topic")
        if self.file == STANDARD and self.as_json:
            raise typer.BadParameter("--json needs a file or a --topic")

    @property
    def place(self) -> str:
        return f"the topic {self.topic}" if self.file is None else self.file


@dataclass(frozen=True, kw_only=True)
class Exporting(Moving):
    """Options of `export`."""

    partial: bool = flag("Leave out records that cannot be exported (undecided half messages ...).")


def export(asked: Exporting) -> None:
    """Write all pending records of the group to a file or a topic, to move them to another cluster.

    Stop all proxies of the group first. Nothing is changed in the cluster."""
    asked.check()
    try:
        with stop_raises():
            _export(asked)
    except StopAsked:
        raise typer.Exit(1) from None


def _export(asked: Exporting) -> None:
    from proxy.moving.export import open_export

    tell = _tell_error if asked.file == STANDARD else say
    with explained(asked.settings), open_export(asked.settings) as found:
        if found.header.is_live:
            tell(IS_LIVE)
        with _written(asked) as write:
            writer = _write_all(found, write, is_partial=asked.partial)
    if asked.as_json:
        say_json(_exported_json(found, writer))
        return
    for at in found.header.partitions:
        later = f", read to {at.read_to}" if at.read_to > at.next_offset else ""
        tell(f"partition {at.partition}: position {at.next_offset}{later}")
    if found.left.counts:
        tell("Left out:", *_left_lines(found.left).splitlines())
    for control in found.controls:
        tell(f"Set at run time in this group, and not exported: {control}")
    tell(f"exported: {counted(writer.records, 'record')} to {asked.place}")


def _written(asked: Moving) -> AbstractContextManager[Write]:
    if asked.topic is not None:
        return written_topic(asked.settings, asked.topic)
    return written_file(asked.file or STANDARD)


def _write_all(found: "Export", write: Write, *, is_partial: bool) -> ExportWriter:
    writer = ExportWriter(write, found.header)
    for record in found.records():
        writer.add(record)
    if found.left.counts and not is_partial:
        raise NotAllExported(found.left)
    writer.end()
    return writer


def _exported_json(found: "Export", writer: ExportWriter) -> dict[str, object]:
    header = found.header
    return {
        "records": writer.records,
        "sha256": writer.sha256,
        "group": header.group,
        "partitions": [one._asdict() for one in header.partitions],
        "live": header.is_live,
        "left_out": dict(found.left.counts),
        "controls": list(found.controls),
    }


def _left_lines(left: "LeftBehind") -> str:
    lines = [f"- {why}: {counted(count, 'record')}" for why, count in left.counts.items()]
    examples = (f"  {origin}: {plain(why)}" for origin, why in left.examples)
    return "\n".join([*lines, *examples])


@dataclass(frozen=True, kw_only=True)
class Importing(Moving):
    """Options of `import`."""

    dry_run: bool = flag("Check the whole export against the new cluster, without a change.")
    allow_twice: bool = flag(
        "Allow an import into the ingress that was exported, or a second import of the same "
        "group. Records that are scheduled already are then delivered twice."
    )


def import_records(asked: Importing) -> None:
    """Schedule the records of an export in this cluster, each once.

    Give the command the settings of the new proxies. After an interruption run it again."""
    asked.check()
    with explained(asked.settings), _read(asked) as lines, stop_signals() as is_stopping:
        importer = Importer(asked.settings, lambda: ExportReader(lines(), asked.place))
        checked = importer.check()
        if not asked.allow_twice:
            importer.refuse_twice(checked.header)
        if not asked.as_json:
            _say_checked(checked)
        before, now = (0, 0) if asked.dry_run else _import(importer, checked, asked, is_stopping)
    if asked.as_json:
        more = {"before": before, "scheduled": now, "overdue": checked.overdue}
        say_json({"records": checked.records, "sha256": checked.sha256, **more})
    elif asked.dry_run:
        say("Nothing was changed.")
    else:
        earlier = f"; {before:,} were scheduled before" if before else ""
        say(f"imported: {counted(now, 'record')} of {checked.records:,}{earlier}")
    is_all = asked.dry_run or before + now == checked.records
    raise typer.Exit(0 if is_all else 1)


def _import(
    importer: Importer, checked: Checked, asked: Importing, is_stopping: Callable[[], bool]
) -> tuple[int, int]:
    with progress("importing", checked.records) as show:
        return importer.run(checked, show, is_stopping, may_deliver_twice=asked.allow_twice)


@contextmanager
def _read(asked: Moving) -> Iterator[Lines]:
    if asked.topic is not None:
        with read_topic(asked.settings, asked.topic) as lines:
            yield lines
    else:
        with read_file(asked.file or STANDARD) as lines:
            yield lines


def _say_checked(checked: Checked) -> None:
    header = checked.header
    source = f"the group {header.group} of {header.topic} (cluster {header.cluster})"
    say(f"{counted(checked.records, 'record')} of {source}, {checked.overdue:,} overdue")
    for target, count in checked.targets.most_common(SHOWN_AT_MOST):
        say(f"- {target}: {count:,}")
    if header.is_live:
        say("The group was not stopped when it was exported. Is it stopped now?")


def _tell_error(*lines: str) -> None:
    print(*map(plain, lines), sep="\n", file=sys.stderr, flush=True)
