"""The page of a run: report.html, one file that opens anywhere and fetches nothing."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import category

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import adamatch
from adamatch.ask import estimate
from adamatch.base import ranks
from adamatch.base.console import say
from adamatch.base.errors import JOINERS, UNPRINTABLE, InputError
from adamatch.base.files import destination, disk_reason, write_whole, writing
from adamatch.base.regular_files import opened
from adamatch.config.run import OWN
from adamatch.datasets import benchmarks
from adamatch.images.tasks import Problem
from adamatch.images.user_data import UserData
from adamatch.report import image_statistics, sections
from adamatch.report import record as recorded
from adamatch.report.charts import curves, feature_map, histograms
from adamatch.report.command import command
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import thumbnails
from adamatch.report.record import Record
from adamatch.verdict.verdict import FILE as JUDGED

NAME = "report.html"
LARGEST = 10_000_000  # bytes of a page
STRIP = 8  # pictures of a kind, of each class
ENLARGED = 200  # of the pictures, the first so many are large when a person clicks at them
WARNED = 8  # pictures of a warning
SHOWN = 3  # warnings of a kind that are shown at once
KEPT = JOINERS + "\n\t"  # of the characters that do not print

Load = Callable[[Path], Any]  # opens the model in a run's folder: `adamatch.load`


def write(
    folder: str | Path,
    *,
    load: Load | None = None,
    to: str | Path | None = None,
    twin: str | Path | None = None,
    data: str | Path | None = None,
    images: ImageStatistics | None = None,
) -> Path:
    """Make the page of the run in `folder`: report.html in it, or `to`.

    load: opens the model of a benchmark's run; twin, data: where its twin and prepared sets lie.
    """
    record = recorded.read(folder, twin)
    return save(Path(to) if to else record.path / NAME, render(record, images or statistics_of(record, load, data)))


def is_older(folder: Path) -> bool:
    """Whether there is no page yet, or one from before the result or the verdict (a later twin changes that)."""
    page, known = folder / NAME, (folder / "result.json", folder / JUDGED)
    return not page.exists() or any(
        each.exists() and page.stat().st_mtime_ns < each.stat().st_mtime_ns for each in known
    )


@contextmanager
def named(folder: Path) -> Iterator[None]:
    """A run that ends within it, perhaps by Ctrl-C, has a model: where it has no page of it, what makes one is said."""
    try:
        yield
    except BaseException as error:
        if ranks.rank() == 0 and is_older(folder) and _command(folder) not in str(error):
            say(f"the model is in {folder}; {_command(folder)} makes a page of it", stderr=True)
        raise


def _command(folder: Path) -> str:
    return f"`adamatch report {shlex.quote(str(folder))}`"


def finish(model: Any, problem: Problem, data: UserData, given: Mapping[str, Any]) -> Path:
    """At the end of `fit`: save the statistics of its images, and make the page."""
    images, folder = image_statistics.of_own(model, problem, data, given), model.folder
    try:
        image_statistics.save(images, folder)
        return write(folder, images=images)
    except (OSError, InputError) as error:
        why = f"the model is in {folder}, but its page cannot be written ({disk_reason(error)})"
        raise InputError(f"{why}: see to it, then {_command(folder)}") from None


def statistics_of(record: Record, load: Load | None = None, data: str | Path | None = None) -> ImageStatistics:
    """Statistics of a run's images: saved by `fit`, or from the benchmark's stores if they are here."""
    run, root = record.run, Path(data) if data else None
    if run.benchmark == OWN:
        return image_statistics.load(record.path)
    try:
        what: dict[str, Any] = {name: getattr(run, name) for name in ("task", "source", "target", "labels", "seed")}
        problem = benchmarks.problem(run.benchmark, root=root, **what)
        return image_statistics.of_problem(problem, load(record.path) if load and record.result else None)
    except InputError as error:
        return ImageStatistics(missing=(f"There are no pictures: {error}.",))


def render(record: Record, images: ImageStatistics) -> str:
    found = sections.predicted(record, images)
    return fitting("page.html", lambda each, large: _context(record, images, found, each, large))


def fitting(name: str, context: Callable[[int, int], dict[str, Any]]) -> str:
    """A page of at most LARGEST bytes. `context`: what it shows, with so many pictures of a kind, and so many large."""
    text = ""
    for each, large in ((STRIP, ENLARGED), (STRIP, 60), (STRIP, 0), (4, 0), (2, 0), (1, 0), (0, 0)):
        text = str(template(name).render(context(each, large)))
        if len(text.encode()) <= LARGEST:
            break
    return text


def save(path: Path, text: str) -> Path:
    """Write a page; only a page of this package is overwritten."""
    end = check(path)
    with writing(path):
        write_whole(end, lambda part: part.write_bytes(text.encode()))
    return path


def check(path: Path) -> Path:
    """Where a page called so is written, if it may be."""
    end = destination(path)
    with writing(path):
        if os.path.exists(end) and b'name="generator" content="adamatch' not in _head(end):
            raise InputError(f"{path} is there and is no page of adamatch: choose another name")
    return end


def _head(page: Path) -> bytes:
    with opened(page, None) as file:
        return file.read(2000)


def template(name: str) -> Any:
    """A template in which every value is escaped as text."""
    layout: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "finalize": plain}
    made = Environment(loader=PackageLoader("adamatch.report"), autoescape=True, undefined=StrictUndefined, **layout)
    made.globals["version"] = adamatch.__version__
    return made.get_template(name)


def plain(value: Any) -> Any:
    """Text without control characters, lone surrogates, or marks that reverse what follows."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join("\ufffd" if category(c) in UNPRINTABLE and c not in KEPT else c for c in value)


