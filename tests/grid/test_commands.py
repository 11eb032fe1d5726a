from pathlib import Path

import pytest
from damage import STRANGE
from grid import fakes
from typer.testing import CliRunner

from adamatch.base.errors import InputError
from adamatch.grid.commands import app
from adamatch.grid.lease import Lease
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import Folders

GRID = "grid.fakes:tiny"


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_plan_lists_the_papers_runs_with_their_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = call("plan", "paper", "--gpus", "8").splitlines()
    assert sum("-s0-" in line and " steps  " in line for line in lines) == 2420
    assert any(line.startswith("2,420 runs, 0 of them done") for line in lines)
    assert any(line.startswith("on 8 GPUs") for line in lines)
    assert any("measured on NVIDIA H200" in line for line in lines)
    assert not any("assumed" in line for line in lines)
    here = call("plan", "paper", "--gpus", "8", "--brief")
    monkeypatch.chdir(Path(__file__).parents[2])
    assert call("plan", "paper", "--gpus", "8", "--brief") == here  # in the repository as anywhere
    assert "-s0-" not in here


def test_status_and_table_of_a_grid_half_done(tmp_path: Path) -> None:
    out = str(tmp_path)
    first, second, third, fourth = fakes.tiny()
    run_grid([first], tmp_path, train=fakes.train)
    Folders(tmp_path).record(second, "InputError: no luck")
    with Lease(Folders(tmp_path).make(third)).hold():
        shown = call("status", GRID, "--out", out)
    assert shown.split("all")[-1].split()[:5] == ["1", "1", "1", "1", "4"]
    assert f"failed {second.name}: InputError: no luck" in shown
    assert f"running {third.name}" in shown
    assert fourth.name not in shown
    assert "| Supervised | 50.0 |" in call("table", GRID, "--out", out)


def test_a_table_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="adamatch grid run"):
        call("table", GRID, "--out", str(tmp_path))


def test_run_ends_with_an_error_code_when_runs_failed(tmp_path: Path) -> None:
    for run in fakes.tiny():
        Folders(tmp_path).record(run, "InputError: no luck [/here] pip install 'adamatch[timm]'")
    result = CliRunner().invoke(app, ["run", GRID, "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "0 done, 4 failed, 0 running, 0 waiting" in result.output
    assert "no luck [/here] pip install 'adamatch[timm]'" in result.output  # and not taken for markup
    assert "--retry" in result.output


def test_the_exit_code_says_what_is_left(tmp_path: Path) -> None:
    words = ["run", GRID, "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--seconds", "0"])
    assert result.exit_code == 3
    assert "0 done, 0 failed, 0 running, 4 waiting" in result.output
    assert "not all runs are done: run the same command again" in result.output
    run_grid(fakes.tiny(), tmp_path, train=fakes.train)
    assert CliRunner().invoke(app, words).exit_code == 0
    (tmp_path / next(fakes.tiny()).name / "result.json").unlink()
    with Lease(Folders(tmp_path).of(next(fakes.tiny()))).hold():
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 3
    assert "3 done, 0 failed, 1 running, 0 waiting" in result.output


@pytest.mark.parametrize("text", STRANGE)
def test_status_of_a_grid_with_strange_leases_and_errors(tmp_path: Path, text: str) -> None:
    first, second, *_ = fakes.tiny()
    (Folders(tmp_path).make(first) / "lease-1").write_text(text)
    (Folders(tmp_path).make(second) / "error.json").write_text(text)
    shown = call("status", GRID, "--out", str(tmp_path))
    assert f"running {first.name}: process ? on unknown" in shown
    assert f"failed {second.name}: its error.json cannot be read" in shown


@pytest.mark.parametrize("command", ["plan", "run", "status", "table", "draw"])
def test_help_teaches_by_example(command: str) -> None:
    assert f"adamatch grid {command} " in call(command, "--help")
