"""What a run's folder holds of its network's outputs and its verdict may be damaged: it is named in one line, or left out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import VALUES
from report import runs

from adamatch.base.errors import InputError
from adamatch.base.files import sealed
from adamatch.report import record
from adamatch.verdict import evidence, summary

SAID = [np.full((9, 3), 1 / 3) for _ in range(2)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = runs.made(tmp_path / "run", SAID, "abc", held_out=(0, 1, 2, 0), accuracy=70.0)
    assert evidence.read(made) is not None
    return made


@pytest.mark.parametrize(
    "arrays",
    [
        {"other": SAID[0]},
        {"target": SAID[0][:5]},
        {"target": SAID[0][:, :2]},
        {"target": SAID[0][0]},
        {"target": SAID[0] * np.nan},
        {"target": SAID[0], "source": SAID[0]},
    ],
)
def test_outputs_of_another_shape_are_named(arrays: dict[str, Any], run: Path) -> None:
    np.savez(run / "outputs/step-000000002.npz", **{name: each.astype(np.float16) for name, each in arrays.items()})
    with pytest.raises(InputError, match=r"step-000000002\.npz is damaged .*remove it, to do without that evaluation"):
        evidence.read(run)


@pytest.mark.parametrize(
    "labels", [7, "x", [0, 1], [0, 1, 2, 3], [0, 1, 2, -1], [0, 1, 2, 0.5], [[0], [1], [2], [0]], {"a": 1}]
)
def test_labels_of_another_kind_are_named(labels: object, run: Path) -> None:
    (run / "outputs/classes.json").write_text(json.dumps({"source": labels}))
    with pytest.raises(InputError, match=r"classes\.json is damaged"):
        evidence.read(run)


@pytest.mark.parametrize("value", [value for value in VALUES if value != {}], ids=lambda value: repr(value)[:20])
def test_a_verdict_of_another_kind_is_none(value: object) -> None:
    assert not summary.readable(value)
    sound: dict[str, Any] = {
        "range": {"at_least": 1.0, "at_best": 2.0},
        "gain": None,
        "twin": None,
        "held_out": 0,
        "warnings": [],
    }
    assert summary.readable(sound)
    assert not summary.readable(sound | {"range": value})


def test_a_page_shows_no_result_whose_checksum_is_wrong(run: Path) -> None:
    (run / "result.json").write_text(json.dumps(sealed({"accuracy": 70.0}) | {"accuracy": 99.0}))
    found = record.read(run)
    assert found.result == {}
    assert "result.json is damaged: what it holds is not shown." in found.missing
