"""Errors with which the broker refuses a single record, as the codes of its dead letter."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

REFUSAL_CODES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too-large",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not-authorised",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "target-unknown",
    KafkaError.TOPIC_EXCEPTION: "target-illegal",
    KafkaError._UNKNOWN_TOPIC: "target-unknown",
    KafkaError._UNKNOWN_PARTITION: "partition-bad",
    KafkaError.INVALID_MSG: "publish-failed",
    KafkaError.RECORD_LIST_TOO_LARGE: "too-large",
    KafkaError.INVALID_RECORD: "publish-failed",
    KafkaError.POLICY_VIOLATION: "publish-failed",
    KafkaError.INVALID_TIMESTAMP: "publish-failed",
}
"""A record meets these again each time; all others are the broker's or the network's."""
