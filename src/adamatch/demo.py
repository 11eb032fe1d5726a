"""The demonstration: digits drawn with fonts -> real handwriting, with and without adaptation. No data, no GPU."""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from adamatch.base.files import write_atomically
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets import benchmarks
from adamatch.experiment import train
from adamatch.model import load
from adamatch.report import page, pictures

METHODS = {"source_only": "supervised", "adamatch": "adamatch"}
DESCRIPTIONS = {
    "source_only": "trained on rendered digits alone",
    "adamatch": "the same, with unlabelled handwriting beside it",
}


def demo(
    out: Path, *, images: int | None = None, seed: int = 0, quiet: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train both; print a table; write summary.json, pictures and report.html into `out`. `images`: train on fewer."""
    how = recipe("handwriting", images=images)
    console = Console()
    began = time.monotonic()
    results, seconds = {}, 0.0
    for name, method in METHODS.items():
        if not quiet:
            console.print(f"\n[bold]{name}[/bold]: {DESCRIPTIONS[name]}", highlight=False)
        run = Run(source="rendered", target="handwritten", method=method, seed=seed, recipe=how)
        result = train(run, out=out / f"{name}-seed{seed}", overwrite=overwrite, quiet=quiet)
        results[name] = round(result["accuracy"], 2)
        seconds += result["seconds"]
    test = benchmarks.load("handwriting", "handwritten", "test")
    source = benchmarks.load("handwriting", "rendered", "train")
    target = benchmarks.load("handwriting", "handwritten", "train")
    views = pictures.views(source, target, how, out / "views.png")
    probabilities = {name: load(out / f"{name}-seed{seed}").predict(test.images).probabilities for name in METHODS}
    guesses = pictures.predictions(probabilities, test, out / "predictions.png")
    folder, twin = (out / f"{name}-seed{seed}" for name in ("adamatch", "source_only"))
    report = page.write(folder, load=load, to=out / page.NAME, twin=twin)
    wall = time.monotonic() - began
    summary = {**results, "seconds": round(seconds, 1), "wall_seconds": round(wall, 1), "seed": seed}
    write_atomically(out / "summary.json", json.dumps(summary, indent=1))

    table = Table(title="rendered digits -> real handwriting (500 test images)")
    table.add_column("")
    table.add_column("accuracy on handwriting", justify="right")
    for name in METHODS:
        table.add_row(f"{name}: {DESCRIPTIONS[name]}", f"{results[name]:.1f} %")
    console.print(table)
    console.print(
        f"{seconds:.0f} s of training; see {views} and {guesses}; all of it is in {out}", highlight=False, markup=False
    )
    console.print(f"the page of the run, to open in a browser: {report}", highlight=False, markup=False, soft_wrap=True)
    return summary
