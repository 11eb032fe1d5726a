"""The verdict as it is written, and as it is told."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.tiny_net import TinyNet
from verdict import made

from adamatch.images.checks import Finding
from adamatch.images.store import Store
from adamatch.images.tasks import Labelled, Unlabelled
from adamatch.model import Model
from adamatch.train.speed import Machine
from adamatch.verdict import accuracy, eval_outputs, mismatch, summary
from adamatch.verdict.eval_outputs import EvalOutputs
from adamatch.verdict.verdict import verdict

CLASSES = ("a", "b", "<script>alert(1)</script>", "d")
HELD, TRUE = made.labels([1, 1, 1, 1], 200), made.labels([1, 1, 1, 1], 300, seed=1)
PIXELS = np.random.default_rng(0).integers(0, 256, (300, 8, 8, 3), dtype=np.uint8)
LABELLED = np.random.default_rng(1).integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)
RUN = made.outputs([0.5, 0.6, 0.8], TRUE, HELD)
TWIN = made.said(TRUE, 4, 0.6, seed=12)[None]  # the last evaluation's seed: the run is right wherever its twin is
BOTH = made.beside(RUN, EvalOutputs((7,), TWIN, RUN.source[:1], HELD))


def found(outputs: EvalOutputs = BOTH, findings: Sequence[Finding] = ()) -> dict[str, Any]:
    target_parts = Unlabelled((PIXELS[:100], PIXELS[100:]))
    return verdict(outputs, target_parts, Labelled((LABELLED,), HELD), CLASSES, findings)


def test_it_is_json_and_says_what_the_parts_say() -> None:
    made_of = json.loads(json.dumps(found()))
    told = accuracy.range_of(BOTH)
    assert told is not None
    assert made_of["range"] == {"at_least": round(100 * told[0], 2), "at_best": round(100 * told[1], 2)}
    gained = accuracy.gain(BOTH)
    assert gained is not None
    assert made_of["gain"] == round(100 * gained, 2)
    assert made_of["source_accuracy"] == pytest.approx(100 * (RUN.source[-1].argmax(1) == HELD).mean(), abs=0.01)
    assert made_of["twin"]["steps"] == 7
    assert len(made_of["twin"]["rows"]) == min(200, made_of["twin"]["changed"])
    assert all(sum(share) == pytest.approx(1, abs=1e-3) for share in made_of["shares"].values())
    assert made_of["warnings"] == []


def test_rows_are_those_of_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all are looked at; what was found in the images counts all of them already."""
    monkeypatch.setattr(eval_outputs, "MOST", 150)
    rows = eval_outputs.sampled_rows(300)
    few = EvalOutputs((1,), RUN.target[-1:, rows], RUN.source[-1:], HELD)
    blank = Finding("empty", "some are empty", [7, 8], files=["a.png"])
    with monkeypatch.context() as patched:
        patched.setattr(mismatch, "of_outputs", lambda *given: [Finding("missing", "a line", [3, 40, 90])])
        missing, empty = json.loads(json.dumps(found(few, [blank])["warnings"]))
    assert (missing["kind"], missing["rows"], missing["pairs"]) == ("missing", rows[[3, 40, 90]].tolist(), [])
    assert empty == {"kind": "empty", "line": "some are empty", "rows": [7, 8], "pairs": [], "files": ["a.png"]}
    beside = made.beside(few, EvalOutputs((7,), made.said(TRUE, 4, 0.6, seed=77)[None, rows], RUN.source[:1], HELD))
    assert beside.twin is not None
    twins = np.flatnonzero(beside.last.argmax(1) != beside.twin.last.argmax(1))
    assert sorted(found(beside)["twin"]["rows"]) == rows[twins].tolist()


def test_moves_are_from_one_class_to_another() -> None:
    twin = found()["twin"]
    counts = [count for _, _, count in twin["moves"]]
    assert counts == sorted(counts, reverse=True)
    assert all(before != after for before, after, _ in twin["moves"])
    assert sum(counts) <= twin["changed"]


def test_labels_are_those_of_the_held_out_images_that_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_outputs, "MOST", 50)
    machine = Machine(torch.device("cpu"), "fp32", compile=False, graph=False)
    held_out = Store(LABELLED[:, :2, :2], np.arange(200) % 4, CLASSES)
    target = Unlabelled((PIXELS[:, :2, :2],))
    seen = eval_outputs.OutputWriter(CLASSES, target, target, held_out, tmp_path, machine)
    seen(TinyNet(4, norm=False), 1)
    rows = eval_outputs.sampled_rows(200)
    assert len(rows) == 50
    assert np.array_equal(seen.images["source"].numpy(), LABELLED[rows, :2, :2])
    (tmp_path / "run.json").write_text("{}")
    read = eval_outputs.read(tmp_path)
    assert read is not None
    assert read.source_labels.tolist() == (rows % 4).tolist()
    assert eval_outputs.facts(tmp_path).classes == CLASSES


def test_what_is_not_known_is_null_and_told_as_such() -> None:
    nothing = EvalOutputs(RUN.steps, RUN.target, RUN.source[:, :0], HELD[:0])
    told = found(nothing)
    assert (told["range"], told["gain"], told["twin"]) == ({"at_least": None, "at_best": None}, None, None)
    assert told["source_accuracy"] is None
    ((name, value),) = summary.rows(told)
    assert (name, value.partition(" (")[0]) == ("accuracy on the target", "cannot be told without labels")
    assert summary.lines(told) == []
    assert summary.table(told) == summary.rows(told)


@pytest.mark.parametrize("kind", mismatch.UNFIT)
def test_nothing_is_told_where_the_target_does_not_fit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert None not in (*found()["range"].values(), found()["gain"])
    monkeypatch.setattr(mismatch, "of_outputs", lambda *given: [Finding(kind, "a line")])
    told = found()
    assert {*told["range"].values(), told["gain"]} == {None}
    assert summary.rows(told)[0][1].startswith("cannot be told without labels")


def test_lines_for_a_person() -> None:
    told = found() | {"warnings": [{"kind": "empty", "line": "some are empty", "rows": [1], "pairs": []}]}
    lines = [f"{name}: {value}" for name, value in summary.rows(told)]
    assert lines[0].startswith("accuracy on the target: between ")
    assert lines[1].startswith("gain over the labelled images alone: about +")
    changed = told["twin"]["changed"]
    assert lines[2].startswith(f"adaptation changed: {changed} of 300 target predictions ({changed / 300:.0%}), most ")
    assert summary.lines(told) == [lines[2], "warning: some are empty"]


def test_a_model_shows_itself_with_names_as_text() -> None:
    model = Model(TinyNet(4), CLASSES, 8, history={"judge": found(), "accuracy": 71.25})
    text, html = repr(model), model._repr_html_()
    assert text.startswith("adamatch.Model\n")
    assert "71.2 %" in text
    assert "between" not in text
    assert "between" in repr(Model(TinyNet(4), CLASSES, 8, history={"judge": found()}))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "71.2 %" in html
    assert "classes" in repr(Model(TinyNet(4), CLASSES, 8))
