"""`check`: faults that would stop the proxy or lose a record, with remedies."""

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from proxy.admin.access import is_loopback
from proxy.cli.check_broker import broker_findings, retry_settings_findings
from proxy.cli.check_configs import Finding, Severity, advice, ok, stop, warn
from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    say,
    say_json,
    say_table,
    settings_for,
    shown_duration,
)
from proxy.config.machine import DiskReserve, usable_cores
from proxy.config.settings import Settings
from proxy.config.values import shown_size
from proxy.errors import (
    DiskReserveTooLarge,
    ExtraMissing,
    SettingsError,
    require_store,
    require_tracing,
)
from proxy.kafka.access import Connection
from storage.errors import free_inodes

FEW_INODES: Final = 10_000
"""A shard makes some hundred files."""


def check(
    offline: Annotated[
        bool, typer.Option("--offline", help="Judge the settings alone; ask no broker.")
    ] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Judge the settings, and ask the broker what would stop the proxy.

    It asks for the broker's time by one record without a value in the settings topic. Compaction
    removes it. Nothing else is written.
    """
    settings = settings_for(config, bootstrap)
    findings = list(settings_findings(settings))
    if not offline and not _count(findings, Severity.STOP):
        findings += broker_findings(settings)
    stops = _count(findings, Severity.STOP)
    if as_json:
        say_json({"findings": [finding.as_json() for finding in findings], "stops": stops})
    else:
        say_table(["", "what", "found", "what to do"], [f.as_row() for f in findings])
        say(_summary(stops, _count(findings, Severity.WARN)))
    raise typer.Exit(1 if stops else 0)


def _count(findings: list[Finding], severity: Severity) -> int:
    return sum(finding.severity is severity for finding in findings)


def _summary(stops: int, warnings: int) -> str:
    if stops:
        return f"{stops} of these would stop the proxy."
    if warnings:
        return f"Nothing would stop the proxy; {warnings} of these should be looked at."
    return "Nothing would stop the proxy."


def settings_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about settings and machine, without a broker."""
    yield ok("settings", "readable; every key is known")
    yield _librdkafka(settings)
    yield _data_dir(settings.data_dir)
    yield from _disk(settings)
    yield from _extras(settings)
    span_ms = settings.wheel.precision_ms * settings.wheel.slots
    longest = shown_duration(settings.max_delay_ms)
    yield ok("wheel", f"spans {shown_duration(span_ms)}; max_delay is {longest}")
    yield from _workers(settings)
    yield from retry_settings_findings(settings)
    yield from _aliases(settings)
    if not is_loopback(settings.admin.host) and not settings.admin.token:
        yield advice(
            "admin",
            f"metrics are open to whoever reaches {settings.admin.host}:{settings.admin.port}; the "
            "API answers 403 there without a token",
            "Set `admin: token` to use the API, or keep the port inside.",
        )


def _librdkafka(settings: Settings) -> Finding:
    try:
        Connection(settings)
    except SettingsError as error:
        return stop("kafka", error.found, "Correct the settings under `kafka`.")
    return ok("kafka", f"librdkafka accepts its settings; broker {settings.bootstrap_servers}")


def _data_dir(data_dir: Path) -> Finding:
    folder, existing = data_dir.absolute(), _existing(data_dir)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return stop(
            "data_dir",
            f"{existing} cannot be written: {error.strerror}",
            "Make it writable for the user of the proxy, or choose another `data_dir`.",
        )
    from proxy.recovery.local_state import open_to_others

    if (path := next(open_to_others(data_dir), None)) is not None:
        return warn(
            "data_dir",
            f"other users may read {path}",
            f"Start `run` once: it closes the folder. To do it now: chmod -R go= {folder}",
        )
    return ok(
        "data_dir", f"{folder} {'is' if existing == folder else 'can be made and is'} writable"
    )


def _existing(data_dir: Path) -> Path:
    folder = data_dir.absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _disk(settings: Settings) -> Iterator[Finding]:
    yield _reserve(settings)
    free = free_inodes(settings.data_dir)
    if free is not None and free < FEW_INODES:
        yield warn(
            "inodes",
            f"{free} more files can be made on the disk of {settings.data_dir} (df -i)",
            "Delete files there, or choose a file system with more inodes for `data_dir`.",
        )


def _reserve(settings: Settings) -> Finding:
    size_bytes, _used, free_bytes = shutil.disk_usage(_existing(settings.data_dir))
    reserve = DiskReserve(settings.disk_reserve_bytes)
    try:
        reserve.refuse_unreachable(settings.data_dir, size_bytes)
    except DiskReserveTooLarge as error:
        return stop("disk_reserve", error.found, error.remedy)
    reserve.observe(size_bytes, free_bytes)
    found = (
        f"{shown_size(free_bytes)} of {shown_size(size_bytes)} are free, "
        f"{shown_size(reserve.of(size_bytes))} stay so"
    )
    if not reserve.is_short:
        return ok("disk_reserve", found)
    return stop(
        "disk_reserve",
        f"{found}: `run` leaves the partitions to other instances, or reads no new records",
        f"Make room on the disk of {settings.data_dir}, or lower `disk_reserve`.",
    )


def _extras(settings: Settings) -> Iterator[Finding]:
    required = {
        "store": partial(require_store, settings.store),
        "tracing": partial(require_tracing, is_enabled=settings.tracing.enabled),
    }
    for subject, require in required.items():
        try:
            require()
        except ExtraMissing as missing:
            yield stop(subject, missing.found.removesuffix("."), missing.remedy)


def _workers(settings: Settings) -> Iterator[Finding]:
    cores = usable_cores()
    if settings.workers is None:
        yield ok("workers", f"auto: {cores} here, but at most one for each ingress partition")
        return
    if settings.workers > cores:
        yield advice(
            "workers", f"{settings.workers} processes on {cores} cores", "Use at most one per core."
        )
    if settings.topics.create and settings.workers > settings.topics.partitions:
        yield warn(
            "workers",
            f"{settings.workers} workers, {settings.topics.partitions} ingress partitions",
            "Workers beyond the number of partitions stay idle: raise `topics: partitions`.",
        )


def _aliases(settings: Settings) -> Iterator[Finding]:
    if settings.header_aliases:
        named = ", ".join(settings.header_aliases)
        yield ok("header_aliases", f"the headers of {named} are understood too")
    if "etf1" in settings.header_aliases:
        yield advice(
            "header_aliases",
            "with etf1, a record without value and without headers of ours cancels by its key",
            "Producers that deliver null values must say so with `timer-topic`.",
        )
