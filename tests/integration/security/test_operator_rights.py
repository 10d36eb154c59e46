"""Minimal rights of an operator who replays dead letters, as in docs/dead-letters.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from tests.integration.dead_letter_operator import Operator, Said
from tests.support.installation.rights import Right, documented_rights, grant, revoke
from tests.support.installation.secured_broker import SCRAM
from tests.support.installation.secured_site import USER, SecuredSite, secured_site

pytestmark = pytest.mark.integration

PRINCIPAL = f"User:{USER}"
RIGHTS = documented_rights("dead-letters.md", "Rights")
NEEDED_FOR_OTHER_LETTERS = Right("Read", ResourceType.TOPIC, "timer.ingress")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    with secured_site(tmp_path_factory.mktemp("rights"), open_to_all=False) as made:
        yield made


@dataclass
class LoggedIn(Operator):
    """An operator whose commands use the listener that asks for a password."""

    site: SecuredSite | None = None

    @property
    def environment(self) -> dict[str, str]:
        assert self.site is not None
        connection = self.site.connection(SCRAM).items()
        named = {f"DELAY_PROXY_KAFKA__{n.upper().replace('.', '_')}": t for n, t in connection}
        return {**super().environment, **named}

    def named(self, right: Right) -> Right:
        own = right.name.replace("timer.dead-letters", self.dead_letters)
        return right._replace(name=own.replace("timer.ingress", self.ingress))

    def lists_and_replays(self) -> list[Said]:
        return [self.say("list", "--json"), self.replay()]


def test_the_rights_of_the_page_are_enough_and_each_is_needed(site: SecuredSite) -> None:
    operator = LoggedIn(site.broker.bootstrap, site=site)
    operator.letters(2)
    grant(site.broker.bootstrap, PRINCIPAL, *map(operator.named, RIGHTS))
    listed, replayed = operator.lists_and_replays()
    assert (listed.code, replayed.code) == (0, 0), replayed.err
    assert len(operator.sent_in(at_least=2)) == 2
    operator.letters(1)
    for right in RIGHTS:
        is_used_up = right.operation == "Create"  # the topic exists by now
        if not is_used_up and right != NEEDED_FOR_OTHER_LETTERS:
            revoke(site.broker.bootstrap, PRINCIPAL, operator.named(right))
            said = operator.lists_and_replays()
            assert any(one.code for one in said), f"{right} is not needed"
            assert "a defect" not in said[0].err + said[1].err, right
            grant(site.broker.bootstrap, PRINCIPAL, operator.named(right))
    assert operator.replay().code == 0


def test_a_list_without_the_right_names_the_topic_and_the_command(site: SecuredSite) -> None:
    operator = LoggedIn(site.broker.bootstrap, site=site)
    operator.letters(1)
    grant(
        site.broker.bootstrap,
        PRINCIPAL,
        Right("Describe", ResourceType.TOPIC, operator.dead_letters),
    )
    listed = operator.say("list")
    assert listed.code == 1
    assert f"--operation Read --topic {operator.dead_letters}" in listed.err
