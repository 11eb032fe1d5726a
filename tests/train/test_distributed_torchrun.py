"""torchrun on the embedded benchmark, killed and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
RUN = "train --source rendered --target handwritten --device cpu"


def torchrun(out: Path, words: str, ranks: int = 2) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "adamatch", *RUN.split(), *words.split(), "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    """Process ids, the first rank's first."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(child) for child in children]


def wait_for(path: Path, lines: int, process: subprocess.Popen[str]) -> None:
    while not (path.exists() and len(path.read_text().splitlines()) >= lines):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def steps(out: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_stopped_and_killed_rank_by_rank_and_all_at_once(tmp_path: Path) -> None:
    out, words = tmp_path / "run", "--images 12800"  # 400 steps, evaluated every 10
    process = torchrun(out, words)
    wait_for(out / "metrics.jsonl", 2, process)
    process.send_signal(signal.SIGTERM)  # to torchrun, which hands it on
    said = process.communicate(timeout=60)[0]
    assert process.returncode != 0
    assert "all of it saved in" in said
    assert said.count("run the same command again to resume") == 1
    stopped = int(said.split("stopped at step ")[1].split()[0])

    process = torchrun(out, words)
    wait_for(out / "metrics.jsonl", len(steps(out)) + 2, process)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    began = time.monotonic()
    said = process.communicate(timeout=60)[0]
    assert time.monotonic() - began < 60
    assert process.returncode != 0
    assert f"resuming from step {stopped} of 400" in said
    assert said.count("error: no sign of life from rank 1 on ") == 1, said
    assert "start all ranks again with the same command, it resumes from its last checkpoint" in said

    process = torchrun(out, words)
    wait_for(out / "metrics.jsonl", len(steps(out)) + 2, process)
    for rank in ranks_of(process):
        os.kill(rank, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (out / "result.json").exists()

    process = torchrun(out, words)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    assert "resuming from step" in said
    assert json.loads((out / "result.json").read_text())["ranks"] == 2
    assert steps(out) == list(range(10, 401, 10))
