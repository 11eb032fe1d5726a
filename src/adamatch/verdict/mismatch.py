"""Signs that source and target do not fit together, from what the network and its twin say. Quiet where all is well."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamatch.base.console import percent
from adamatch.images.store import Labels, Pixels
from adamatch.verdict import images, names
from adamatch.verdict.calibrated import Rows, entropy
from adamatch.verdict.changed import changed
from adamatch.verdict.evidence import Evidence, Numbers, guesses
from adamatch.verdict.misnamed import misnamed
from adamatch.verdict.shares import of_predictions

# One set for all. A class is looked for where the source would let expect ENOUGH images of it.
ENOUGH = 20
RARE, RARE_ALONE = (
    0.15,
    0.05,
)  # of the share that the source would let expect: by network and twin, by the network alone
SELDOM = 0.3  # the same, by the twin
TRUSTED = 0.65  # agreement with the twin on the other images, from which on its silence on a class counts
AS_SURE = (
    0.95  # and it is at least so sure, in comparison to all images, of those that the network alone takes for the class
)
HALF = 0.5  # of the share that the source would let expect; and of all that is expected, where many classes are missing
ONE_SIDED = 0.8  # part of the images in one class ...
USUAL = 0.5  # ... of which the source has less than this part
STRANGE = 0.1  # agreement with the twin beyond chance, below which neither is to be believed
SURE, SURE_ENOUGH = 0.2, 0.5  # the twin is sure of an image that it is surer of than of a fifth of the held-out ones
RENAMED = (
    0.5  # part of the images that the twin is sure of which adaptation gives another class, from which on it is a sign
)
UNSURE, RENAMED_UNSURELY = 0.3, 0.1  # or this part, where the network itself is sure of less than UNSURE of all images
LEAST, SOME = 3, 0.01  # images that are empty, or in both: at least so many, and such a part
SHOWN = 24  # images that show what is meant
NAMED = 5  # classes
UNKNOWN = ("one class", "other kind", "overturned")  # with these nothing is told of the accuracy
UNFIT = (*UNKNOWN, "missing")  # and with these neither an accuracy at best nor a gain


class Warned(NamedTuple):
    """`kind` is a word for programs, `line` for people; `rows` are target images that show it, `pairs` theirs in the source."""

    kind: str
    line: str
    rows: list[int]
    pairs: list[int] = []  # noqa: RUF012  # rows of labelled images, one for each of `rows`


def of_outputs(evidence: Evidence, expected: Numbers, classes: Sequence[str]) -> list[Warned]:
    """From outputs; `expected` are the shares of the source's labels [k]. Rows are those of the evidence."""
    worst = one_sided(evidence, expected, classes) or strange(evidence) or missing(evidence, expected, classes)
    return worst or [*overturned(evidence, classes), *wrong_name(evidence, classes)]


def one_sided(evidence: Evidence, expected: Numbers, classes: Sequence[str]) -> list[Warned]:
    """Nearly all images in one class: by the network, or by a twin that is as sure as of held-out images."""
    asked = {"": evidence.last}
    if evidence.twin is not None and len(evidence.held) and _sure(evidence.twin).mean() >= SURE_ENOUGH:
        asked[", without adaptation,"] = evidence.twin.last
    for whose, said in asked.items():
        shares = of_predictions(said)
        top = int(shares.argmax())
        if shares[top] >= ONE_SIDED and expected[top] < USUAL:
            usual = percent(expected[top])
            line = (
                f"{shares[top]:.0%} of the target images are taken{whose} for {classes[top]!r}, and {usual} of the "
                "labelled images are of it: are there other classes in the target, or did the others collapse into this one?"
            )
            return [Warned("one class", line, _surest(said, guesses(said) == top))]
    return []


def strange(evidence: Evidence) -> list[Warned]:
    """With and without adaptation the network says things that have nothing to do with each other."""
    if evidence.twin is None:
        return []
    found = changed(evidence.last, evidence.twin.last)
    if found.beyond_chance >= STRANGE or found.agreement >= USUAL:
        return []
    line = (
        f"with and without adaptation the network agrees on {found.agreement:.0%} of the target images, hardly more than by "
        "chance: is the target of the same kind as the labelled images?"
    )
    return [Warned("other kind", line, found.rows[:SHOWN].tolist())]


def missing(evidence: Evidence, expected: Numbers, classes: Sequence[str]) -> list[Warned]:
    """Classes that the labelled images have, and the target hardly has.

    Alignment gives every class its share of the target, also one that is not there. The twin knows no alignment: where it
    mostly agrees with the network otherwise, a class that it never names is likely not there; unless the network names it, and
    the twin is unsure of just these images.
    """
    said = evidence.last
    hardly = of_predictions(said) < RARE_ALONE * expected
    if evidence.twin is not None:
        mine, its = guesses(said), guesses(evidence.twin.last)
        both = np.bincount(mine[mine == its], minlength=len(classes)) / len(mine)
        hardly = (both < RARE * expected) & (of_predictions(evidence.twin.last) < SELDOM * expected)
        others = ~np.isin(mine, np.flatnonzero(hardly))
        if not others.any() or (mine == its)[others].mean() < TRUSTED:
            hardly[:] = False
        sure = evidence.twin.last.max(1)
        for each in np.flatnonzero(hardly):
            alone = (mine == each) & (its != each)
            hardly[each] = alone.mean() < RARE * expected[each] or sure[alone].mean() >= AS_SURE * sure.mean()
        hardly |= _half_unnamed(said, its, expected)
    absent = np.flatnonzero(hardly & (expected * len(said) >= ENOUGH))
    if not len(absent):
        return []
    listed = ", ".join(classes[each] for each in absent[:NAMED])
    listed += f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
    line = (
        f"the target seems to have few or no images of {listed}: predictions of "
        f"{'it' if len(absent) == 1 else 'these'} are doubtful"
    )
    return [Warned("missing", line, _surest(said, np.isin(guesses(said), absent)))]


