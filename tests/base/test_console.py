"""Names of files and classes come from anywhere: a terminal, a table or a spreadsheet only shows them."""

import io
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from adamatch.base import console
from adamatch.base.console import no_formula
from adamatch.base.errors import InputError, reason, shown, unknown
from adamatch.evaluate import score
from adamatch.images.store import Store
from adamatch.predictions import Predictions, columns, csv_rows, left_out
from adamatch.report import printed
from adamatch.train.execution import Execution
from adamatch.train.speed import choose

CLEAR = "\x1b[2J\x1b]0;title\x07"
MARKUP = "[/bold] :smile: [red]x"


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("cat.png", "cat.png"),
        ("Gürteltier 穿山甲 \u3000.png", "Gürteltier 穿山甲 \u3000.png"),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x7f\x9b2J", r"\x7f\x9b2J"),
        ("gnp.\u202etac", r"gnp.\u202etac"),
        ("\u2028line", r"\u2028line"),
        ("caf\udce9", r"caf\xe9"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_a_terminal_may_have(name: str, is_shown: str) -> None:
    assert shown(name) == is_shown
    assert shown(is_shown) == is_shown
    assert str(InputError(f"{name} is bad")) == f"{is_shown} is bad"


@given(st.text(st.characters(), max_size=30))
def test_no_text_breaks_a_line_or_moves_a_cursor(text: str) -> None:
    line = shown(text)
    assert len(line.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in line)
    assert str(pickle.loads(pickle.dumps(InputError(text)))) == line


def test_errors_are_one_line_whatever_they_name() -> None:
    assert str(unknown("set", "a\nb", ["ab"])).count("\n") == 0
    assert reason(ValueError("a\n  b\n")) == "a b"
    assert reason(KeyError()) == "KeyError"
    assert len(reason(ValueError("x" * 10_000))) < 250
    assert all("\n" not in line for line in left_out({"a\nb": str(InputError("a\nb is empty"))}))


def test_lines_and_tables_take_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = Predictions((f"{MARKUP}/{CLEAR}.png",), np.array([[0.25, 0.75]], np.float32), ("a", f"{MARKUP}{CLEAR}"))
    store = Store(np.zeros((2, 1, 1, 3), np.uint8), np.array([0, 0]), found.classes)
    printed.predictions(found)
    printed.score(score(np.eye(2, dtype=np.float32), store))
    console.say(f"{MARKUP}{CLEAR}")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert out.count(rf"{MARKUP}\x1b[2J\x1b]0;title\x07") == 4
    assert rf"{MARKUP}/\x1b[2J" in out
    table = Table(MARKUP, title=MARKUP)
    table.add_row(MARKUP)
    console.print_table(table)
    assert capsys.readouterr().out.count(MARKUP) == 3


def test_a_run_shows_names_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    execution = Execution(choose("cpu"))
    execution.say(f"first {MARKUP}\nsecond {CLEAR}")
    execution.warn(CLEAR)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"first {MARKUP}"
    assert lines[1:] == [r"second \x1b[2J\x1b]0;title\x07", r"warning: \x1b[2J\x1b]0;title\x07"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(start: str) -> None:
    name = f"{start}HYPERLINK(1)"
    header, row = csv_rows(Predictions((name,), np.array([[1.0]], np.float32), (name,)))
    assert header == ["path", "class", "probability", f"'{name}"]
    assert row == [f"'{name}", f"'{name}", "1.0000", "1.0000"]
    for text in ("a.png", "-", "1-2", " =1", ""):
        assert no_formula(text) == text


def test_no_two_columns_have_one_name() -> None:
    first = ["path", "class", "probability"]
    assert columns(["a", "b"]) == [*first, "a", "b"]
    assert columns(["class", "path"]) == [*first, "class (class)", "path (class)"]
    for classes in (["path (class)", "path"], ["path", "path (class)"]):
        assert len(set(columns(classes))) == 5


def test_without_a_terminal_a_stage_is_a_line_and_another_each_30_seconds_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "EVERY", 0.05)
    with console.progress_bar(f"features of {CLEAR}", 4000) as stage:
        stage(1200)
        time.sleep(0.4)  # as in a library: nothing moves
    name = f"features of {shown(CLEAR)}"
    first, *others = capsys.readouterr().err.splitlines()
    assert first == name
    assert others
    assert set(others) == {f"{name}: 1,200 of 4,000"}
    with console.progress_bar("nothing", quiet=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
    assert threading.active_count() == 1


def test_on_a_terminal_a_stage_is_a_bar_that_goes() -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100, _environ={})
    with console.progress_bar("twin: training", 40, out=terminal) as stage:
        stage(10)
        stage.note = "8 images/s"
        time.sleep(0.4)
    shown_text = screen.getvalue()
    assert "twin: training" in shown_text
    assert "10 of 40, 8 images/s" in shown_text
    assert shown_text.endswith("\x1b[2K")  # nothing of it stays


def test_the_time_left_is_that_of_the_measured_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stage = console.Stage("views", 100)
    stage(40)  # of an earlier run
    stage.restart()
    clock[0] = 6.0
    assert str(stage) == "40 of 100"
    stage(20)
    assert str(stage) == "60 of 100, about 12 s left"
    clock[0] = 1.0
    assert str(stage) == "60 of 100"  # a second says nothing yet


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "command", [("--help",), ("predict", "--help"), ("data", "list", "--data", "x[/bold]\u00e9\x1b"), ("fit", "--help")]
)
def test_a_console_of_ascii_alone(command: tuple[str, ...], tmp_path: Path) -> None:
    """And of nothing else: no help, table or name ends in an error."""
    environment = {**os.environ, **ASCII, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-m", "adamatch", *command]
    done = subprocess.run(line, capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    done.stdout.decode("ascii")
    assert b"\x1b" not in done.stdout
    if command[0] == "data":
        assert b"prepared sets are in x[/bold]" in done.stdout
