"""Which of several candidates is likely the best, without labels of the target: runs, or evaluations of one run.

A rule gives the last evaluation of a run's outputs a score: the larger, the better.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.beside_twin import misnamed
from adamatch.verdict.calibrated import entropy, transport
from adamatch.verdict.eval_outputs import EvalOutputs, Numbers, agreement, predictions

TEMPERATURE = 0.05  # of soft neighbourhood density, as published
SAMPLED = 500  # images at most that are compared with each other
MISNAMED = 10.0  # a tenth of all images under a wrong name counts as much as knowing all and nothing of each image
EARLY = 0.25  # evaluations before so much of the run are not chosen: there the predictions still change a lot


def certainty(outputs: EvalOutputs) -> float:
    """Mean negative entropy."""
    return float(-entropy(outputs.last).mean())


def information(outputs: EvalOutputs) -> float:
    """Mutual information of images and classes: sure of each image, and of many classes in all."""
    return float(entropy(outputs.last.mean(0))) + certainty(outputs)


def density(outputs: EvalOutputs) -> float:
    """Soft neighbourhood density (Saito et al., ICCV 2021): the mean entropy of the similarities [n, n] of images."""
    unit = outputs.last[_sampled(outputs)].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    similar = unit @ unit.T / TEMPERATURE
    np.fill_diagonal(similar, -np.inf)
    similar = np.exp(similar - similar.max(1, keepdims=True))
    return float(entropy(similar / similar.sum(1, keepdims=True)).mean()) if len(unit) > 1 else 0.0


def names(outputs: EvalOutputs) -> float:
    """Few images in groups that may have the wrong name; among equals, certainty. Without a twin, certainty alone."""
    groups = {each.predicted for each in misnamed(outputs)}
    wrong = np.isin(predictions(outputs.last), list(groups)).mean()
    return float(certainty(outputs) / np.log(max(2, outputs.last.shape[1])) - MISNAMED * wrong)


def by_transport(outputs: EvalOutputs) -> float:
    """The accuracy by optimal transport to the source's labels; without held-out source images all are equal."""
    if not len(outputs.source_labels):
        return 0.0
    return transport(outputs.last[_sampled(outputs)], outputs.source[-1], outputs.source_labels)


SCORES: Mapping[str, Callable[[EvalOutputs], float]] = {
    "names": names,
    "density": density,
    "information": information,
    "transport": by_transport,
    "certainty": certainty,
}
ENSEMBLE = "ensemble"  # agreement with the mean of all candidates
RULES = (ENSEMBLE, *SCORES)


def scores(candidates: Sequence[EvalOutputs], rule: str) -> Numbers:
    """Of candidates on the same target images."""
    if rule == ENSEMBLE:
        mean = np.mean([each.last for each in candidates], axis=0)
        return np.array([agreement(each.last, mean) for each in candidates])
    return np.array([SCORES[rule](each) for each in candidates])


def best_evaluation(outputs: EvalOutputs, rule: str) -> int:
    """Its index; of equals the later one."""
    found = scores([outputs.at(index) for index in range(len(outputs.steps))], rule)
    found[: int(len(found) * EARLY)] = -np.inf
    return len(found) - 1 - int(found[::-1].argmax())


def _sampled(outputs: EvalOutputs) -> Labels:
    """Rows, at most SAMPLED of them, spread evenly."""
    count = len(outputs.last)
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLED)).astype(np.int64))
