"""The record of changes outlives kills, and all instances give the same list."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.installation.admin_client import call
from tests.support.installation.installation import Installation
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration
WITHIN_S = 180.0


def listed(proxy: ProxyProcess) -> list[dict[str, Any]]:
    status, said = call(proxy, "GET", "/changes?limit=1000")
    assert status == 200, said
    return list(said["changes"])


def calls_in(proxy: ProxyProcess) -> list[str]:
    return [one["call"] for one in listed(proxy)]


def test_changes_of_two_instances_are_one_list_that_outlives_a_kill(
    installation: Installation,
) -> None:
    first, second = installation.proxy("first"), installation.proxy("second")
    first.start_ready()
    assert listed(first) == []
    assert call(first, "PUT", "/pauses/orders")[0] == 200
    assert call(first, "PUT", "/limits/orders", {"per_second": 0})[0] == 400
    wait_for(lambda: len(listed(first)) == 2, WITHIN_S, "two changes")
    first.kill()
    second.start_ready()
    assert calls_in(second) == ["PUT /api/v1/limits/orders", "PUT /api/v1/pauses/orders"]
    first.start_ready()
    assert call(second, "DELETE", "/pauses/orders")[0] == 200
    wait_for(lambda: len(listed(first)) >= 3, WITHIN_S, "the third change")
    seen = listed(second)
    assert seen == listed(first)
    assert [one["status"] for one in seen][-2:] == [400, 200]
    assert {one["instance"] for one in seen} == {"first", "second"}
    assert {(one["caller"], one["address"]) for one in seen} == {("local", "127.0.0.1")}
