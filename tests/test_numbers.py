"""Absurd numbers: whatever stands for a number on the command line is refused in a few words, at once."""

import importlib
import inspect
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pages import command_line
from PIL import Image
from train import tiny

from adamatch import cli, experiment
from adamatch.datasets import commands as data
from adamatch.grid import commands as grid
from adamatch.grid import cost
from adamatch.train import loop

HUGE, ENDLESS = "9" * 20, "9" * 400
FOLDERS = "fit --source {folder}/photos --target {folder}/photos --out {folder}/run"
TRAIN = "train --source rendered --target handwritten --out {folder}/run"
GRID = "grid run handwriting --out {folder}/grid"
# Each command line, and its numbers: refused are, of each, all of ABSURD; "text" stands for itself.
LINES: dict[str, tuple[str, ...]] = {
    "demo --out {folder}/demo": ("seed", "images"),
    FOLDERS: ("seed", "seeds", "labels-per-class", "size", "images", "batch", "lr", "frozen"),
    TRAIN: ("labels", "images", "batch", "uratio", "tau", "lr", "weight-decay", "seed"),
    "grid plan handwriting": ("gpus",),
    GRID: ("seconds", "processes"),
    f"{GRID} --engine slurm": ("cpus-per-run", "gpus-per-run", "minutes", "array-limit", "at-once"),
    "data prepare svhn --from {folder}": ("size",),
    "ask {folder}": ("number", "more", "seed", "port"),
    "predict {folder} {folder}": ("top",),
}
ABSURD = (HUGE, ENDLESS, "9" * 5000, "-1", "nan", "inf", "1e999", "", "ten")
OPTIONS = {
    "adamatch": (
        "alignment_window",
        "pools",
        "alignment_decay",
        "warm_up",
        "batches",
        "interpolate",
        "fade_out",
        "target",
    ),
    "noisystudent": ("generations",),
}
LARGE = {"size": "9" * 6, "batch": "9" * 10, "uratio": "9" * 7, "images": "9" * 16, "processes": "9" * 6}


class Began(Exception):  # noqa: N818
    """The arguments were accepted, and the work begins."""


@pytest.fixture
def nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*given: Any, **more: Any) -> None:
        raise Began

    monkeypatch.setattr(experiment, "problem_of", lambda run, data: tiny.problem())  # reading images takes its time
    monkeypatch.setattr(loop, "train", begin)
    fit = importlib.import_module("adamatch.fit")  # the package has the function under this name
    for module, name in ((fit, "UserData"), (grid, "run_grid"), (data, "store_split"), (cost, "wall_time")):
        monkeypatch.setattr(module, name, begin)
    for number in range(2):
        path = tmp_path / "photos" / str(number) / "a.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(path)


def said(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a command that is refused: exit code 2, in few words and soon."""
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["adamatch", *(word.format(folder=folder) for word in line.split(" "))])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 2
    assert time.monotonic() - began < 60
    text = capsys.readouterr().err
    assert "Traceback" not in text
    # One line; what cannot be read as a number is reported by typer, in a frame.
    assert (text.startswith("error: ") and text.count("\n") == 1) or "Invalid value for" in text, text
    assert len(text) < 1000
    return text


@pytest.mark.usefixtures("nothing_begins")
@pytest.mark.parametrize(("line", "option"), [(line, option) for line, options in LINES.items() for option in options])
def test_absurd_numbers(line: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in (*ABSURD, *([LARGE[option]] if option in LARGE else [])):
        if (option, value) not in {("lr", HUGE), ("weight-decay", HUGE)}:  # these are numbers like others
            said(f"{line} --{option} {value}", tmp_path, capsys)


@pytest.mark.usefixtures("nothing_begins")
@pytest.mark.parametrize(
    ("method", "option"), [(method, option) for method, names in OPTIONS.items() for option in names]
)
def test_absurd_options_of_a_method(
    method: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (*ABSURD, f"{HUGE},{ENDLESS}", "nan,inf", "0"):
        if (option, value) != ("alignment_decay", "0"):
            line = f"{TRAIN} --method {method} --option {option}={value}"
            assert option.split("_")[0] in said(line, tmp_path, capsys)


@pytest.mark.usefixtures("nothing_begins")
def test_sound_numbers_are_taken(tmp_path: Path) -> None:
    sound = {"labels": "0", "images": "40000", "batch": "16", "tau": "0.5", "seed": "281474976710656"}
    words = [word for name, value in sound.items() for word in (f"--{name}", value)]
    line = [word.format(folder=tmp_path) for word in TRAIN.split(" ")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["adamatch", *line, *words, "--option", "alignment_window=65536", "--device", "cpu"])
        with pytest.raises(Began):
            cli.main()


def numbers(command: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every command, and its options that take a number."""
    for below, each in getattr(command, "commands", {}).items():
        yield from numbers(each, f"{name} {below}".strip())
    function = (lambda: None) if hasattr(command, "commands") else command.callback
    for option, parameter in inspect.signature(function).parameters.items():
        kind = next(iter(get_args(parameter.annotation)), parameter.annotation)  # of Annotated
        if {int, float} & {kind, *get_args(kind)}:
            yield name, option.replace("_", "-")


def test_every_number_of_the_command_line_is_among_them() -> None:
    named = [
        (line.split(" --")[0].split(" {")[0].removesuffix(" handwriting").removesuffix(" svhn"), line) for line in LINES
    ]
    tested = {(command, option) for command, line in named for option in LINES[line]}
    found = set(numbers(command_line()))
    assert {"demo", "fit", "train", "grid run", "data prepare"} <= {name for name, _ in found}
    untested = found - tested
    assert not untested
