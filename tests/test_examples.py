"""The examples do what they say."""

import importlib.util
import math
import re
import shutil
import statistics
import subprocess
from ast import literal_eval
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
FRAMEWORKS = EXAMPLES.parent / "build" / "frameworks" / "bin" / "python"  # made by `make slow`


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_objective_in_a_loop_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    losses, before, after = example("own_loop").main(steps=120)
    assert all(map(math.isfinite, losses))
    assert statistics.mean(losses[-20:]) < statistics.mean(losses[:20])
    assert after > before + 20  # of handwriting, of which no label was seen
    assert f"{after:.1f} % after 120 steps" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not FRAMEWORKS.exists(), reason="`make slow` builds the environment")
@pytest.mark.parametrize("name", ["lightning_loop", "accelerate_loop"])
def test_loops_of_other_frameworks_learn(name: str, tmp_path: Path) -> None:
    """The target's images, of which no label was seen."""
    done = subprocess.run(
        [FRAMEWORKS, EXAMPLES / f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    found = re.search(r"accuracy on dark images: ([\d.]+) % before, ([\d.]+) % after", done.stdout)
    assert found is not None, done.stderr
    before, after = map(float, found.groups())
    assert after > before + 15


def test_the_notebook(tmp_path: Path) -> None:
    """On fewer images than it says; a cell that fails is an error."""
    nbformat, nbclient = (pytest.importorskip(name, reason="it is in dev") for name in ("nbformat", "nbclient"))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    (settings,) = (cell for cell in notebook.cells if "COUNTS = " in cell.source)
    settings.source = settings.source.replace("40", "6").replace("20", "3")
    shutil.copy(EXAMPLES / "shapes.py", tmp_path)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    *_, predicted, _ = notebook.cells
    told = "".join(output.text for output in predicted.outputs if output.output_type == "stream")
    assert "drawings alone: " in told
    assert len(literal_eval(predicted.outputs[-1].data["text/plain"])) == 12
    assert (tmp_path / "runs/shapes/report.html").is_file()
