"""What goes wrong with several ranks is one line that names the rank, ends all of them, and loses nothing."""

import os
import signal
import time
from pathlib import Path

import pytest
from train import several, tiny

from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured

TRAIN = "train --source rendered --target handwritten --method supervised --device cpu --images 320 --quiet"


def train(folder: Path, words: dict[int, str]) -> tuple[list[int], list[str]]:
    """Exit codes and what each rank said."""
    began = time.monotonic()
    codes = several.on_ranks(2, several.command, folder, words)
    assert time.monotonic() - began < 60
    told = several.said(folder)
    assert not any("Traceback" in text for text in told), told
    return codes, told


def lines(told: list[str]) -> list[str]:
    return [line for text in told for line in text.splitlines()]


def test_a_batch_that_does_not_divide(tmp_path: Path) -> None:
    codes, told = train(tmp_path, {0: f"{TRAIN} --batch 31 --out {tmp_path}/run"})
    assert 0 not in codes
    assert lines(told) == [
        "error: a batch of 31 cannot be shared out evenly over 2 ranks: use --batch 30 or --batch 32"
    ]
    assert not (tmp_path / "run").exists()


def test_ranks_with_different_configurations(tmp_path: Path) -> None:
    codes, told = train(tmp_path, {rank: f"{TRAIN} --lr 0.{rank + 1} --out {tmp_path}/run" for rank in range(2)})
    assert 0 not in codes
    (line,) = lines(told)
    assert line.startswith("error: rank 1 on ")
    assert "has lr 0.2, and rank 0 has 0.1: start every rank with the same" in line
    assert not (tmp_path / "run").exists()


def test_a_rank_without_its_data(tmp_path: Path) -> None:
    same = f"{TRAIN} --out {tmp_path}/run"
    other = same.replace("--source rendered", "--benchmark digitfive --source mnist").replace("handwritten", "svhn")
    codes, told = train(tmp_path, {0: same, 1: f"{other} --data {tmp_path}/nowhere"})
    assert 0 not in codes
    (line,) = lines(told)
    assert line.startswith("error: rank 1 on ")
    assert "nowhere" in line


def test_a_folder_that_holds_another_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with RunFolder(out).claim(tiny.a_run()):
        before = (out / "run.json").read_text()
    codes, told = train(tmp_path, {0: f"{TRAIN} --out {out}"})
    assert 0 not in codes
    (line,) = lines(told)
    assert line.startswith(f"error: {out} holds another run (")
    assert line.endswith("choose another folder, or give --overwrite to replace it")
    assert (out / "run.json").read_text() == before


def test_the_folder_is_rank_0s_alone(tmp_path: Path) -> None:
    """The others are given a folder that cannot be made."""
    (tmp_path / "file").touch()
    codes, told = train(tmp_path, {0: f"{TRAIN} --out {tmp_path}/run", 1: f"{TRAIN} --out {tmp_path}/file/run"})
    assert codes == [0, 0]
    assert (RunFolder(tmp_path / "run").result() or {})["ranks"] == 2
    assert "source accuracy" in told[0]
    assert told[1] == ""


def fail() -> None:
    raise ZeroDivisionError


def broken(folder: Path, words: dict[int, str]) -> None:
    if os.environ["RANK"] == "1":
        tiny.at_call(Captured, "__call__", 5, fail)
    several.command(folder, words)


def test_an_error_on_one_rank_ends_all(tmp_path: Path) -> None:
    codes = several.on_ranks(2, broken, tmp_path, {0: f"{TRAIN} --out {tmp_path}/run"}, seconds=60)
    assert 0 not in codes
    first, second = several.said(tmp_path)
    assert first == ""
    assert "error: rank 1 on " in second
    assert "ZeroDivisionError" in second


def killed(folder: Path, words: dict[int, str], rank: int) -> None:
    if os.environ["RANK"] == str(rank):
        tiny.at_call(Captured, "__call__", 6, lambda: os.kill(os.getpid(), signal.SIGKILL))
    several.command(folder, words)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_is_named(rank: int, tmp_path: Path) -> None:
    words = {0: f"{TRAIN} --batch 30 --out {tmp_path}/run"}
    codes = several.on_ranks(2 + rank, killed, tmp_path, words, rank, seconds=60)
    assert codes[rank] == -signal.SIGKILL
    assert 0 not in codes
    (line,) = [line for line in lines(several.said(tmp_path)) if line.startswith("error: ")]
    assert line.startswith(f"error: no sign of life from rank {rank} on ")
    assert "with the same command, it resumes" in line


def told_to_stop(folder: Path, words: dict[int, str]) -> None:
    if os.environ["RANK"] == "1":
        tiny.at_call(Captured, "__call__", 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    several.command(folder, words)


def test_ranks_stop_after_the_same_step(tmp_path: Path) -> None:
    words = {0: f"{TRAIN} --out {tmp_path}/run"}
    assert several.on_ranks(2, told_to_stop, tmp_path, words, seconds=60) == [130, 130]
    said = f"stopped at step 8 of 10, all of it saved in {tmp_path}/run; run the same command again to resume"
    assert lines(several.said(tmp_path)) == [said]
