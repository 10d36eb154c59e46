"""Images for the node: the Dockerfile's targets as OCI images, and the node's own root.

`python -m tools.pods.images FOLDER` makes what is missing or has changed, and takes minutes."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import proxy
from tools.image.builder import BASE_PATH, Builder, Image
from tools.image.clean_root import NotPossibleHere, Root, debian
from tools.image.context import sent
from tools.image.dockerfile import stages

REPOSITORY: Final = Path(__file__).parents[2]
NAME: Final = "docker.io/library/kafka-delay-proxy"
TAGS: Final = {"proxy": proxy.__version__, "audit": f"{proxy.__version__}-audit"}
"""Tags by target. They are the chart's defaults."""
PAUSE: Final = f"{NAME}:pause"
"""The image of a pod's first process, which only waits. It has the files of the target `proxy`."""
NODE_PACKAGES: Final = (
    *("containerd", "runc", "containernetworking-plugins"),
    *("nftables", "iptables", "ipset", "iproute2", "kmod", "procps"),
)
UNNEEDED: Final = ("./var/cache/apt", "./var/lib/apt/lists")
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
KIND: Final = "application/vnd.oci.image"


def node_root(folder: Path) -> Path:
    return folder / "node"


def layouts(folder: Path) -> list[Path]:
    """Return the OCI layouts of the targets, as they are or will be made."""
    return [folder / f"{target}-{_fingerprint()}" for target in TAGS]


def are_made(folder: Path) -> bool:
    return (folder / "node.done").exists() and all(path.exists() for path in layouts(folder))


def import_stream(layout: Path) -> subprocess.Popen[bytes]:
    """Start a program that writes the layout as an archive to its standard output."""
    command = ["tar", "-C", str(layout), "-cf", "-", "."]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def make(folder: Path, roots: Path) -> None:
    """Make the node's root and the layouts in `folder`. `roots` has the clean root."""
    clean = debian(roots)
    _make_node(clean, folder)
    if all(path.exists() for path in layouts(folder)):
        return
    for old in folder.glob("*-*"):
        shutil.rmtree(old)
    (roots / "stages").mkdir(exist_ok=True)
    builder = Builder(REPOSITORY, clean, roots / "stages")
    known = stages((REPOSITORY / "Dockerfile").read_text("utf-8"))
    for layout, (target, tag) in zip(layouts(folder), TAGS.items(), strict=True):
        image = builder.build(target, known)
        named = {f"{NAME}:{tag}": configuration(image)}
        if target == "proxy":
            named[PAUSE] = {**configuration(image), "Entrypoint": ["sleep"], "Cmd": ["infinity"]}
        unfinished = layout.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_layout(unfinished, image.root.path, named)
        unfinished.rename(layout)


def configuration(image: Image) -> dict[str, Any]:
    return {
        "Env": [f"{name}={value}" for name, value in image.environment.items()],
        "WorkingDir": image.folder,
        "User": image.user,
        "Entrypoint": image.said["ENTRYPOINT"],
        "Cmd": image.said["CMD"],
    }


def write_layout(folder: Path, root: Path, named: dict[str, dict[str, Any]]) -> None:
    """Write an OCI layout of images with one layer, all with the files of `root`."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = blobs / "layer"
    left_out = [f"--exclude={path}/*" for path in UNNEEDED]
    packed = [
        "tar",
        "--numeric-owner",
        "--sort=name",
        *left_out,
        "-C",
        str(root),
        "-cf",
        str(layer),
    ]
    subprocess.run([*packed, "."], check=True)
    with layer.open("rb") as file:
        digest = _digest(file)
    size = layer.stat().st_size
    layer.rename(blobs / digest)
    files = {"mediaType": f"{KIND}.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}
    manifests = [_manifest(blobs, name, said, files) for name, said in named.items()]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _manifest(
    blobs: Path, name: str, said: dict[str, Any], files: dict[str, Any]
) -> dict[str, Any]:
    system = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    about = {**system, "config": said, "rootfs": {"type": "layers", "diff_ids": [files["digest"]]}}
    config = {"mediaType": f"{KIND}.config.v1+json", **_blob(blobs, about)}
    kind = f"{KIND}.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [files]}
    named = {"io.containerd.image.name": name}
    return {"mediaType": kind, **_blob(blobs, manifest), "platform": system, "annotations": named}


def _blob(blobs: Path, document: dict[str, Any]) -> dict[str, Any]:
    raw = json.dumps(document).encode()
    digest = hashlib.sha256(raw).hexdigest()
    (blobs / digest).write_bytes(raw)
    return {"digest": f"sha256:{digest}", "size": len(raw)}


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _make_node(clean: Root, folder: Path) -> None:
    done, path = folder / "node.done", node_root(folder)
    if done.exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    root = clean.copy(path)
    install = f"apt-get install --yes --no-install-recommends {' '.join(NODE_PACKAGES)}"
    environment = {"PATH": BASE_PATH, "DEBIAN_FRONTEND": "noninteractive"}
    root.run(f"apt-get update && {install} && apt-get clean", environment, "/")
    done.touch()


def _fingerprint() -> str:
    """Return a name for the files that the images are made of."""
    return fingerprint(REPOSITORY, [*sent(REPOSITORY), Path("Dockerfile")])


def fingerprint(repository: Path, files: Sequence[Path]) -> str:
    found = hashlib.sha256()
    for line in _lines(repository, files):
        found.update(line.encode())
    return found.hexdigest()[:12]


def _lines(repository: Path, files: Sequence[Path]) -> Iterator[str]:
    for path in sorted(files):
        content = hashlib.sha256((repository / path).read_bytes()).hexdigest()
        yield f"{path} {content}\n"


def main() -> int:
    try:
        make(Path(sys.argv[1]), Path(sys.argv[2]))
    except NotPossibleHere as impossible:
        print(f"Not tried: {impossible}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
