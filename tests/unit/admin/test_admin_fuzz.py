"""Responses to any API request match the OpenAPI document. Needs schemathesis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from proxy.admin.app import document
from proxy.admin.peers import PREFIX
from proxy.admin.server import AdminServer
from proxy.config.settings import AdminSettings
from tests.support.simulation.admin_api import MadeUpApi

schemathesis = pytest.importorskip("schemathesis")

positive_data_acceptance = pytest.importorskip(
    "schemathesis.specs.openapi.checks"
).positive_data_acceptance
LONGEST_ID_BYTES = 256
FORBIDDEN = {"expected-statuses": ["4XX", "503"]}
ALLOWED = {"expected-statuses": ["2XX", "401", "404", "409", "413", "503"]}
"""Valid requests may still have too large a body or name a missing thing."""
config = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": FORBIDDEN, "positive_data_acceptance": ALLOWED}}
)
schema = schemathesis.openapi.from_dict(document(), config=config)
schema = schema.exclude(path="/events")  # the stream has no end


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    made = MadeUpApi(AdminSettings(port=0))
    with closing(AdminServer(made.site)) as server:
        yield f"http://127.0.0.1:{server.port}{PREFIX}"


def has_too_long_an_id(case: Any) -> bool:
    """Return whether an id is too long. JSON Schema counts characters, not bytes."""
    said = [(case.query or {}).get("id"), case.body.get("id") if _is_object(case.body) else ""]
    return any(len(str(text or "").encode("utf-8", "replace")) > LONGEST_ID_BYTES for text in said)


def _is_object(body: object) -> bool:
    return isinstance(body, dict)


@schema.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, *HealthCheck],
)
def test_whatever_is_sent_the_document_says_what_comes_back(case: Any, base_url: str) -> None:
    """Invariant: no request causes a server error or an undocumented status, type or shape.
    Forbidden requests are refused, and allowed ones are not."""
    left_out = [positive_data_acceptance] if has_too_long_an_id(case) else []
    case.call_and_validate(base_url=base_url, excluded_checks=left_out)
