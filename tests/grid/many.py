"""24 tiny runs for the tests of the engines, a training that notes when it begins and ends, and how to look at it."""

import errno
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from grid import fakes
from typer.testing import CliRunner

from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.grid.commands import app
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import STATES, Folders
from adamatch.grid.work import Job, Resources, train_one
from adamatch.train.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
GRID = "grid.many:runs"
REAL = recipe("handwriting", images=64, batch=8)  # eight steps of real training

Results = dict[Path, tuple[int, bytes]]


def runs() -> Iterator[Run]:
    """20 pretended runs of two shapes and 4 real ones."""
    for seed in range(100, 110):
        yield fakes.run(method="supervised", seed=seed)
        yield fakes.run(method="fixmatch+", seed=seed)
    for seed in range(2):
        for method in ("supervised", "adamatch"):
            yield fakes.run(method=method, seed=seed, recipe=REAL)


def train(run: Run, folder: Path, job: Job) -> None:
    if os.environ.get("ADAMATCH_TEST_FULL"):
        raise OSError(errno.ENOSPC, "No space left on device")
    note(folder, f"began {os.getpid()}")
    if run.recipe == REAL:
        train_one(run, folder, job)
    else:
        held = RunFolder(folder)
        with held.claim(run):
            time.sleep(float(os.environ.get("ADAMATCH_TEST_SECONDS", "1.0")))
            held.finish(fakes.result(run))
    note(folder, "ended")


def note(folder: Path, line: str) -> None:
    with (folder / "noted.txt").open("a") as file:
        file.write(f"{line}\n")


def events(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (folder / "noted.txt").read_text().splitlines())


def environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"} | more


def driver(engine: str, out: Path, keep: Path, **asked: object) -> "subprocess.Popen[str]":
    """A process that runs the grid with that engine."""
    arguments = json.dumps({"engine": engine, "out": str(out), "keep": str(keep), "asked": asked})
    command = [sys.executable, "-c", "from grid import many; many.drive()", arguments]
    said = (out.parent / "driver.err").open("a")
    return subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=said)


def drive() -> None:
    given = json.loads(sys.argv[1])
    asked = Resources(**given["asked"])
    where = {"folder": given["out"], "keep": given["keep"], "engine": given["engine"]}
    print(json.dumps(run_grid(runs(), **where, device="cpu", train=train, resources=asked)))


def results(out: Path) -> Results:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.glob("*/result.json")}


def status(out: Path) -> dict[str, int]:
    """What `adamatch grid status` shows; it must lie between what was there before it and what is there after it."""
    before = len(results(out))
    shown = CliRunner().invoke(app, ["status", GRID, "--out", str(out)], catch_exceptions=False).output
    numbers = [int(word) for word in shown.split("all")[-1].split()[:5]]
    counts = dict(zip((*STATES, "all"), numbers, strict=True))
    assert before <= counts["done"] <= len(results(out))
    assert sum(counts[state] for state in STATES) == counts["all"] == 24
    return counts


def running(out: Path) -> list[Run]:
    return [run for run in runs() if Folders(out).state(run) == "running"]


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def assert_all_done_once(out: Path, keep: Path, seen: Results, begun_twice: int) -> None:
    """Every result is there, those `seen` before are untouched, and no run was ended twice."""
    assert status(out) == {"done": 24, "failed": 0, "running": 0, "waiting": 0, "all": 24}
    now = results(out)
    assert len(now) == 24
    assert seen.items() <= now.items()
    for run in runs():
        assert json.loads((out / run.name / "result.json").read_text())["id"] == run.id
        assert json.loads((keep / f"{run.name}.json").read_text())["id"] == run.id
        counted = events(out / run.name)
        assert counted["ended"] <= 1  # 0: killed after its result was written
        assert list((out / run.name).glob("lease-*")) == []
    again = [run for run in runs() if events(out / run.name)["began"] > 1]
    assert len(again) <= begun_twice
