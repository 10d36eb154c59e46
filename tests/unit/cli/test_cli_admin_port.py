"""Any answer at the admin port, or none, gives one sentence with a remedy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.server import AdminServer
from proxy.cli import check as check_module
from proxy.cli.admin_port import (
    NAME_IT,
    Instances,
    NotThere,
    ProxyUnreachable,
    address_of,
    ask,
)
from proxy.cli.check import settings_findings
from proxy.cli.check_configs import Finding, Severity
from proxy.config.settings import AdminSettings, AdminTls, Settings
from tests.support.installation.certificates import Authority
from tests.support.simulation.admin_api import MadeUpApi

TOKEN = "a-token-nobody-guesses"
Call = Callable[..., tuple[int, str, str]]
JSON_404 = b'HTTP/1.0 404 Not Found\r\n\r\n{"error": "%s", "detail": "It said so."}'
NO_PROXY = {
    "a page of something else": b"HTTP/1.0 200 OK\r\n\r\n<html>",
    "a list": b"HTTP/1.0 200 OK\r\n\r\n[1]",
    "another server's 404": b"HTTP/1.0 404 Not Found\r\n\r\n<html>",
    "no HTTP": b"\0\0\0\x12what?\r\n",
    "nothing": b"",
}


@contextmanager
def answering(reply: bytes | None) -> Iterator[str]:
    """Yield the address of a server that sends this answer and closes, or never answers (None)."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            if reply is None:
                held.append(caller)
                continue
            with closing(caller):
                caller.recv(65_536)
                caller.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for caller in held:
            caller.close()


@pytest.mark.parametrize("reply", NO_PROXY.values(), ids=NO_PROXY)
def test_what_is_no_proxy_is_said_to_be_none(reply: bytes) -> None:
    with answering(reply) as address, pytest.raises(ProxyUnreachable) as raised:
        ask(address, "/pauses", None)
    assert f"{address} is not a kafka-delay-proxy. {NAME_IT}" in str(raised.value)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_the_token_is_not_taken_to_where_an_answer_sends_on(code: int) -> None:
    with answering(b"HTTP/1.0 200 OK\r\n\r\n{}") as elsewhere:
        sends_on = b"HTTP/1.0 %d Found\r\nLocation: http://%s/\x1b[2J\r\n\r\n"
        with (
            answering(sends_on % (code, elsewhere.encode())) as address,
            pytest.raises(ProxyUnreachable, match=f"redirects to http://{elsewhere}") as raised,
        ):
            ask(address, "/pauses", "secret")
    assert str(raised.value).isprintable()


def test_what_a_proxy_says_in_a_refusal_is_one_harmless_line() -> None:
    said = b'HTTP/1.0 400 No\r\n\r\n{"error": "no", "detail": "a\\u001b[2J\\nError: pay"}'
    with answering(said) as address, pytest.raises(ProxyUnreachable) as raised:
        ask(address, "/pauses", None)
    assert str(raised.value).endswith("refused: a\\x1b[2J\\nError: pay")


