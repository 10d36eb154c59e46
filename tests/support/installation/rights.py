"""Rights on a broker that asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.quiet_clients import admin_client

ASKING: Mapping[str, str] = MappingProxyType(
    {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
)
"""A broker that refuses what a rule denies, and allows all else."""
TIMEOUT_S = 180


def allow(bootstrap: str, topic: str, operation: AclOperation) -> None:
    """Once a topic has a rule, what no rule allows is refused; to read includes to describe."""
    _rule(bootstrap, topic, operation, AclPermissionType.ALLOW)


def deny(bootstrap: str, topic: str, operation: AclOperation) -> None:
    """Refuse one thing, whatever is allowed."""
    _rule(bootstrap, topic, operation, AclPermissionType.DENY)


def _rule(bootstrap: str, topic: str, operation: AclOperation, kind: AclPermissionType) -> None:
    pattern = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    rule = AclBinding(*pattern, "User:ANONYMOUS", "*", operation, kind)
    admin = admin_client(bootstrap)
    admin.create_acls([rule])[rule].result(TIMEOUT_S)
