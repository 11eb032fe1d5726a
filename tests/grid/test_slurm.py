"""A real SLURM: as root `sh tests/slurm/setup.sh`; pip install submitit; `pytest -m slow tests/grid/test_slurm.py`."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grid import fakes, many

from adamatch.base.errors import InputError
from adamatch.grid import slurm_engine
from adamatch.grid.schedule import run_grid
from adamatch.grid.work import Resources, write_token

CONF = Path(os.environ.get("ADAMATCH_TEST_SLURM", "/tmp/adamatch-slurm")) / "slurm.conf"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The SLURM of tests/slurm/setup.sh, and no other: the test drains its node."""
    if importlib.util.find_spec("submitit") is None:
        pytest.skip("submitit is not installed: pip install submitit")
    monkeypatch.setenv("SLURM_CONF", str(CONF))
    here = CONF.exists() and shutil.which("sinfo") is not None
    if not here or ask("sinfo", "-h", "-o", "%T") not in ("idle", "mixed", "allocated"):
        pytest.skip("the SLURM of the tests does not run: as root, sh tests/slurm/setup.sh")
    yield
    ask("scancel", "-n", "adamatch")


def ask(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_24_runs_with_the_node_drained_and_resumed(tmp_path: Path) -> None:
    out, keep, name = tmp_path / "out", tmp_path / "keep", ask("sinfo", "-h", "-o", "%N")
    driver = many.driver("slurm", out, keep, at_once=2, array_limit=5, minutes=10)
    shown, _ = driver.communicate(timeout=120)
    said = (tmp_path / "driver.err").read_text()
    assert driver.returncode == 0, said
    assert json.loads(shown)["done"] < 24  # it does not wait
    jobs = said.split("SLURM jobs: ")[1].splitlines()[0].split(", ")
    assert len(jobs) == 2  # ten tasks, five in an array
    try:
        many.wait_until(lambda: len(many.results(out)) >= 4)
        assert many.status(out)["running"] <= 2  # so many cores has the node

        ask("scontrol", "update", f"nodename={name}", "state=drain", "reason=test")
        many.wait_until(lambda: not ask("squeue", "-h", "-t", "running,completing"))
        seen = many.results(out)
        assert many.status(out) == {"done": len(seen), "failed": 0, "running": 0, "waiting": 24 - len(seen), "all": 24}
        assert 4 <= len(seen) < 24
        assert ask("squeue", "-h", "-j", ",".join(jobs))  # the others wait
    finally:
        ask("scontrol", "update", f"nodename={name}", "state=resume")
    many.wait_until(lambda: len(many.results(out)) >= len(seen) + 2)

    # The node goes down and its jobs with it: SLURM puts them back into its queue.
    many.wait_until(lambda: many.running(out))
    ask("scontrol", "update", f"nodename={name}", "state=down", "reason=test")
    many.wait_until(lambda: not many.running(out), 30)
    seen |= many.results(out)
    ask("scontrol", "update", f"nodename={name}", "state=resume")
    again = many.driver("slurm", out, keep, minutes=10)  # whoever submits twice does nothing twice
    again.communicate(timeout=120)
    many.wait_until(lambda: not ask("squeue", "-h"), 240)
    many.assert_all_done_once(out, keep, seen, begun_twice=2)


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_what_sbatch_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Invalid partition") as raised:
        run_grid([fakes.run(), fakes.run(seed=1)], tmp_path, engine="slurm", resources=Resources(partition="nowhere"))
    assert "\n" not in str(raised.value)


def test_without_submitit_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"adamatch\[slurm\]"):
        run_grid([fakes.run()], tmp_path, engine="slurm")


def test_without_slurm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", pytest)  # anything that can be imported
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch is not here"):
        run_grid([fakes.run()], tmp_path / "out", engine="slurm")


def test_parts_of_a_gpu_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_engine, "library", lambda *names: None)
    monkeypatch.setattr(shutil, "which", str)
    with pytest.raises(InputError, match="whole GPUs"):
        run_grid([fakes.run()], tmp_path, engine="slurm", resources=Resources(gpus_per_run=0.5))


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", ["plain", "don't", 'a "b" c', "$HOME `x` \\"])
def test_a_job_sees_its_folder_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    token = write_token(tmp_path / name)
    (line,) = slurm_engine._parameters(Resources(), 0, 1, token)["setup"]
    seen, unseen = (_shell(line, token.unlink if gone else None) for gone in (False, True))
    assert (seen.returncode, seen.stderr) == (0, "")
    assert unseen.returncode == 1
    assert unseen.stderr.startswith("error: ")
    assert unseen.stderr.endswith(f" does not see {token.parent}\n")


def _shell(line: str, before: Callable[[], None] | None) -> subprocess.CompletedProcess[str]:
    if before:
        before()
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
