"""Ctrl-C at any moment of a command, its imports included: exit code 130, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "adamatch"]


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
    subprocess.run([*COMMAND, "--version"], cwd=cwd, check=True, capture_output=True)
    return time.monotonic() - began


def test_while_it_imports(tmp_path: Path) -> None:
    whole = imports_take(tmp_path)
    for part in (0.15, 0.4, 0.7):
        assert ended([*COMMAND, "demo"], part * whole, tmp_path) == (130, "")
    assert list(tmp_path.iterdir()) == []


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