def gallery(galleries: list[dict[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """What the template of pictures shows: the galleries, a filter of their classes, and names of files to copy."""
    kinds = sorted({kind for each in galleries for kind in each["kinds"]})
    return {
        "galleries": galleries,
        "first": sections.FIRST,
        "kinds": [(kind, classes[kind]) for kind in kinds],
        "names": sections.names_of(galleries),
        "unsure": sections.UNSURE,
    }


def _context(
    record: Record, images: ImageStatistics, found: sections.Predicted | None, each: int, large: int
) -> dict[str, Any]:
    """All that the template shows; `each` pictures of a kind, of each class."""
    strips = sections.galleries(found, images.target, record.classes, each) if found and images.target and each else []
    warned, answered = _warned(record, images), _answered(record, images)
    wanted = [picture.row for shown in (*warned, answered) for picture in shown["pictures"]]
    wanted += [picture.row for gallery in strips for picture in sections.pictures_of(gallery)]
    pictures = thumbnails(images.target, wanted, large)
    shares = sections.shares(found, images, record)
    largest = max((value for row in shares for value in row.values() if isinstance(value, float)), default=0.0)
    missing = [*record.missing, *images.missing]
    missing += [f"The twin: {line}" for line in record.twin.missing] if record.twin else []
    return gallery(strips, record.classes) | {
        "title": sections.title(record),
        "facts": sections.facts(record, images),
        "record": record,
        "verdict": sections.verdict(record, found),
        "warnings": warned,
        "answered": answered,
        "shown": SHOWN,
        "beside": sections.beside(record),
        "moves": sections.moves(found, record.classes) if found is not None and found.twin is not None else [],
        "shares": shares,
        "largest": largest or 1.0,
        "top": len(shares) if len(shares) <= sections.WIDEST else sections.TOP,
        "pictures": pictures,
        "labelled": thumbnails(images.source, [picture.row for each in warned for picture in each["labelled"]], large),
        "gone": len(set(wanted) - pictures.keys()),
        "looked_at": 0 if found is None else len(found.rows),
        "confusions": sections.confusions(record, images),
        "curves": curves(record),
        "map": feature_map(images.map, record.classes) if images.map is not None and record.classes else None,
        "histograms": histograms(images),
        "settings": sections.settings(record),
        "command": command(record, images.given),
        "missing": missing,
    }


def _warned(record: Record, images: ImageStatistics) -> list[dict[str, Any]]:
    """The verdict's warnings, with pictures of the first of each kind."""
    count, found = Counter[str](), list[dict[str, Any]]()
    for warning in record.warnings:
        count[warning["kind"]] += 1
        shown = _shown(warning, images) if count[warning["kind"]] <= SHOWN else {"pictures": [], "labelled": []}
        found.append(warning | shown | {"place": len(found)})
    return found


def _answered(record: Record, images: ImageStatistics) -> dict[str, Any]:
    """What a person's answers say (`adamatch ask`), with pictures of the mistakes; no lines where there are none."""
    try:
        found = estimate.summary(record.path)
    except InputError:  # the run is under way, or lacks what the questions need
        found = None
    if found is None or found.accuracy is None:
        return {"lines": [], "pictures": []}
    pool, none = images.target, "none of the classes"
    pictures = [
        sections.Picture(row, pool.name(row), truth or none, f"called {guess}, and is {truth or none}")
        for row, guess, truth in found.mistakes
        if pool is not None and row < pool.count
    ]
    return {"lines": found.lines, "pictures": pictures}


def _shown(warning: Mapping[str, Any], images: ImageStatistics) -> dict[str, list[sections.Picture]]:
    """The target images that show what is warned of, and the labelled ones beside them."""
    labelled = warning["pairs"][:WARNED]
    if images.source is not None and images.source.trained:  # pairs count the images that are trained on
        labelled = [images.source.trained[row] for row in labelled if row < len(images.source.trained)]
    pools = (("pictures", images.target, warning["rows"][:WARNED]), ("labelled", images.source, labelled))
    return {
        name: [sections.Picture(row, pool.name(row)) for row in rows if row < pool.count] if pool is not None else []
        for name, pool, rows in pools
    }
