"""What goes wrong with several ranks is one line that names the rank, ends all of them, and loses nothing."""

import os
import re
import signal
import time
from collections.abc import Callable
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


def test_the_folder_is_rank_0s_alone(tmp_path: Path) -> None:
    """The others are given a folder that cannot be made."""
    (tmp_path / "file").touch()
    codes, told = train(tmp_path, {0: f"{TRAIN} --out {tmp_path}/run", 1: f"{TRAIN} --out {tmp_path}/file/run"})
    assert codes == [0, 0]
    assert (RunFolder(tmp_path / "run").result() or {})["ranks"] == 2
    assert "source accuracy" in told[0]
    assert told[1] == ""


ELSEWHERE = TRAIN.replace("--source rendered", "--benchmark digitfive --source mnist").replace("handwritten", "svhn")
REFUSED = {
    "a batch that does not divide": (
        {0: f"{TRAIN} --batch 31"},
        r"a batch of 31 cannot be shared out evenly over 2 ranks: use --batch 30 or --batch 32",
    ),
    "other settings": (
        {rank: f"{TRAIN} --lr 0.{rank + 1}" for rank in range(2)},
        r"rank 1 on .* has lr 0\.2, and rank 0 has 0\.1: start every rank with the same .*",
    ),
    "no data": ({0: TRAIN, 1: f"{ELSEWHERE} --data nowhere"}, r"rank 1 on .*nowhere.*"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_done_together_is_refused_in_one_line(why: str, tmp_path: Path) -> None:
    words, told = REFUSED[why]
    codes, said = train(tmp_path, {rank: f"{each} --out {tmp_path}/run" for rank, each in words.items()})
    assert 0 not in codes
    (line,) = lines(said)
    assert re.fullmatch(f"error: {told}", line)
    assert not (tmp_path / "run").exists()


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


def fail() -> None:
    raise ZeroDivisionError


def hit(folder: Path, words: dict[int, str], rank: int, act: Callable[[], None]) -> None:
    """The command; before the sixth step of this rank something happens to it."""
    if os.environ["RANK"] == str(rank):
        tiny.at_call(Captured, "__call__", 6, act)
    several.command(folder, words)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_an_error_on_one_rank_ends_all(tmp_path: Path) -> None:
    codes = several.on_ranks(2, hit, tmp_path, {0: f"{TRAIN} --out {tmp_path}/run"}, 1, fail, seconds=60)
    assert 0 not in codes
    first, second = several.said(tmp_path)
    assert first == ""
    assert "error: rank 1 on " in second
    assert "ZeroDivisionError" in second


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_is_named(rank: int, tmp_path: Path) -> None:
    words = {0: f"{TRAIN} --batch 30 --out {tmp_path}/run"}
    codes = several.on_ranks(2 + rank, hit, tmp_path, words, rank, kill, seconds=60)
    assert codes[rank] == -signal.SIGKILL
    assert 0 not in codes
    (line,) = [line for line in lines(several.said(tmp_path)) if line.startswith("error: ")]
    assert line.startswith(f"error: no sign of life from rank {rank} on ")
    assert "with the same command, it resumes" in line


def test_ranks_stop_after_the_same_step(tmp_path: Path) -> None:
    words = {0: f"{TRAIN} --out {tmp_path}/run"}
    assert several.on_ranks(2, hit, tmp_path, words, 1, terminate, seconds=60) == [130, 130]
    said = f"stopped at step 8 of 10, all of it saved in {tmp_path}/run; run the same command again to resume"
    assert lines(several.said(tmp_path)) == [said]
