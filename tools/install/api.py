"""REST client of the API server."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

ANSWER_WITHIN_S: Final = 30
ASK_AGAIN_S: Final = 0.2
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRICT_DRY_RUN: Final = "?dryRun=All&fieldValidation=Strict"

Document = dict[str, Any]


class Refused(Exception):
    """Refusal by the API server, in its own words."""


class Resource(NamedTuple):
    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None) -> str:
        root = "api" if "/" not in self.api_version else "apis"
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/{root}/{self.api_version}{inside}/{self.plural}"


@dataclass(frozen=True)
class Api:
    """Administrator's access. Methods raise Refused with the server's message."""

    port: int
    token: str
    certificate: Path

    def ask(
        self, method: str, path: str, body: object = None, kind: str = JSON, *, again: bool = True
    ) -> Document:
        """Return the answer. Raise Refused, or OSError if there is no server. If `again`, retry
        while the server is busy, for example after a new kind of object was defined."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        status, text = self._once(method, path, body, kind)
        while again and status == http.client.TOO_MANY_REQUESTS and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN_S)
            status, text = self._once(method, path, body, kind)
        if status >= http.client.BAD_REQUEST:
            raise Refused(_message(text))
        return _document(text)

    def _once(self, method: str, path: str, body: object, kind: str) -> tuple[int, str]:
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=trusted, timeout=ANSWER_WITHIN_S
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": JSON}
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        try:
            self.ask("GET", "/readyz")
        except (OSError, Refused):
            return False
        return True

    def version(self) -> str:
        return str(self.ask("GET", "/version")["gitVersion"])

    def create(self, document: Document, namespace: str | None = None, how: str = "") -> Document:
        """Create an object, in `namespace` if its kind belongs to namespaces. `how` is the query of
        the request."""
        resource = self._resource(document, namespaced=namespace is not None)
        return self.ask("POST", resource.path(namespace) + how, document)

    def try_strictly(self, document: Document, namespace: str) -> None:
        """Validate an object fully, with defaults and admission, without storing it."""
        self.create(document, namespace, STRICT_DRY_RUN)

    def contents(self, namespace: str) -> dict[tuple[str, str], Document]:
        found = {}
        for resource in self._namespaced():
            if resource.kind == "Event":
                continue
            known = {"apiVersion": resource.api_version, "kind": resource.kind}
            for item in self.ask("GET", resource.path(namespace))["items"]:
                found[resource.kind, item["metadata"]["name"]] = {**known, **item}
        return found

    def knows(self, api_version: str, kind: str) -> bool:
        try:
            found = self._resources(api_version, namespaced=True)
        except Refused:
            return False
        return any(resource.kind == kind for resource in found)

    def _resource(self, document: Document, *, namespaced: bool) -> Resource:
        for resource in self._resources(document["apiVersion"], namespaced=namespaced):
            if resource.kind == document["kind"]:
                return resource
        raise Refused(f"{document['apiVersion']} {document['kind']} is not known")

    def _namespaced(self) -> list[Resource]:
        versions = [
            g["preferredVersion"]["groupVersion"] for g in self.ask("GET", "/apis")["groups"]
        ]
        return [
            resource
            for version in ["v1", *versions]
            for resource in self._resources(version, namespaced=True, verb="list")
        ]

    def _resources(self, version: str, *, namespaced: bool, verb: str = "create") -> list[Resource]:
        root = "/api" if "/" not in version else "/apis"
        return [
            Resource(version, known["kind"], known["name"])
            for known in self.ask("GET", f"{root}/{version}")["resources"]
            if known["namespaced"] == namespaced
            if "/" not in known["name"] and verb in known["verbs"]
        ]


def _document(text: str) -> Document:
    """Return the JSON of an answer. The answer of /readyz is a word, which gives no JSON."""
    if not text.startswith("{"):
        return {}
    document: Document = json.loads(text)
    return document


def _message(text: str) -> str:
    return str(_document(text).get("message", text))
