import errno
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from grid import fakes, many

from adamatch.base.errors import InputError, Interruption
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.grid import lease, local_engine, work
from adamatch.grid.lease import Lease
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import Folders
from adamatch.grid.work import Pace, Resources
from adamatch.train.run_folder import RunFolder


def runs(*seeds: int) -> list[Run]:
    return [fakes.run(seed=seed) for seed in seeds]


def test_every_run_once_and_a_failure_stops_nobody(tmp_path: Path) -> None:
    grid = runs(0, 7, 1)
    assert run_grid(grid, tmp_path, train=fakes.train) == {"done": 2, "failed": 1, "running": 0, "waiting": 0}
    error = json.loads((tmp_path / grid[1].name / "error.json").read_text())
    assert error["error"].startswith("InputError: this one cannot be done")
    assert "\n" not in error["error"]
    assert "second line" in error["traceback"]
    assert "Traceback" in error["traceback"]
    run_grid(grid, tmp_path, train=fakes.train)
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [1, 1, 1]  # nothing again, the failed one neither
    run_grid(grid, tmp_path, train=fakes.train, retry=True)
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [1, 2, 1]
    for run in grid:
        assert lease.leases(tmp_path / run.name) == []


def test_failure_before_the_folder_is_claimed_can_be_retried(tmp_path: Path) -> None:
    run = fakes.run(benchmark="digitfive", source="mnist", target="svhn", recipe=recipe("digitfive"))
    assert run_grid([run], tmp_path, data=tmp_path / "nothing")["failed"] == 1
    assert "adamatch data prepare" in json.loads((tmp_path / run.name / "error.json").read_text())["error"]
    assert run_grid([run], tmp_path, retry=True, train=fakes.train)["done"] == 1


def test_results_are_kept_at_once_and_kept_ones_count_as_done(tmp_path: Path) -> None:
    grid, keep = runs(0, 1), tmp_path / "kept"
    run_grid(grid[:1], tmp_path / "a", keep=keep, train=fakes.train)
    assert json.loads((keep / f"{grid[0].name}.json").read_text())["id"] == grid[0].id
    assert run_grid(grid, tmp_path / "b", keep=keep, train=fakes.train)["done"] == 2
    assert fakes.starts(tmp_path / "b" / grid[0].name) == 0
    # A worker that was killed between its result and the copy: the next call copies.
    (keep / f"{grid[1].name}.json").unlink()
    run_grid(grid, tmp_path / "b", keep=keep, train=fakes.train)
    assert (keep / f"{grid[1].name}.json").exists()
    assert fakes.starts(tmp_path / "b" / grid[1].name) == 1


def test_seconds_stop_new_runs_but_not_the_first(tmp_path: Path) -> None:
    assert run_grid(runs(0, 1), tmp_path / "a", seconds=0, train=fakes.train)["done"] == 0
    # The first takes more than a second, so that another one would not end within two.
    assert run_grid(runs(0, 1, 2), tmp_path / "b", seconds=2, train=fakes.train_slowly)["done"] == 1
    # Nor would one of another method, which this process has never done.
    grid = [fakes.run(), fakes.run(method="fixmatch+")]
    assert run_grid(grid, tmp_path / "c", seconds=2, train=fakes.train_slowly)["done"] == 1


def test_a_resumed_run_tells_how_long_all_of_it_took(tmp_path: Path) -> None:
    def resumed(run: Run, folder: Path, job: work.Job) -> None:
        held = RunFolder(folder)
        with held.claim(run):
            held.finish(fakes.result(run) | {"wall_seconds": 60.0})  # of which most was in an earlier call

    assert run_grid(runs(0, 1), tmp_path, seconds=30, train=resumed)["done"] == 1


def test_what_fits_is_told_from_what_this_process_has_done() -> None:
    pace, adamatch, supervised = Pace(), fakes.run(), fakes.run(method="supervised")
    assert pace.fits(adamatch, 0.1)  # nothing is known yet
    pace.note(adamatch, 30.0)  # with its start-up
    pace.note(adamatch, 10.0)
    assert [pace.fits(adamatch, left) for left in (9.9, 10.1)] == [False, True]
    # A fifth of the operations: 2 of 10 times a batch of 8.
    assert [pace.fits(supervised, left) for left in (1.9, 5.0)] == [False, True]


