"""`check`: find faults that would stop the proxy or lose a record, with remedies."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.admin.access import is_loopback, listen
from proxy.admin.tls import Certificate, trust_own
from proxy.cli.admin_port import NotThere, ProxyRefuses, address_of, ask, with_scheme
from proxy.cli.check_broker import broker_findings, retry_settings_findings
from proxy.cli.check_configs import Finding, Severity, Subject, existing
from proxy.cli.terminal import AtBroker, say, say_json, say_table, shown_duration
from proxy.config.machine import DiskReserve, usable_cores
from proxy.config.settings import AdminSettings, Settings
from proxy.config.values import shown_size
from proxy.errors import (
    DiskTooSmall,
    ExtraMissing,
    PortTaken,
    ProxyError,
    SettingsError,
    require_store,
    require_tracing,
)
from proxy.kafka.access import Connection, client_config
from storage.errors import free_inodes
from storage.options import new_store_bytes

PORT_WITHIN_S: Final = 3.0
FEW_INODES: Final = 10_000
"""The check warns if fewer inodes are free, because a shard creates some hundred files."""


def check(
    asked: AtBroker,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the settings. Do not connect to a broker.")
    ] = False,
) -> None:
    """Check the settings and the broker for faults that would stop the proxy.

    To read the broker's clock, the check writes one record without a value to the settings topic.
    Compaction removes it. The check writes nothing else.
    """
    findings = list(settings_findings(asked.settings))
    stopped = {finding.subject for finding in findings if finding.severity is Severity.STOP}
    if not offline and "kafka" not in stopped:
        findings += broker_findings(asked.settings)
    counts = Counter(finding.severity for finding in findings)
    stops, warnings = counts[Severity.STOP], counts[Severity.WARN]
    if asked.as_json:
        say_json({"findings": [finding.as_json() for finding in findings], "stops": stops})
    else:
        say_table(["", "what", "found", "what to do"], [f.as_row() for f in findings])
        if any(finding.remedy.startswith("Grant it:") for finding in findings):
            say("All rights of the proxy's user at once: kafka-delay-proxy rights")
        if stops:
            say(f"{stops} of these problems would stop the proxy.")
        elif warnings:
            say(f"Nothing would stop the proxy. Look at the warnings ({warnings}).")
        else:
            say("Nothing would stop the proxy.")
    raise typer.Exit(1 if stops else 0)


def settings_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about the settings and this machine, without a broker."""
    yield Subject("settings").ok("readable; all keys are known")
    try:
        config = client_config(settings)
        config.pop("oauth_cb", None)  # otherwise the client would ask for a token now
        Connection(settings, config)
    except (SettingsError, ExtraMissing) as error:
        remedy = error.remedy or "Correct the settings under `kafka`."
        yield Subject("kafka").stop(error.found.removesuffix("."), remedy)
    else:
        servers = settings.bootstrap_servers
        yield Subject("kafka").ok(f"librdkafka accepts the settings; broker {servers}")
    yield _data_dir(settings.data_dir)
    yield _reserve(settings)
    free = free_inodes(settings.data_dir)
    if free is not None and free < FEW_INODES:
        yield Subject("inodes").warn(
            f"{free} more files can be created on the disk of {settings.data_dir} (df -i)",
            "Delete files there, or put `data_dir` on a file system with more inodes.",
        )
    yield from _extras(settings)
    span_ms = settings.wheel.precision_ms * settings.wheel.slots
    longest = shown_duration(settings.max_delay_ms)
    yield Subject("wheel").ok(f"spans {shown_duration(span_ms)}; max_delay is {longest}")
    yield from _workers(settings)
    yield from retry_settings_findings(settings)
    aliases = Subject("header_aliases")
    if named := ", ".join(settings.header_aliases):
        yield aliases.ok(f"the headers of {named} are read, too")
    if "etf1" in settings.header_aliases:
        yield aliases.advice(
            "with etf1 a null value without timer- headers cancels the pending record of its key",
            "Producers that want to deliver null values must set `timer-topic`.",
        )
    if not is_loopback(settings.admin.host) and not settings.admin.has_tokens:
        yield Subject("admin").advice(
            "metrics are open to anyone who reaches "
            f"{settings.admin.host}:{settings.admin.port}; without a token the API answers 403",
            "Set `admin: token` to use the API. Do not expose the port to other networks.",
        )
    yield from _admin_port(settings.admin)


