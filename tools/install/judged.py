"""Manifests and pods of the chart, judged by the API server."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.chart.chart_sets import SETS
from tests.support.chart.rendering import Release, rendered
from tools.install.api import Api, Document, Refused

RESTRICTED = "restricted"
"""Namespace with the strictest Pod Security Standard."""


def manifests(api: Api, namespace: str) -> str:
    """Let the API server judge all manifests except pods. `pods` does this for pods, because they
    need accounts."""
    whole = [one for values in SETS.values() for one in rendered(values).documents]
    documents = [one for one in whole if one["kind"] != "Pod"]
    refused = list(_refused(api, documents, namespace))
    assert not refused, f"refused: {refused}"
    _refuses_unknown_fields(api, documents[0], namespace)
    return (
        f"{len(documents)} manifests of {len(SETS)} sets of values accepted in a strict dry run; "
        "one with an unknown field refused"
    )


def pods(api: Api) -> str:
    made = [pod for values in SETS.values() for pod in _pods(rendered(values))]
    accounts = {pod["spec"]["serviceAccountName"] for pod in made}
    for name in sorted(accounts):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        api.create(account, RESTRICTED)
    refused = list(_refused(api, made, RESTRICTED))
    assert not refused, f"refused: {refused}"
    _refuses_root(api, made[0])
    return f"{len(made)} pods accepted where only restricted ones are; one run by root refused"


def _pods(release: Release) -> Iterator[Document]:
    """Yield pods as the controllers make them. Pods of a StatefulSet have claims for missing
    volumes."""
    for number, (kind, spec) in enumerate(release.pod_specs()):
        if kind == "StatefulSet":
            spec["volumes"] += [_claim(name) for name in sorted(_unknown_volumes(spec))]
        name = f"{kind.lower()}-{number}"
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _unknown_volumes(spec: Document) -> set[str]:
    mounts = [mount for one in spec["containers"] for mount in one.get("volumeMounts", ())]
    return {mount["name"] for mount in mounts} - {volume["name"] for volume in spec["volumes"]}


def _claim(name: str) -> Document:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _refused(api: Api, documents: list[Document], namespace: str) -> Iterator[str]:
    for document in documents:
        try:
            api.try_strictly(document, namespace)
        except Refused as refused:
            yield f"{document['kind']} {document['metadata']['name']}: {refused}"


def _refuses_unknown_fields(api: Api, document: Document, namespace: str) -> None:
    told = list(_refused(api, [{**document, "unheardOf": 1}], namespace))
    assert told, "unknown fields are accepted: the dry run says nothing"
    assert "unheardOf" in told[0], f"refused otherwise: {told}"


def _refuses_root(api: Api, pod: Document) -> None:
    spec = {**pod["spec"], "securityContext": {"runAsUser": 0}}
    told = list(_refused(api, [{**pod, "spec": spec}], RESTRICTED))
    assert told, "a pod run by root is accepted: the namespace restricts nothing"
    assert "PodSecurity" in told[0], f"refused otherwise: {told}"