def test_a_run_that_another_does_is_left_alone(tmp_path: Path) -> None:
    grid = runs(0, 1)
    folder = Folders(tmp_path).make(grid[0])
    with Lease(folder).hold():
        assert run_grid(grid, tmp_path, train=fakes.train) == {"done": 1, "failed": 0, "running": 1, "waiting": 0}
    assert run_grid(grid, tmp_path, train=fakes.train)["done"] == 2


def test_a_stopped_run_is_no_failure(tmp_path: Path) -> None:
    def stop(run: Run, folder: Path, job: work.Job) -> None:
        raise Interruption("stopped")

    with pytest.raises(Interruption):
        run_grid(runs(0, 1), tmp_path, train=stop)
    assert run_grid(runs(0, 1), tmp_path, seconds=0) == {"done": 0, "failed": 0, "running": 0, "waiting": 2}


def test_a_full_disk_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "ROOM", 2**80)
    with pytest.raises(InputError, match="make room"):
        run_grid(runs(0), tmp_path, train=fakes.train)
    assert run_grid(runs(0), tmp_path, seconds=0)["waiting"] == 1


def test_what_is_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (run,) = runs(0)
    (tmp_path / run.name).write_text("a file")
    with pytest.raises(InputError, match=f"{run.name} cannot be made .File exists.: clear the way"):
        run_grid([run], tmp_path, train=fakes.train)


