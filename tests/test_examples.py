"""The examples do what they say."""

import importlib.util
import math
import statistics
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_objective_in_a_loop_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("own_loop", EXAMPLES / "own_loop.py")
    assert spec is not None
    assert spec.loader is not None
    own_loop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own_loop)
    losses, before, after = own_loop.main(steps=120)
    assert all(map(math.isfinite, losses))
    assert statistics.mean(losses[-20:]) < statistics.mean(losses[:20])
    assert after > before + 20  # of handwriting, of which no label was seen
    assert f"{after:.1f} % after 120 steps" in capsys.readouterr().out
