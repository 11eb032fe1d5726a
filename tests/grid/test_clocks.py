"""Two machines whose clocks are a day apart, and eight runs of which workers are killed: all are done, once."""

import signal
from pathlib import Path

import pytest
from grid import clocks, many

from adamatch.grid import lease
from adamatch.grid.state import Folders

DAY = 86_400.0


def begun(out: Path) -> list[Path]:
    return list(out.glob("*/noted.txt"))


def all_done_once(out: Path, again: int) -> None:
    folders, twice = Folders(out), 0
    for run in clocks.eight():
        counted = many.events(folders.of(run))
        assert counted["ended"] == 1
        twice += counted["began"] - 1
        assert folders.state(run) == "done"
        assert lease.leases(folders.of(run)) == []
    assert twice == again


@pytest.mark.slow
def test_a_machine_whose_clock_is_a_day_ahead_is_killed(tmp_path: Path) -> None:
    ahead = clocks.machine("ahead", tmp_path, offset=DAY, does="hang")
    many.wait_until(lambda: begun(tmp_path))
    right = clocks.machine("right", tmp_path)
    many.wait_until(lambda: len(list(tmp_path.glob("*/result.json"))) >= 2)
    ahead.send_signal(signal.SIGKILL)
    ahead.communicate()
    out, err = right.communicate(timeout=240)
    assert right.returncode == 0, err
    assert "8 done, 0 failed, 0 running, 0 waiting" in out
    all_done_once(tmp_path, again=1)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-DAY, DAY])
def test_while_it_lives_it_keeps_its_run_and_dead_workers_are_replaced(tmp_path: Path, offset: float) -> None:
    other = clocks.machine("other", tmp_path, offset=offset, does="hang")
    many.wait_until(lambda: begun(tmp_path))
    right = clocks.machine("right", tmp_path, "--processes", "2", does="kill")
    out, err = right.communicate(timeout=240)
    assert right.returncode == 3, err  # the other one lives: its run is left to it
    assert "7 done, 0 failed, 1 running, 0 waiting" in out
    assert "not all runs are done" in out
    other.send_signal(signal.SIGKILL)
    other.communicate()
    right = clocks.machine("right", tmp_path, "--processes", "2")
    out, err = right.communicate(timeout=240)
    assert right.returncode == 0, err
    assert "8 done, 0 failed, 0 running, 0 waiting" in out
    all_done_once(tmp_path, again=2)
