"""How far verdicts without labels are off, and what rules choose, on runs whose target labels are known here.

    python benchmarks/estimates.py runs/estimates --out results/estimates.md

Reads NAME.npz for each run: `labels` [n] of its unlabelled target images (-1: of no class), `held` [m] of held-out
source images, `steps` [e], probabilities `target` [e, n, k] and `source` [e, m, k], and whether it `started` from
learned weights; NAME-twin.npz is the same of training on the labelled images alone. Runs on the same images, of other
seeds or recipes, are called NAME+OTHER. benchmarks/photographs.py makes such files, benchmarks/small_runs.py small ones
on a CPU. Labels of the target are used in this file alone.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import evidence
import numpy as np

from adamatch.base.errors import InputError
from adamatch.images.checks import Finding
from adamatch.images.store import Labels
from adamatch.verdict import accuracy, calibrated, class_shares, eval_outputs, mismatch, model_selection
from adamatch.verdict.eval_outputs import EvalOutputs

TWIN, SAME = "-twin", "+"
TOO_HIGH = 10.0  # points
FROM_CONFIDENCE = {
    "difference": calibrated.difference,
    "threshold": calibrated.threshold,
    "transport": calibrated.transport,
}
INTRODUCTION = f"""\
# Verdicts without labels, and what they should have been

{{count}} runs; accuracies on the unlabelled target images in percent, at the end of each run. Made by
`python benchmarks/estimates.py`, which alone sees their labels.

## Accuracy

At best is by threshold; at least is agreement with the twin times accuracy on held-out images, and never above at
best. Both are told where they are at most {100 * accuracy.WIDEST:.0f} points apart, and {accuracy.ENOUGH} images were
held out; not of networks trained from scratch, nor where a target does not fit or a group of images may have got the
wrong name. Runs whose target has images of no class are left out.
"""

Cell = float | str | None


@dataclass(frozen=True)
class Saved:
    """A run's outputs, and the labels that a verdict must not see."""

    name: str
    outputs: EvalOutputs
    labels: Labels

    @property
    def accuracies(self) -> list[float]:
        """Of every evaluation, in percent."""
        return [100 * eval_outputs.accuracy(each, self.labels) for each in self.outputs.target]

    @property
    def warnings(self) -> list[Finding]:
        """The source's shares are those of the held-out labels."""
        classes = self.outputs.target.shape[2]
        expected = class_shares.of_labels(self.outputs.source_labels, classes)
        return mismatch.of_outputs(self.outputs, expected, [str(number) for number in range(classes)])


def load(path: Path) -> Saved:
    """A run, beside its twin if that is there."""
    with np.load(path, allow_pickle=False) as arrays:
        target, source = (eval_outputs.normalised(arrays[name]) for name in ("target", "source"))
        steps, held, started = tuple(arrays["steps"].tolist()), arrays["held"].astype(np.int64), bool(arrays["started"])
        labels = arrays["labels"].astype(np.int64)
    outputs, beside = EvalOutputs(steps, target, source, held, pretrained=started), path.with_stem(path.stem + TWIN)
    return Saved(path.stem, outputs.with_twin(load(beside).outputs) if beside.exists() else outputs, labels)


def confident(outputs: EvalOutputs) -> dict[str, float | None]:
    """Estimates from confidence, in percent."""
    return {name: _percent(accuracy.from_confidence(rule, outputs)) for name, rule in FROM_CONFIDENCE.items()}


def estimates_table(runs: list[Saved]) -> list[str]:
    """True accuracy and every estimate; below, how far each is off."""
    names = [*FROM_CONFIDENCE, "agreement", "at least", "at best"]
    lines, errors = _head(["run", "true", *names]), []
    for run in runs:
        fits = {each.kind for each in run.warnings}.isdisjoint(mismatch.UNFIT)
        told = (accuracy.range_of(run.outputs) if fits else None) or (None, None)
        cells = [*confident(run.outputs).values(), *map(_percent, (accuracy.at_least(run.outputs), *told))]
        truth = run.accuracies[-1]
        lines.append(_row([run.name, truth, *cells]))
        errors.append([np.nan if value is None else value - truth for value in cells])
    columns = [column[~np.isnan(column)] for column in np.array(errors, float).T]
    lines.append(_row(["**mean absolute error**", "", *(_mean(np.abs(each)) for each in columns)]))
    lines.append(_row(["**mean error**", "", *map(_mean, columns)]))
    above = [f"{(each > TOO_HIGH).sum()} of {len(each)}" for each in columns]
    return [*lines, _row(["**more than 10 too high**", "", *above])]


