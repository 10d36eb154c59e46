"""Minimal rights of an operator who traces records, as in docs/trace.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.integration.security.commands import Said, run_command
from tests.support.dead_letters import letter_headers
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.installation.rights import documented_rights, grant, revoke
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import USER, SecuredSite, secured_site
from tests.support.quiet_clients import admin_client
from tests.support.records import Outgoing, write

pytestmark = pytest.mark.integration

PRINCIPAL = f"User:{USER}"
RIGHTS = documented_rights("trace.md", "Rights")
TOPICS = ("ingress", "outcomes", "dead-letters", "dead-letters.replayed")
WAITS, DIED = "timer.ingress/0/0", "timer.ingress/0/1"
LIMIT_S = 180


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("rights"), open_to_all=False) as made:
        yield made


def write_topics(bootstrap: str) -> None:
    admin = admin_client(bootstrap)
    wanted = [NewTopic(name, 1, 1) for name in ["orders", *(f"timer.{name}" for name in TOPICS)]]
    for made in admin.create_topics(wanted).values():
        made.result(LIMIT_S)
    asked = [("timer-topic", b"orders")]
    write(bootstrap, "timer.ingress", [Outgoing(b"k", b"v", asked), Outgoing(b"k", b"v", asked)])
    ended = {"origin": DIED, "outcome": "dead-lettered", "due": None, "id": None, "detail": "so"}
    write(bootstrap, "timer.outcomes", [Outgoing(DIED.encode(), json.dumps(ended).encode())])
    write(bootstrap, "timer.dead-letters", [Outgoing(b"k", b"v", letter_headers(origin=DIED))])


def traces(person: ProxyProcess) -> list[Said]:
    return [run_command(person, "trace", origin, "--json") for origin in (WAITS, DIED)]


def test_the_rights_of_the_page_are_enough_and_each_is_needed(
    site: SecuredSite, tmp_path: Path
) -> None:
    bootstrap = site.broker.bootstrap
    write_topics(bootstrap)
    person = ProxyProcess(tmp_path, {"kafka": site.connection(SCRAM)})
    grant(bootstrap, PRINCIPAL, *RIGHTS)
    waits, died = traces(person)
    assert (waits.code, died.code) == (0, 0), waits.err + died.err
    assert json.loads(waits.out)["state"] == "pending"
    assert json.loads(died.out)["steps"][1]["where"] == "timer.dead-letters/0/0"
    for right in RIGHTS:
        revoke(bootstrap, PRINCIPAL, right)
        said = traces(person)
        assert any(one.code for one in said), f"{right} is not needed"
        errors = said[0].err + said[1].err
        assert "a defect" not in errors, right
        if right.operation == "Read":
            assert "Grant it: kafka-acls.sh --bootstrap-server" in errors, right
            assert f"--operation Read --topic {right.name}" in errors, right
        grant(bootstrap, PRINCIPAL, right)
