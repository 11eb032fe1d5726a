"""Photographs: every pair of PACS or Office-31 with `adamatch.fit` as a user would call it, and without adaptation.

    python benchmarks/photographs.py pacs --data DIR --out results/pacs [--only photo:sketch] [--processes 3]

DIR/<domain>/<class>/*.jpg (Office-31: DIR/<domain>/images/<class>/*.jpg). One recipe for all pairs. Test images are all
of the target's, which are trained on without their labels, as is customary; accuracy is computed after a run, from its
outputs at each evaluation, so that no label is anywhere near training. Runs that are there are not repeated. --table
writes a table of them, and --picture draws it.

With --labels N some target images of each class have their labels, which are left out of the test; `--only
sketch:sketch` is then semi-supervised learning, without a source:

    python benchmarks/photographs.py pacs --data DIR --out OUT --labels 5 --only photo:sketch --only sketch:sketch

Other recipes, and arguments of AdaMatch, for comparison (results/pacs_alignment.md):

    python benchmarks/photographs.py pacs --data DIR --out OUT --method adamatch --recipe '{"fade_out": false}'
"""

import argparse
import itertools
import json
import multiprocessing
import re
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from evidence import options, write
from matplotlib.figure import Figure
from numpy.typing import NDArray

import adamatch
from adamatch.config import presets
from adamatch.images.reading import read
from adamatch.images.store import Store
from adamatch.images.tasks import choose_labelled
from adamatch.images.user_data import UserData
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs

DOMAINS = {"pacs": ("photo", "art_painting", "cartoon", "sketch"), "office31": ("amazon", "dslr", "webcam")}
INSIDE = {"pacs": "", "office31": "images"}
NAMES = {"supervised": "source only", "fixmatch+": "FixMatch+", "adamatch": "AdaMatch"}
LAST = 10  # evaluations, whose median is the accuracy

Key = tuple[str, str, str, int]  # source, target, method, seed
Rows = NDArray[np.int64]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("set", choices=DOMAINS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/photographs"))
    parser.add_argument("--method", action="append", help="adamatch and supervised, unless given")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--only", action="append", help="source:target")
    parser.add_argument("--labels", type=int, default=0, help="labelled target images of each class")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--images", type=int, help="labelled images to train for")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--recipe", type=json.loads, default={}, help="what is different in the recipe")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the method")
    parser.add_argument("--table", type=Path, help="write a table of runs without target labels, and train nothing")
    parser.add_argument("--picture", type=Path, help="draw them, and train nothing")
    asked = parser.parse_args()
    if asked.table:
        asked.table.write_text(table(asked.set, asked.out))
    elif asked.picture:
        picture(asked.set, asked.out, asked.picture)
    elif not train_all(asked):
        sys.exit(1)


def train_all(asked: argparse.Namespace) -> bool:
    """All runs that are not done, each in a process of its own; whether none failed."""
    pairs = [tuple(each.split(":")) for each in asked.only or []] or itertools.permutations(DOMAINS[asked.set], 2)
    every = itertools.product(asked.seeds, pairs, asked.method or ["adamatch", "supervised"])
    keys = [(source, target, method, seed) for seed, (source, target), method in every]
    waiting = [key for key in keys if not (asked.out / f"{name_of(key, asked.labels)}.json").exists()]
    well = True
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.processes, context, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(train, asked, key) for key in waiting]):
            error = future.exception()
            print(f"failed: {error}" if error else future.result(), flush=True)
            well = well and error is None
    return well


def images(asked: argparse.Namespace, domain: str) -> Store:
    return read(asked.data / domain / INSIDE[asked.set], size=asked.size, labelled=True, shape="crop")


def train(asked: argparse.Namespace, key: Key) -> str:
    """One run; its summary and its outputs are kept."""
    name, began, (source, target, method, seed) = name_of(key, asked.labels), time.time(), key
    presets.PHOTOGRAPHS = {**presets.PHOTOGRAPHS, **asked.recipe}
    presets.PHOTOGRAPHS_ON_CPU = {**presets.PHOTOGRAPHS_ON_CPU, **asked.recipe}
    if asked.recipe:  # whether domains look alike or not
        presets.ALIKE = presets.ALIKE_ON_CPU = {}
    wanted = images(asked, target)
    labelled = wanted if source == target else images(asked, source)
    kept = f"{name}-{json.dumps([asked.recipe, asked.options])}" if asked.recipe or asked.options else name
    folder = asked.runs / asked.set / re.sub(r"[^\w.+-]+", "_", kept)
    task, rows, few = posed(labelled, wanted, asked.labels, seed)
    how: dict[str, Any] = {"method": method, "options": asked.options, "seed": seed, "size": asked.size}
    how |= {"network": "efficientnet-lite0", "images": asked.images, "quiet": True}
    model = adamatch.fit(**task, **how, out=folder, twin=False)  # source only is a run of its own
    result, found = RunFolder(folder).result() or {}, eval_outputs.load(folder)
    rows = rows[eval_outputs.sampled_rows(len(rows))]
    labels, tested = np.asarray(wanted.labels)[rows], ~np.isin(rows, few)
    curve = [round(100 * float((each["target"].argmax(1) == labels)[tested].mean()), 2) for each in found.values()]
    summary = {
        **dict(zip(("source", "target", "method", "seed"), key, strict=True)),
        "labels": asked.labels,
        "accuracy": statistics.median(curve[-LAST:]),
        "spread_of_last": round(max(curve[-LAST:]) - min(curve[-LAST:]), 2),
        "last": curve[-1],
        "best_ORACLE": max(curve),
        "curve": curve,
        "test_images": int(tested.sum()),
        "wall_seconds": round(time.time() - began, 1),
        "at_a_time": asked.processes,
        **{key: result[key] for key in ("seconds", "machine", "versions", "date", "run")},
    }
    np.savez_compressed(
        folder.with_name(f"{folder.name}.npz"),
        labels=labels,
        held=held_out_labels(model, labelled, task.get("labels_per_class"), seed),
        steps=np.array(list(found)),
        started=True,
        target=np.stack([each["target"] for each in found.values()]),
        source=np.stack([each["source"] for each in found.values()]),
    )
    write(asked.out / f"{name}.json", summary)
    return f"{name}: {summary['accuracy']:.1f}, {summary['seconds']:.0f} s of training"


