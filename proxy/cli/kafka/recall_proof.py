"""A recall that proves that it knows its record: with the key and id of the record itself."""

from contextlib import closing

from confluent_kafka import Consumer, KafkaException

from proxy.cli.kafka.ingress_record import IngressRecord, recall_of
from proxy.config.settings import Settings
from proxy.dead_letters.letters.letter import Origin
from proxy.kafka.access.broker_errors import explain
from proxy.kafka.access.connection import Connection
from proxy.kafka.client_settings import lookup_config
from proxy.kafka.ingress.ingress import NOT_IN_THE_LOG
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.records.headers import ID
from proxy.records.message import Message


def proven_recall(settings: Settings, origin: Origin) -> IngressRecord:
    """Read the record at the origin and return its recall.

    Without a proof where the ingress does not hold the record. Raises as `write_to_ingress` does.
    """
    record = _read(settings, origin)
    if record is None:
        return recall_of(origin)
    return recall_of(origin, record.key(), dict(record.headers() or []).get(ID))


def _read(settings: Settings, origin: Origin) -> Message | None:
    topic, partition, offset = origin
    if partition >= len(Connection(settings).describe_topic(topic, "Read").partitions):
        return None
    lookup = IngressLookup(lambda: Consumer(lookup_config(settings)), topic, lambda: None)
    with closing(lookup):
        try:
            return lookup.read(partition, [offset], 0).get(offset)
        except KafkaException as error:
            if error.args[0].code() == NOT_IN_THE_LOG:
                return None
            raise explain(error.args[0], settings, topic, "Read") from None
