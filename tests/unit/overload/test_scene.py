"""A scenario that could fill the disk does not start."""

from pathlib import Path

import pytest

from tools.benchmarks.errors import BenchmarkError
from tools.overload.__main__ import SCENARIOS
from tools.overload.scene import Scene, refuse_without_room
from tools.overload.sizes import Sizes, scaled


def test_a_scenario_without_room_is_refused_with_what_it_needs_and_what_to_do(
    tmp_path: Path,
) -> None:
    with pytest.raises(BenchmarkError, match=r"`big` needs about 1000003 GB .*--scale"):
        refuse_without_room(Scene([], disk_bytes=10**15), tmp_path, "big")


@pytest.mark.parametrize("scale", [0.0001, 0.01, 1])
def test_every_scenario_says_what_it_needs_at_any_scale(scale: float) -> None:
    scenes = [scenario.scene(scaled(scale)) for scenario in SCENARIOS.values()]
    assert all(scene.disk_bytes > 0 for scene in scenes)
    assert all(phase.most_records > 0 for scene in scenes for phase in scene.phases)


def test_a_scale_of_one_is_the_whole() -> None:
    assert scaled(1) == Sizes()