def test_the_admin_port_is_asked_past_an_http_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP proxy would get the token, and would not find this machine."""
    monkeypatch.setattr(
        "urllib.request._opener", None
    )  # the opener is made once, with the environment of that time
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(b"HTTP/1.0 200 OK\r\n\r\n{}") as address:
        assert ask(address, "/pauses", "secret") == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])  # noqa: S104
def test_the_proxy_of_the_settings_is_found_whatever_it_listens_on(host: str) -> None:
    admin = AdminSettings(host=host, port=0, token=TOKEN)
    api = MadeUpApi(admin)
    with closing(AdminServer(api.site)) as server:
        address = address_of(admin.model_copy(update={"port": server.port}))
        assert ask(address, "/pauses", TOKEN)


def test_what_does_not_answer_in_time_is_said_to_be_late() -> None:
    with answering(None) as address, pytest.raises(ProxyUnreachable) as raised:
        ask(address, "/pauses", None, within_s=0.05)
    assert f"http://{address} did not answer in time (0.05 s)." in str(raised.value)


def test_a_record_that_is_not_there_is_no_error_of_the_proxy_and_an_unknown_call_is() -> None:
    with answering(JSON_404 % b"not-found") as address, pytest.raises(NotThere, match="It said so"):
        ask(address, "/records/t/0/1", None)
    with (
        answering(JSON_404 % b"no-such-path") as address,
        pytest.raises(ProxyUnreachable, match="does not know this call"),
    ):
        ask(address, "/later", None)


@pytest.mark.parametrize(
    "address", ["localhost:abc", "localhost:99999", "http://", "", "a b", "ftp://localhost:1"]
)
def test_an_address_that_is_none_is_refused_in_a_sentence(call: Call, address: str) -> None:
    for command in (("pauses",), ("find", "--id", "x"), ("purge", "orders", "--dry-run")):
        code, out, err = call(*command, "--admin", address)
        assert (code, out) == (1, "")
        assert err.startswith("Error: No proxy answers at ")
        assert err.endswith(f"{NAME_IT}\n")


def test_one_that_answers_is_enough_and_the_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asking(address: str) -> int:
        if address == "away":
            raise ProxyUnreachable("It is away.")
        return len(address)

    _known(monkeypatch, "10.0.0.1")
    assert Instances(admin=["away", "here"]).each(asking) == ([4], {"away": "It is away."})
    with pytest.raises(ProxyUnreachable, match="It is away"):
        Instances(admin=["away", "away"]).each(asking)


def test_where_no_instance_answers_nothing_is_said_to_wait(call: Call) -> None:
    for command in (("find", "--id", "x"), ("pending", "list")):
        code, out, err = call(*command, "--admin", "127.0.0.1:1")
        assert (code, out) == (1, "")
        assert (
            err == f"Error: No proxy answers at http://127.0.0.1:1: Connection refused. {NAME_IT}\n"
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ("reschedule", "17", "--delay", "5s"),
        ("find", "--origin", "17"),
        ("purge", "or ders", "--dry-run"),
        ("purge", "orders", "--from", "yesterday"),
        ("pending", "list", "--from", "tomorrow"),
        ("find", "--id", "x", "--to", "tomorrow"),
        ("reschedule", "t/0/1", "--delay", "soon"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(
    call: Call, arguments: tuple[str, ...]
) -> None:
    code, out, err = call(*arguments, "--admin", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert "No proxy answers" not in err


def _known(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    look_up = socket.getaddrinfo

    def found(host: str, port: int, *how: Any, **more: Any) -> list[Any]:
        of = addresses if host.isalpha() else [host]
        return [found for one in of for found in look_up(one, port, *how, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize("name", ["pods:9464", "http://pods:9464", "http://pods:9464/"])
@pytest.mark.parametrize(
    ("addresses", "asked"),
    [
        (("10.0.0.1", "10.0.0.2", "10.0.0.1"), ["10.0.0.1:9464", "10.0.0.2:9464"]),
        (("fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2"), ["10.0.0.1:9464", "10.0.0.2:9464"]),
        (("fd00::1", "fd00::2"), ["[fd00::1]:9464", "[fd00::2]:9464"]),
    ],
)
def test_a_name_of_several_addresses_is_an_instance_at_each(
    monkeypatch: pytest.MonkeyPatch, name: str, addresses: tuple[str, ...], asked: list[str]
) -> None:
    _known(monkeypatch, *addresses)
    assert Instances(admin=["other:1", name]).addresses[-len(asked) :] == asked


@pytest.mark.parametrize(
    "name",
    [
        "one:9464",
        "http://one:9464/",
        "https://pods:9464",
        "odd:x",
        "[::1",
        "http://[bad",
        "a b:1",
        "",
    ],
)
def test_any_other_address_is_asked_as_it_was_named(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _known(monkeypatch, *(("10.0.0.1", "10.0.0.2") if "pods" in name else ("::1", "127.0.0.1")))
    assert Instances(admin=[name]).addresses == [name]


def test_a_name_that_nobody_knows_is_said_when_it_is_asked() -> None:
    (address,) = Instances(admin=["nobody.invalid:9464"]).addresses
    with pytest.raises(ProxyUnreachable, match=r"No proxy answers at http://nobody\.invalid:9464"):
        ask(address, "/pending", None)


def test_instances_behind_one_name_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUpApi(AdminSettings(host="127.0.0.1", port=0))
    with closing(AdminServer(made.site)) as first:
        other = AdminSettings(host="127.0.0.2", port=first.port)
        with closing(AdminServer(MadeUpApi(other).site)):
            _known(monkeypatch, "127.0.0.1", "127.0.0.2")
            answers, silent = Instances(admin=[f"pods:{first.port}"]).ask("/pending")
    assert (len(answers), silent) == (2, {})


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("is_tls", [False, True])
def test_check_knows_a_proxy_at_the_admin_port(
    token: str | None, is_tls: bool, tmp_path: Path
) -> None:
    Authority().issue("proxy", ["localhost"]).write(tmp_path)
    files = {"certificate": tmp_path / "certificate.pem", "key": tmp_path / "key.pem"}
    tls = AdminTls(**files) if is_tls else AdminTls()
    settings = AdminSettings(port=0, token=token, tls=tls)
    with closing(AdminServer(MadeUpApi(settings).site)) as server:
        (found,) = admin_findings(settings.model_copy(update={"port": server.port}))
    assert (found.severity, "already listens" in found.found) == (Severity.ADVICE, True)


@pytest.mark.parametrize("reply", [*NO_PROXY.values(), b"HTTP/1.0 401 No\r\n\r\n<html>", None])
def test_check_refuses_an_admin_port_of_another_program(
    reply: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "PORT_WITHIN_S", 0.1)
    with answering(reply) as address:
        (found,) = admin_findings(AdminSettings(port=int(address.rpartition(":")[2])))
    assert (found.severity, "in use" in found.found) == (Severity.STOP, True)
    assert "choose another `admin: port`" in found.remedy


def test_check_refuses_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    tls = AdminTls(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    (found,) = admin_findings(AdminSettings(port=0, tls=tls))
    assert (found.severity, "tls.crt" in found.found) == (Severity.STOP, True)
    assert "admin.tls.certificate" in found.remedy


def test_check_says_nothing_of_a_free_admin_port() -> None:
    assert admin_findings(AdminSettings(port=0)) == []


def admin_findings(admin: AdminSettings) -> list[Finding]:
    return [one for one in settings_findings(Settings(admin=admin)) if one.subject == "admin"]