def posed(labelled: Store, wanted: Store, count: int, seed: int) -> tuple[dict[str, Any], Rows, Rows]:
    """Arguments of `fit`; which of the wanted images are its unlabelled ones; which of these have a label elsewhere."""
    everything, hidden = np.arange(len(wanted)), Store(wanted.images, None, ())
    if not count:
        return {"source": labelled, "target": hidden}, everything, everything[:0]
    if wanted is labelled:
        data = UserData(wanted.size, quiet=True)
        data.problem(wanted, None, None, None, count, seed)
        task = {"source": wanted, "target": wanted, "labels_per_class": count}
        return task, np.setdiff1d(everything, data.held_out), data.trained
    few, _ = choose_labelled(np.asarray(wanted.labels), wanted.classes, count, seed)
    some = Store(wanted.images[few], np.asarray(wanted.labels)[few], wanted.classes)
    return {"source": labelled, "target": hidden, "target_labels": some}, everything, few


def held_out_labels(model: adamatch.Model, labelled: Store, per_class: int | None, seed: int) -> Any:
    """Of the held-out source images that a run was evaluated on."""
    problem = UserData(model.size, model.shape, quiet=True).problem(labelled, labelled, None, None, per_class, seed)
    held = np.asarray(problem.tests["source"].labels)
    return held[eval_outputs.sampled_rows(len(held))]


def name_of(key: Key, labels: int) -> str:
    source, target, method, seed = key
    return f"{source}-{target}-{method}{f'-{labels}' if labels else ''}-s{seed}"


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """Those without target labels."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [each for each in found if not each.get("labels")]


def accuracies(found: list[dict[str, Any]], *key: str) -> list[float]:
    """Of all seeds of a source, a target and a method."""
    return [each["accuracy"] for each in found if (each["source"], each["target"], each["method"]) == key]


def table(which: str, folder: Path) -> str:
    """Markdown: a row for each pair, with the mean over seeds where there are several."""
    found = runs_of(folder)
    columns: dict[str, list[float]] = {name: [] for name in NAMES if any(each["method"] == name for each in found)}
    lines = [f"| {which} | {' | '.join(NAMES[name] for name in columns)} | last ten within |"]
    lines.append(f"|{' --- |' * (len(columns) + 2)}")
    for source, target in itertools.permutations(DOMAINS[which], 2):
        mine = [each for each in found if (each["source"], each["target"]) == (source, target)]
        cells = []
        for name in columns:
            values = accuracies(mine, source, target, name)
            columns[name] += [statistics.mean(values)] if values else []
            several = f" ± {statistics.stdev(values):.1f} ({len(values)} seeds)" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{several}" if values else "")
        ranges = [each["spread_of_last"] for each in mine if each["method"] == "adamatch"]
        cells.append(f"{max(ranges):.1f}" if ranges else "")
        lines.append(f"| {source} -> {target} | {' | '.join(cells)} |")
    means = [f"{statistics.mean(values):.1f} ({len(values)} pairs)" if values else "" for values in columns.values()]
    return "\n".join([*lines, f"| mean | {' | '.join(means)} | |"]) + "\n"


def picture(which: str, folder: Path, path: Path) -> None:
    """A line for each pair, from the accuracy of source only to that of AdaMatch."""
    found, pairs = runs_of(folder), list(itertools.permutations(DOMAINS[which], 2))
    figure = Figure(figsize=(8, 0.34 * len(pairs) + 0.9))
    axes = figure.subplots()
    for row, pair in enumerate(pairs):
        ends = [statistics.mean(accuracies(found, *pair, name)) for name in ("supervised", "adamatch")]
        axes.plot(ends, [row, row], color="#c9d1d9", linewidth=4, solid_capstyle="round", zorder=1)
        for value, side, dot, color, label in (
            (ends[0], "right", "#8b949e", "#57606a", "labelled images alone"),
            (ends[1], "left", "#1a7f37", "#1a7f37", "adapted, without labels of the target"),
        ):
            axes.scatter([value], [row], s=70, color=dot, label=None if row else label)
            place: Any = {"xytext": (-8 if side == "right" else 8, 0), "textcoords": "offset points", "ha": side}
            axes.annotate(f"{value:.1f}", (value, row), **place, va="center", color=color)
    axes.set_yticks(range(len(pairs)), [" → ".join(each.replace("_painting", "") for each in pair) for pair in pairs])
    axes.set(xlim=(20, 108), xlabel="accuracy on the target, percent")
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
