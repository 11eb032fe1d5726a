"""Photographs: every pair of PACS or Office-31 with `adamatch.fit` as a user would call it, and with the labelled images alone.

    python benchmarks/photographs.py pacs --data DIR --out results/pacs [--only photo:sketch] [--processes 3] [--seconds 540]

DIR/<domain>/<class>/*.jpg (Office-31: DIR/<domain>/images/<class>/*.jpg). One recipe for all pairs. Test images are all of the
target's, which are trained on without their labels, as is customary; accuracy is computed after a run, from what it noted at
each evaluation, so that no label is anywhere near training. What is there counts as done. --table writes a table of it, and
--picture draws it.

With --labels N some target images of each class have their labels, which are left out of the test; `--only sketch:sketch` is
then semi-supervised learning, without a source:

    python benchmarks/photographs.py pacs --data DIR --out OUT --labels 5 --only photo:sketch --only sketch:sketch

Other recipes, and arguments of AdaMatch, for comparison (results/pacs_alignment.md):

    python benchmarks/photographs.py pacs --data DIR --out OUT --method adamatch --recipe '{"release": false}' --options '{}'
"""

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import adamatch
from adamatch import plan
from adamatch.base.cli_names import number
from adamatch.images.reading import read
from adamatch.images.store import Store
from adamatch.images.tasks import choose
from adamatch.images.user_data import OwnData
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs

DOMAINS = {"pacs": ("photo", "art_painting", "cartoon", "sketch"), "office31": ("amazon", "dslr", "webcam")}
INSIDE = {"pacs": "", "office31": "images"}
LAST = 10  # evaluations, whose median is the accuracy

