"""The generated blocks: all examples in BLOCKS, some of them on PAGE."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from spark_jobs.results.formatting import sentence
from spark_jobs.results.result_tables import SHOW_ALL
from tests.spark.violation_examples.judging_examples import Example, Finding
from tests.support.simulation.stand_in import Record
from tools.campaign.scene import OWN

PAGE: Final = Path(__file__).parents[3] / "docs/audit-violations.md"
BLOCKS: Final = Path(__file__).parent / "blocks.md"
BLOCK: Final = re.compile(r"<!-- example: (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
COMMANDS: Final = re.compile(r"```sh\n.*?```\n\n", re.DOTALL)
LONGEST_MAC: Final = 8
LABEL: Final = 12
"""Width of the column of labels in a record."""
SECOND_HALF: Final = ',"due"'
"""Where the JSON of an outcome is divided: the site shows about 80 characters in a line."""


def block(example: Example) -> str:
    topics = example.topics
    lost = {id(one) for one in topics.lost}
    rows = [
        _record(one, topics.notes.get(id(one), ""), is_lost=id(one) in lost)
        for one in topics.records()
    ]
    found = "".join(_finding(one) for one in example.findings)
    text = "\n```text\n" + "".join(rows) + f"```\n\n{found}"
    return _as_partition_0(text, topics.number)


def shown(page: Path) -> dict[str, str]:
    return dict(BLOCK.findall(page.read_text("utf-8")))


def without_commands(block: str) -> str:
    return COMMANDS.sub("", block)


def write_blocks(blocks: dict[str, str]) -> None:
    short = {name: without_commands(one) for name, one in blocks.items()}
    for page, texts in ((BLOCKS, blocks), (PAGE, short)):
        page.write_text(with_blocks(page.read_text("utf-8"), texts), "utf-8")


def with_blocks(text: str, blocks: dict[str, str]) -> str:
    return BLOCK.sub(
        lambda old: f"<!-- example: {old[1]} -->\n{blocks[old[1]]}<!-- end -->\n", text
    )


def _record(record: Record, note: str, *, is_lost: bool) -> str:
    head = f"{record.topic_}/{record.partition_}/{record.offset_}"
    arrow = f"   <== {note.replace('`', '')}" if note else ""
    if is_lost:
        return f"{head}{arrow}\n"
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    head = f"{head}   {at:%H:%M:%S}.{record.timestamp_ms % 1000:03}{arrow}"
    headers = [f"{name}:{_short(name, told)}" for name, told in record.headers_]
    key, value = _text(record.key_), _text(record.value_)
    halves = value.replace(SECOND_HALF, f",\n{SECOND_HALF[1:]}").split("\n")
    rows = [*_rows("headers", *headers), *_rows("key", key), *_rows("value", *halves)]
    return "".join(f"{row}\n" for row in (head, *rows))


def _rows(label: str, *texts: str) -> list[str]:
    labels = [f"    {label}", *[""] * len(texts)]
    return [f"{one:{LABEL}}  {text}" for one, text in zip(labels, texts, strict=False) if text]


def _short(name: str, told: bytes | None) -> str:
    text = _text(told)
    return f"{text[:LONGEST_MAC]}…" if name == "timer-hop-mac" else text


def _text(told: bytes | None) -> str:
    return "null" if told is None else told.decode("utf-8", "replace")


def _finding(found: Finding) -> str:
    topic, partition, offset = found.place
    commands = "".join(f"{one.replace(SHOW_ALL, '…')}\n" for one in found.commands)
    return (
        f"> The report: **{found.verdict}** {topic}, partition {partition}, offset {offset}:"
        f" {sentence(found.detail)}\n\n```sh\n{commands}```\n\n"
    )


def _as_partition_0(text: str, number: int) -> str:
    text = text.replace(f"{OWN.ingress}/{number}/", f"{OWN.ingress}/0/")
    text = text.replace(f"{OWN.ingress}, partition {number},", f"{OWN.ingress}, partition 0,")
    return text.replace(f"{OWN.ingress} --partition {number} ", f"{OWN.ingress} --partition 0 ")
