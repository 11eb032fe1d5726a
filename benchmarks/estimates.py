"""How far verdicts without labels are off, and what label-free rules choose, on runs whose target labels are known here.

    python benchmarks/estimates.py runs/estimates --out results/estimates.md

Reads NAME.npz for each run: `labels` [n] of its unlabelled target images (-1: of no class), `held` [m] of held-out source
images, `steps` [e], what the network said, `target` [e, n, k] and `source` [e, m, k], and whether it `started` from learned
weights; NAME-twin.npz is the same of training on the labelled images alone. Runs on the same images, of other seeds or
recipes, are called NAME+OTHER. benchmarks/photographs.py makes such files, and benchmarks/small_runs.py small ones on a CPU.
Labels of the target are used in this file alone.
"""

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.verdict import accuracy, choice, evidence, mismatch, shares
from adamatch.verdict.evidence import Evidence

TWIN, SAME = "-twin", "+"
TOO_HIGH = 10.0  # points

Cell = float | str | None


@dataclass(frozen=True)
class Saved:
    """A run's evidence, and the labels that it must not see."""

    name: str
    known: Evidence
    labels: NDArray[np.int64]

    def accuracies(self) -> list[float]:
        """Of every evaluation, in percent."""
        return [100 * evidence.accuracy(each, self.labels) for each in self.known.target]


def load(folder: Path) -> list[Saved]:
    """All runs of a folder, each beside its twin if that is there."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        if path.stem.endswith(TWIN):
            continue
        known, labels = _read(path)
        beside = path.with_name(f"{path.stem}{TWIN}.npz")
        if beside.exists():
            known = known.with_twin(_read(beside)[0])
        found.append(Saved(path.stem, known, labels))
    if not found:
        raise InputError(f"{folder} has no NAME.npz: make some with benchmarks/small_runs.py {folder}")
    return found


def _read(path: Path) -> tuple[Evidence, NDArray[np.int64]]:
    with np.load(path, allow_pickle=False) as arrays:
        target, source = (evidence.normalised(arrays[name]) for name in ("target", "source"))
        held, started = arrays["held"].astype(np.int64), bool(arrays["started"])
        known = Evidence(tuple(arrays["steps"].tolist()), target, source, held, started=started)
        return known, arrays["labels"].astype(np.int64)


def estimates_table(runs: list[Saved]) -> list[str]:
    """True accuracy and every estimate; below, how far each is off."""
    names = [*accuracy.HIGH, *accuracy.LOW, "at least", "at best"]
    truths, table = [], []
    for run in runs:
        found = {name: _percent(value) for name, value in accuracy.estimates(run.known).items()}
        fractions = {name: None if value is None else value / 100 for name, value in found.items()}
        kinds = {each.kind for each in warned(run)}
        fits, guessed = kinds.isdisjoint(mismatch.UNFIT), kinds.isdisjoint(mismatch.UNKNOWN)
        low, high = accuracy.range_of(fractions, fits and accuracy.is_believed(run.known))
        truths.append(run.accuracies()[-1])
        table.append([*found.values(), _percent(low) if guessed else None, _percent(high)])
    lines = [_row(["run", "true", *names]), _rule(len(names) + 2)]
    lines += [_row([run.name, truth, *cells]) for run, truth, cells in zip(runs, truths, table, strict=True)]
    known = [
        [value - truth for cells, truth in zip(table, truths, strict=True) if (value := cells[column]) is not None]
        for column in range(len(names))
    ]
    lines.append(_row(["**mean absolute error**", "", *(_mean([abs(value) for value in each]) for each in known)]))
    lines.append(_row(["**mean error**", "", *(_mean(each) for each in known)]))
    lines.append(_row(["**more than 10 too high**", "", *(_part(each, TOO_HIGH) for each in known)]))
    return lines


def gains_table(runs: list[Saved]) -> list[str]:
    """True gain over the twin, and by every estimate that is of the first kind; how often the sign is right."""
    paired = [run for run in runs if run.known.twin is not None]
    lines = [_row(["run", "twin", "run", "true gain", *accuracy.HIGH]), _rule(len(accuracy.HIGH) + 4)]
    errors: dict[str, list[float]] = {name: [] for name in accuracy.HIGH}
    signs: dict[str, list[bool]] = {name: [] for name in accuracy.HIGH}
    for run in paired:
        assert run.known.twin is not None
        of_twin = 100 * evidence.accuracy(run.known.twin.last, run.labels)
        ours = run.accuracies()[-1]
        cells: list[Cell] = []
        for name, estimate in accuracy.HIGH.items():
            both = estimate(run.known), estimate(run.known.twin)
            gain = None if both[0] is None or both[1] is None else 100 * (both[0] - both[1])
            cells.append(gain)
            if gain is not None:
                errors[name].append(abs(gain - (ours - of_twin)))
                signs[name].append((gain > 0) == (ours > of_twin))
        lines.append(_row([run.name, of_twin, ours, ours - of_twin, *cells]))
    lines.append(_row(["**mean absolute error**", "", "", "", *(_mean(each) for each in errors.values())]))
    lines.append(_row(["**sign right**", "", "", "", *(f"{sum(each)} of {len(each)}" for each in signs.values())]))
    return lines


def choices_table(runs: list[Saved]) -> list[str]:
    """Accuracy of what each rule chooses, of the last evaluation and of the best, which only labels tell."""
    lines = [_row(["run", "best (ORACLE)", *choice.RULES]), _rule(len(choice.RULES) + 2)]
    below_best: list[list[float]] = []
    for run in runs:
        truth = run.accuracies()
        cells = [truth[choice.choose(run.known, rule)] for rule in choice.RULES]
        below_best.append([max(truth) - value for value in cells])
        lines.append(_row([run.name, max(truth), *cells]))
    columns = np.array(below_best).T
    lines.append(_row(["**mean below the best**", "", *(float(each.mean()) for each in columns)]))
    lines.append(_row(["**most below the best**", "", *(float(each.max()) for each in columns)]))
    lines.append(_row(["**most below the last**", "", *(float((each - columns[0]).max()) for each in columns)]))
    return lines


def among_table(runs: list[Saved]) -> list[str]:
    """Accuracy of what each rule chooses among three runs on the same images, on average over all threes."""
    rules = [rule for rule in choice.RULES if rule not in ("last", "late ensemble")]
    lines = [_row(["three runs of", "one of them", *rules, "the best (ORACLE)"]), _rule(len(rules) + 3)]
    table: list[list[float]] = []
    for name, group in itertools.groupby(runs, lambda run: run.name.split(SAME)[0]):
        threes = list(itertools.combinations(group, 3))
        if not threes:
            continue
        truth = [[run.accuracies()[-1] for run in three] for three in threes]
        known = [[run.known.only_last() for run in three] for three in threes]
        chosen = [
            float(
                np.mean(
                    [three[int(choice.among(said, rule).argmax())] for three, said in zip(truth, known, strict=True)]
                )
            )
            for rule in rules
        ]
        table.append([float(np.mean(truth)), *chosen, float(np.mean(np.max(truth, axis=1)))])
        lines.append(_row([f"{name} ({len(threes)})", *table[-1]]))
    return [*lines, _row(["**mean**", *np.mean(table, axis=0).tolist()])] if table else []


def warnings_table(runs: list[Saved]) -> list[str]:
    """Which signs of mismatch are seen in the outputs."""
    lines = [_row(["run", "classes in the target", "warnings"]), _rule(3)]
    for run in runs:
        present = f"{len(np.unique(run.labels[run.labels >= 0]))} of {run.known.last.shape[1]}"
        lines.append(_row([run.name, present, "; ".join(each.line for each in warned(run)) or "none"]))
    return lines


def warned(run: Saved) -> list[mismatch.Warned]:
    """The source's shares are those of the held-out labels."""
    classes = run.known.target.shape[2]
    expected = shares.of_labels(run.known.held, classes)
    return mismatch.of_outputs(run.known, expected, [str(number) for number in range(classes)])


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _part(values: list[float], limit: float) -> str:
    return f"{sum(value > limit for value in values)} of {len(values)}"


