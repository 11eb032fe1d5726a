"""Outputs as networks give them, made by hand: probabilities of a wished accuracy, sureness and shares of classes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamatch.base.files import sealed
from adamatch.config.run import Run
from adamatch.verdict import eval_outputs
from adamatch.verdict.eval_outputs import EvalOutputs

Labels = NDArray[np.int64]
Floats = NDArray[np.float32]


def labels(shares: list[float], count: int, seed: int = 0) -> Labels:
    """Class numbers, as often as `shares` say."""
    sizes = np.diff(np.rint(np.cumsum(np.array(shares) / sum(shares)) * count).astype(int), prepend=0)
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(shares)), sizes))


def said(true: Labels, classes: int, right: float, seed: int = 0, sure: float = 6.0) -> Floats:
    """Probabilities [n, k] of a network that is right on the part `right` of the images, and surer of those."""
    rng = np.random.default_rng([seed, 1])
    hit = rng.random(len(true)) < right
    guess = np.where(hit, true, (true + rng.integers(1, classes, len(true))) % classes)
    z = rng.normal(0, 0.5, (len(true), classes))
    z[np.arange(len(true)), guess] += np.where(hit, sure, sure / 2) * rng.uniform(0.5, 1.5, len(true))
    z = np.exp(z - z.max(1, keepdims=True))
    found: Floats = (z / z.sum(1, keepdims=True)).astype(np.float32)
    return found


def outputs(rights: list[float], true: Labels, held: Labels, classes: int = 4, on_source: float = 0.95) -> EvalOutputs:
    """A run whose evaluations are right on such parts of the target."""
    target = np.stack([said(true, classes, right, seed=10 + number) for number, right in enumerate(rights)])
    source = np.stack([said(held, classes, on_source, seed=50 + number) for number, _ in enumerate(rights)])
    return EvalOutputs(tuple(100 * (number + 1) for number, _ in enumerate(rights)), target, source, held)


def beside(run: EvalOutputs, twin: EvalOutputs) -> EvalOutputs:
    return replace(run, twin=twin)


def twins(run: EvalOutputs, target: Floats) -> EvalOutputs:
    """The same run, whose twin predicts something else."""
    assert run.twin is not None
    return replace(run, twin=replace(run.twin, target=target[None]))


def kept(folder: Path, run: EvalOutputs, weights: str = "", classes: tuple[str, ...] = ()) -> None:
    """A run's folder as far as outputs are read from it; `weights` is what it began from. Image i has the key "i"."""
    (folder / eval_outputs.FOLDER).mkdir(parents=True)
    (folder / "run.json").write_text(Run(source="rendered", target="handwritten", weights=weights).to_json())
    (folder / "result.json").write_text("{}")  # it is finished
    facts = {"classes": classes, "images": list(map(str, range(len(run.last)))), "source": run.source_labels.tolist()}
    (folder / eval_outputs.FOLDER / eval_outputs.CLASSES).write_text(json.dumps(sealed(facts)))
    for step, *said in zip(run.steps, run.target, run.source, strict=True):
        target, source = (each.astype(np.float16) for each in said)
        np.savez(folder / eval_outputs.FOLDER / f"step-{step:09d}.npz", target=target, source=source)
