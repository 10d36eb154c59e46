"""TCP relays between clients and brokers, which simulate network faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 64 * 1024
STARTED_WITHIN_S: Final = 60


class Relay:
    """Relay before one broker. Each chunk of bytes is delayed by `delay_s`. With `is_refusing`, new
    connections are closed immediately. Bytes move in a direction while its event (`to_broker` or
    `to_client`) is set. Otherwise they are buffered."""

    def __init__(self, broker_port: int) -> None:
        self.broker_port, self.port = broker_port, 0
        self.delay_s = 0.0
        self.is_refusing = False
        self.to_broker, self.to_client = asyncio.Event(), asyncio.Event()
        self.writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> asyncio.Server:
        self.to_broker.set()
        self.to_client.set()
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()

    async def _connected(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        if self.is_refusing:
            to_client.transport.abort()
            return
        try:
            broker, to_broker = await asyncio.open_connection(HOST, self.broker_port)
        except OSError:
            to_client.transport.abort()
            return
        both = {to_client, to_broker}
        self.writers |= both
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.gather(
                    self._pump(client, to_broker, self.to_broker),
                    self._pump(broker, to_client, self.to_client),
                )
        finally:
            self.writers -= both

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, moves: asyncio.Event
    ) -> None:
        try:
            while chunk := await source.read(CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await moves.wait()
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


class Relays:
    def __init__(self, broker_ports: Mapping[int, int]) -> None:
        self._by_node = {node: Relay(port) for node, port in broker_ports.items()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for relay in self._by_node.values():
            started = asyncio.run_coroutine_threadsafe(relay.listen(), self._loop)
            started.result(STARTED_WITHIN_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result(STARTED_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STARTED_WITHIN_S)
        self._loop.close()

    def port(self, node: int) -> int:
        return self._by_node[node].port

    def cut(self, node: int) -> None:
        self._loop.call_soon_threadsafe(self._by_node[node].cut)

    def refuse(self, node: int) -> None:
        """Close all connections to the node, and each new connection until `heal`."""
        self._by_node[node].is_refusing = True
        self.cut(node)

    def slow(self, node: int, delay_s: float) -> None:
        self._by_node[node].delay_s = delay_s

    def half_open(self, node: int, *, is_answered: bool) -> None:
        """Stop the bytes in one direction. `heal` cuts these connections."""
        relay = self._by_node[node]
        stopped = relay.to_broker if is_answered else relay.to_client
        self._loop.call_soon_threadsafe(stopped.clear)

    def heal(self, node: int) -> None:
        """Restore the network. Half-open connections are cut."""
        relay = self._by_node[node]
        relay.is_refusing, relay.delay_s = False, 0.0
        if not (relay.to_broker.is_set() and relay.to_client.is_set()):
            self.cut(node)
        for moves in (relay.to_broker, relay.to_client):
            self._loop.call_soon_threadsafe(moves.set)


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
