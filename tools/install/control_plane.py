"""etcd and an API server as processes on loopback, with a temporary folder."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from proxy.embedded import watchdog
from proxy.embedded.server import pick_free
from tests.support.waiting import wait_for
from tools.install.api import Api

HOST: Final = "127.0.0.1"
READY_WITHIN_S: Final = 180
END_WITHIN_S: Final = 20
LAST_LINES: Final = 20
ACCOUNTS_KEY: Final = "accounts.key"
TOKENS: Final = "tokens.csv"


class User(NamedTuple):
    name: str
    group: str


ADMINISTRATOR: Final = User("trial", "system:masters")


@contextmanager
def control_plane(
    tools: Mapping[str, Path], folder: Path, users: Mapping[str, User] | None = None
) -> Iterator[Api]:
    """Yield a ready API server. Both processes end with this one, even after a kill. `users` has
    more users, by token."""
    etcd_port, peer_port, port = (pick_free(HOST) for _ in range(3))
    api = Api(port, secrets.token_hex(16), folder / "apiserver.crt")
    etcd = f"http://{HOST}:{etcd_port}"
    with ExitStack() as running:
        running.enter_context(process(_etcd(tools["etcd"], folder, etcd, peer_port), folder))
        _write_tokens(folder, {api.token: ADMINISTRATOR, **(users or {})})
        command = _api_server(tools["kube-apiserver"], folder, etcd, api)
        server = running.enter_context(process(command, folder))
        wait_for(lambda: _serves(server, api), READY_WITHIN_S, "the API server")
        yield api


def kubeconfig(api: Api, file: Path) -> Path:
    cluster = {
        "server": f"https://{HOST}:{api.port}",
        "certificate-authority-data": b64encode(api.certificate.read_bytes()).decode(),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "trial", "cluster": cluster}],
        "users": [{"name": "trial", "user": {"token": api.token}}],
        "contexts": [{"name": "trial", "context": {"cluster": "trial", "user": "trial"}}],
        "current-context": "trial",
    }
    file.touch(0o600)
    file.write_text(yaml.safe_dump(config), "utf-8")
    return file


def _serves(server: subprocess.Popen[bytes], api: Api) -> bool:
    assert server.poll() is None, f"the API server ended with {server.returncode}"
    return api.certificate.exists() and api.is_ready()


def _etcd(program: Path, folder: Path, url: str, peer_port: int) -> list[str]:
    peers = f"http://{HOST}:{peer_port}"
    return [
        str(program),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]


def _api_server(program: Path, folder: Path, etcd: str, api: Api) -> list[str]:
    """Return the API server's command. The server makes its own certificate, but needs a file with
    the key for service accounts."""
    key = folder / ACCOUNTS_KEY
    made = ["openssl", "genrsa", "-out", str(key), "2048"]
    subprocess.run(made, check=True, capture_output=True)
    return [
        str(program),
        f"--etcd-servers={etcd}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={api.port}",
        f"--cert-dir={api.certificate.parent}",
        f"--token-auth-file={folder / TOKENS}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
    ]


def _write_tokens(folder: Path, users: Mapping[str, User]) -> None:
    file = folder / TOKENS
    file.touch(0o600)
    lines = (f"{token},{name},{name},{group}\n" for token, (name, group) in users.items())
    file.write_text("".join(lines), "utf-8")


@contextmanager
def process(
    command: Sequence[str], folder: Path, name: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process inside the block. If the block fails, print the end of its log."""
    file = folder / f"{name or Path(command[0]).name}.log"
    watched = [sys.executable, "-I", "-S", str(watchdog.__file__), str(os.getpid()), *command]
    with file.open("wb") as log:
        process = subprocess.Popen(
            watched, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    except AssertionError:
        lines = file.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
        print("\n".join([f"--- {file.name}", *lines]), file=sys.stderr)
        raise
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
