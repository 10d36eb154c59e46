"""Programs that the trial needs. They are on the PATH, in this user's cache, or built by Go."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from proxy.embedded.jars import cache_folder
from tools.install.go_built import GoProgram, build

KUBERNETES: Final = "v1.34.2"
_KUBERNETES_VERSION: Final = "k8s.io/component-base/version.gitVersion"


def of_kubernetes(name: str) -> GoProgram:
    linked = (f"{_KUBERNETES_VERSION}={KUBERNETES}",)
    return GoProgram(name, "k8s.io/kubernetes", KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", linked)


PROGRAMS: Final = (
    GoProgram("etcd", "go.etcd.io/etcd/server/v3", "v3.6.4", "go.etcd.io/etcd/server/v3"),
    of_kubernetes("kube-apiserver"),
)
DEBIAN: Final = {"etcd": "etcd-server", "openssl": "openssl", "go": "golang"}


class ToolMissing(Exception):
    """Program that is missing and cannot be built, with the remedy."""


def tools(*more: GoProgram) -> Mapping[str, Path]:
    """Return the path of each program, built if necessary. Raise ToolMissing or NotBuilt."""
    programs = [*PROGRAMS, *more]
    found = {program.name: _found(program) for program in programs}
    missing = [name for name, path in found.items() if path is None]
    if find_spec("helm_python") is None:
        raise ToolMissing("The package helm-python-sdk is not installed. It exists for Linux.")
    if shutil.which("openssl") is None:
        raise ToolMissing(_sentence("openssl"))
    if missing and shutil.which("go") is None:
        raise ToolMissing(_sentence(*missing, "go"))
    return {program.name: found[program.name] or _built(program) for program in programs}


def provided(program: GoProgram) -> Path:
    """Return the path of one program, built if necessary. Raise ToolMissing or NotBuilt."""
    found = _found(program)
    if found is None and shutil.which("go") is None:
        raise ToolMissing(_sentence(program.name, "go"))
    return found or _built(program)


def _found(program: GoProgram) -> Path | None:
    if on_path := shutil.which(program.name):
        return Path(on_path)
    cached = _cached(program)
    return cached if cached.exists() else None


def _cached(program: GoProgram) -> Path:
    return cache_folder().with_name("tools") / f"{program.name}-{program.version}" / program.name


def _built(program: GoProgram) -> Path:
    print(f"Go builds {program.name} {program.version}, once; this takes minutes ...", flush=True)
    build(program, _cached(program))
    return _cached(program)


def _sentence(*names: str) -> str:
    packages = [DEBIAN[name] for name in names if name in DEBIAN]
    return (
        f"Not on the PATH: {', '.join(names)}. With Go, this command builds the others. "
        f"Debian: apt install {' '.join(packages)}"
    )
