"""What to do about a dead letter, by its code; what the code means is in `rejection.REASONS`."""

from typing import Final

from proxy.protocol.outcomes import REASONS

REMEDIES: Final = {
    "record-unreadable": "Nothing of the record is in the letter: its producer has to send it "
    "again. See to it that the ingress has compression.type=uncompressed.",
    "header-unreadable": "Its headers are not in the letter. Mend the producer (names are UTF-8) "
    "and send the record again, or replay with --set timer-topic=... and what else it needs.",
    "header-unknown": "The detail names the nearest. Replay with --unset of the wrong name and "
    "--set of the right one.",
    "header-unsupported": "Replay with --unset of that header, or add the request to "
    "`requests: serve`, restart, and replay.",
    "target-missing": "Replay with --set timer-topic=...",
    "target-illegal": "Replay with --set timer-topic=...",
    "target-refused": "Replay with --set timer-topic=..., or change `targets` in the proxy's "
    "settings, restart it, and replay.",
    "time-unreadable": "Replay with --set of the header, or --unset it to deliver at once.",
    "level-unknown": "Replay with --set timer-level=... (a number), or --unset timer-level.",
    "delay-too-long": "Replay with a shorter delay, or raise `max_delay`, restart, and replay.",
    "time-past": "Replay with --set timer-deliver-at=... in milliseconds, or --unset it to deliver "
    "at once.",
    "partition-bad": "Replay with --set or --unset timer-partition, or add partitions and replay.",
    "target-unknown": "Create the topic, then replay; or replay with --set timer-topic=...",
    "partition-unavailable": "Bring back the brokers that have the partition, then replay.",
    "too-large": "Raise max.message.bytes of the target topic, then replay.",
    "not-authorised": "Grant the proxy's user Write and Describe on the target, then replay.",
    "publish-failed": "Do what the detail says, then replay.",
    "id-bad": "Replay with --set timer-id=... or timer-cancel=... (1 to 256 bytes), or --unset.",
    "recall-bad": "Replay with --set timer-recall=... (topic/partition/offset of a record). It "
    "goes to the partition that the letter came from.",
    "retry-bad": "Replay with --set timer-attempt=... and --set timer-retry-group=...",
    "transaction-bad": "Replay with --set timer-transaction=prepare, commit or rollback, or "
    "--unset it to have an ordinary record.",
    "hop-bad": "Replay: what only the proxy may write is left out then.",
    "purge-bad": "Replay: what only the proxy may write is left out then.",
    "transaction-expired": "Find out from its producer what became of the transaction. To "
    "deliver it after all, replay with --unset timer-transaction.",
    "overdue": "Replay with another time (--set timer-deliver-at=...), or change the setting "
    "`release.overdue`.",
    "defect": "Report it with its detail and, if you may, the record. Replay it with a version "
    "that has it mended.",
    "body-gone": "The record is lost: its producer has to send it again. Raise the ingress "
    "topic's retention.ms above `max_delay`, or set `bodies: local`.",
}


def meaning(code: str) -> str:
    """What the code says, as in the guide."""
    return REASONS.get(code, "a code that this version of the command does not know")


def remedy(code: str) -> str:
    """What to do about it."""
    return REMEDIES.get(code, "Do what the detail says, then replay.")