def test_processes_share_the_work_and_a_run_that_kills_them_has_failed(tmp_path: Path) -> None:
    grid = runs(9, 0, 1, 7, 2)
    states = run_grid(grid, tmp_path, resources=Resources(processes=2), train=fakes.train)
    assert states == {"done": 3, "failed": 2, "running": 0, "waiting": 0}
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [2, 1, 1, 1, 1]
    assert "signal 9" in json.loads((tmp_path / grid[0].name / "error.json").read_text())["error"]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("gpus", "device", "shared"),
    [
        ("0", "auto", [3, 3, 3]),
        ("4,7", "cuda", [2, 1, 2]),
        ("", "cpu", [1, 1, 1]),
        ("0,1", "cuda:1", [3, 3, 3]),
        ("-1", "auto", [1, 1, 1]),
    ],
)
def test_workers_say_how_many_share_their_gpu(
    gpus: str, device: str, shared: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    job = work.Job((), Folders(tmp_path), fakes.train, device=device)
    seen: list[work.Job] = []
    with mock.patch.multiple(local_engine, work=seen.append, _follow=lambda: None, torch=mock.DEFAULT) as patched:
        patched["torch"].cuda.device_count.return_value = 0
        for number in range(3):
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
            local_engine._worker(job, number, 3)
    assert [each.at_a_time for each in seen] == shared


@pytest.mark.parametrize("terminal", [True, False])
def test_one_process_has_the_gpu_alone_and_shows_its_progress_to_a_person(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    seen: list[work.Job] = []
    run_grid(runs(0), tmp_path, train=lambda run, folder, job: seen.append(job))
    job = seen[0]
    assert (job.at_a_time, job.quiet) == (1, not terminal)
    assert job.at_a_time is not True  # a number, which results say


def test_a_wrong_device_or_folder_is_refused_once_and_fails_no_run(tmp_path: Path) -> None:
    grid = runs(0, 1)
    with pytest.raises(InputError, match="no device is called 'gpu'"):
        run_grid(grid, tmp_path, train=fakes.train, device="gpu")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run_grid(grid, tmp_path / "file" / "out", train=fakes.train, resources=Resources(processes=2))
    assert run_grid(grid, tmp_path, train=fakes.train)["done"] == 2


def test_a_worker_whose_gpu_is_lost_is_replaced(tmp_path: Path) -> None:
    grid = runs(0, 8, 1, 2)
    states = run_grid(grid, tmp_path, resources=Resources(processes=2), train=fakes.train_and_break)
    assert states == {"done": 3, "failed": 1, "running": 0, "waiting": 0}


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    grid = runs(0)
    run_grid(grid, tmp_path, train=fakes.train)
    (tmp_path / grid[0].name / "result.json").write_text("")
    with pytest.raises(InputError, match=r"result\.json is damaged: remove it"):
        run_grid(grid, tmp_path, keep=tmp_path / "kept", train=fakes.train)


def test_two_walks_at_once_never_do_the_same_run(tmp_path: Path) -> None:
    grid = runs(0, 1, 2, 3, 4)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(run_grid, grid, tmp_path, train=fakes.train)
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [1] * 5


@pytest.mark.slow
def test_real_runs_killed_twice_end_with_every_result_once(tmp_path: Path) -> None:
    out, keep = tmp_path / "out", tmp_path / "keep"
    words = f"-m adamatch grid run grid.fakes:tiny --out {out} --keep {keep} --device cpu".split()
    how: Any = {"cwd": many.ROOT, "env": many.environment(), "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    seen: many.Results = {}
    for finished in (1, 2):
        with subprocess.Popen([sys.executable, *words], **how) as process:
            many.wait_until(lambda: len(many.results(out)) >= finished or process.poll() is not None)  # noqa: B023
            process.kill()
        now = many.results(out)
        assert finished <= len(now) < 4
        assert seen.items() <= now.items()
        seen = now
    ended = subprocess.run([sys.executable, *words], **how, text=True, timeout=120, check=True)
    assert "4 done, 0 failed, 0 running, 0 waiting" in ended.stdout
    assert seen.items() <= many.results(out).items()  # not measured again
    for run in fakes.tiny():
        assert json.loads((keep / f"{run.name}.json").read_text())["id"] == run.id
        rows = [json.loads(line)["step"] for line in (out / run.name / "metrics.jsonl").read_text().splitlines()]
        assert rows == [1, 2]
    assert len(list(out.iterdir())) == 4
    assert len(list(keep.glob("*.json"))) == 4  # (a kill in the middle of writing leaves a hidden .part)


def test_a_run_whose_process_died_meanwhile_does_not_wait(tmp_path: Path) -> None:
    """Another grid had it when this one came by; that one is killed, and this one sees it before it ends."""
    grid = runs(0, 1)
    holder = (
        "import sys, time; from pathlib import Path; from adamatch.grid.lease import Lease\n"
        "with Lease(Path(sys.argv[1])).hold(): print('held', flush=True); time.sleep(60)"
    )
    folder = Folders(tmp_path).make(grid[0])
    with subprocess.Popen([sys.executable, "-c", holder, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        def train(run: Run, folder: Path, job: work.Job) -> None:
            other.kill()
            other.wait()
            fakes.train(run, folder, job)

        assert run_grid(grid, tmp_path, train=train)["done"] == 2
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [1, 1]


STALE = OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def broken(times: int, error: Exception = STALE) -> Callable[..., None]:
    """A training that fails so often, as one whose file system is away, and then succeeds."""
    left = iter(range(times))

    def train(run: Run, folder: Path, job: work.Job) -> None:
        if next(left, None) is not None:
            try:
                raise error
            except OSError:
                raise InputError("the checkpoint could not be written (Stale file handle)") from None
        fakes.train(run, folder, job)

    return train


def test_a_disk_that_was_away_for_a_moment_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("adamatch.grid.work.time.sleep", pauses.append)
    assert run_grid(runs(0), tmp_path / "a", train=broken(3))["done"] == 1
    assert pauses[:3] == list(work.RETRY_AFTER)
    assert f"{runs(0)[0].name}: Stale file handle; it is tried again in 10 s" in capsys.readouterr().err
    assert run_grid(runs(0, 1), tmp_path / "b", train=broken(4)) == {"done": 1, "failed": 1, "running": 0, "waiting": 0}
    error = json.loads((tmp_path / "b" / runs(0)[0].name / "error.json").read_text())["error"]
    assert "Stale file handle" in error
    assert "room" not in error


def test_other_errors_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "RETRY_AFTER", (1000.0,))
    error = OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert run_grid(runs(0), tmp_path, train=broken(1, error))["failed"] == 1


@pytest.mark.parametrize("name", ["make", "state"])
def test_a_disk_that_is_away_around_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "RETRY_AFTER", (0.0, 0.0))
    calls, whole = iter([True, True, *[False] * 50]), getattr(Folders, name)

    def away(self: Folders, run: Run) -> Any:
        if next(calls):
            raise STALE
        return whole(self, run)

    job = work.Job(tuple(runs(0)), Folders(tmp_path), fakes.train)
    monkeypatch.setattr(Folders, name, away)
    work.walk(job)
    assert Folders(tmp_path).state(runs(0)[0]) == "done"
