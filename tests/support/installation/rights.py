"""ACLs on a broker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.quiet_clients import admin_client
from tests.support.waiting import wait_for

ASKING: Mapping[str, str] = MappingProxyType(
    {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
)
"""Broker settings that refuse only denied operations."""
ANYBODY = "User:ANONYMOUS"
DOCS = Path(__file__).parents[3] / "docs"
ROW = re.compile(r"\| (topics?|group|transactional ids?)( that begin with)? (`.*?`) \| (.*?) \|")
KINDS = {"t": ResourceType.TOPIC, "g": ResourceType.GROUP, "tr": ResourceType.TRANSACTIONAL_ID}
TIMEOUT_S = 180


class Right(NamedTuple):
    operation: str
    kind: ResourceType
    name: str
    is_prefix: bool = False

    def binding(self, user: str) -> AclBinding:
        return AclBinding(*self._who_and_what(user))

    def binding_filter(self, user: str) -> AclBindingFilter:
        return AclBindingFilter(*self._who_and_what(user))

    def _who_and_what(self, user: str) -> tuple[Any, ...]:
        operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation).upper()
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        allowed = AclOperation[operation], AclPermissionType.ALLOW
        return self.kind, self.name, pattern, user, "*", *allowed


def documented_rights(page: str, heading: str) -> list[Right]:
    _, _, behind = (DOCS / page).read_text("utf-8").partition(f"\n## {heading}\n")
    return [
        Right(operation, _kind(kind), name, bool(prefix))
        for kind, prefix, names, operations in ROW.findall(behind.partition("\n## ")[0])
        for name in re.findall(r"`(.*?)`", names)
        for operation in re.findall(r"[A-Z]\w+", operations)
    ]


def grant(bootstrap: str, user: str, *rights: Right) -> None:
    admin = admin_client(bootstrap)
    for done in admin.create_acls([right.binding(user) for right in rights]).values():
        done.result(TIMEOUT_S)
    for right in rights:
        _await_rules(admin, right.binding_filter(user), 1)


def revoke(bootstrap: str, user: str, right: Right) -> None:
    wanted = right.binding_filter(user)
    admin = admin_client(bootstrap)
    assert len(admin.delete_acls([wanted])[wanted].result(TIMEOUT_S)) == 1
    _await_rules(admin, wanted, 0)


def allow(bootstrap: str, topic: str, operation: AclOperation) -> None:
    """Allow an operation. A topic with a rule refuses all other operations. Read includes
    describe."""
    _rule(bootstrap, topic, operation, AclPermissionType.ALLOW)


def deny(bootstrap: str, topic: str, operation: AclOperation) -> None:
    _rule(bootstrap, topic, operation, AclPermissionType.DENY)


def _rule(bootstrap: str, topic: str, operation: AclOperation, kind: AclPermissionType) -> None:
    pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*pattern, ANYBODY, "*", operation, kind)
    admin = admin_client(bootstrap)
    admin.create_acls([rule])[rule].result(TIMEOUT_S)
    _await_rules(admin, AclBindingFilter(*pattern, ANYBODY, "*", operation, kind), 1)


def _await_rules(admin: AdminClient, wanted: AclBindingFilter, count: int) -> None:
    """Wait for the rules, because the controller may answer before the broker knows them."""

    def is_so() -> bool:
        return len(admin.describe_acls(wanted).result(TIMEOUT_S)) == count

    wait_for(is_so, TIMEOUT_S, f"{count} rules: {wanted}")


def _kind(word: str) -> ResourceType:
    return next(kind for start, kind in reversed(KINDS.items()) if word.startswith(start))
