"""Command line of the campaign: `python -m tools.campaign`
(docs/notes/audit.md#how-the-judge-was-judged)."""

from __future__ import annotations

import json as json_text
import logging
import time
from collections.abc import Sequence
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import Progress

from spark_jobs.runtime.session import INTERPRETED, spark_session
from tools.campaign.campaign import Figures, drawn_chunk, judge
from tools.campaign.judging import MODES
from tools.campaign.operators.catalogue import OPERATORS
from tools.campaign.report import as_json, lines, markdown
from tools.campaign.rules_off import RuleOff, without_each_rule

CHUNK = 500
CHUNK_OF_CLEAN = 2_000
IN_SPARK = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
console = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    runs: Annotated[int, typer.Option(help="Number of runs.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the random runs.")] = 1,
    run: Annotated[int | None, typer.Option(help="Judge only the run of this number.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="batch, continued or follow.")] = None,
    operator: Annotated[list[str] | None, typer.Option(help="Plant only these faults.")] = None,
    without_faults: Annotated[bool, typer.Option(help="Plant no faults.")] = False,
    rules: Annotated[bool, typer.Option(help="Switch off one rule after another.")] = False,
    parts: Annotated[bool, typer.Option(help="With --rules: also parts of rules.")] = False,
    json: Annotated[bool, typer.Option(help="Print JSON, not markdown.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master URL.")] = "local[2]",
) -> None:
    """Audit random runs of the proxy, each without a fault and with one planted fault.

    The exit code is 1 if the audit missed a planted fault, or reported a fault that was not
    planted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    numbers = range(runs) if run is None else range(run, run + 1)
    chosen = {} if without_faults else {n: OPERATORS[n] for n in operator or OPERATORS}
    spark = spark_session("audit campaign", master, "2g", IN_SPARK)
    if rules:
        chunk = drawn_chunk(seed, numbers, chosen, Figures().so_far)
        found = without_each_rule(spark, chunk, _say, with_parts=parts)
        _print_rules(found, as_json=json)
        raise typer.Exit(0 if all(one.noticed_by for one in found) else 1)
    figures = Figures()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=len(numbers))
        size = CHUNK_OF_CLEAN if without_faults else CHUNK
        for first in range(0, len(numbers), size):
            part = numbers[first : first + size]
            judge(spark, drawn_chunk(seed, part, chosen, figures.so_far), mode or MODES, figures)
            progress.advance(task, len(part))
            _say(f"{first + len(part)} runs, {len(figures.wrong)} wrong")
    print(json_text.dumps(as_json(figures)) if json else markdown(figures, chosen))
    for line in lines(figures):
        console.print(line, highlight=False, markup=False)
    raise typer.Exit(1 if figures.wrong else 0)


def _print_rules(found: Sequence[RuleOff], *, as_json: bool) -> None:
    if as_json:
        print(json_text.dumps([one._asdict() for one in found]))
        return
    for one in found:
        print(f"| {one.name} | {', '.join(one.noticed_by[:3]) or 'nobody'} |")


def _say(what: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')} {what}", highlight=False, markup=False)


if __name__ == "__main__":
    app()
