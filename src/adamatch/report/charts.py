"""The charts of the page as coordinates; the templates draw them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.report.image_statistics import FeatureMap, ImageStatistics
from adamatch.report.record import Record

WIDE, HIGH = 400, 120  # of a curve's plane: it is stretched to the width there is
SIDE, MARGIN = 400, 14  # of the map
COLOURS = 10  # classes with a colour of their own; the others share one
BINS = 24

# Keys of metrics.jsonl and of a pool's appearance; their titles, and how to read them, are in templates/parts.html.
CURVES = ("loss_source", "loss_target", "threshold", "mask", "divergence")
ACCURACIES = ("target", "source")
APPEARANCE = {"brightness": "", "contrast": "", "sharpness": "", "size": " px"}


Chart = dict[str, Any]  # what a template needs of one


def curves(record: Record) -> list[Chart]:
    """Of a run and its twin."""
    runs = [("adapted" if record.twin else "this run", "adapted", record)]
    runs += [("twin", "twin", record.twin)] if record.twin else []
    return curves_of(runs)


def curves_of(runs: Sequence[tuple[str, str, Record]]) -> list[Chart]:
    """runs: a name, a style and what was measured."""
    keys = (*CURVES, *ACCURACIES)
    found = [curve(key, [(name, style, points(record, key)) for name, style, record in runs]) for key in keys]
    return [each for each in found if each is not None]


def points(record: Record, key: str) -> list[tuple[float, float]]:
    """(labelled images seen, value) of every evaluation that has it."""
    if key == "target" and record.result.get("tested"):
        return []  # of another test set: that of the result was given after training
    return [(row.get("images") or row["step"], row[key]) for row in record.rows if key in row]


def curve(key: str, series: Sequence[tuple[str, str, Sequence[tuple[float, float]]]]) -> Chart | None:
    """One plane with some lines; None where there is nothing to draw.

    series: for each line a name, a style (a class of the style sheet) and points (images seen, value). Of the chart,
    `ticks` are heights in percent with their values, from above; `told` is the text for screen readers.
    """
    series = [each for each in series if each[2]]
    if not series:
        return None
    percent = key in ACCURACIES
    values = [y for _, _, points in series for _, y in points]
    right = max(x for _, _, points in series for x, _ in points) or 1.0
    low, high, ticks = scale(min(values), max(values), top=100.0 if percent else math.inf)

    def place(x: float, y: float) -> str:
        return f"{x / right * WIDE:.1f} {HIGH - (y - low) / (high - low) * HIGH:.1f}"

    lines, told = [], []
    for name, style, points in series:
        path = "M" + "L".join(place(x, y) for x, y in points)
        if len(points) == 1:
            path += "h.01"  # one evaluation: a dot
        last_value = short(points[-1][1]) + (" %" if percent else "")
        lines.append({"name": name, "style": style, "path": path, "told": last_value})
        numbers = [y for _, y in points]
        first, last, least, most = (short(y) for y in (numbers[0], numbers[-1], min(numbers), max(numbers)))
        told.append(f"{name} goes from {first} to {last}, between {least} and {most}")
    digits = max(_digits(tick) for tick in ticks)
    heights = [(100 - (tick - low) / (high - low) * 100, f"{tick:,.{digits}f}") for tick in reversed(ticks)]
    widest = max((text for _, text in heights), key=len)  # needs the most room
    found = {"key": key, "lines": lines, "ticks": heights, "widest": widest}
    return found | {"right": f"{right:,.0f}", "told": "; ".join(told)}


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
    """Decimals that the tick needs."""
    return next(count for count in range(9) if abs(round(tick, count) - tick) < 1e-9 or count == 8)


def short(value: float) -> str:
    """With few digits: small values have more."""
    size = abs(value)
    if size >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def histograms(images: ImageStatistics) -> list[Chart]:
    """Of how the images look, source against target."""
    if images.source is None or images.target is None:
        return []
    measured = images.source.appearance, images.target.appearance
    found = [
        histogram(key, measured[0].get(key, []), measured[1].get(key, []), unit) for key, unit in APPEARANCE.items()
    ]
    return [each for each in found if each is not None]


def histogram(key: str, source: Sequence[float], target: Sequence[float], unit: str) -> Chart | None:
    """Two histograms over the same range, as shares of the images."""
    if not source or not target:
        return None
    both = (*source, *target)
    low, high = min(both), max(both)
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = [np.histogram(values, BINS, (low, high))[0] / len(values) for values in (source, target)]
    top = max(float(each.max()) for each in counts)
    outlines = _outline(counts[0] / top), _outline(counts[1] / top)
    left, right, *medians = (
        f"{short(float(each))}{unit}" for each in (low, high, np.median(source), np.median(target))
    )
    return {"key": key, "outlines": outlines, "left": left, "right": right, "medians": medians}


def _outline(heights: NDArray[np.float64]) -> str:
    wide = WIDE / len(heights)
    tops = "".join(f"V{HIGH - each * (HIGH - 6):.1f}H{(i + 1) * wide:.1f}" for i, each in enumerate(heights))
    return f"M0 {HIGH}{tops}V{HIGH}Z"


def feature_map(found: FeatureMap, classes: Sequence[str]) -> Chart:
    """Two planes with the same coordinates: one domain coloured by class, and the other behind it in grey."""
    both = np.concatenate([found.source, found.target])
    apart = 0 if found.how == "t-SNE" else 0.5  # a few outliers would press all others together
    low, high = np.percentile(both, apart, axis=0), np.percentile(both, 100 - apart, axis=0)
    span = float(max(*(high - low), 1e-6))
    source, target = (_placed(each, (low + high) / 2, span) for each in (found.source, found.target))
    counts = np.bincount(np.concatenate([found.source_classes, found.target_classes]), minlength=len(classes))
    order = [int(each) for each in np.argsort(-counts, kind="stable") if counts[each]]
    coloured = sorted(order[:COLOURS])
    styles = {number: f"c{i}" for i, number in enumerate(coloured)}
    planes = []
    for name, mine, other, labels in (
        ("source", source, target, found.source_classes),
        ("target", target, source, found.target_classes),
    ):
        of_class = {number: mine[labels == number] for number in (*order[COLOURS:], *coloured)}
        dots = [(styles.get(number, "rest"), _dots(each)) for number, each in of_class.items() if len(each)]
        names = [(classes[number], *_middle(of_class[number])) for number in coloured if len(of_class[number]) > 2]
        planes.append({"name": name, "behind": _dots(other), "dots": dots, "names": names})
    key = [(styles[number], classes[number]) for number in coloured]
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
