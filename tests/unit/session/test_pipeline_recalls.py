"""Recalls in a whole proxy on the stand-in Kafka (docs/guide.md#recall)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from proxy.protocol.proofs import HopAuthenticator
from proxy.scheduling.identities import MOST_READ, NO_PROOF, NOT_PROVEN
from tests.property.test_exactly_once import POLICY, check_conservation, give_disks
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import OUTCOMES, World

HOUR: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": "1h"}
ROLL_AFTER_MS = 60_000


def recall(world: World, offset: int, **more: str) -> None:
    asked: dict[str, str | bytes] = {f"timer-{name}": text for name, text in more.items()}
    world.send({"timer-recall": f"{INGRESS}/0/{offset}", **asked})


def outcomes(world: World) -> dict[int, tuple[str, str]]:
    said = [json.loads(record.value() or b"") for record in world.kafka.read(OUTCOMES)]
    assert len({one["origin"] for one in said}) == len(said)
    return {int(one["origin"].split("/")[2]): (one["outcome"], one["detail"]) for one in said}


def test_a_recall_ends_the_record_that_it_names_and_a_second_one_misses() -> None:
    world = World()
    world.send(HOUR)
    recall(world, 0)
    recall(world, 0)
    world.settle()
    assert outcomes(world) == {
        0: ("cancelled", "recalled"),
        1: ("applied", ""),
        2: ("missed", "the record has already ended"),
    }
    world.come_to_an_end()
    assert world.delivered() == []


def test_the_rest_of_a_recall_is_ignored() -> None:
    world = World()
    world.send(HOUR)
    recall(world, 0, id="", topic="no topic!", dealy="5s")
    world.settle()
    assert outcomes(world)[1] == ("applied", "")


@pytest.mark.parametrize("headers", [{"timer-cancel": "a"}, {"timer-topic": "no topic!"}])
def test_what_never_waited_cannot_be_recalled(headers: dict[str, str | bytes]) -> None:
    world = World()
    world.send(headers)
    recall(world, 0)
    world.settle()
    assert outcomes(world)[1] == ("missed", "no record at this origin can be pending")


def test_what_was_delivered_has_ended() -> None:
    world = World()
    world.send({"timer-topic": "orders"})
    world.settle()
    recall(world, 0)
    world.settle()
    assert outcomes(world) == {1: ("missed", "the record has already ended")}


def test_a_recall_is_of_a_record_and_not_of_what_has_replaced_it() -> None:
    world = World()
    world.send({**HOUR, "timer-id": "a"})
    world.send({**HOUR, "timer-id": "a"})
    recall(world, 0)
    recall(world, 1)
    world.settle()
    said = [outcome for outcome, _ in outcomes(world).values()]
    assert said == ["replaced", "missed", "cancelled", "applied"]


@pytest.mark.parametrize("decision", [[], ["commit"]])
def test_a_half_message_is_recalled_by_its_prepare(decision: list[str]) -> None:
    world = World()
    world.send({**HOUR, "timer-id": "t", "timer-transaction": "prepare"})
    for one in decision:
        world.send({"timer-id": "t", "timer-transaction": one})
    recall(world, 0)
    world.settle()
    assert outcomes(world)[0] == ("cancelled", "")


def rolled(world: World, **more: str) -> None:
    world.policy = replace(world.policy, roll_after_ms=ROLL_AFTER_MS)
    world.send({**HOUR, **{f"timer-{name}": text for name, text in more.items()}})
    world.settle()
    world.time.pass_ms(ROLL_AFTER_MS)
    world.turn()


@pytest.mark.parametrize("origin", [0, 1])
@pytest.mark.parametrize("ident", [{}, {"id": "a"}])
def test_what_was_rewritten_is_recalled_by_either_origin(
    ident: dict[str, str], origin: int
) -> None:
    world = World()
    rolled(world, **ident)
    world.settle()
    recall(world, origin)
    world.settle()
    assert [outcomes(world)[offset][0] for offset in range(3)] == ["rolled", "cancelled", "applied"]


def test_what_was_rewritten_and_refused_since_has_ended() -> None:
    world = World()
    rolled(world)
    world.stop()
    world.policy = replace(world.policy, deny=("orders",))
    world.settle()
    recall(world, 0)
    world.settle()
    said = [outcomes(world)[offset][0] for offset in range(3)]
    assert said in (["rolled", "dead-lettered", "missed"], ["rolled", "cancelled", "applied"])


def test_so_many_are_read_again_for_a_transaction_and_the_others_wait() -> None:
    world = World()
    many = 2 * MOST_READ + 1
    for _ in range(many):
        world.send(HOUR)
    world.settle()
    for offset in range(many):
        recall(world, offset)
    world.turn()
    assert len(outcomes(world)) == 2 * MOST_READ
    world.come_to_an_end()
    assert len(outcomes(world)) == 2 * many


def test_before_there_were_recalls_the_header_is_refused() -> None:
    world = World()
    world.policy = replace(world.policy, recalls_in=None)
    world.send(HOUR)
    recall(world, 0)
    world.settle()
    assert outcomes(world)[1][0] == "dead-lettered"
    assert outcomes(world)[1][1].startswith("header-unknown")


B: dict[str, str | bytes] = {"timer-topic": "bills", "timer-id": "a", "timer-delay": "2"}
HALF: dict[str, str | bytes] = {**B, "timer-transaction": "prepare"}
RECALL: dict[str, str | bytes] = {"timer-recall": f"{INGRESS}/0/1"}
"""Operations on B, written directly after a record with its id that is being rewritten."""


@pytest.mark.parametrize("has_fired", [False, True])
@pytest.mark.parametrize(
    "written",
    [
        [B, RECALL],
        [HALF, RECALL],
        [HALF, {"timer-id": "a", "timer-transaction": "commit"}, RECALL],
        [HALF, {"timer-id": "a", "timer-transaction": "rollback"}],
        [B, {"timer-cancel": "a"}],
        [B, B, {"timer-recall": f"{INGRESS}/0/3"}],
        [B, {"timer-purge": "bills"}],
    ],
    ids=["recalled", "half", "committed", "rolled-back", "cancelled", "third", "purged"],
)
def test_what_was_replaced_in_mid_hop_stays_replaced_whatever_ends_its_replacement(
    written: list[dict[str, str | bytes]], *, has_fired: bool
) -> None:
    """A record between the replacement and its end stays pending and could stop the floor."""
    world = World(1, None, 1_000, ("orders", "bills"))
    world.policy, world.max_step_ms = replace(POLICY, roll_after_ms=12), 0
    world.send({"timer-topic": "orders", "timer-delay": "33", "timer-id": "a"})
    world.turn(2)
    world.time.pass_ms(13)
    between: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": "11"}
    for request in [written[0], between, *written[1:]]:
        write = partial(world.purge, "bills") if "timer-purge" in request else None
        world.kafka.meanwhile.append(write or partial(world.send, request))
    world.turn(3)
    if has_fired:
        world.time.pass_ms(4)
        world.send({"timer-topic": "orders"})
        world.turn(5)
    world.crash()
    world.come_to_an_end()
    check_conservation(world)
    world.crash()


def test_a_half_message_recalled_on_another_machine_does_not_expire_on_this_one(
    tmp_path: Path,
) -> None:
    """Its local state is from before the recall, and the floor has passed the half message."""
    world = World(targets=("orders", "checks"))
    give_disks(world, "wheel", tmp_path)
    world.send({**HOUR, "timer-id": "a", "timer-transaction": "prepare"})
    world.send(HOUR)
    world.settle()
    world.stop()
    world.machine = 1
    recall(world, 0)
    world.settle()
    world.stop()
    world.machine = 0
    world.settle()
    world.time.pass_ms(3_000_000)
    world.settle()
    world.crash()
    assert outcomes(world) == {0: ("cancelled", ""), 2: ("applied", "")}


def proving() -> World:
    world = World()
    world.policy = replace(world.policy, proves_recalls=True)
    return world


BY_KEY, BY_ID, BY_OTHERS, BY_NOTHING = (b"mine", ""), (None, "a"), (b"his", "b"), (None, "")
ENDS = {
    "key": (BY_KEY, "applied", ""),
    "id": (BY_ID, "applied", ""),
    "others": (BY_OTHERS, "missed", NOT_PROVEN),
    "nothing": (BY_NOTHING, "missed", NO_PROOF),
}


def prove(world: World, offset: int, proof: tuple[bytes | None, str]) -> None:
    key, ident = proof
    named: dict[str, str | bytes] = {"timer-id": ident} if ident else {}
    world.send({"timer-recall": f"{INGRESS}/0/{offset}", **named}, key=key)


MINE: dict[str, str | bytes] = {**HOUR, "timer-id": "a"}


@pytest.mark.parametrize(("proof", "what", "detail"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize(
    "more",
    [{}, {"timer-key": "at the target"}, {"timer-transaction": "prepare"}],
    ids=["record", "other key at the target", "half message"],
)
def test_a_recall_takes_back_only_what_it_proves_to_know(
    more: dict[str, str], proof: tuple[bytes | None, str], what: str, detail: str
) -> None:
    world = proving()
    world.send({**MINE, **more}, key=b"mine")
    prove(world, 0, proof)
    world.settle()
    assert outcomes(world)[1] == (what, detail)
    assert (0 in outcomes(world)) == (what == "applied")


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_said_of_a_wrong_proof_does_not_tell_what_lies_there(*, waits: bool) -> None:
    world = proving()
    world.send(MINE if waits else {"timer-topic": "orders"}, key=b"mine")
    world.settle()
    prove(world, 0, BY_OTHERS)
    world.send({"timer-cancel": "z"})
    prove(world, 2, BY_OTHERS)
    world.settle()
    assert [outcomes(world)[at] for at in (1, 3)] == [("missed", NOT_PROVEN)] * 2


@pytest.mark.parametrize("key", [None, b""])
def test_what_has_neither_key_nor_id_is_recalled_by_the_proxys_own_mac_alone(
    key: bytes | None,
) -> None:
    world = proving()
    world.send(HOUR, key=key)
    world.send({"timer-recall": f"{INGRESS}/0/0"}, key=key)
    world.settle()
    assert outcomes(world) == {1: ("missed", NO_PROOF)}
    signer = HopAuthenticator(world.policies.signing_key(), world.topic_id)
    asked: list[tuple[str, bytes | None]] = [("timer-recall", f"{INGRESS}/0/0".encode())]
    world.send(signer.signed(0, None, None, asked), None, None)
    world.send([*asked, ("timer-hop-mac", b"forged")], None, None)
    world.settle()
    assert [outcomes(world)[at][0] for at in (0, 2, 3)] == ["cancelled", "applied", "missed"]


def test_the_id_of_another_record_proves_nothing() -> None:
    world = proving()
    world.send(MINE, key=b"mine")
    world.send({**HOUR, "timer-id": "b"}, key=b"his")
    prove(world, 0, (b"his", "b"))
    prove(world, 0, (b"a", "mine"))
    world.settle()
    assert outcomes(world) == {2: ("missed", NOT_PROVEN), 3: ("missed", NOT_PROVEN)}


def test_a_proof_counts_for_the_record_and_not_for_what_has_replaced_it() -> None:
    world = proving()
    world.send(MINE, key=b"mine")
    world.send(MINE, key=b"newer")
    prove(world, 0, BY_ID)
    prove(world, 1, BY_KEY)
    prove(world, 1, (b"newer", ""))
    world.settle()
    assert [outcomes(world)[at][0] for at in range(2, 5)] == ["missed", "missed", "applied"]


@pytest.mark.parametrize(("proof", "what", "detail"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("later", [[], [BY_KEY], [BY_OTHERS], [BY_OTHERS, BY_ID]])
@pytest.mark.parametrize("key", [b"mine", b"his"], ids=["with its key", "with another one's"])
def test_in_mid_hop_a_proof_counts_alike_for_a_replay_that_cannot_read_the_record(
    proof: tuple[bytes | None, str],
    what: str,
    detail: str,
    later: list[tuple[bytes | None, str]],
    key: bytes,
) -> None:
    """The record is rewritten while the recalls are written. The floor is beyond it, since a record
    between stays pending."""
    world = World(1, None, 1_000, ("orders", "bills"))
    world.policy = replace(POLICY, roll_after_ms=12, proves_recalls=True)
    world.max_step_ms = 0
    world.send({"timer-topic": "orders", "timer-delay": "33", "timer-id": "a"}, key=b"mine")
    world.turn(2)
    world.time.pass_ms(13)
    between: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": "11"}
    world.kafka.meanwhile.append(partial(world.send, between, key=key))
    for one in [proof, *later]:
        world.kafka.meanwhile.append(partial(prove, world, 0, one))
    world.turn(3)
    is_applied = what == "applied" or BY_KEY in later or BY_ID in later
    assert outcomes(world)[2] == (what, detail)
    for _ in range(3):
        world.crash()
        world.turn(2)
    world.come_to_an_end()
    delivered = [record.value() for record in world.kafka.read("orders")]
    assert len(delivered) == (1 if is_applied else 2)
    world.crash()
