"""A real Ray on this machine, started here. pip install ray, then `pytest -m slow tests/grid/test_ray.py`."""

import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from grid import fakes, many

from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.grid import lease
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import Folders
from adamatch.grid.work import Resources

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")


@pytest.fixture(autouse=True, scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The clusters of these tests have a token of their own: Ray's default writes to the home folder."""
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
        yield


@contextmanager
def node(*words: str, before: tuple[str, ...] = (), more: dict[str, str] | None = None) -> Iterator[None]:
    """A machine of a Ray cluster, as a process group that ends with the test."""
    command = [*before, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "2", *words]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=many.environment(**more or {}), start_new_session=True, **quiet)
    try:
        yield
    finally:
        process.terminate()  # it ends what it started
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(**more: str) -> Iterator[str]:
    """A Ray of one machine with two cores; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # Ray's sockets need a short path
    words = f"--head --node-ip-address=127.0.0.1 --port={port} --include-dashboard=false --temp-dir={folder}"
    with node(*words.split(), more=more):
        many.wait_until(lambda: _answers(port))
        time.sleep(3)
        yield f"127.0.0.1:{port}"
    shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@needs_ray
def test_24_runs_with_a_worker_killed_and_then_the_driver(tmp_path: Path) -> None:
    out, keep = tmp_path / "out", tmp_path / "keep"
    assert many.status(out)["waiting"] == 24
    with cluster() as address:
        driver = many.driver("ray", out, keep, address=address)
        many.wait_until(lambda: len(many.results(out)) >= 4)
        assert many.status(out)["running"] <= 2

        many.wait_until(lambda: any(run.recipe != many.REAL for run in many.running(out)))
        victim = next(run for run in many.running(out) if run.recipe != many.REAL)
        held = lease.holder(out / victim.name)
        assert held is not None
        os.kill(held["pid"], signal.SIGKILL)
        many.wait_until(lambda: (now := lease.holder(out / victim.name)) is None or now["pid"] != held["pid"], 5)
        many.status(out)

        many.wait_until(lambda: len(many.results(out)) >= 12)
        driver.kill()
        driver.wait()
        many.wait_until(lambda: not many.running(out), 60)
        seen = many.results(out)
        time.sleep(3)
        assert many.results(out) == seen  # nothing goes on without a driver
        assert 12 <= len(seen) < 24
        assert many.status(out) == {"done": len(seen), "failed": 0, "running": 0, "waiting": 24 - len(seen), "all": 24}

        driver = many.driver("ray", out, keep, address=address)
        shown, _ = driver.communicate(timeout=180)
        assert driver.returncode == 0, (tmp_path / "driver.err").read_text()
        assert json.loads(shown)["done"] == 24
        many.assert_all_done_once(out, keep, seen, begun_twice=1 + 2)  # the killed worker's, and two of the driver's
        assert many.events(out / victim.name)["began"] >= 2
        assert len(list(out.glob(".shared-*"))) == 1  # of the driver that was killed


def one() -> Iterator[Run]:
    """A real run that takes minutes."""
    yield Run(source="rendered", target="handwritten")


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_it_saves_its_runs_and_says_so_in_one_line(tmp_path: Path, number: signal.Signals) -> None:
    words = f"-m adamatch grid run grid.test_ray:one --engine ray --device cpu --out {tmp_path}".split()
    environment = many.environment(RAY_ADDRESS="")
    process = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.PIPE, text=True)
    many.wait_until(lambda: list(tmp_path.glob("*/metrics.jsonl")))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("the grid was stopped")
    assert "Traceback" not in said
    assert list(tmp_path.glob("*/checkpoints/*.safetensors"))
    assert Folders(tmp_path).state(next(one())) == "waiting"
    assert not list(tmp_path.glob(".shared-*"))


@pytest.mark.slow
@needs_ray
def test_a_run_that_kills_its_workers_has_failed_and_the_others_are_done(tmp_path: Path) -> None:
    grid = [fakes.run(seed=seed) for seed in (9, 0, 1, 7, 2)]
    with cluster() as address:
        states = run_grid(
            grid, tmp_path, train=fakes.train, engine="ray", resources=Resources(address=address), device="cpu"
        )
    assert states == {"done": 3, "failed": 2, "running": 0, "waiting": 0}
    assert [fakes.starts(tmp_path / run.name) for run in grid] == [3, 1, 1, 1, 1]
    assert "died 3 times" in Folders(tmp_path).error(grid[0])["error"]


@pytest.mark.slow
@needs_ray
def test_a_full_disk_ends_the_grid_in_one_line(tmp_path: Path) -> None:
    grid = list(many.runs())[:4]
    with cluster(ADAMATCH_TEST_FULL="1") as address, pytest.raises(InputError, match="the disk is full") as raised:
        run_grid(grid, tmp_path, train=many.train, engine="ray", resources=Resources(address=address), device="cpu")
    assert "\n" not in str(raised.value)
    assert not any((tmp_path / run.name / "error.json").exists() for run in grid)  # no fault of the runs


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_no_cluster_at_that_address_is_one_line(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match=f"no Ray cluster answers at {address}") as raised:
        run_grid([fakes.run()], tmp_path, engine="ray", resources=Resources(address=address))
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_without_ray_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"adamatch\[ray\]"):
        run_grid([fakes.run()], tmp_path, engine="ray")
