"""Policies are named by their content."""

import json
from dataclasses import replace

import pytest

from proxy.protocol.policy import DIGEST_LENGTH, Policy


def test_equal_policies_have_equal_digests_and_others_differ() -> None:
    assert Policy().digest == Policy().digest
    assert Policy(max_delay_ms=1).digest != Policy().digest
    assert len(Policy().digest) == DIGEST_LENGTH


def test_json_gives_the_policy_back() -> None:
    policy = Policy(levels_ms=(1, 2), deny=("x*",), own_topics=("a", "b", "c", "d"))
    assert Policy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize("text", ["{}", "[]", "1", "not json", '{"levels_ms":[1]}'])
def test_json_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Policy.from_json(text)


@pytest.mark.parametrize("protocol", [None, 1, 3])
def test_a_policy_for_another_version_of_the_rules_is_refused(protocol: int | None) -> None:
    fields = json.loads(Policy().to_json())
    fields["protocol"] = protocol
    if protocol is None:
        del fields["protocol"]
    with pytest.raises(ValueError, match="not a policy this version can read"):
        Policy.from_json(json.dumps(fields))


NEW = Policy(allow=("*", "timer.mine"), reserved=("timer.*",), marks=("dlq.*.replayed",))


@pytest.mark.parametrize("topic", ["timer.eu.settings", "timer.audit", "timer.", "dlq.g.replayed"])
def test_topics_of_other_proxies_are_reserved_and_were_not_in_older_policies(topic: str) -> None:
    assert "reserved for proxies" in (NEW.refusal(topic) or "")
    assert Policy(allow=("timer.*",), reserved=("timer.*",)).refusal("timer.mine") is not None
    assert Policy().refusal("timer.eu.settings") is None


def test_name_that_is_allowed_as_it_is_is_not_reserved() -> None:
    assert NEW.refusal("timer.mine") is None
    assert replace(NEW, allow=("dlq.g.replayed",)).refusal("dlq.g.replayed") is None
    assert replace(NEW, deny=("timer.*",)).refusal("timer.mine") is not None


def test_of_names_that_the_proxy_makes_of_groups_those_of_marks_are_reserved() -> None:
    assert NEW.refusal("timer.retry.g", is_derived=True) is None
    assert NEW.refusal("dlq.g.replayed", is_derived=True) is not None
