"""Scale of the comparison."""

from dataclasses import dataclass

from tools.benchmarks.scale import FAR_MS


@dataclass(frozen=True, slots=True)
class PeerScale:
    warm_rate: int = 3_000
    warm_s: int = 45
    value_bytes: int = 200
    light_rate: int = 100
    light_s: int = 20
    light_delay_ms: tuple[int, int] = (1_000, 10_000)
    rates: tuple[int, ...] = (5_000, 10_000, 20_000, 30_000)
    spread_ms: int = 8_000
    stream_s: int = 20
    burst_records: int = 100_000
    burst_lead_ms: int = 25_000
    pending_records: int = 1_000_000
    pending_ms: tuple[int, int] = FAR_MS
    settle_s: float = 10
    restart_records: int = 10_000
    restart_lead_ms: int = 8_000
    restart_window_ms: int = 12_000
    patience_s: float = 180


FULL = PeerScale()
QUICK = PeerScale(
    warm_rate=500,
    warm_s=1,
    light_s=3,
    light_delay_ms=(500, 1_500),
    rates=(500,),
    spread_ms=1_000,
    stream_s=3,
    burst_records=2_000,
    burst_lead_ms=6_000,
    pending_records=5_000,
    settle_s=1,
    restart_records=500,
    restart_lead_ms=6_000,
    restart_window_ms=8_000,
    patience_s=60,
)
