"""The page "Beside your own Kafka in five minutes", run on a broker with TLS, SCRAM and ACLs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from proxy.embedded.server import pick_free
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import PASSWORD, SecuredSite, secured_site
from tests.support.page_shell import REPOSITORY, assert_as_shown, blocks, run_blocks
from tests.support.quiet_clients import admin_client

pytestmark = pytest.mark.integration

WITHIN_S = 180
BLOCKS = blocks((REPOSITORY / "docs/operations/five-minutes.md").read_text("utf-8"))
RIGHTS = next(number for number, code in enumerate(BLOCKS) if "sh rights.sh" in code)
CHECK = next(number for number, code in enumerate(BLOCKS) if "proxy check" in code)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("site"), open_to_all=False) as made:
        admin = admin_client(made.broker.bootstrap)
        admin.create_topics([NewTopic("orders", 3)])["orders"].result(WITHIN_S)
        yield made


def run(site: SecuredSite, folder: Path, codes: list[str], **changed: str) -> list[str]:
    """Run commands of the page. Only `rights.sh` grants something."""
    programs = folder / "bin"
    programs.mkdir()
    acls = programs / "kafka-acls.sh"
    acls.write_text(f'#!/bin/sh\n{sys.executable} -m tests.support.installation.kafka_acls "$@"\n')
    acls.chmod(0o755)
    here = folder / "here"
    here.mkdir()
    port = str(pick_free("127.0.0.1"))
    replaced = {
        "kafka-1:9093": changed.get("address", site.broker.address(SCRAM)),
        "/etc/ssl/kafka-ca.pem": str(site.folder / "ca.pem"),
        "change-me": changed.get("password", PASSWORD),
        "--delay 30s": "--delay 50s",  # a slow machine watches in time, too
        ":9464": f":{port}",
    }
    environment = {"KAFKA_OF_ADMIN": site.broker.bootstrap, "DELAY_PROXY_ADMIN__PORT": port}
    return run_blocks(codes, here, replaced, environment, f"{programs}:")


def checked(site: SecuredSite, folder: Path, codes: list[str], **changed: str) -> str:
    """Return what `check` prints. It must exit with 1."""
    *before, check = codes
    (*_, said) = run(site, folder, [*before, f"{check.strip()} || echo code $?"], **changed)
    assert said.rstrip().endswith("code 1"), said
    return said


def test_a_wrong_port_and_a_wrong_password_are_named(site: SecuredSite, tmp_path: Path) -> None:
    codes = [*BLOCKS[:RIGHTS], BLOCKS[CHECK]]
    for name in ("port", "password"):
        (tmp_path / name).mkdir()
    nobody = f"127.0.0.1:{pick_free('127.0.0.1')}"
    assert nobody in checked(site, tmp_path / "port", codes, address=nobody)
    said = checked(site, tmp_path / "password", codes, password="wrong")
    assert "DELAY_PROXY_KAFKA__SASL_PASSWORD" in said


def test_check_asks_for_the_rights_and_the_page_delivers_its_message(
    site: SecuredSite, tmp_path: Path
) -> None:
    for name in ("early", "whole"):
        (tmp_path / name).mkdir()
    early = checked(site, tmp_path / "early", [*BLOCKS[:RIGHTS], BLOCKS[CHECK]])
    assert re.search(r"kafka-acls\.sh .*--operation Read .*--topic timer\.ingress", early)
    assert early.count("kafka-delay-proxy rights") == 1
    said = run(site, tmp_path / "whole", BLOCKS)
    print(*said)
    assert_as_shown(BLOCKS, said)
    assert sum("\n# " in code for code in BLOCKS) == 2
