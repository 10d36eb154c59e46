"""TLS at the admin port: certificates that change, commands that check them, and slow clients."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from proxy.admin import server as server_module
from proxy.admin import tls as tls_module
from proxy.admin.server import AdminServer
from proxy.admin.tls import Certificate, trust_named, trust_own
from proxy.cli.admin_port import ProxyUnreachable, ask
from proxy.config.settings import AdminSettings, AdminTls
from proxy.errors import SettingsError
from tests.support.installation.certificates import Authority, Identity
from tests.support.simulation.admin_api import MadeUpApi
from tests.support.waiting import wait_for

LIMIT_S = 60.0
READY = b"GET /api/v1/pending HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def identities(authority: Authority) -> list[Identity]:
    return [authority.issue(name, ["localhost"]) for name in ("first", "second")]


@pytest.fixture
def settings(tmp_path: Path, authority: Authority, identities: list[Identity]) -> AdminSettings:
    put(tmp_path, identities[0])
    (tmp_path / "ca.pem").write_text(authority.certificate)
    files = {"certificate": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
    return AdminSettings(port=0, tls=AdminTls(**files, ca=tmp_path / "ca.pem"))


@pytest.fixture
def server(settings: AdminSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminServer]:
    monkeypatch.setattr(server_module, "LOOK_EVERY_S", 0.02)
    with closing(AdminServer(MadeUpApi(settings).site)) as running:
        yield running


def put(folder: Path, identity: Identity) -> None:
    (folder / "tls.crt").write_text(identity.certificate)
    (folder / "tls.key").write_text(identity.key)


def connect(server: AdminServer, settings: AdminSettings) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
    return trust_named(settings).wrap_socket(plain, server_hostname="localhost")


def shown_certificate(server: AdminServer, settings: AdminSettings) -> str:
    with connect(server, settings) as connection:
        der = connection.getpeercert(binary_form=True)
        assert der is not None
        return ssl.DER_cert_to_PEM_cert(der)


def answer(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_call_is_answered_over_tls_and_not_without(
    server: AdminServer, settings: AdminSettings
) -> None:
    with connect(server, settings) as connection:
        connection.sendall(READY)
        assert answer(connection).split()[1] == b"200"
    with socket.create_connection(("127.0.0.1", server.port), LIMIT_S) as plain:
        plain.sendall(READY)
        assert b"HTTP" not in answer(plain)


def test_a_new_certificate_is_taken_up_and_one_without_its_key_is_not(
    server: AdminServer, settings: AdminSettings, identities: list[Identity], tmp_path: Path
) -> None:
    first, second = (
        ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(one.certificate)) for one in identities
    )
    assert shown_certificate(server, settings) == first
    (tmp_path / "tls.crt").write_text(identities[1].certificate)
    server._certificate.look()
    assert shown_certificate(server, settings) == first
    (tmp_path / "tls.key").write_text(identities[1].key)
    wait_for(lambda: shown_certificate(server, settings) == second, LIMIT_S, "the new certificate")
    (tmp_path / "tls.crt").unlink()
    server._certificate.look()
    assert shown_certificate(server, settings) == second


def test_commands_trust_the_certificate_of_their_settings_and_no_other(
    server: AdminServer, settings: AdminSettings, identities: list[Identity], tmp_path: Path
) -> None:
    address = f"https://127.0.0.1:{server.port}"
    assert ask(address, "/pauses", None, trust=trust_own(settings))["paused"] == []
    with pytest.raises(ProxyUnreachable, match="not trusted"):
        ask(address, "/pauses", None, trust=ssl.create_default_context())
    other = tmp_path / "other.pem"
    other.write_text(identities[1].certificate)
    tls = settings.tls.model_copy(update={"certificate": other})
    with pytest.raises(ProxyUnreachable, match="not trusted"):
        ask(address, "/pauses", None, trust=trust_own(settings.model_copy(update={"tls": tls})))


def test_a_named_port_needs_the_authority_and_the_name_of_the_certificate(
    server: AdminServer, settings: AdminSettings, tmp_path: Path
) -> None:
    named, trust = f"https://localhost:{server.port}", trust_named(settings)
    assert ask(named, "/pauses", None, trust=trust)["paused"] == []
    with pytest.raises(ProxyUnreachable, match=r"admin\.tls\.ca"):
        ask(f"https://127.0.0.1:{server.port}", "/pauses", None, trust=trust)
    (tmp_path / "ca.pem").write_text(Authority("others").certificate)
    with pytest.raises(ProxyUnreachable, match="not trusted"):
        ask(named, "/pauses", None, trust=trust_named(settings))


def test_handshakes_that_never_end_close_the_oldest(
    server: AdminServer, settings: AdminSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKES_AT_ONCE", 3)
    monkeypatch.setattr(tls_module, "HANDSHAKE_WITHIN_S", 600)
    with ExitStack() as clients:
        silent = []
        for number in range(4):
            plain = socket.create_connection(("127.0.0.1", server.port), LIMIT_S)
            silent.append(clients.enter_context(plain))
            wait_for(
                lambda: len(server._tls_connections) >= min(number + 1, 3),  # noqa: B023
                LIMIT_S,
                "the connection",
            )
        assert silent[0].recv(1) == b""
        with connect(server, settings) as connection:
            connection.sendall(READY)
            assert answer(connection).split()[1] == b"200"


def test_a_client_that_shakes_hands_and_says_nothing_is_given_up(
    server: AdminServer, settings: AdminSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REQUEST_WITHIN_S", 0.3)
    with connect(server, settings) as connection:
        said = answer(connection)
    assert said.split()[1] == b"408"
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"] == "too-slow"


def test_connections_leave_nothing_that_only_the_garbage_collector_would_free(
    server: AdminServer, settings: AdminSettings
) -> None:
    def transports() -> list[object]:
        kinds = (asyncio.Transport, asyncio.Protocol, asyncio.BufferedProtocol)
        return [one for one in gc.get_objects() if isinstance(one, kinds)]

    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            with connect(server, settings) as connection:
                connection.sendall(READY)
                answer(connection)
            with socket.create_connection(("127.0.0.1", server.port), LIMIT_S) as plain:
                plain.sendall(READY)
                answer(plain)
        wait_for(lambda: not server._tls_connections, LIMIT_S, "the connections to end")
        wait_for(lambda: not transports(), LIMIT_S, "their transports to be freed")
    finally:
        if was_enabled:
            gc.enable()


@pytest.mark.parametrize("broken", ["missing", "empty", "another key"])
def test_files_that_cannot_be_used_at_the_start_are_named(
    settings: AdminSettings, identities: list[Identity], broken: str, tmp_path: Path
) -> None:
    file = tmp_path / "tls.key"
    file.unlink()
    if broken != "missing":
        file.write_text("" if broken == "empty" else identities[1].key)
    with pytest.raises(SettingsError, match=r"tls\.key") as refused:
        Certificate(settings.tls)
    assert "PRIVATE" not in str(refused.value)


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValueError, match="both certificate and key"):
        AdminTls(certificate=Path("tls.crt"))
