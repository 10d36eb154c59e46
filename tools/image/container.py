"""Container of an image built without an engine."""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tools.image.builder import Image
from tools.image.clean_root import isolated

STOP_LIMIT_S: Final = 180.0
PLAIN_TMP: Final = "noexec,nosuid,nodev"
"""An engine's default options for a tmpfs."""


class Container:
    """Program of an image, run as the image's user without capabilities. Its root is read-only, and
    it can write to /tmp and /data. It has this machine's network. It has only the environment
    variables of the image and the given variables."""

    def __init__(
        self,
        image: Image,
        data_dir: Path,
        environment: Mapping[str, str] | None = None,
        tmp: str = PLAIN_TMP,
    ) -> None:
        self._image, self._data_dir, self._tmp = image, data_dir, tmp
        self._environment = {**image.environment, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        user, group = map(int, image.user.split(":"))
        data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.chown(data_dir, user, group)

    def run(self, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        return self._ask([*self._image.said["ENTRYPOINT"], *arguments], limit_s)

    def program(self, *words: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        return self._ask(words, limit_s)

    def is_healthy(self, *more: str) -> bool:
        return self.program(*self._image.said["HEALTHCHECK"], *more).returncode == 0

    def start(self, log: Path) -> None:
        words = [*self._image.said["ENTRYPOINT"], *self._image.said["CMD"]]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._isolated(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def stop(self) -> int:
        assert self._process is not None, "never started"
        _signal_inside(self._process, signal.SIGTERM)
        return self._process.wait(STOP_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            _kill(self._process)

    def _ask(self, words: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._isolated(words), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        try:
            out, err = process.communicate(timeout=limit_s)
        finally:
            _kill(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _isolated(self, words: Sequence[str]) -> list[str]:
        root = shlex.quote(str(self._image.root.path))
        mounts = [
            f"mount --bind {root} {root}",
            f"mount -o remount,bind,ro {root}",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs -o {self._tmp} tmpfs {root}/tmp",  # noqa: S108
            f"mount --bind {shlex.quote(str(self._data_dir))} {root}/data",
        ]
        return isolated(mounts, ["chroot", str(self._image.root.path), *self._unprivileged(words)])

    def _unprivileged(self, words: Sequence[str]) -> list[str]:
        user, group = self._image.user.split(":")
        who = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        rights = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        values = [f"{name}={value}" for name, value in self._environment.items()]
        folder = f"--chdir={self._image.folder}"
        return ["/usr/bin/setpriv", *who, *rights, "/usr/bin/env", "-i", folder, *values, *words]


def _signal_inside(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Signal process 1 of the name space made by `unshare`. When it ends, all processes in the name
    space end. Killing `unshare` is not enough, because a process that changes its user does not die
    with its parent."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8")
    for child in children.split():
        os.kill(int(child), number)


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        _signal_inside(process, signal.SIGKILL)
        process.wait()
