import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from damage import STRANGE
from grid import many

from adamatch.base.errors import InputError
from adamatch.grid import lease
from adamatch.grid.lease import Lease

DAY = 86_400.0
ELSEWHERE = json.dumps({"machine": "elsewhere", "pid": 1, "token": "x", "locked": True})


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    with Lease(tmp_path).hold() as first:
        assert first
        with Lease(tmp_path).hold() as second:
            assert not second
        found = lease.holder(tmp_path)
        assert found is not None
        assert found["pid"] == os.getpid()
    assert lease.holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with Lease(tmp_path).hold() as third:
        assert third


def test_a_killed_process_on_this_machine_is_dead_at_once(tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from adamatch.grid.lease import Lease
with Lease(Path({str(tmp_path)!r})).hold() as held:
    print(held, flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with Lease(tmp_path).hold() as ours:
        assert not ours
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert lease.holder(tmp_path) is None
    assert [facts["pid"] for facts in lease.holders(tmp_path)] == [process.pid]
    with Lease(tmp_path).hold() as ours:
        assert ours
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offset", [0.0, -DAY, DAY, -1000 * DAY, 1000 * DAY])
def test_a_holder_elsewhere_lives_by_its_heartbeat_whatever_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: float
) -> None:
    monkeypatch.setattr(lease, "DEAD_AFTER", 1.0)
    held, clock = tmp_path / "lease-1", time.time() + offset
    held.write_text(ELSEWHERE)
    for beat in range(12):  # longer than it may be silent
        os.utime(held, (clock + beat, clock + beat))
        with Lease(tmp_path).hold() as ours:
            assert not ours
        time.sleep(0.1)
    assert lease.holder(tmp_path) is not None
    assert lease.shows_life(tmp_path) is False  # it waits for that
    assert lease.holder(tmp_path) is None
    with Lease(tmp_path).hold() as ours:
        assert ours
        assert [path.name for path in lease.leases(tmp_path)] == ["lease-1", "lease-2"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("age", "seems"), [(10, True), (1000, False), (-10, True), (-DAY, False)])
def test_at_the_first_look_people_are_told_what_the_date_says(tmp_path: Path, age: float, seems: bool) -> None:
    (tmp_path / "lease-1").write_text(ELSEWHERE)
    os.utime(tmp_path / "lease-1", (time.time() - age, time.time() - age))
    assert (lease.holder(tmp_path) is not None) == seems
    with Lease(tmp_path).hold() as ours:
        assert not ours  # but nothing is taken from anybody on such grounds


@pytest.mark.parametrize("text", [*STRANGE, '{"machine": 3}', '{"token": [], "locked": "yes"}', '{"locked": true}'])
def test_a_lease_that_no_worker_wrote_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(lease, "DEAD_AFTER", 0.3)
    (tmp_path / "lease-7").write_text(text)
    (found,) = lease.holders(tmp_path)
    assert isinstance(found["machine"], str)
    assert not lease.shows_life(tmp_path)
    with Lease(tmp_path).hold() as ours:
        assert ours
        assert lease.leases(tmp_path)[-1].name == "lease-8"


def test_files_with_odd_names_are_no_leases(tmp_path: Path) -> None:
    for name in ("", "x", "²", "٣", "-1", "1.part", "9" * 200, "0"):
        (tmp_path / f"lease-{name}").write_text(ELSEWHERE)
    (tmp_path / "lease-3").mkdir()
    os.mkfifo(tmp_path / "lease-4")
    assert lease.leases(tmp_path) == []
    with Lease(tmp_path).hold() as ours:
        assert ours
        assert [path.name for path in lease.leases(tmp_path)] == ["lease-5"]
    (tmp_path / "lease-999999").mkdir()
    with pytest.raises(InputError, match="lease-N that no worker made: remove them"), Lease(tmp_path).hold():
        pass


def test_it_beats_and_who_was_taken_over_gets_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT", 0.02)
    told = threading.Event()
    mine = Lease(tmp_path)
    with mine.hold(on_loss=told.set):
        path = tmp_path / "lease-1"
        os.utime(path, (1, 1))
        many.wait_until(lambda: path.stat().st_mtime > 1, 10)
        (tmp_path / "lease-2").write_text(ELSEWHERE)  # somebody judged us dead
        assert told.wait(10)
    assert mine.lost
    assert [path.name for path in lease.leases(tmp_path)] == ["lease-2"]  # theirs is left alone


def test_who_was_taken_over_gets_to_know_though_the_other_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one beat: our lease is touched, and then none is left."""
    monkeypatch.setattr(lease, "BEAT", 0.02)
    touch, told = os.utime, threading.Event()

    def touched(path: Path) -> None:
        touch(path)
        for each in lease.leases(tmp_path):
            each.unlink()

    monkeypatch.setattr(os, "utime", touched)
    mine = Lease(tmp_path)
    with mine.hold(on_loss=told.set):
        assert told.wait(5)
    assert mine.lost


def test_many_at_once_take_over_a_dead_one_but_never_two_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "DEAD_AFTER", 0.0)  # of those elsewhere
    dead, inside, times = tmp_path / "lease-4", threading.Lock(), []
    dead.write_text(ELSEWHERE)
    os.utime(dead, (1, 1))

    def compete() -> None:
        for _ in range(15):
            with Lease(tmp_path).hold() as ours:
                if ours:
                    assert inside.acquire(blocking=False)
                    time.sleep(0.001)
                    times.append(1)
                    inside.release()

    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(compete) for _ in range(6)]:
            each.result()
    assert times
    assert list(tmp_path.iterdir()) == []
