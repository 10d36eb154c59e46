"""Scale of the benchmarks: full, or quick. A quick run only checks that the benchmarks work."""

from dataclasses import dataclass

HOUR_MS = 3_600_000
FAR_MS = (HOUR_MS, 144 * HOUR_MS)


@dataclass(frozen=True, slots=True)
class Scale:
    warm_broker_s: int = 45
    warm_records: int = 20_000
    value_bytes: int = 200
    id_header: str | None = None
    relay_records: int = 500_000
    rounds: int = 3
    ingest_records: int = 1_000_000
    burst_records: int = 200_000
    burst_lead_ms: int = 10_000
    light_rate: int = 100
    light_s: int = 60
    light_delay_ms: tuple[int, int] = (1_000, 10_000)
    scattered_rates: tuple[int, ...] = (10_000, 30_000, 45_000, 60_000, 90_000)
    scattered_spread_ms: int = 30_000
    scattered_s: int = 60
    through_rates: tuple[int, ...] = (30_000, 50_000, 80_000)
    through_delay_ms: int = 5_000
    through_s: int = 27
    overload_rates: tuple[int, ...] = (20_000, 40_000, 60_000)
    overload_climb_s: int = 15
    overload_held_per_s: int | None = None
    overload_lead_s: int = 10
    overload_s: int = 30
    overload_spread_ms: int = 5_000
    refinements: int = 1
    pending_records: int = 10_000_000
    purged_records: int = 1_000_000
    purge_stream_s: int = 180
    listing_rate: int = 30_000
    listing_s: int = 60
    listing_turn_s: float = 5.0
    settle_s: float = 10
    idle_s: int = 30


FULL = Scale()
QUICK = Scale(
    warm_broker_s=2,
    warm_records=500,
    relay_records=10_000,
    rounds=1,
    ingest_records=50_000,
    burst_records=5_000,
    burst_lead_ms=8_000,
    light_s=5,
    light_delay_ms=(200, 1_000),
    scattered_rates=(500, 1_000),
    scattered_spread_ms=2_000,
    scattered_s=5,
    through_rates=(500, 1_000),
    through_delay_ms=1_000,
    through_s=5,
    overload_rates=(500,),
    overload_climb_s=5,
    overload_lead_s=4,
    overload_s=4,
    overload_spread_ms=2_000,
    refinements=0,
    pending_records=20_000,
    purged_records=20_000,
    purge_stream_s=30,
    listing_rate=500,
    listing_s=1,
    listing_turn_s=1.5,
    settle_s=1,
    idle_s=2,
)
