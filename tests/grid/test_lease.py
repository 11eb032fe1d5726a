import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from adamatch.grid import lease
from adamatch.grid.lease import Lease

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


def test_a_holder_elsewhere_lives_by_its_heartbeat(tmp_path: Path) -> None:
    held = tmp_path / "lease-1"
    held.write_text(ELSEWHERE)
    with Lease(tmp_path).hold() as ours:
        assert not ours
    os.utime(held, (time.time() - 1000, time.time() - 1000))
    assert lease.holder(tmp_path) is None
    with Lease(tmp_path).hold() as ours:
        assert ours
        assert [path.name for path in lease.leases(tmp_path)] == ["lease-1", "lease-2"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offset", [-(10**6), 10**6])
def test_our_clock_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: float) -> None:
    (tmp_path / "lease-1").write_text(ELSEWHERE)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + offset)
    with Lease(tmp_path).hold() as ours:
        assert not ours


def test_it_beats(tmp_path: Path) -> None:
    with Lease(tmp_path, beat=0.02).hold():
        path = tmp_path / "lease-1"
        os.utime(path, (1, 1))
        _wait_until(lambda: path.stat().st_mtime > 1)


def test_who_was_taken_over_gets_to_know(tmp_path: Path) -> None:
    told = threading.Event()
    mine = Lease(tmp_path, beat=0.02)
    with mine.hold(on_loss=told.set):
        (tmp_path / "lease-2").write_text(ELSEWHERE)  # somebody judged us dead
        assert told.wait(10)
    assert mine.lost
    assert [path.name for path in lease.leases(tmp_path)] == ["lease-2"]  # theirs is left alone


def test_many_at_once_take_over_a_dead_one_but_never_two_together(tmp_path: Path) -> None:
    inside, most, times = 0, 0, 0
    guard = threading.Lock()
    dead = tmp_path / "lease-4"
    dead.write_text(ELSEWHERE)
    os.utime(dead, (1, 1))

    def compete() -> None:
        nonlocal inside, most, times
        for _ in range(15):
            with Lease(tmp_path).hold() as ours:
                if ours:
                    with guard:
                        inside, times = inside + 1, times + 1
                        most = max(most, inside)
                    time.sleep(0.001)
                    with guard:
                        inside -= 1

    threads = [threading.Thread(target=compete) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert times >= 1
    assert list(tmp_path.iterdir()) == []


def _wait_until(true: object) -> None:
    end = time.monotonic() + 10
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
