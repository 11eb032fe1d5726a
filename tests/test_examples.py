"""The examples do what they say."""

import importlib.util
import math
import statistics
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


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
