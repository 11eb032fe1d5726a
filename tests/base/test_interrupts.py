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


def is_stopped(command: list[str], after: float, cwd: Path) -> None:
    """A command gets Ctrl-C after so many seconds, and ends quietly."""
    # A process group of its own, as in a terminal: worker processes get the signal too.
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    # Where the signal comes while a library executes a string, Python ends by the signal itself: 130 to a shell, too.
    assert process.returncode in (130, -signal.SIGINT), said
    assert "Traceback" not in said


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
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import adamatch.demo, adamatch.grid.schedule"], cwd=tmp_path, check=True)
    whole = time.monotonic() - began
    script = tmp_path / "adamatch"  # as pip makes it
    script.write_text("import sys\nfrom adamatch.cli import main\nsys.exit(main())\n")
    for command in ([*COMMAND, "demo", "--quiet"], [sys.executable, str(script), "demo", "--quiet"]):
        for part in range(1, 20):
            is_stopped(command, 0.1 * part * whole, tmp_path)
    grid = [*COMMAND, "grid", "run", "handwriting", "--processes", "2", "--device", "cpu"]
    for part in (11, 14, 17, 20):  # its workers, too
        is_stopped(grid, 0.1 * part * whole, tmp_path)


def test_a_program_that_imports_us_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import signal, adamatch\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n")
    subprocess.run([sys.executable, str(script)], check=True)


UNDER_WAY = """
import pathlib, signal, sys
from adamatch import cli, experiment
from adamatch.base import interrupts
sys.argv = ["adamatch", "train", "--source", "rendered", "--target", "handwritten", "--out", "run", "--quiet"]
def solve(*given, **how):
    {before}
    signal.raise_signal(signal.SIGINT)
experiment.solve = solve
interrupts.quietly()
cli.main()
"""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("pass", "stopped; run the same command again to resume"),
        (
            "pathlib.Path('run').mkdir(); pathlib.Path('run/result.json').touch()",
            "stopped, the model is finished and is in run; run the same command again to resume",
        ),
    ],
)
def test_between_trainings_it_says_what_there_is(tmp_path: Path, before: str, says: str) -> None:
    script = tmp_path / "adamatch.py"
    script.write_text(UNDER_WAY.format(before=before))
    done = subprocess.run([sys.executable, "-P", str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, says)


def test_what_is_under_way_is_ended_tidily_in_an_import_too(tmp_path: Path) -> None:
    """A library that is imported in the middle of a run: the end of the block still comes."""
    (tmp_path / "stopped_here.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    script = tmp_path / "adamatch.py"  # the command, by its name
    script.write_text(
        "import sys\nfrom adamatch.base import interrupts\nsys.path.append('.')\n"
        "with interrupts.working():\n    try:\n        import stopped_here\n    finally:\n        print('tidy')\n"
    )
    done = subprocess.run([sys.executable, "-P", str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "tidy\n"
