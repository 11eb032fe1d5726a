"""Networks of one's own through the real calls: fit, load in a new process, predict, evaluate, report, export."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architectures import ARCHITECTURES, FORMATS, build
from colours import TINY, arrays

import adamatch
from adamatch import Model

SAMPLE = [("flatten", "channels last"), ("attention with a mask", "rows")]  # the others are slow
UNEXPORTED = {"batch norm without statistics"}  # what it says of an image depends on the others
REPEATED = """
import json, sys
from architectures import build
from test_architectures import said
from adamatch import load
for line in sys.stdin:
    folder, name, memory = json.loads(line)
    print(json.dumps(said(load(folder, net=build(name, memory), device="cpu"))), flush=True)
"""


def said(model: Model) -> Any:
    images, labels = arrays(12, seed=2)
    return model.predict(images).probabilities.tolist(), model.evaluate((images, labels)).accuracy


def check(runs: dict[tuple[str, str], Path]) -> None:
    expected = []
    for (name, memory), out in runs.items():
        net = build(name, memory)
        model = adamatch.fit(source=arrays(30), target=arrays(12, 1, 60)[0], out=out, network=net, twin=False, **TINY)
        expected.append(said(model))
        assert np.ptp(expected[-1][0], axis=0).max() > 1e-4, name  # images make a difference
        assert model.report() == out / "report.html"
        assert (out / "model.onnx").exists() == (name not in UNEXPORTED), name
        if name not in UNEXPORTED:
            made = Model.load_for_predictions(out)  # of the ONNX file that fit wrote
            assert np.abs(np.array(said(made)[0]) - expected[-1][0]).max() < 1e-4, name
    lines = "".join(json.dumps([str(out), *which]) + "\n" for which, out in runs.items())
    command = [sys.executable, "-c", REPEATED]
    found = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    assert found.returncode == 0, found.stderr
    assert [json.loads(line) for line in found.stdout.splitlines()] == json.loads(json.dumps(expected))


def test_a_few(tmp_path: Path) -> None:
    check({which: tmp_path / str(number) for number, which in enumerate(SAMPLE)})


@pytest.mark.slow
@pytest.mark.parametrize("memory", FORMATS)
@pytest.mark.parametrize("first", range(0, 30, 5))
def test_thirty_in_both_memory_formats(tmp_path: Path, memory: str, first: int) -> None:
    names = [*ARCHITECTURES][first : first + 5]
    assert len(ARCHITECTURES) == 30
    check({(name, memory): tmp_path / str(number) for number, name in enumerate(names)})
