"""Build what the node needs, run the trial in name spaces of its own, and clean up."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from proxy.embedded.jars import cache_folder
from tools.install.go_built import GoProgram, NotBuilt
from tools.install.tools import KUBERNETES, ToolMissing, of_kubernetes, tools
from tools.pods import cgroups, images
from tools.pods.inside import Arguments
from tools.pods.steps import step

REPOSITORY: Final = Path(__file__).parents[2]
FOLDER: Final = REPOSITORY / "build" / "pods"
LOGS: Final = FOLDER / "logs"
"""Logs of the node's programs in the last run."""
ROOTS: Final = REPOSITORY / "build" / "image"
KUBERNETES_PARTS: Final = tuple(
    f"k8s.io/{part} v0{KUBERNETES.removeprefix('v1')}"
    for part in ("api", "apimachinery", "client-go", "cri-api")
)
MORE: Final = (
    *map(of_kubernetes, ("kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy")),
    GoProgram(
        "coredns",
        "github.com/coredns/coredns",
        "v1.12.4",
        ".",
        main=Path(__file__).with_name("coredns.go"),
        newer=KUBERNETES_PARTS,
    ),
    GoProgram(
        "kube-router",
        "github.com/cloudnativelabs/kube-router/v2",
        "v2.1.0",
        "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
        newer=(*KUBERNETES_PARTS, "go.opentelemetry.io/otel/metric v1.38.0"),
    ),
)
NEEDED: Final = ("unshare", "setpriv", "chroot", "mount", "ip", "hostname", "tar")
MEMORY_BYTES: Final = 7 << 30
FREE_DISK_BYTES: Final = 12 << 30
LAST_LINES: Final = 20


class NotPossible(Exception):
    """Missing requirement on this machine."""


def main() -> int:
    """Return 0 if all steps held, 1 if one failed, 3 if this machine cannot run them."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)
    try:
        found = list(cgroups.hierarchies(cgroups.MOUNTS.read_text("utf-8")))
        _refuse_if_impossible(found)
        with _only_run():
            _clean(found)
            try:
                return _run(found)
            finally:
                _clean(found)
    except (NotPossible, ToolMissing, NotBuilt) as missing:
        print(f"Not tried: {missing}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Exit, so that running processes are ended and removed."""
    sys.exit(1)


def _refuse_if_impossible(found: list[cgroups.Hierarchy]) -> None:
    if sys.platform != "linux" or os.geteuid():
        raise NotPossible("Only root on Linux can run a node.")
    if platform.machine() not in images.ARCHITECTURES:
        raise NotPossible(f"There are no images for {platform.machine()}.")
    for tool in NEEDED:
        if not shutil.which(tool):
            raise NotPossible(f"{tool} is not installed.")
    if lacking := cgroups.missing(found):
        raise NotPossible(f"No control groups of version 1 for {', '.join(sorted(lacking))}.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(FOLDER).free) < FREE_DISK_BYTES:
        raise NotPossible(f"{free >> 30} GiB of disk are free, {FREE_DISK_BYTES >> 30} are needed.")
    if (free := _available_bytes()) < MEMORY_BYTES:
        raise NotPossible(f"{free >> 30} GiB of memory are free, {MEMORY_BYTES >> 30} are needed.")


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1]) << 10


@contextmanager
def _only_run() -> Iterator[None]:
    """Hold a lock, because the control groups have one name on the machine."""
    cache_folder().parent.mkdir(parents=True, exist_ok=True)
    with cache_folder().with_name("pods.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotPossible("Another run goes on. Try again when it has ended.") from None
        yield


def _clean(found: list[cgroups.Hierarchy]) -> None:
    """End and remove what this run or a killed one has left."""
    cgroups.remove(found)
    shutil.rmtree(FOLDER / "run", ignore_errors=True)


def _run(found: list[cgroups.Hierarchy]) -> int:
    with step("programs"):
        programs = tools(*MORE)
    with step("files of the images"):
        _make_images()
    (FOLDER / "run").mkdir()
    given = Arguments(
        folder=str(FOLDER / "run"),
        base=str(images.node_root(FOLDER)),
        layouts=[str(path) for path in images.layouts(FOLDER)],
        programs={name: str(path) for name, path in programs.items()},
        hierarchies=[(str(one.mounted), list(one.controllers)) for one in found],
    )
    cgroups.make(found, MEMORY_BYTES)
    command = isolated(found, given)
    with subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True) as node:
        try:
            return node.wait()
        finally:
            node.kill()
            _keep_logs()


def _keep_logs() -> None:
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir()
    for log in (FOLDER / "run").glob("*.log"):
        shutil.copy(log, LOGS)


def isolated(found: list[cgroups.Hierarchy], given: Arguments) -> list[str]:
    """Return the command that runs the trial in the groups and in new name spaces. The trial ends
    with the command, and the command with this process, even after SIGKILL. The shell inside is
    process 1, and reaps the processes that lost their parent."""
    enter = [f"echo $$ > {shlex.quote(str(one.group / cgroups.PROCESSES))}" for one in found]
    trial = [sys.executable, "-m", "tools.pods.inside", json.dumps(given)]
    inside = f"{shlex.join(trial)} & wait $!"
    new = ["--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--mount-proc"]
    unshare = ["unshare", *new, "--fork", "--kill-child", "/bin/sh", "-c", inside]
    end_with_parent = ["setpriv", "--pdeathsig", "KILL"]
    script = "\n".join([*enter, f"exec {shlex.join([*end_with_parent, *unshare])}"])
    return ["/bin/sh", "-ec", script]


def _make_images() -> None:
    if images.are_made(FOLDER):
        return
    log = FOLDER / "images.log"
    print(f"Images are built, which takes minutes; see {log} ...", flush=True)
    command = [sys.executable, "-m", "tools.pods.images", str(FOLDER), str(ROOTS)]
    with log.open("wb") as output:
        ran = subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=output, check=False)
    if ran.returncode:
        said = log.read_text("utf-8", "replace").splitlines()
        if ran.returncode == 3:
            raise NotPossible(said[-1])
        raise SystemExit("\n".join(["The images were not built:", *said[-LAST_LINES:]]))


if __name__ == "__main__":
    sys.exit(main())
