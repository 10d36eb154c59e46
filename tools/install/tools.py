"""Programs that the trial needs. They are on the PATH, in this user's cache, or built by Go."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proxy.embedded.jars import cache_folder
from tools.install.go_built import GoProgram, build

KUBERNETES: Final = "v1.34.2"
"""This version shares most modules with Helm's, so that Go builds them once."""
HELM: Final = "v3.19.5"
_KUBERNETES_VERSION: Final = "k8s.io/component-base/version.gitVersion"
_HELM_VERSION: Final = "helm.sh/helm/v3/internal/version.version"
_RENDERS_FOR: Final = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
"""Without this variable `helm template` assumes Kubernetes 1.20."""
PROGRAMS: Final = (
    GoProgram("etcd", "go.etcd.io/etcd/server/v3", "v3.6.4", "go.etcd.io/etcd/server/v3"),
    GoProgram(
        "helm",
        "helm.sh/helm/v3",
        HELM,
        "helm.sh/helm/v3/cmd/helm",
        (f"{_HELM_VERSION}={HELM}", f"{_RENDERS_FOR}Major=1", f"{_RENDERS_FOR}Minor=34"),
    ),
    GoProgram(
        "kube-apiserver",
        "k8s.io/kubernetes",
        KUBERNETES,
        "k8s.io/kubernetes/cmd/kube-apiserver",
        (f"{_KUBERNETES_VERSION}={KUBERNETES}",),
    ),
)
DEBIAN: Final = {"etcd": "etcd-server", "openssl": "openssl", "go": "golang"}


class ToolMissing(Exception):
    """Program that is missing and cannot be built, with the remedy."""


def tools() -> Mapping[str, Path]:
    """Return the path of each program, built if necessary. Raise ToolMissing."""
    found = {program.name: _found(program) for program in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if shutil.which("openssl") is None:
        raise ToolMissing(_sentence("openssl"))
    if missing and shutil.which("go") is None:
        raise ToolMissing(_sentence(*missing, "go"))
    return {program.name: found[program.name] or _built(program) for program in PROGRAMS}


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
        f"Not on the PATH: {', '.join(names)}. With Go, what else is missing is built. "
        f"Debian: apt install {' '.join(packages)}"
    )
