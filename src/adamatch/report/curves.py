"""Which curves and comparisons are on the page, and how each is read."""

from collections.abc import Sequence

from adamatch.report.charts import Curve, Histogram, curve, histogram
from adamatch.report.image_statistics import Notes
from adamatch.report.record import Record, number, section

# A key of metrics.jsonl, its title, whether it is in percent, and how to read it.
CURVES = (
    (
        "loss_source",
        "Loss on labelled images",
        "Falls while the labelled images are learnt, and should end low and level.",
    ),
    (
        "loss_target",
        "Loss on pseudo-labels",
        "Learnt from the target: it should fall or stay level; a steep late rise means that answers contradict each other.",
    ),
    (
        "threshold",
        "Threshold",
        "How sure an answer must be to be learnt from; it follows how sure the network is of labelled images, and should rise.",
    ),
    (
        "mask",
        "Mask",
        "The part of target images that pass the threshold: it should grow, and near 0 the target teaches nothing.",
    ),
    (
        "divergence",
        "Divergence",
        "How far the answers' shares of classes are from those wanted: 0 is best, a late rise is a class that swallows others.",
    ),
)
ACCURACY = (
    (
        "target",
        "Accuracy on labelled target images",
        "Measured on test images that choose nothing: it should rise and stay there.",
    ),
    (
        "source",
        "Accuracy on held-out source images",
        "It should rise and stay; a late fall means that the target costs what was learnt.",
    ),
)
LOOKS = (
    ("brightness", "Brightness", "", "Mean grey value, 0 black and 1 white: a shift is easy to adapt to."),
    (
        "contrast",
        "Contrast",
        "",
        "Spread of grey values in an image: flat images of one kind are a shift that augmentation covers in part.",
    ),
    (
        "sharpness",
        "Sharpness",
        "",
        "Mean step from pixel to pixel at the size of training: low means blurred or plain, high means noise or line art.",
    ),
    (
        "size",
        "Size",
        " px",
        "Short side of the files: images much smaller than in training are blurred when they are enlarged.",
    ),
)


def curves(record: Record) -> list[Curve]:
    """Of a run, with its twin's where that has them too."""
    runs = [("adapted" if record.twin else "this run", "adapted", record)]
    runs += [("twin", "twin", record.twin)] if record.twin else []
    chosen = number(section(record.verdict, "chosen").get("step"))
    return of_runs(runs, mark=None if chosen is None else int(chosen))


def of_runs(runs: Sequence[tuple[str, str, Record]], mark: int | None = None) -> list[Curve]:
    """runs: a name, a look and what was measured; `mark` is a step of the first that is worth a look."""
    found = []
    for keys, percent in ((CURVES, False), (ACCURACY, True)):
        for key, title, text in keys:
            series = [(name, look, points(record, key)) for name, look, record in runs]
            at = None if mark is None else _images(runs[0][2], mark)
            found.append(curve(title, text, series, percent=percent, mark=at))
    return [each for each in found if each is not None]


def points(record: Record, key: str) -> list[tuple[float, float]]:
    """(labelled images seen, value) of every evaluation that has it."""
    if key == "target" and record.result.get("tested"):
        return []  # of another test set: that of the result was given after training
    rows = [(number(row.get("images")) or number(row.get("step")), number(row.get(key))) for row in record.rows]
    return [(x, y) for x, y in rows if x is not None and y is not None]


def _images(record: Record, step: int) -> float | None:
    return next((number(row.get("images")) for row in record.rows if row.get("step") == step), None)


def look_charts(notes: Notes) -> list[Histogram]:
    """Source against target."""
    if notes.source is None or notes.target is None:
        return []
    pools = notes.source.looks, notes.target.looks
    made = [
        histogram(title, text, pools[0].get(key, []), pools[1].get(key, []), unit) for key, title, unit, text in LOOKS
    ]
    return [each for each in made if each is not None]
