"""Rights on a broker that asks for them."""

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
"""A broker that refuses what a rule denies, and allows all else."""
ANYBODY = "User:ANONYMOUS"
DOCS = Path(__file__).parents[3] / "docs"
ROW = re.compile(r"\| (topics?|group|transactional ids?)( that begin with)? (`.*?`) \| (.*?) \|")
KINDS = {"t": ResourceType.TOPIC, "g": ResourceType.GROUP, "tr": ResourceType.TRANSACTIONAL_ID}
TIMEOUT_S = 180


class Right(NamedTuple):
    """One operation on one resource, or on all whose names begin so."""

    operation: str
    kind: ResourceType
    name: str
    is_prefix: bool = False

    def binding(self, user: str) -> AclBinding:
        """As Kafka has it."""
        return AclBinding(*self._who_and_what(user))

    def binding_filter(self, user: str) -> AclBindingFilter:
        """What finds that one rule."""
        return AclBindingFilter(*self._who_and_what(user))

    def _who_and_what(self, user: str) -> tuple[Any, ...]:
        operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation).upper()
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        allowed = AclOperation[operation], AclPermissionType.ALLOW
        return self.kind, self.name, pattern, user, "*", *allowed


def documented_rights(page: str, heading: str) -> list[Right]:
    """The rights that a table of a page of the docs names under a heading."""
    _, _, behind = (DOCS / page).read_text("utf-8").partition(f"\n## {heading}\n")
    return [
        Right(operation, _kind(kind), name, bool(prefix))
        for kind, prefix, names, operations in ROW.findall(behind.partition("\n## ")[0])
        for name in re.findall(r"`(.*?)`", names)
        for operation in re.findall(r"[A-Z]\w+", operations)
    ]


def grant(bootstrap: str, user: str, *rights: Right) -> None:
    """Let the user do this; returns when the broker does."""
    admin = admin_client(bootstrap)
    for done in admin.create_acls([right.binding(user) for right in rights]).values():
        done.result(TIMEOUT_S)
    for right in rights:
        _await_rules(admin, right.binding_filter(user), 1)


def revoke(bootstrap: str, user: str, right: Right) -> None:
    """Take a right away that was granted; returns when the broker goes by that."""
    wanted = right.binding_filter(user)
    admin = admin_client(bootstrap)
    assert len(admin.delete_acls([wanted])[wanted].result(TIMEOUT_S)) == 1
    _await_rules(admin, wanted, 0)


def allow(bootstrap: str, topic: str, operation: AclOperation) -> None:
    """Once a topic has a rule, what no rule allows is refused; to read includes to describe."""
    _rule(bootstrap, topic, operation, AclPermissionType.ALLOW)


def deny(bootstrap: str, topic: str, operation: AclOperation) -> None:
    """Refuse one thing, whatever is allowed."""
    _rule(bootstrap, topic, operation, AclPermissionType.DENY)


def _rule(bootstrap: str, topic: str, operation: AclOperation, kind: AclPermissionType) -> None:
    pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*pattern, ANYBODY, "*", operation, kind)
    admin = admin_client(bootstrap)
    admin.create_acls([rule])[rule].result(TIMEOUT_S)
    _await_rules(admin, AclBindingFilter(*pattern, ANYBODY, "*", operation, kind), 1)


def _await_rules(admin: AdminClient, wanted: AclBindingFilter, count: int) -> None:
    """The controller may answer a change before the broker has heard of it."""

    def is_so() -> bool:
        return len(admin.describe_acls(wanted).result(TIMEOUT_S)) == count

    wait_for(is_so, TIMEOUT_S, f"{count} rules: {wanted}")


def _kind(word: str) -> ResourceType:
    return next(kind for start, kind in reversed(KINDS.items()) if word.startswith(start))