def gains_table(runs: list[Saved]) -> list[str]:
    """True gain over the twin, and by every estimate from confidence; how often the sign is right."""
    lines, errors, signs = _head(["run", "twin", "run", "true gain", *FROM_CONFIDENCE]), [], []
    for run in runs:
        if run.outputs.twin is None:
            continue
        twin, ours = 100 * eval_outputs.accuracy(run.outputs.twin.last, run.labels), run.accuracies[-1]
        both = zip(confident(run.outputs).values(), confident(run.outputs.twin).values(), strict=True)
        gains = [np.nan if a is None or b is None else a - b for a, b in both]
        lines.append(_row([run.name, twin, ours, ours - twin, *gains]))
        errors.append(np.abs(np.array(gains) - (ours - twin)))
        signs.append((np.array(gains) > 0) == (ours > twin))
    if not errors:
        return lines
    lines.append(_row(["**mean absolute error**", "", "", "", *np.nanmean(errors, axis=0).tolist()]))
    right = [f"{hits} of {len(signs)}" for hits in np.sum(signs, axis=0)]
    return [*lines, _row(["**sign right**", "", "", "", *right])]


def among_table(runs: list[Saved]) -> list[str]:
    """Accuracy of what each rule chooses among three runs on the same images, on average over all threes."""
    lines, table = _head(["three runs of", "one of them", *model_selection.RULES, "the best (ORACLE)"]), []
    for name, group in itertools.groupby(runs, lambda run: run.name.split(SAME)[0]):
        found = []
        for three in itertools.combinations(group, 3):
            truth, outputs = [run.accuracies[-1] for run in three], [run.outputs for run in three]
            chosen = [truth[model_selection.scores(outputs, rule).argmax()] for rule in model_selection.RULES]
            found.append([float(np.mean(truth)), *chosen, max(truth)])
        if found:
            table.append(np.mean(found, axis=0).tolist())
            lines.append(_row([f"{name} ({len(found)})", *table[-1]]))
    return [*lines, _row(["**mean**", *np.mean(table, axis=0).tolist()])] if table else lines


def warnings_table(runs: list[Saved]) -> list[str]:
    """Which signs of mismatch are seen in the outputs."""
    lines = _head(["run", "classes in the target", "warnings"])
    for run in runs:
        present = f"{len(np.unique(run.labels[run.labels >= 0]))} of {run.outputs.last.shape[1]}"
        lines.append(_row([run.name, present, "; ".join(each.line for each in run.warnings) or "none"]))
    return lines


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _row(cells: list[Cell]) -> str:
    texts = [f"{each:.1f}" if isinstance(each, float) else "-" if each is None else each for each in cells]
    return f"| {' | '.join(texts).replace('nan', '-')} |"


def _head(names: list[Cell]) -> list[str]:
    return [_row(names), "| --- " + "| ---: " * (len(names) - 1) + "|"]


def report(folder: Path) -> str:
    everything = [load(path) for path in sorted(folder.glob("*.npz")) if not path.stem.endswith(TWIN)]
    if not everything:
        raise InputError(f"{folder} has no NAME.npz: make some with benchmarks/small_runs.py {folder}")
    runs = [run for run in everything if (run.labels >= 0).all()]
    parts = {
        "Gain over training on the labelled images alone": gains_table(runs),
        "Which of several runs to keep": among_table(runs),
        "Warnings": warnings_table(everything),
    }
    text = INTRODUCTION.format(count=len(runs)) + "\n" + "\n".join(estimates_table(runs)) + "\n"
    return text + "".join(f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.out.write_text(report(given.folder))
    print(given.out)


if __name__ == "__main__":
    main()
