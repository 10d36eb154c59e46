import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.embedded.jars import kafka_version
from tools.benchmarks import machine
from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.folders import own_folder
from tools.benchmarks.peers import etf1, on_kafka, rocketmq, tables
from tools.benchmarks.peers.scale import FULL, QUICK, PeerScale
from tools.benchmarks.peers.scenarios import NEEDS_WAITING, SCENARIOS, Course, warm_up
from tools.benchmarks.peers.scheduler import Peer, PeerMissing
from tools.benchmarks.processes import leave_on_sigterm

PEERS = {
    "relay": Peer("plain relay", kafka_version, on_kafka.plain_relay, waits=False),
    "ours": Peer("kafka-delay-proxy", kafka_version, on_kafka.ours),
    "rocketmq-1s": Peer(
        "RocketMQ, 1 s", rocketmq.version, partial(rocketmq.rocketmq, precision_ms=1_000)
    ),
    "rocketmq-100ms": Peer(
        "RocketMQ, 100 ms", rocketmq.version, partial(rocketmq.rocketmq, precision_ms=100)
    ),
    "etf1": Peer("etf1 scheduler", etf1.version, etf1.etf1),
}

progress = Console(stderr=True)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def compare(
    peers: Annotated[str, typer.Option(help="Schedulers, comma-separated.")] = ",".join(PEERS),
    only: Annotated[str, typer.Option(help="Scenarios, comma-separated.")] = ",".join(SCENARIOS),
    results: Annotated[
        Path,
        typer.Option(help="Folder of JSON results. New results replace old files there."),
    ] = Path("peers-results"),
    quick: Annotated[bool, typer.Option(help="Few records: only check that it runs.")] = False,
    markdown: Annotated[bool, typer.Option(help="Measure nothing, only print the tables.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Keep servers' data in this folder.")] = None,
) -> None:
    """Send the same loads through each peer, one peer after the other. Each has its own broker.

    A peer is a scheduler or the plain relay. A peer that is not installed is skipped with a
    message. The exit code is 2 if a peer could not be measured."""
    chosen, wanted = _chosen("peer", peers, PEERS), _chosen("scenario", only, SCENARIOS)
    if not markdown:
        leave_on_sigterm()
        results.mkdir(parents=True, exist_ok=True)
        scale = QUICK if quick else FULL
        failed = [_measure(name, wanted, results, scale, folder) for name in _present(chosen)]
        if any(failed):
            raise typer.Exit(2)
    print(tables.render(results, {name: peer.title for name, peer in PEERS.items()}))


def _chosen(what: str, asked: str, known: Mapping[str, object]) -> list[str]:
    wanted = set(filter(None, asked.split(",")))
    if unknown := wanted - set(known):
        raise typer.BadParameter(f"no {what} {sorted(unknown)}; there are {list(known)}")
    return [name for name in known if name in wanted]


def _present(names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            PEERS[name].version()
        except PeerMissing as missing:
            progress.print(str(missing), markup=False)
        else:
            yield name


def _measure(
    name: str, scenarios: list[str], results: Path, scale: PeerScale, folder: Path | None
) -> bool:
    peer = PEERS[name]
    chosen = [one for one in scenarios if peer.waits or one not in NEEDS_WAITING]

    def say(what: str) -> None:
        progress.print(f"{peer.title}, {what}", markup=False)

    try:
        with own_folder(folder, "peers") as root, peer.open(root) as scheduler:
            course = Course(scheduler, peer.waits, scale, say)
            warm_up(course)
            for scenario in chosen:
                found = _with_circumstances(peer, scale, SCENARIOS[scenario](course))
                (results / f"{name}.{scenario}.json").write_text(json.dumps(found, indent=2))
    except BenchmarkError as error:
        progress.print(f"{name}: {error}", style="red", markup=False)
        return True
    return False


def _with_circumstances(peer: Peer, scale: PeerScale, found: object) -> dict[str, object]:
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
        "machine": asdict(machine.describe(kafka_version())),
        "quick": scale is QUICK,
        "version": peer.version(),
        "found": asdict(found),  # type: ignore[call-overload]
    }


if __name__ == "__main__":
    app()
