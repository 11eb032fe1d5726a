"""Numbers -> the coordinates of small pictures; the template draws them, so that no markup is made here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.report.features import FeatureMap

WIDE, HIGH = 400, 120  # of a curve's plane: it is stretched to the width there is
SIDE, MARGIN = 400, 14  # of the map
COLOURS = 10  # classes with a colour of their own; the others share one
BINS = 24


@dataclass(frozen=True)
class Line:
    name: str
    look: str  # a class of the style sheet
    path: str
    told: str  # the last value


@dataclass(frozen=True)
class Curve:
    """One plane with some lines; `ticks` are heights in percent with their values, from above."""

    title: str
    text: str
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]
    right: str  # the largest x
    mark: float | None  # a moment worth a vertical line, in percent of the width
    alt: str

    @property
    def widest(self) -> str:
        """The tick that needs the most room."""
        return max((text for _, text in self.ticks), key=len)


def curve(
    title: str,
    text: str,
    series: Sequence[tuple[str, str, Sequence[tuple[float, float]]]],
    *,
    percent: bool,
    mark: float | None,
) -> Curve | None:
    """series: a name, a look and points (images seen, value) each; None where there is nothing to draw."""
    series = [each for each in series if each[2]]
    if not series:
        return None
    values = [y for _, _, points in series for _, y in points]
    right = max(x for _, _, points in series for x, _ in points) or 1.0
    low, high, ticks = scale(min(values), max(values), top=100.0 if percent else math.inf)

    def place(x: float, y: float) -> str:
        return f"{x / right * WIDE:.1f} {HIGH - (y - low) / (high - low) * HIGH:.1f}"

    lines, told = [], []
    for name, look, points in series:
        path = "M" + "L".join(place(x, y) for x, y in points)
        if len(points) == 1:
            path += "h.01"  # one evaluation: a dot
        lines.append(Line(name, look, path, short(points[-1][1]) + (" %" if percent else "")))
        numbers = [y for _, y in points]
        first, last, least, most = (short(y) for y in (numbers[0], numbers[-1], min(numbers), max(numbers)))
        told.append(f"{name} goes from {first} to {last}, between {least} and {most}")
    digits = max(_digits(tick) for tick in ticks)
    heights = tuple((100 - (tick - low) / (high - low) * 100, f"{tick:,.{digits}f}") for tick in reversed(ticks))
    at = None if mark is None else min(100.0, mark / right * 100)
    return Curve(title, text, tuple(lines), heights, f"{right:,.0f}", at, f"{title}: {'; '.join(told)}.")


def scale(low: float, high: float, top: float = math.inf) -> tuple[float, float, list[float]]:
    """A range with round ends around the values, and three to five round values in it."""
    low = 0.0 if 0 <= low < high * 0.6 or low == high else low
    span = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 3))
    step *= next((each for each in (1, 2, 2.5, 5) if span / (step * each) <= 4), 10)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if last * step > top:
        last = round(top / step)
    return first * step, max(last, first + 1) * step, [each * step for each in range(first, max(last, first + 1) + 1)]


def _digits(tick: float) -> int:
    """Behind the point, as many as the tick has."""
    return next(count for count in range(9) if abs(round(tick, count) - tick) < 1e-9 or count == 8)


def short(value: float) -> str:
    """As few digits as tell it apart."""
    size = abs(value)
    if size >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


@dataclass(frozen=True)
class Histogram:
    """Two outlines over the same values; each is the share of its own images."""

    title: str
    text: str
    outlines: tuple[str, str]
    left: str
    right: str
    medians: tuple[str, str]
    alt: str


def histogram(title: str, text: str, source: Sequence[float], target: Sequence[float], unit: str) -> Histogram | None:
    if not source or not target:
        return None
    both = np.concatenate([np.asarray(source, np.float64), np.asarray(target, np.float64)])
    low, high = float(both.min()), float(both.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = [np.histogram(values, BINS, (low, high))[0] / len(values) for values in (source, target)]
    top = max(float(each.max()) for each in counts)
    medians = [f"{short(float(np.median(values)))}{unit}" for values in (source, target)]
    alt = f"{title}: the median of the source is {medians[0]}, that of the target {medians[1]}."
    outlines = _outline(counts[0] / top), _outline(counts[1] / top)
    return Histogram(
        title, text, outlines, f"{short(low)}{unit}", f"{short(high)}{unit}", (medians[0], medians[1]), alt
    )


def _outline(heights: NDArray[np.float64]) -> str:
    wide = WIDE / len(heights)
    tops = "".join(f"V{HIGH - each * (HIGH - 6):.1f}H{(i + 1) * wide:.1f}" for i, each in enumerate(heights))
    return f"M0 {HIGH}{tops}V{HIGH}Z"


def feature_map(found: FeatureMap, classes: Sequence[str]) -> Mapping[str, Any]:
    """Two planes with the same coordinates: dots by class in the one's images, and the other's behind them in grey."""
    both = np.concatenate([found.source, found.target])
    apart = 0 if found.how == "t-SNE" else 0.5  # a few far points would press all others together
    low, high = np.percentile(both, apart, axis=0), np.percentile(both, 100 - apart, axis=0)
    span = float(max(*(high - low), 1e-6))
    place = {
        name: _placed(points, (low + high) / 2, span)
        for name, points in (("source", found.source), ("target", found.target))
    }
    counts = np.bincount(np.concatenate([found.source_classes, found.target_classes]), minlength=len(classes))
    order = [int(each) for each in np.argsort(-counts, kind="stable") if counts[each]]
    coloured = sorted(order[:COLOURS])
    looks = {number: f"c{i}" for i, number in enumerate(coloured)}
    planes = []
    for name, other, labels in (("source", "target", found.source_classes), ("target", "source", found.target_classes)):
        dots = [
            (looks.get(number, "rest"), _dots(place[name][labels == number]))
            for number in (*order[COLOURS:], *coloured)
        ]
        names = [
            (classes[number], *_middle(place[name][labels == number]))
            for number in coloured
            if (labels == number).sum() > 2
        ]
        planes.append(
            {"name": name, "behind": _dots(place[other]), "dots": [each for each in dots if each[1]], "names": names}
        )
    key = [(looks[number], classes[number]) for number in coloured]
    return {"planes": planes, "key": key, "rest": len(order) - len(coloured), "how": found.how}


def _placed(points: NDArray[np.float32], centre: NDArray[Any], span: float) -> NDArray[np.float64]:
    inside = SIDE - 2 * MARGIN
    placed: NDArray[np.float64] = np.clip((points - centre) / span, -0.5, 0.5) * inside + SIDE / 2
    return placed


def _dots(points: NDArray[np.float64]) -> str:
    """Lines of no length: drawn with round ends they are dots, and take few bytes."""
    return "".join(f"M{x:.0f} {y:.0f}h0" for x, y in points)


def _middle(points: NDArray[np.float64]) -> tuple[int, int]:
    x, y = np.median(points, axis=0)
    return int(np.clip(x, 40, SIDE - 40)), int(np.clip(y, 12, SIDE - 12))
