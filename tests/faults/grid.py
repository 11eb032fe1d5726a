"""Workers of a grid killed, and its files damaged: `python -m faults.grid`, from tests/. Every cell ends as without.

Workers are forks that run what each engine runs in its workers: `work` (local), Ray's task, SLURM's task. Two of them
share a folder; one is killed at a random moment, or a file is damaged when some runs are done. Then a worker goes on.
Where a line says that a file is to be removed, it is removed.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from damage import flip
from grid import fakes

from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.grid import lease, ray_engine, slurm_engine, work
from adamatch.grid.state import Folders
from adamatch.grid.work import Job, write_token
from adamatch.train.run_folder import RunFolder

RUNS = tuple(fakes.run(seed=seed) for seed in range(5))
STEPS = 5


def train(run: Run, folder: Path, job: Job) -> None:
    """Pretends to: a line of metrics for each step, then a result that the run alone decides."""
    held = RunFolder(folder)
    with held.claim(run):
        held.rewind(0)
        for step in range(1, STEPS + 1):
            held.append({"step": step, "loss": run.seed / step})
            time.sleep(0.005)
        held.finish(fakes.result(run, accuracy=run.seed))


ENGINES: dict[str, Callable[[Job, Path], Any]] = {
    "local": lambda job, token: work.work(job),
    "ray": lambda job, token: ray_engine._task(job, token, 1, float("inf")),
    "slurm": lambda job, token: slurm_engine.Task(job, token, 1)(),
}


def start(engine: str, job: Job, token: Path) -> int:
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        try:
            ENGINES[engine](job, token)
            os._exit(0)
        except InputError:
            os._exit(2)
        except BaseException:
            os._exit(70)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def cells(folders: Folders) -> list[Any]:
    """What the grid has in the end."""
    found = []
    for run in RUNS:
        rows = (folders.of(run) / "metrics.jsonl").read_text()
        kept = folders._results(run)[0]
        found.append((folders.state(run), folders.result(run), json.loads(kept.read_text())["accuracy"], rows))
    return found


def finish(job: Job, token: Path, engine: str) -> list[Any]:
    """Go on until all is done, and do what errors say."""
    folders = job.folders
    for _ in range(4):
        for run in RUNS:
            try:
                folders.keep_result(run)
                folders.result(run)
            except InputError as error:
                Path(str(error).split(" is damaged")[0]).unlink()
            if folders.state(run) == "failed":  # "choose another folder, or give overwrite": this one is removed
                shutil.rmtree(folders.of(run))
        code = ended(start(engine, job, token))
        assert code == 0, (engine, code)
        try:
            return cells(folders)
        except (InputError, FileNotFoundError):
            continue
    return ["not finished"]


def hurt(folders: Folders, random: Random) -> str:
    """Damage a file of the grid."""
    run = random.choice(RUNS)
    names = ("result.json", "run.json", "manifest.json", "error.json", "lease-1", "kept")
    name, way = random.choice(names), random.choice(("flip", "cut", "empty", "gone", "zeros", "text"))
    path = folders._results(run)[0] if name == "kept" else folders.of(run) / name
    folders.of(run).mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text('{"machine": "other", "token": "x", "pid": 1, "locked": true}' if name == "lease-1" else "{}")
    content = path.read_bytes()
    changed = {"cut": content[: len(content) // 2], "empty": b"", "zeros": bytes(len(content)), "text": b"no JSON"}
    if way == "gone":
        path.unlink()
    elif way == "flip":
        flip(path, random.randrange(10**6))
    else:
        path.write_bytes(changed[way])
    return f"{name} {way}"


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m faults.grid")
    asked.add_argument("--kills", type=int, default=50)
    asked.add_argument("--damages", type=int, default=50)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--write", type=Path)
    given = asked.parse_args()
    random, bad, engines, rows = Random(given.seed), 0, [*ENGINES], Counter[str]()
    lease.DEAD_AFTER = 0.5  # of leases that a damage has made those of another machine
    with tempfile.TemporaryDirectory(prefix="grid-") as base:
        expected: list[Any] = []
        for number in range(given.kills + given.damages + 1):
            out = Path(base) / str(number)
            job = Job(RUNS, Folders(out / "out", out / "kept"), train, device="cpu")
            (out / "kept").mkdir(parents=True)
            token = write_token(out / "out")
            engine, other, what = engines[number % 3], random.choice(engines), ""
            if 0 < number <= given.kills:
                workers = [start(each, job, token) for each in (engine, other)]
                time.sleep(random.random() * 0.3)
                os.kill(workers[0], signal.SIGKILL)
                what = f"{engine} beside {other} killed"
                codes = [ended(each) for each in workers]
                assert codes[0] in (-signal.SIGKILL, 0)
            elif number:
                some = Job(RUNS[: random.randrange(6)], job.folders, train, device="cpu")
                assert ended(start(other, some, token)) == 0
                what = hurt(job.folders, random)
            found = finish(job, token, engine)
            expected = expected or found
            rows[f"{'killed' if number <= given.kills else 'damaged'}, {engine}"] += number > 0
            if found != expected:
                bad += 1
                print(number, engine, what, found, flush=True)
            shutil.rmtree(out)
    print(f"{given.kills} kills, {given.damages} damages, {bad} cells differ: {dict(rows)}")
    if given.write:
        given.write.write_text(json.dumps({"outcomes": rows, "bad": bad}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