def _row(cells: list[Cell]) -> str:
    texts = ["-" if each is None else f"{each:.1f}" if isinstance(each, float) else str(each) for each in cells]
    return f"| {' | '.join(texts)} |"


def _rule(columns: int) -> str:
    return "| --- " + "| ---: " * (columns - 1) + "|"


def report(folder: Path) -> str:
    everything = load(folder)
    runs = [run for run in everything if (run.labels >= 0).all()]
    among = among_table(runs)
    parts = [
        "# Verdicts without labels, and what they should have been",
        f"{len(runs)} runs; accuracies on the unlabelled target images in percent, at the end of each run. Made by "
        "`python benchmarks/estimates.py`, which alone sees their labels.",
        "## Accuracy",
        f"At best is the lowest of {', '.join(accuracy.AT_BEST)}; at least the lowest of {', '.join(accuracy.AT_LEAST)}, and "
        "never above at best. Of networks that began from nothing, and where a target does not fit or a group of images "
        "may have got the wrong name, nothing is said at best: what it would be stands under its name. "
        "Runs whose target has images of no class are left out.",
        *estimates_table(runs),
        "## Gain over training on the labelled images alone",
        f"What is printed is by {accuracy.GAIN}; of networks that began from nothing by {accuracy.GAIN_FROM_NOTHING}.",
        *gains_table(runs),
        "## Which evaluation to keep",
        f"What is told is by {choice.RULE}. Nothing is chosen from the first {choice.WARM:.0%} of a run.",
        *choices_table(runs),
        *(["## Which of several runs to keep", f"`adamatch choose` goes by {choice.AMONG}.", *among] if among else []),
        "## Warnings",
        *warnings_table(everything),
    ]
    text = ""
    for before, part in zip(["", *parts], parts, strict=False):
        text += ("\n" if before.startswith("|") and part.startswith("|") else "\n\n" if before else "") + part
    return text + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/estimates.md"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(report(given.folder))
    print(given.out)


if __name__ == "__main__":
    main()