def _admin_port(admin: AdminSettings) -> Iterator[Finding]:
    """Yield a finding if the admin port is taken, or the port or its certificate is unusable. No
    token is sent to the program that listens on the port."""
    try:
        Certificate(admin.tls)
        listen(admin).close()
    except PortTaken as taken:
        try:
            trust = trust_own(admin)
            address = with_scheme(address_of(admin), admin)
            ask(address, "/limits", None, within_s=PORT_WITHIN_S, trust=trust)
        except (ProxyRefuses, NotThere):
            pass
        except ProxyError:
            yield Subject("admin").stop(taken.found.removesuffix("."), taken.remedy)
            return
        yield Subject("admin").advice(
            f"a kafka-delay-proxy already listens on {admin.host}:{admin.port}",
            "If both are to run, choose another `admin: port` for one of them.",
        )
    except SettingsError as error:
        yield Subject("admin").stop(error.found.removesuffix("."), error.remedy)


def _data_dir(data_dir: Path) -> Finding:
    folder, there = data_dir.absolute(), existing(data_dir)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Subject("data_dir").stop(
            f"{there} cannot be written: {error.strerror}",
            "Make this folder writable for the proxy's user, or choose another `data_dir`.",
        )
    from proxy.recovery.local_state import is_in_use, open_to_others

    if is_in_use(data_dir):
        return Subject("data_dir").advice(
            f"{folder} is in use by a running proxy",
            "If another proxy is to run beside it, give it its own `data_dir` and `instance_id`.",
        )
    if (path := next(open_to_others(data_dir), None)) is not None:
        return Subject("data_dir").warn(
            f"other users may read {path}",
            f"Start `run` once, which closes the folder to others. Or run: chmod -R go= {folder}",
        )
    is_there = "is" if there == folder else "can be created and is"
    return Subject("data_dir").ok(f"{folder} {is_there} writable")


def _reserve(settings: Settings) -> Finding:
    size_bytes, _used, free_bytes = shutil.disk_usage(existing(settings.data_dir))
    reserve = DiskReserve(settings.disk_reserve_bytes)
    try:
        reserve.refuse_too_small(
            settings.data_dir, size_bytes, new_store_bytes(settings.store, settings.wheel.slots)
        )
    except DiskTooSmall as error:
        return Subject("disk_reserve").stop(error.found, error.remedy)
    reserve.observe(size_bytes, free_bytes)
    found = (
        f"{shown_size(free_bytes)} of {shown_size(size_bytes)} are free, "
        f"{shown_size(reserve.of(size_bytes))} are reserved"
    )
    if not reserve.is_short:
        return Subject("disk_reserve").ok(found)
    return Subject("disk_reserve").stop(
        f"{found}: `run` leaves its partitions to other instances, or reads no new records",
        f"Free space on the disk of {settings.data_dir}, or lower `disk_reserve`.",
    )


def _extras(settings: Settings) -> Iterator[Finding]:
    required = {
        Subject("store"): partial(require_store, settings.store),
        Subject("tracing"): partial(require_tracing, is_enabled=settings.tracing.enabled),
    }
    for subject, require in required.items():
        try:
            require()
        except ExtraMissing as missing:
            yield subject.stop(missing.found.removesuffix("."), missing.remedy)


def _workers(settings: Settings) -> Iterator[Finding]:
    workers, cores = Subject("workers"), usable_cores()
    if settings.workers is None:
        yield workers.ok(f"auto: {cores} here, and at most one for each ingress partition")
        return
    if settings.workers > cores:
        found = f"{settings.workers} processes on {cores} cores"
        yield workers.advice(found, "Use at most one for each core.")
    if settings.topics.create and settings.workers > settings.topics.partitions:
        yield workers.warn(
            f"{settings.workers} workers, {settings.topics.partitions} ingress partitions",
            "Workers beyond the number of partitions stay idle: raise `topics: partitions`.",
        )