Rows = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=DOMAINS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/photographs"))
    parser.add_argument("--method", action="append", help="adamatch and supervised, unless given")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--only", action="append", help="source:target")
    parser.add_argument("--labels", type=int, default=0, help="labelled target images of each class")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run after so many")
    parser.add_argument("--images", default="auto", help="labelled images to train for")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--recipe", type=json.loads, default={}, help="what is different in the recipe")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the method")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument(
        "--table", type=Path, help="write a table of what is there without target labels, and train nothing"
    )
    parser.add_argument("--picture", type=Path, help="draw what is there, and train nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    plan.PRETRAINED = {**plan.PRETRAINED, **given.recipe}
    plan.FROZEN = {**plan.FROZEN, **given.recipe}
    if given.recipe:  # whether domains look alike or not
        plan.ALIKE = plan.FROZEN_ALIKE = {}
    if given.table:
        given.table.write_text(table(given.set, given.out))
    elif given.picture:
        picture(given.set, given.out, given.picture)
    elif given.one:
        print(do(given, *given.one.split(":")), flush=True)
    elif not go(given):
        sys.exit(1)


def go(given: argparse.Namespace) -> bool:
    """All runs that are not done, so many processes at a time; whether none failed."""
    pairs = given.only or [":".join(pair) for pair in itertools.permutations(DOMAINS[given.set], 2)]
    methods = given.method or ["adamatch", "supervised"]
    waiting = [f"{pair}:{method}:{seed}" for seed in given.seeds for pair in pairs for method in methods]
    waiting = [each for each in waiting if not (given.out / f"{name_of(each, given.labels)}.json").exists()]
    running: list[subprocess.Popen[bytes]] = []
    well = True
    began = time.monotonic()
    while waiting or running:
        well = well and not any(process.poll() for process in running)
        running = [process for process in running if process.poll() is None]
        if waiting and len(running) < given.processes and time.monotonic() - began < given.seconds:
            command = [sys.executable, *sys.argv, "--one", waiting.pop(0)]
            running.append(subprocess.Popen(command))
        elif time.monotonic() - began >= given.seconds and not running:
            break
        time.sleep(0.1)
    return well


def images(given: argparse.Namespace, domain: str) -> Store:
    folder = given.data / domain / INSIDE[given.set]
    return read(folder, size=given.size, labelled=True, shape="crop")


def do(given: argparse.Namespace, source: str, target: str, method: str, seed: str) -> str:
    """One run; its summary and what it noted are kept."""
    began, name = time.monotonic(), name_of(":".join((source, target, method, seed)), given.labels)
    wanted = images(given, target)
    labelled = wanted if source == target else images(given, source)
    kept = f"{name}-{json.dumps([given.recipe, given.options])}" if given.recipe or given.options else name
    folder = given.runs / given.set / re.sub(r"[^\w.+-]+", "_", kept)
    task, rows, few = posed(labelled, wanted, given.labels, int(seed))
    model = adamatch.fit(
        **task,
        out=folder,
        method=method,
        options=given.options,
        seed=int(seed),
        network="efficientnet-lite0",
        size=given.size,
        images=number("images", given.images),
        twin=False,  # source only is a run of its own
        quiet=True,
    )
    result, found = RunFolder(folder).result() or {}, eval_outputs.load(folder)
    rows = rows[eval_outputs.rows(len(rows))]
    labels, tested = np.asarray(wanted.labels)[rows], ~np.isin(rows, few)
    curve = [round(100 * float((each["target"].argmax(1) == labels)[tested].mean()), 2) for each in found.values()]
    summary = {
        "source": source,
        "target": target,
        "method": method,
        "seed": int(seed),
        "labels": given.labels,
        "accuracy": statistics.median(curve[-LAST:]),
        "spread_of_last": round(max(curve[-LAST:]) - min(curve[-LAST:]), 2),
        "last": curve[-1],
        "best_ORACLE": max(curve),
        "curve": curve,
        "test_images": int(tested.sum()),
        "wall_seconds": round(time.monotonic() - began, 1),
        "at_a_time": given.processes,
        **{key: result[key] for key in ("seconds", "machine", "versions", "date", "run")},
    }
    held = _held_out_labels(model, labelled, task.get("labels_per_class"), int(seed))
    np.savez_compressed(
        folder.with_name(f"{folder.name}.npz"),
        labels=labels,
        held=held,
        steps=np.array(list(found)),
        started=True,
        target=np.stack([each["target"] for each in found.values()]),
        source=np.stack([each["source"] for each in found.values()]),
    )
    (given.out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    steady = f"last ten within {summary['spread_of_last']}"
    return f"{name}: {summary['accuracy']:.1f} ({steady}), {summary['seconds']:.0f} s of training"


def posed(labelled: Store, wanted: Store, count: int, seed: int) -> tuple[dict[str, Any], Rows, Rows]:
    """What `fit` is given; which of the wanted images it then has without labels; which of these have a label elsewhere."""
    everything, hidden = np.arange(len(wanted)), Store(wanted.images, None, ())
    if not count:
        return {"source": labelled, "target": hidden}, everything, everything[:0]
    if wanted is labelled:
        data = OwnData(wanted.size, quiet=True)
        data.problem(wanted, None, None, None, count, seed)
        task = {"source": wanted, "target": wanted, "labels_per_class": count}
        return task, np.setdiff1d(everything, data.held_out), data.trained
    few, _ = choose(np.asarray(wanted.labels), wanted.classes, count, seed)
    some = Store(wanted.images[few], np.asarray(wanted.labels)[few], wanted.classes)
    return {"source": labelled, "target": hidden, "target_labels": some}, everything, few


def _held_out_labels(model: adamatch.Model, labelled: Store, per_class: int | None, seed: int) -> Any:
    """Of the held-out source images that a run looked at."""
    problem = OwnData(model.size, model.shape, quiet=True).problem(labelled, labelled, None, None, per_class, seed)
    held = np.asarray(problem.tests["source"].labels)
    return held[eval_outputs.rows(len(held))]


def name_of(run: str, labels: int) -> str:
    source, target, method, seed = run.split(":")
    return f"{source}-{target}-{method}{f'-{labels}' if labels else ''}-s{seed}"


def table(which: str, folder: Path) -> str:
    """Markdown: a row for each pair, with the mean over seeds where there are several."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    found = [each for each in found if not each.get("labels")]
    methods = [
        name for name in ("supervised", "fixmatch+", "adamatch") if any(each["method"] == name for each in found)
    ]
    shown = {"supervised": "source only", "fixmatch+": "FixMatch+", "adamatch": "AdaMatch"}
    lines = [
        f"| {which} | {' | '.join(shown[name] for name in methods)} | last ten within |",
        f"|{' --- |' * (len(methods) + 2)}",
    ]
    columns: dict[str, list[float]] = {name: [] for name in methods}
    for source, target in itertools.permutations(DOMAINS[which], 2):
        mine = [each for each in found if (each["source"], each["target"]) == (source, target)]
        cells = []
        for name in methods:
            values = [each["accuracy"] for each in mine if each["method"] == name]
            cells.append(_cell(values))
            columns[name] += [statistics.mean(values)] if values else []
        spread = max((each["spread_of_last"] for each in mine if each["method"] == "adamatch"), default=None)
        lines.append(f"| {source} -> {target} | {' | '.join(cells)} | {'' if spread is None else f'{spread:.1f}'} |")
    means = [f"{statistics.mean(values):.1f} ({len(values)} pairs)" if values else "" for values in columns.values()]
    return "\n".join([*lines, f"| mean | {' | '.join(means)} | |"]) + "\n"


def _cell(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f} ({len(values)} seeds)" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def picture(which: str, folder: Path, path: Path) -> None:
    """A line for each pair, from the accuracy of source only to that of AdaMatch."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = [json.loads(each.read_text()) for each in folder.glob("*.json")]
    pairs = list(itertools.permutations(DOMAINS[which], 2))
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(pairs) + 0.9))
    for row, pair in enumerate(pairs):
        alone, adapted = (
            statistics.mean(
                each["accuracy"] for each in found if (each["source"], each["target"], each["method"]) == (*pair, name)
            )
            for name in ("supervised", "adamatch")
        )
        axes.plot([alone, adapted], [row, row], color="#c9d1d9", linewidth=4, solid_capstyle="round", zorder=1)
        axes.scatter([alone], [row], s=70, color="#8b949e", label="labelled images alone" if not row else None)
        axes.scatter(
            [adapted], [row], s=70, color="#1a7f37", label="adapted, without labels of the target" if not row else None
        )
        axes.annotate(
            f"{alone:.1f}", (alone, row), (-8, 0), textcoords="offset points", ha="right", va="center", color="#57606a"
        )
        axes.annotate(
            f"{adapted:.1f}", (adapted, row), (8, 0), textcoords="offset points", va="center", color="#1a7f37"
        )
    axes.set_yticks(range(len(pairs)), [" → ".join(each.replace("_painting", "") for each in pair) for pair in pairs])
    axes.set(xlim=(20, 108), xlabel="accuracy on the target, percent")
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
