"""Several runs side by side on one page: verdicts, curves, classes, images they disagree on, settings."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.report import page
from adamatch.report import record as recorded
from adamatch.report.charts import curves_of
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool, thumbnails
from adamatch.report.record import Record, target_of
from adamatch.report.sections import (
    TOP,
    WIDEST,
    Predicted,
    percentages,
    predicted,
    settings,
    title,
    training_time,
    verdict,
    worst_first,
)
from adamatch.verdict import eval_outputs

COLOURS = 10
PICTURES = 24  # images that the runs disagree on


def write(folders: Sequence[str | Path], *, to: Path, data: str | Path | None = None) -> Path:
    """Make the page `to`; `data` is where prepared sets lie."""
    records = [recorded.read(folder) for folder in folders]
    images = [page.statistics_of(record, data=data) for record in records]
    names = _names([record.path for record in records])
    styles = [f"c{i % COLOURS}" for i in range(len(records))]
    found = [predicted(record, each) for record, each in zip(records, images, strict=True)]
    target = images[0].target if _same_images(records) else None
    context: dict[str, Any] = {
        "names": list(zip(names, styles, strict=True)),
        "rows": [_row(record, name, style, to) for record, name, style in zip(records, names, styles, strict=True)],
        "curves": curves_of(list(zip(names, styles, records, strict=True))),
        "shares": _shares(records) if len({record.classes for record in records}) == 1 else [],
        "top": TOP if len(records[0].classes) > WIDEST else WIDEST,
        "disagree": _disagree([each for each in found if each], names, records[0].classes, target) if target else [],
        "same": target is not None,
        "tests": len({record.test for record in records if record.accuracy is not None}) > 1,
        "settings": _settings(records),
        "missing": [f"{name}: {line}" for name, record in zip(names, records, strict=True) for line in record.missing],
    }
    return page.save(to, page.template("compare.html").render(context))


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ."""
    parts = [path.absolute().parts for path in paths]
    names: list[str] = []
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({i + 1})" for i, name in enumerate(names)]  # the same folder twice


def _row(record: Record, name: str, style: str, to: Path) -> dict[str, Any]:
    own = record.path / page.NAME
    return {
        "name": name,
        "style": style,
        "title": title(record),
        "page": Path(os.path.relpath(own, to.parent)).as_posix() if own.is_file() else "",
        "verdict": verdict(record, predicted(record, ImageStatistics())),
        "source": record.result.get("source_accuracy"),
        "mask": record.rows[-1].get("mask") if record.rows else None,
        "warnings": len(record.warnings),
        "time": training_time(record),
    }


def _shares(records: Sequence[Record]) -> list[tuple[str, list[float | None]]]:
    """For each class, its share of each run's predictions in percent; of many, where they differ most comes first."""
    classes = records[0].classes
    columns = [
        percentages(each.outputs["target"].argmax(1), len(classes)) if each.outputs else None for each in records
    ]
    known = [each for each in columns if each is not None]
    order = worst_first(np.ptp(known, axis=0)) if known else []
    return [(classes[i], [None if each is None else float(each[i]) for each in columns]) for i in order]


def _same_images(records: Sequence[Record]) -> bool:
    """Whether all have the same target images: own images are identified by a digest, others by their names.

    Where labels are of the target itself, seeds hold out others.
    """
    wanted = {(target_of(each.run), each.classes, eval_outputs.facts(each.path).images) for each in records}
    shapes = {record.outputs["target"].shape if record.outputs else () for record in records}
    return len(wanted) == 1 and len(shapes) == 1 and () not in shapes


def _disagree(
    found: Sequence[Predicted], names: Sequence[str], classes: Sequence[str], target: Pool
) -> list[dict[str, Any]]:
    """Images with the most different predictions, the most confident first."""
    votes = np.stack([each.classes for each in found])
    sure = np.mean([each.confidence for each in found], axis=0)
    kinds = np.array([len(set(column.tolist())) for column in votes.T])
    order = [int(i) for i in np.lexsort((-sure, -kinds)) if kinds[i] > 1][:PICTURES]
    rows = [int(found[0].rows[i]) for i in order]
    pictures = thumbnails(target, rows)
    made = []
    for i, row in zip(order, rows, strict=True):
        if row in pictures:
            predictions = [(name, classes[vote]) for name, vote in zip(names, votes[:, i], strict=True)]
            made.append({"picture": pictures[row], "predicted": predictions, "name": target.name(row)})
    return made


def _settings(records: Sequence[Record]) -> list[tuple[str, list[str], bool]]:
    """(setting, values, whether they differ), those that differ first."""
    flat = [dict(row for _, rows in settings(record) for row in rows) for record in records]
    names = dict.fromkeys(name for each in flat for name in each)
    rows = [(name, [each.get(name, "\u2013") for each in flat]) for name in names]
    return sorted(((name, values, len(set(values)) > 1) for name, values in rows), key=lambda each: not each[2])
