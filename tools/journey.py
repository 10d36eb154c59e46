"""Size of the code that one plain record runs through: `python -m tools.journey`. A record with
`timer-delay: 2s` passes a worker's pipeline, with a stand-in broker and a real store. The report
counts the product's files in which code runs, and the lines of these files. It also counts the
calls in the turn that delivers the record. It leaves out the takeover of the partition."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, NamedTuple

from storage.options import Options
from tests.support.simulation.executors import WhenAsked
from tests.support.simulation.local_store import register_in, store_in
from tests.support.simulation.world import World

REPOSITORY: Final = Path(__file__).parents[1]
PRODUCT: Final = tuple(f"{REPOSITORY / room}/" for room in ("proxy", "storage"))
STAND_INS: Final = f"{REPOSITORY / 'tests' / 'support' / 'simulation' / 'stand_in'}"
DELAY_MS: Final = 2_000


class Calls:
    def __init__(self) -> None:
        self.by_file: Counter[str] = Counter()
        self.between_files = 0

    def during(self, work: Callable[[], Any]) -> None:
        """Run `work` and count its calls. Leave out comprehensions, and calls that a stand-in
        makes."""
        sys.setprofile(self._note)
        try:
            work()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(PRODUCT) or frame.f_code.co_name.startswith("<"):
            return
        callers = list(_callers(frame))
        if any(caller.startswith(STAND_INS) for caller in callers):
            return
        self.by_file[path] += 1
        self.between_files += callers[:1] != [path]


def _callers(frame: FrameType) -> Iterator[str]:
    while frame.f_back is not None:
        frame = frame.f_back
        yield frame.f_code.co_filename


class Journey(NamedTuple):
    """Code that one record runs through. `files` maps paths below the repository to numbers of
    calls. `lines` is the number of lines in these files. `calls` counts the calls in the turn that
    delivers. `between_files` counts the calls in that turn whose caller is in another file."""

    files: dict[str, int]
    lines: int
    calls: int
    between_files: int


def journey() -> Journey:
    with TemporaryDirectory() as folder:
        data_dir = Path(folder)
        world = World(
            open_store=store_in("wheel", data_dir, Options()),
            commits=WhenAsked(),
            open_register=register_in(data_dir),
        )
        taken_in, delivered, confirmed = Calls(), Calls(), Calls()
        for calls in (Calls(), Calls(), Calls()), (taken_in, delivered, confirmed):
            _pass_one(world, *calls)
        world.stop()
    whole = taken_in.by_file + delivered.by_file + confirmed.by_file
    return Journey(
        {str(Path(path).relative_to(REPOSITORY)): count for path, count in whole.items()},
        sum(len(Path(path).read_text("utf-8").splitlines()) for path in whole),
        delivered.by_file.total(),
        delivered.between_files,
    )


def _pass_one(world: World, taken_in: Calls, delivered: Calls, confirmed: Calls) -> None:
    before = len(world.delivered())
    world.settle()
    world.send({"timer-topic": "orders", "timer-delay": f"{DELAY_MS}ms"})
    taken_in.during(world.turn)
    world.settle()
    world.time.pass_ms(DELAY_MS)
    delivered.during(world.turn)
    confirmed.during(world.turn)
    assert len(world.delivered()) == before + 1, "the record was not delivered in that turn"


def main() -> None:
    found = journey()
    for path, count in sorted(found.files.items()):
        print(f"{count:6} {path}")
    print(
        f"{len(found.files)} files of {found.lines} lines; the turn that delivers makes "
        f"{found.calls} calls, {found.between_files} of them into another file"
    )


if __name__ == "__main__":
    main()
