"""Output of `trace` for people: steps in words, with local times."""

from __future__ import annotations

import pytest

from proxy.cli.terminal import shown_time
from proxy.cli.trace import detail_of, say_story
from proxy.dead_letters.letter import Origin
from proxy.lineage.story import Step, Story

HERE, THERE = Origin("timer.ingress", 0, 1), Origin("orders", 0, 7)
NOW_MS = 1_800_000_000_000
DUE_MS = NOW_MS + 7_200_000


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(NOW_MS, "delivered", THERE, "", HERE, late_ms=9_999), "9999 ms late"),
        (
            Step(NOW_MS, "delivered", THERE, "given up", HERE, late_ms=60_000),
            "1 min late; given up",
        ),
        (Step(NOW_MS, "delivered", THERE, "", HERE), "its due time is unknown"),
        (Step(NOW_MS, "pending", HERE, "", HERE, DUE_MS), "due in 2 h"),
        (
            Step(DUE_MS, "pending", HERE, "", HERE, NOW_MS),
            "due 2 h ago: look whether the proxy runs",
        ),
        (Step(NOW_MS, "pending", HERE, "its target was paused", HERE), "its target was paused"),
        (Step(NOW_MS, "ingested", HERE, "for a\x1b", HERE), "for a\\x1b"),
        (
            Step(NOW_MS, "ingested", HERE, "for orders", HERE, DUE_MS),
            f"for orders, due {shown_time(DUE_MS)}",
        ),
    ],
)
def test_a_step_says_its_times_in_words(step: Step, words: str) -> None:
    assert detail_of(step) == words


def test_a_story_cut_short_says_how_to_hear_more(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Step(NOW_MS, "ingested", HERE, "for orders", HERE)]
    unknown = ["What came after the last step."]
    story = Story(HERE, "unknown", HERE, None, steps, unknown, is_whole=False)
    say_story(story)
    out = capsys.readouterr().out
    assert f"{HERE}: unknown" in out
    assert "Unknown:\n  What came after the last step." in out
    assert "--timeout" in out
