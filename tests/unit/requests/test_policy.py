"""The settings by which records are read are named by their content."""

import json

import pytest

from proxy.requests.policy import DIGEST_LENGTH, Policy


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
