"""The OpenAPI document is generated from the calls, and the committed copy is current."""

from __future__ import annotations

import re

import yaml

from proxy.admin.app import CALLS, document
from tests.support.distributions import REPOSITORY
from tests.support.simulation.admin_api import MadeUpApi
from tools.openapi import REFERENCE, written

METHODS = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}


def operations() -> list[tuple[str, str, dict[str, object]]]:
    return [
        (path, method, item[method])
        for path, item in document()["paths"].items()
        for method in METHODS & set(item)
    ]


def test_every_call_is_documented() -> None:
    calls = {(route.path, method.lower()) for route in CALLS for method in route.methods or ()}
    assert {(path, method) for path, method, _ in operations()} == calls


def test_every_call_has_a_name_of_its_own_a_summary_and_a_refusal() -> None:
    names = [one["operationId"] for _, _, one in operations()]
    assert len(names) == len(set(names))
    for _, _, one in operations():
        assert one["summary"]
        responses = one["responses"]
        assert isinstance(responses, dict)
        assert {"200", "default"} <= set(responses) <= {"200", "202", "default"}


def test_the_document_is_served_and_the_committed_one_is_the_newest() -> None:
    assert MadeUpApi().ask("/openapi.json") == (200, document())
    shown = (REPOSITORY / REFERENCE).read_text("utf-8")
    assert shown == written(), "run `make openapi`"
    assert yaml.safe_load(shown) == document()
    assert document()["openapi"].startswith("3.1")


def test_bounds_and_defaults_are_of_json_schema() -> None:
    """pydantic writes `ge` for a bound that it cannot place, and calls take numbers as text."""
    assert not re.search(r"^ +(ge|gt|le|lt):", written(), re.MULTILINE)
    schemas = [
        parameter["schema"]
        for path in document()["paths"].values()
        for one in path.values()
        for parameter in one.get("parameters", [])
    ]
    types = {(one["type"], type(one["default"])) for one in schemas if "default" in one}
    assert types == {("string", str), ("integer", int), ("boolean", bool)}


def test_replies_promise_the_fields_that_are_always_sent() -> None:
    schemas = document()["components"]["schemas"]
    for name in ("Letter", "ListedLetter", "PendingRecord"):
        assert set(schemas[name]["required"]) == set(schemas[name]["properties"])
    body = {"key", "value", "headers", "headers_left_out"}
    assert set(schemas["Record"]["properties"]) - set(schemas["Record"]["required"]) == body


def test_each_part_of_a_path_is_described() -> None:
    for path, _, one in operations():
        parameters = one.get("parameters", [])
        assert isinstance(parameters, list)
        described = {p["name"] for p in parameters if p["in"] == "path"}
        assert described == {part[1:-1] for part in path.split("/") if part.startswith("{")}
