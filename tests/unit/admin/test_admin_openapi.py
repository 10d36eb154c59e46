"""The document and the API say the same."""

from pathlib import Path

import yaml

from proxy.admin.api import DOCUMENT, document
from tests.support.simulation.admin_api import MadeUpApi

REPOSITORY = Path(__file__).parents[3]
METHODS = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}


def test_every_call_is_documented_and_every_documented_call_is_there() -> None:
    documented = {
        (method.upper(), path)
        for path, item in document()["paths"].items()
        for method in METHODS & set(item)
    }
    routes = MadeUpApi().api.routes
    assert documented == {(route.method, route.template) for route in routes}
    assert len(routes) == len(documented)


def test_every_call_has_a_name_of_its_own() -> None:
    names = [
        item[method]["operationId"]
        for item in document()["paths"].values()
        for method in METHODS & set(item)
    ]
    assert len(names) == len(set(names))


def test_the_document_is_served_and_shown_in_the_docs() -> None:
    assert MadeUpApi().ask("/openapi.json") == (200, document())
    shown = (REPOSITORY / "docs" / "openapi.yaml").read_text("utf-8")
    assert shown == DOCUMENT.read_text("utf-8")
    assert yaml.safe_load(shown)["openapi"].startswith("3.1")


def test_each_part_of_a_path_is_described() -> None:
    for path, item in document()["paths"].items():
        for method in METHODS & set(item):
            parameters = [*item.get("parameters", []), *item[method].get("parameters", [])]
            described = {p["name"] for p in parameters if p["in"] == "path"}
            assert described == {part[1:-1] for part in path.split("/") if part.startswith("{")}
