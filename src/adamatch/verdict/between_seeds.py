"""How far several seeds of a run agree on the target, which of them fell, and what becomes of the others.

Like all of this folder it sees no label of the target. What it finds is in result.json under "seeds":

seeds      those that were trained
agreement  [[a, b, percent]]: on how many target images two of them agree
dropped    [{"seed", "agreement", "others", "sign"}]: with the others' mean prediction, and these with each other's, in
           percent; what else spoke against it
nearest    the seed, of those that remain, whose predictions are nearest to their mean prediction
average    whether the model has the average of their weights, rather than the weights of the nearest
target, source   percent of target images on which it agrees with the mean prediction, and of held-out source images
           that are right (null: none were held out): [of the average, of the nearest]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from adamatch.verdict.eval_outputs import EvalOutputs, Probabilities, accuracy, agreement
from adamatch.verdict.model_selection import ENSEMBLE, information, scores

FAR = 2.0  # times as far from the others' mean prediction as these are from each other's,
LEAST = 0.03  # and by this part of all images farther
SIGNS = {
    "late": "it changed more of its predictions in the second half of its run than any of these did",
    "information": "its predictions are less sure, or of fewer classes, than those of any of these",
}


def middle_and_last(outputs: EvalOutputs) -> EvalOutputs:
    """The evaluations that are looked at: in the middle of the run, and at its end."""
    rows = [int(np.searchsorted(outputs.steps, outputs.steps[-1] / 2)), -1]
    steps = (outputs.steps[rows[0]], outputs.steps[-1])
    return replace(outputs, steps=steps, target=outputs.target[rows], source=outputs.source[rows])


def compared(found: Mapping[int, EvalOutputs]) -> dict[str, Any]:
    """Of seeds in their middle and at their end: how far they agree, which fell, and which of the others is nearest.

    Looked at is the seed without which the others agree best. It fell if it disagrees with their mean prediction far
    more often than each of them with the rest of them (FAR, LEAST), and if one of two other signs says so, too: more of
    its predictions came late in its run than of any other, or it knows less of the images (`information`). A minority
    can fall: one of three, none of two.
    """
    kept, dropped = dict(found), list[dict[str, Any]]()
    while 2 * (len(dropped) + 1) < len(found):
        theirs, worst = min((_spread(_without(kept, seed)), seed) for seed in kept)
        ours, others = kept[worst], _without(kept, worst)
        distance, sign = _distance(ours, others), _sign(ours, others)
        if distance < max(FAR * theirs, theirs + LEAST) or sign is None:
            break
        told = {"agreement": _percent(1 - distance), "others": _percent(1 - theirs)}
        dropped.append({"seed": worst, **told, "sign": sign})
        del kept[worst]
    nearest = list(kept)[int(scores([*kept.values()], ENSEMBLE).argmax())]
    pairs = [[a, b, _percent(agreement(found[a].last, found[b].last))] for a, b in combinations(found, 2)]
    return {"seeds": [*found], "agreement": pairs, "dropped": dropped, "nearest": nearest}


def remaining(facts: Mapping[str, Any]) -> list[int]:
    """Seeds that did not fall."""
    return [seed for seed in facts["seeds"] if seed not in [each["seed"] for each in facts["dropped"]]]


def judged(facts: Mapping[str, Any], found: Mapping[int, EvalOutputs], average: EvalOutputs) -> dict[str, Any]:
    """The same facts, and whether the average of weights works, by its outputs.

    It has to be as near to the mean prediction as the nearest seed, and no worse than that on held-out source images.
    """
    mean, nearest = _mean([found[seed] for seed in remaining(facts)]), found[facts["nearest"]]
    both = (average, nearest)
    target = [agreement(each.last, mean) for each in both]
    source = [accuracy(each.source[-1], each.source_labels) for each in both]
    works = target[0] >= target[1] and not source[0] < source[1]  # nan, where none were held out, is not smaller
    held_out = [_percent(each) if len(nearest.source_labels) else None for each in source]
    return {**facts, "average": works, "target": [*map(_percent, target)], "source": held_out}


def lines(facts: Mapping[str, Any] | None) -> list[str]:
    """The same for a person to read, on the terminal and on the page; nothing where there is one seed."""
    if not facts:
        return []
    seeds, rates = facts["seeds"], [round(rate) for *_, rate in facts["agreement"]]
    who = f"Any two of {len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"
    who = who if len(seeds) > 2 else f"The two seeds ({seeds[0]} and {seeds[1]})"
    span = " to ".join(map(str, sorted({min(rates), max(rates)})))
    told = [f"{who} agree on {span} % of the target images."]
    told += [
        f"Seed {each['seed']} was dropped: it agrees with the others on {each['agreement']:.0f} %, and these with each "
        f"other on {each['others']:.0f} %; and {SIGNS[each['sign']]}."
        for each in facts["dropped"]
    ]
    *first, last = remaining(facts)
    names = f"{', '.join(map(str, first))} and {last}"
    (ours, its), (right, its_right) = facts["target"], facts["source"]
    average, nearest = f"the average of the weights of seeds {names}", f"seed {facts['nearest']}"
    if facts["average"]:
        how = f"it agrees with their mean prediction on {ours:.1f} % of the target images, {nearest} on {its:.1f} %"
        return [*told, f"The model is {average}: {how}."]
    why = f"{average} is right on {right} % of the held-out source images, this one on {its_right} %"
    if ours < its:
        why = f"{average} agrees with it on {ours:.1f} %"
    return [
        *told,
        f"The model is {nearest}, nearest to their mean prediction ({its:.1f} % of the target images): {why}.",
    ]


def _mean(outputs: Sequence[EvalOutputs]) -> Probabilities:
    """The mean prediction [n, k], of the last evaluations."""
    found: Probabilities = np.mean([each.last for each in outputs], axis=0)
    return found


def _distance(one: EvalOutputs, others: Sequence[EvalOutputs]) -> float:
    """The part of target images on which it disagrees with the others' mean prediction."""
    return 1 - agreement(one.last, _mean(others))


def _spread(outputs: Sequence[EvalOutputs]) -> float:
    """The mean distance of each of them from the others."""
    return float(np.mean([_distance(each, [o for o in outputs if o is not each]) for each in outputs]))


def _without(found: Mapping[int, EvalOutputs], seed: int) -> list[EvalOutputs]:
    return [each for number, each in found.items() if number != seed]


def _sign(one: EvalOutputs, others: Sequence[EvalOutputs]) -> str | None:
    """What else speaks against a seed."""
    if _settled(one) < min(map(_settled, others)):
        return "late"
    return "information" if information(one) < min(map(information, others)) else None


def _settled(outputs: EvalOutputs) -> float:
    """How much of its last predictions a run had in its middle."""
    return agreement(outputs.target[0], outputs.last)


def _percent(part: float) -> float:
    return round(100 * part, 2)
