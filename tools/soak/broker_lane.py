"""Faults of brokers, their network, and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from confluent_kafka.cimpl import NewPartitions

from tests.support.quiet_clients import admin_client
from tools.soak.faults import Fault
from tools.soak.lane import Lane
from tools.soak.scene import Scene

ADMIN_WITHIN_S: Final = 60
MOST_PARTITIONS: Final = 8


class BrokerLane(Lane):
    """Faults of one of the three nodes. Each fault is repaired before the next begins."""

    def __init__(self, name: str, scene: Scene, faults: Iterator[Fault]) -> None:
        super().__init__(name, scene, faults)
        self._how: dict[str, Callable[[Fault], str]] = {
            "kill leader": self._kill_leader,
            "kill coordinator": self._kill_coordinator,
            "stop": lambda fault: self._down(fault, self._node(fault), scene.cluster.stop),
            "freeze": self._freeze,
            "cut": self._network(scene.relays.cut),
            "refuse": self._network(scene.relays.refuse),
            "slow": self._slow,
            "no requests": self._network(partial(scene.relays.half_open, is_answered=True)),
            "no answers": self._network(partial(scene.relays.half_open, is_answered=False)),
            "add partitions": self._add_partition,
            "target created anew": self._create_anew,
        }

    def _do(self, fault: Fault) -> str:
        return self._how[fault.what](fault)

    def _node(self, fault: Fault) -> int:
        return fault.one_of(self._scene.cluster.numbers)

    def _kill_leader(self, fault: Fault) -> str:
        cluster = self._scene.cluster
        return self._down(
            fault, cluster.await_leader(self._scene.installation.ingress, 0), cluster.kill
        )

    def _kill_coordinator(self, fault: Fault) -> str:
        cluster, group = self._scene.cluster, f"{self._scene.installation.name}.proxy"
        return self._down(fault, cluster.group_coordinator(group), cluster.kill)

    def _freeze(self, fault: Fault) -> str:
        cluster, node = self._scene.cluster, self._node(fault)
        cluster.freeze(node)
        self._last(fault.lasts_s)
        cluster.thaw(node)
        cluster.await_whole()
        return f"node {node}"

    def _slow(self, fault: Fault) -> str:
        delay_s = fault.choice / 5
        return self._network(partial(self._scene.relays.slow, delay_s=delay_s))(fault)

    def _network(self, begin: Callable[[int], None]) -> Callable[[Fault], str]:
        def disturb(fault: Fault) -> str:
            node = self._node(fault)
            begin(node)
            self._last(fault.lasts_s)
            self._scene.relays.heal(node)
            return f"node {node}"

        return disturb

    def _down(self, fault: Fault, node: int, end: Callable[[int], None]) -> str:
        end(node)
        self._last(fault.lasts_s)
        self._scene.cluster.start(node)
        self._scene.cluster.await_whole()
        return f"node {node}"

    def _add_partition(self, _fault: Fault) -> str:
        topic, cluster = self._scene.grows, self._scene.cluster
        admin = admin_client(cluster.direct_servers)
        there = len(admin.list_topics(topic, ADMIN_WITHIN_S).topics[topic].partitions)
        if there < MOST_PARTITIONS:
            wanted = [NewPartitions(topic, there + 1)]
            admin.create_partitions(wanted)[topic].result(ADMIN_WITHIN_S)
        return topic

    def _create_anew(self, fault: Fault) -> str:
        remade = self._scene.installation.remade
        remade.delete()
        self._last(fault.lasts_s)
        remade.create()
        return remade.topic
