"""Ctrl-C at any moment of a command, its imports included: exit code 130, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "adamatch"]


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """A job in the background, as this process may be, is deaf to Ctrl-C, and so is what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ended(command: list[str], after: float, cwd: Path) -> tuple[int, str]:
    """Exit code and standard error of a command that gets Ctrl-C after so many seconds."""
    # A process group of its own, as in a terminal: worker processes get the signal too.
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def imports_take(cwd: Path) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import adamatch.demo, adamatch.grid.schedule"], cwd=cwd, check=True)
    return time.monotonic() - began


def test_while_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that takes long to import is in the place of one that the command needs."""
    ready = tmp_path / "ready"
    slow = f"import pathlib, time\npathlib.Path({str(ready)!r}).touch()\ntime.sleep(60)\n"
    (tmp_path / "typer.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with subprocess.Popen([*COMMAND, "demo"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not ready.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "")


@pytest.mark.slow
def test_at_many_moments(tmp_path: Path) -> None:
    whole = imports_take(tmp_path)
    script = tmp_path / "adamatch"  # as pip makes it
    script.write_text("import sys\nfrom adamatch.cli import main\nsys.exit(main())\n")
    for command in ([*COMMAND, "demo", "--quiet"], [sys.executable, str(script), "demo", "--quiet"]):
        for part in range(1, 20):
            code, said = ended(command, 0.1 * part * whole, tmp_path)
            assert code == 130, said
            assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("part", [1.1, 1.4, 1.7, 2.0])
def test_a_grid_and_its_workers(tmp_path: Path, part: float) -> None:
    command = [*COMMAND, "grid", "run", "handwriting", "--processes", "2", "--device", "cpu"]
    code, said = ended(command, part * imports_take(tmp_path), tmp_path)
    assert code == 130, said
    assert "Traceback" not in said


def test_a_program_that_imports_us_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import signal, adamatch\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n")
    subprocess.run([sys.executable, str(script)], check=True)
