"""Examples of the documentation run: Python, and commands for own images; other commands are at least parsed."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from colours import arrays
from pages import ROOT, blocks, command_line, commands, inline, pages
from PIL import Image
from test_examples import FRAMEWORKS, example
from torch import nn

import adamatch
from adamatch import Run, cli

TINY = {"images": 8, "batch": 4, "device": "cpu", "weights": "none", "frozen": 0, "twin": False, "quiet": True}
OWN = ("fit", "predict", "evaluate", "report", "choose", "export")
ELSEWHERE = ("export", "nvidia-cuda-mps-control", "ray", "sh", "source", "timeout", "cd")  # nothing of ours


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `adamatch ...` calls, and its arguments."""
    command, rest = command_line(), words
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{' '.join(words)}: there is no command {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def check(words: list[str]) -> None:
    """A command of any program, as far as that can be seen without running it."""
    match words:
        case ["adamatch", *given]:
            command, rest = resolved(given)
            if rest != ["--help"]:
                command.make_context("adamatch", list(rest))
        case ["torchrun", *given]:
            check(["adamatch", *given[given.index("adamatch") + 1 :]])
        case ["make", target]:
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(), words
        case ["pip", "install", *given]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            for each in given:
                if found := re.match(r"\.?\[(.*)\]", each):
                    assert set(found[1].split(",")) <= set(extras), words
        case ["python", "-c", code]:
            compile(code, "-c", "exec")
        case ["python", file, *given]:
            text = (ROOT / file).read_text() + (ROOT / "benchmarks/evidence.py").read_text()  # options of several
            for option in (each for each in given if each.startswith("--")):
                assert f'"{option}"' in text, f"{file} has no {option}"
        case ["pytest", *given]:
            assert all((ROOT / each).exists() for each in given if "/" in each), words
        case [program, *_]:
            assert program in ELSEWHERE, f"{words}: what is {program}?"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in (each for block in blocks(page) for each in commands(block)):
        check(words)
    for code in inline(page):
        if re.match(r"adamatch [a-z]", code):
            command, rest = resolved(code.replace("...", "").split()[1:])
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
            assert {word for word in rest if word.startswith("--")} <= known, f"{page.name}: {code}"


def test_a_command_that_is_not_there_is_seen() -> None:
    for wrong in (
        "adamatch fti --source a",
        "adamatch fit --sorce a",
        "make nothing",
        "python benchmarks/no.py",
        "rm -rf x",
    ):
        with pytest.raises(BaseException):  # noqa: B017  # of many kinds
            check(wrong.split())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the pages speak of."""
    root = tmp_path_factory.mktemp("pages")
    for seed, name in enumerate(("photos", "sketches", "few", "labelled-sketches", "labelled", "everything", "new")):
        pixels, labels = arrays(60, seed)
        for number, (image, label) in enumerate(zip(pixels, labels.tolist(), strict=True)):
            where = root / name if name == "new" else root / name / ("cat", "dog", "")[label]
            if label < 2:
                where.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(where / f"{number}.jpg")
    example("shapes").make(root / "shapes", {"drawings": 10, "photos": 3, "few": 1, "test": 2, "new": 1})
    return root


_fit = adamatch.fit


def small(**given: Any) -> adamatch.Model:
    """`fit` with as little work as there can be."""
    own = isinstance(given.get("network"), nn.Module)
    return _fit(**given | TINY | ({} if own else {"network": "wrn-tiny", "size": 8}))


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command, with names of files as a shell would give them."""
    given = [found for word in words for found in (sorted(glob(word)) if "*" in word else [word])]
    monkeypatch.setattr(sys, "argv", given)
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_examples_run_in_the_order_of_the_pages(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(adamatch, "fit", small)
    monkeypatch.setattr(adamatch, "train", lambda given: isinstance(given, Run) or pytest.fail("train takes a Run"))
    done: set[tuple[str, ...]] = set()
    for page in pages():
        names: dict[str, Any] = {}
        for block in blocks(page):
            if block.language == "python" and has_all(block.text):
                exec(compile(block.text, f"{page.name}, a block", "exec"), names)
            for words in commands(block):
                if _runs(words) and tuple(words) not in done:
                    done.add(tuple(words))
                    assert run(words, monkeypatch) == 0, f"{page.name}: {' '.join(words)}\n{capsys.readouterr().err}"
    assert len(done) > 15


def has_all(code: str) -> bool:
    """Whether what the code imports is installed: training frameworks are not, but for `make slow`."""
    imported = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    return all(importlib.util.find_spec(name) is not None for name in imported)


@pytest.mark.slow
@pytest.mark.skipif(not FRAMEWORKS.exists(), reason="`make slow` builds the environment")
def test_examples_with_other_frameworks_run(tmp_path: Path) -> None:
    theirs = [block for page in pages() for block in blocks(page) if block.language == "python"]
    theirs = [block for block in theirs if not has_all(block.text)]
    assert theirs
    for block in theirs:
        done = subprocess.run([FRAMEWORKS, "-c", block.text], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block.page}: {done.stderr}"


def _runs(words: list[str]) -> bool:
    """Whether it is a command that needs nothing but images."""
    has_all = "--parquet" not in words or importlib.util.find_spec("pyarrow") is not None
    return words[0] == "adamatch" and words[1] in OWN and has_all
