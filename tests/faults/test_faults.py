"""A sample of `make faults`: some writes of a command fail or kill it, and the same command ends as without."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.posix,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"),
]


@pytest.mark.parametrize(("command", "every"), [("data prepare", 8), ("fit", 80)])
def test_a_command_that_was_hit_ends_as_without(command: str, every: int) -> None:
    words = [sys.executable, "-m", "faults", "--command", command, "--every", str(every)]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 bad" in done.stdout


def test_a_grid_that_was_killed_or_damaged_ends_as_without() -> None:
    words = [sys.executable, "-m", "faults.grid", "--kills", "3", "--damages", "6"]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
