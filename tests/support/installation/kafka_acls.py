"""kafka-acls.sh for the tests, since the embedded Kafka has no command-line tools. It understands
the options that `rights` prints, and no others. The variable KAFKA_OF_ADMIN names the broker."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from tests.support.installation.rights import Right, grant

KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


def understood(options: Sequence[str]) -> tuple[str, list[Right]]:
    """Return the user, and the rights to grant."""
    parser = argparse.ArgumentParser(prog="kafka-acls.sh", allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config", choices=["admin.properties"])
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    resource = parser.add_mutually_exclusive_group(required=True)
    for kind in KINDS:
        resource.add_argument(f"--{kind.replace('_', '-')}")
    parser.add_argument("--resource-pattern-type", choices=["literal", "prefixed"])
    asked = parser.parse_args(options)
    (kind, name), *_ = ((kind, getattr(asked, kind)) for kind in KINDS if getattr(asked, kind))
    is_prefix = asked.resource_pattern_type == "prefixed"
    rights = [Right(operation, KINDS[kind], name, is_prefix) for operation in asked.operation]
    return asked.allow_principal, rights


if __name__ == "__main__":
    user, rights = understood(sys.argv[1:])
    grant(os.environ["KAFKA_OF_ADMIN"], user, *rights)
