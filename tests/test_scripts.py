"""The scripts in benchmarks/: each says what it does, and every line that calls one has options that it knows."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "results").rglob("*.md"),
    *SCRIPTS,
]
LINE = re.compile(r"python (benchmarks/\w+\.py)([^`\n]*)")


def helped(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_lines_that_call_it(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known = helped(script, monkeypatch, capsys)
    called = [
        found[2] for text in TEXTS for found in LINE.finditer(text.read_text()) if found[1].endswith(f"/{script.name}")
    ]
    assert called, "nothing says how it is called"
    for option in {each for rest in called for each in re.findall(r"--[a-z-]+", rest.partition("#")[0])}:
        assert option in known, option


def test_lines_call_scripts_that_there_are() -> None:
    named = {found[1] for text in TEXTS for found in LINE.finditer(text.read_text())}
    assert len(named) > 10
    assert named <= {f"benchmarks/{script.name}" for script in SCRIPTS}
