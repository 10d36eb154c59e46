"""Root file systems made of Debian packages. Programs in them see no files of this machine."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUITE: Final = "trixie"
"""Debian release of the base image. Its Python and the base image's Python have the same minor
version."""
PACKAGES: Final = "ca-certificates,python3,python3-venv"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
PASSED_ON: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "maven_mirror_url")
TRUSTING: Final = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class NotPossibleHere(Exception):
    """Missing requirement on this machine."""


@dataclass(frozen=True, slots=True)
class Root:
    path: Path

    def inside(self, name: str) -> Path:
        return self.path / name.lstrip("/")

    def copy(self, path: Path) -> "Root":
        made = ["cp", "-a", "--reflink=auto", str(self.path), str(path)]
        subprocess.run(made, check=True)
        return Root(path)

    def run(self, script: str, environment: Mapping[str, str], folder: str) -> None:
        values = [f"{name}={value}" for name, value in _with_network(environment).items()]
        program = ["/usr/bin/env", "-i", f"--chdir={folder}", *values, "/bin/sh", "-ec", script]
        mounts = [
            f"mount -t proc proc {shlex.quote(str(self.inside('proc')))}",
            *(self._shown(name) for name in ("/etc/resolv.conf", CERTIFICATES, "/dev/null")),
        ]
        subprocess.run(isolated(mounts, ["chroot", str(self.path), *program]), check=True)

    def _shown(self, name: str) -> str:
        self.inside(name).touch()
        return f"mount --bind {name} {shlex.quote(str(self.inside(name)))}"


def isolated(mounts: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return a command that makes the mounts, then runs the program as process 1. Mounts and
    processes are in name spaces of their own."""
    script = "\n".join([*mounts, f"exec {shlex.join(program)}"])
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec", script]


def debian(folder: Path) -> Root:
    """Return the clean root in `folder`. Make it on first use. Raise NotPossibleHere if this
    machine cannot make it."""
    root = folder / SUITE
    done = folder / f"{SUITE}.done"
    if not done.exists():
        _refuse_without_tools()
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        make = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)]
        subprocess.run([*make, _mirror()], check=True)
        done.touch()
    return Root(root)


def _refuse_without_tools() -> None:
    if os.geteuid():
        raise NotPossibleHere("Only root can make a clean root and change into it.")
    for tool in ("debootstrap", "unshare", "chroot"):
        if not shutil.which(tool):
            raise NotPossibleHere(f"{tool} is not installed (Debian: apt install {tool}).")


def _mirror() -> str:
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    for line in asked.stdout.splitlines():
        if line.startswith("Debian "):
            return line.removeprefix("Debian ")
    raise NotPossibleHere("apt knows no Debian mirror here; name one in DEBIAN_MIRROR.")


def _with_network(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables needed to fetch packages behind a proxy or with another index."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.lower() in PROXIES
    }
    return {**passed, **dict.fromkeys(TRUSTING, CERTIFICATES), **environment}