def _half_unnamed(said: Rows, its: Labels, expected: Numbers) -> NDArray[np.bool_]:
    """Classes that the twin names seldom, where they are half of what is expected.

    The network must confirm what its twin names, and be less sure of what it calls by those names itself.
    """
    mine, sure = guesses(said), said.max(1)
    seldom: NDArray[np.bool_] = np.bincount(its, minlength=len(expected)) / len(its) < HALF * expected
    named, called = ~seldom[its], seldom[mine]
    if not named.any() or called.all() or not called.any() or expected[seldom].sum() < HALF:
        return np.zeros_like(seldom)
    confirmed = (mine == its)[named].mean() >= HALF
    return seldom & bool(confirmed and sure[called].mean() < AS_SURE * sure[~called].mean())


def overturned(evidence: Evidence, classes: Sequence[str]) -> list[Warned]:
    """Adaptation renames what the twin is as sure of as of held-out images: most of it, or some, and is itself sure of little.

    Alignment spreads a target of one class over all of them; so does a run that went wrong. Only of networks that began from
    learned weights: others are sure without reason.
    """
    if evidence.twin is None or not evidence.started or not len(evidence.held):
        return []
    sure = _sure(evidence.twin)
    mine, its = guesses(evidence.last), guesses(evidence.twin.last)
    renamed = sure & (mine != its)
    usual = RENAMED_UNSURELY if _sure(evidence).mean() < UNSURE else RENAMED
    if sure.sum() < ENOUGH or renamed.sum() <= usual * sure.sum():
        return []
    shares = np.bincount(its[sure], minlength=len(classes)) / sure.sum()
    line = (
        f"without adaptation the network is sure of {sure.sum()} target images ({shares.max():.0%} of them are "
        f"{classes[int(shares.argmax())]!r}), and adaptation renames {renamed.sum() / sure.sum():.0%} of these: "
        "does the target have all classes, or did adaptation go wrong?"
    )
    return [Warned("overturned", line, _surest(evidence.twin.last, renamed))]


def wrong_name(evidence: Evidence, classes: Sequence[str]) -> list[Warned]:
    """Groups of images that may have got another class's name as a whole."""
    groups = misnamed(evidence)
    if not groups:
        return []
    told = [f"{classes[each.called]!r} may be {classes[each.rather]!r}" for each in groups[:NAMED]]
    told += [f"{len(groups) - NAMED} more"] if len(groups) > NAMED else []
    line = f"a group of images may have got the wrong name: what is called {', and '.join(told)}, wholly or in part"
    each_shows = SHOWN // len(groups[:NAMED])
    return [Warned("wrong name", line, [int(row) for each in groups[:NAMED] for row in each.rows[:each_shows]])]


def of_images(target: Pixels, labelled: Pixels) -> list[Warned]:
    """From pixels: rows are those of the two arrays."""
    found = []
    blank, usual = images.empty(target), len(images.empty(labelled)) / max(1, len(labelled))
    if _many(len(blank), len(target)) and len(blank) / len(target) > 2 * usual:
        line = (
            f"{len(blank)} of {len(target)} target images are empty or of one colour: take them out, they teach nothing"
        )
        found.append(Warned("empty", line, blank[:SHOWN].tolist()))
    pairs = images.nearly_same(target, labelled)
    if _many(len(pairs), len(target)):
        line = f"{len(pairs)} of {len(target)} target images are nearly the same as labelled ones: then estimates are too good"
        found.append(Warned("same images", line, pairs[:SHOWN, 0].tolist(), pairs[:SHOWN, 1].tolist()))
    return found


def of_names(classes: Sequence[str]) -> list[Warned]:
    """Classes that are likely one."""
    told = [" and ".join(repr(name) for name in group) for group in names.alike(classes)]
    return [Warned("names", f"are these the same class? {each}", []) for each in told]


def _sure(run: Evidence) -> NDArray[np.bool_]:
    """Of which target images a network is as sure as of those held out."""
    limit = np.quantile(-entropy(run.source[-1]), SURE)
    found: NDArray[np.bool_] = -entropy(run.last) >= limit
    return found


def _surest(said: Rows, of: NDArray[np.bool_]) -> list[int]:
    rows: Labels = np.flatnonzero(of)
    found: list[int] = rows[np.argsort(-said[rows].max(1), kind="stable")][:SHOWN].tolist()
    return found


def _many(count: int, of: int) -> bool:
    return count >= max(LEAST, SOME * of)
