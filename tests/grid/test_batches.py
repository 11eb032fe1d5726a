import errno
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from grid import fakes
from hypothesis import given
from hypothesis import strategies as st

from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.grid import cost, experiments, lease, work
from adamatch.grid.lease import Lease
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import Folders
from adamatch.grid.work import Resources

PAPER = experiments.load("paper")


@given(
    st.lists(st.tuples(st.sampled_from(["supervised", "adamatch"]), st.integers(0, 30)), unique=True, max_size=60),
    st.integers(1, 9),
)
def test_batches_have_every_run_once_and_one_shape_each(named: list[tuple[str, int]], places: int) -> None:
    runs = [fakes.run(method=method, seed=seed) for method, seed in named]
    made = work.batches(runs, places)
    assert Counter(run.id for batch in made for run in batch) == Counter(run.id for run in runs)
    for batch in made:
        assert len({cost.shape(run) for run in batch}) == 1
        assert len(batch) <= max(1, min(work.MOST, len(runs) // (work.ROUNDS * places)))
    first = [runs.index(batch[0]) for batch in made]
    assert first == sorted(first)  # the most wanted are begun first


def test_long_runs_stand_alone_and_short_ones_go_together() -> None:
    assert {len(batch) for batch in work.batches(PAPER, 8) if batch[0].benchmark == "domainnet224"} == {1}
    assert max(len(batch) for batch in work.batches(experiments.load("handwriting"), 1)) > 1


def test_a_folder_that_is_not_shared_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "PATIENCE", 0.0)
    token = work.write_token(tmp_path)
    work.check_shared(token, tmp_path)
    token.write_text("another machine's")
    with pytest.raises(InputError, match="file system that all machines share"):
        work.check_shared(token, tmp_path)
    token.unlink()
    with pytest.raises(InputError, match="file system that all machines share"):
        work.check_shared(token, tmp_path)


def test_a_full_disk_in_the_middle_of_a_run_is_no_fault_of_the_run(tmp_path: Path) -> None:
    def train(run: Run, folder: Path, job: work.Job) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise InputError("the checkpoint could not be written") from None  # as the loop does

    with pytest.raises(InputError, match="the disk is full") as raised:
        run_grid([fakes.run()], tmp_path, train=train)
    assert "\n" not in str(raised.value)
    assert Folders(tmp_path).state(fakes.run()) == "waiting"


def test_a_second_look_takes_over_from_a_machine_that_fell_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "DEAD_AFTER", 3.0)
    run, folders = fakes.run(), Folders(tmp_path)
    held = folders.make(run) / "lease-1"
    held.write_text(json.dumps({"machine": "elsewhere", "pid": 1, "token": "x", "locked": True}))
    job = work.Job((run,), folders, fakes.train)
    began = time.monotonic()
    work.walk(job)
    assert folders.state(run) == "running"  # it may live
    work.walk_again(job)
    assert folders.state(run) == "done"
    assert 1.5 < time.monotonic() - began < 20


def test_a_second_look_leaves_a_living_holder_alone(tmp_path: Path) -> None:
    run, folders = fakes.run(), Folders(tmp_path)
    with Lease(folders.make(run)).hold():
        work.walk_again(work.Job((run,), folders, fakes.train))
        assert folders.state(run) == "running"
    assert fakes.starts(folders.of(run)) == 0


def test_a_batch_ends_with_its_time(tmp_path: Path) -> None:
    job = work.Job((fakes.run(),), Folders(tmp_path), fakes.train)
    token = work.write_token(tmp_path)
    work.do_batch(job, token, 1, until=time.time() - 1)
    assert Folders(tmp_path).state(fakes.run()) == "waiting"
    work.do_batch(job, token, 1, until=time.time() + 60)
    assert Folders(tmp_path).state(fakes.run()) == "done"


def test_paths_are_absolute_for_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAMATCH_DATA", "sets")
    job = work.Job((), Folders(Path("out"), Path("keep")), fakes.train).absolute()
    assert (job.folders.out, job.folders.keep, job.data) == (tmp_path / "out", tmp_path / "keep", tmp_path / "sets")


@pytest.mark.parametrize(
    ("engine", "changes", "says"),
    [
        ("rey", {}, "did you mean 'ray'"),
        ("ray", {"resources": Resources(processes=2)}, "--processes is for --engine local"),
        ("slurm", {"device": "cuda:1"}, "chooses the GPU by itself"),
        ("ray", {"resources": Resources(cpus_per_run=0)}, "--cpus-per-run"),
        ("local", {"resources": Resources(partition="gpu", minutes=9)}, "partition, minutes: these are for a cluster"),
    ],
)
def test_what_an_engine_cannot_do_is_one_line(
    tmp_path: Path, engine: str, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        run_grid([fakes.run()], tmp_path, engine=engine, **changes)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []
