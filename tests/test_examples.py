"""The examples do what they say."""

import importlib.util
import math
import re
import statistics
import subprocess
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
