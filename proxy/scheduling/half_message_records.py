"""What the proxy writes about a half message before it is decided (docs/guide.md#half-messages)."""

from __future__ import annotations

from proxy.records.body import GONE, packer
from proxy.records.delivery import delivery_of
from proxy.records.entry import Purpose, marked, target_of, with_purpose
from proxy.records.headers import CHECK, CHECK_BACK, EXPIRE, HOP_FROM, ID, PREFIX, TRANSACTION
from proxy.records.ingress_partition import IngressPartition
from proxy.scheduling.auxiliary_record import AuxiliaryRecord
from proxy.scheduling.half_messages import HalfMessageEvent
from storage.register import Named
from storage.store import Entry


def record_of(ingress: IngressPartition, event: HalfMessageEvent) -> AuxiliaryRecord | None:
    """What is written when the event happens: an expiry request or a check-back."""
    return expiry_request(ingress, event) if event.is_last else check_back(event)


def check_back(event: HalfMessageEvent) -> AuxiliaryRecord | None:
    """The question to the producer: commit or roll back? None where nobody is to be asked."""
    prepare = event.prepare
    if prepare is None or prepare.check_topic is None:
        return None
    asked = delivery_of((0, event.offset, *prepare.entry[2:]))
    headers = [header for header in asked.headers if header[0][:6] != PREFIX]
    headers += [
        (TRANSACTION, CHECK_BACK),
        (ID, event.ident),
        (CHECK, str(event.check).encode()),
    ]
    return AuxiliaryRecord(event.offset, prepare.check_topic, -1, asked.key, asked.value, headers)


def expiry_request(ingress: IngressPartition, event: HalfMessageEvent) -> AuxiliaryRecord:
    """What the proxy writes to the ingress to end a half message that nobody has decided.

    It goes through the log so that every replay sees it before or after the producer's commit, as
    it was.
    """
    headers: list[tuple[str, bytes | None]] = [
        (TRANSACTION, EXPIRE),
        (ID, event.ident),
        (HOP_FROM, str(event.offset).encode()),
    ]
    return AuxiliaryRecord(event.offset, *ingress, event.ident, None, headers)


def entry_of_lost(offset: int, half: Named) -> Entry:
    """The entry of a half message that the ingress has deleted: it ends as a dead letter."""
    purpose = Purpose(half.due_ms, half.origin, half.due_ms)
    content = with_purpose((GONE, None, None, []), purpose)
    return half.due_ms, offset, marked(target_of(half.target)), packer()(content)
