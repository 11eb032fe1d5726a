"""`adamatch grid`: plan, run, status, table, draw."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure as Picture
from rich.box import SIMPLE_HEAD
from rich.table import Table
from typer import Argument, Option

from adamatch.base.console import print_table, say
from adamatch.base.errors import InputError, unknown
from adamatch.base.files import make_folder
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import cost, experiments, figures, lease, render, tables
from adamatch.grid import draw as drawing
from adamatch.grid.schedule import run_grid
from adamatch.grid.state import STATES, Folders
from adamatch.grid.work import Resources

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Many runs: the paper's experiments, this project's tables, or a grid of your own.",
    epilog="""From nothing to a table, with no data and no GPU:

`adamatch grid plan handwriting` what it is and costs

`adamatch grid run handwriting --processes 2` stop it at any time; the same command resumes

`adamatch grid status handwriting`

`adamatch grid table handwriting > handwriting.md`

A grid of your own is a Python function that yields runs: in `mine.py`, `from adamatch import Run`, then
`def seeds(): yield from (Run(source="rendered", target="handwritten", seed=seed) for seed in range(10))`; and
`adamatch grid run mine:seeds`""",
)
NOT_ALL = 3  # the exit code where runs are left that wait, or that others do
MOST, LONGEST = 10_000_000, 1e9  # of whatever is counted, and seconds


def _cluster(says: str, **limits: Any) -> Any:
    return Option(help=says, rich_help_panel="With --engine ray or slurm", **limits)


Name = Annotated[str, Argument(metavar="GRID", help=f"{', '.join(experiments.GRIDS)}, or module:function of your own")]
Only = Annotated[str, Option(help="Only runs with this text in their names, as `ssda` or `mnist-svhn`")]
Out = Annotated[Path | None, Option(help="Where the run folders are (default: runs/GRID)")]
Keep = Annotated[Path | None, Option(help="Folder of results alone, one JSON each: what is there counts as done")]
Data = Annotated[Path | None, Option(help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")]
SECONDS = "Start no run that would not end within so many seconds (each worker's first is always begun)"
GPUS_PER_RUN = "ray: fractions as well (default: 1 where there are GPUs); slurm (default: 0)"


@app.command()
def plan(
    name: Name,
    only: Only = "",
    gpus: Annotated[int, Option(min=1, max=MOST, help="How many, for the time until all is done")] = 1,
    measured: Annotated[Path | None, Option(help="Results and step*.json of your machine, to estimate from")] = None,
    brief: Annotated[bool, Option("--brief", help="Sums only, not every run")] = False,
    out: Out = None,
    keep: Keep = None,
) -> None:
    """Every run with its steps and hours, then sums, and the days that K GPUs would take.

    `adamatch grid plan paper --gpus 8 --brief` the paper's 2,420 runs

    `adamatch grid plan digits --only svhn`
    """
    runs = experiments.load(name, only)
    folders = _folders(name, out, keep)
    measurements = cost.measurements(*(path for path in (measured, folders.out, keep) if path is not None))
    estimates = {run.id: cost.estimate(run, measurements) for run in runs}
    if not brief:
        for run in runs:
            each, done = estimates[run.id], "  done" if folders.done(run) else ""
            preset = recipe(run.benchmark, run.budget, run.task) if run.benchmark in BENCHMARKS else run.recipe
            differs = f" ({own})" if (own := figures.variant(run, preset)) else ""
            say(f"{run.name}{differs}  {each.steps:,} steps  {_time(each.seconds)}{done}")

    def sums(runs: list[Run]) -> list[str]:
        mine = [estimates[run.id] for run in runs]
        hours = sum(each.seconds for each in mine) / 3600
        return [f"{len(mine):,}", f"{sum(each.steps for each in mine):,}", f"{hours:,.1f}"]

    _print_sums(("runs", "steps", "GPU-hours"), runs, sums)
    left = [estimates[run.id].seconds for run in runs if not folders.done(run)]
    left_takes = f"{sum(left) / 3600:,.1f} GPU-hours, {_time(sum(left))} one after the other"
    say(f"{len(runs):,} runs, {len(runs) - len(left):,} of them done; the others take {left_takes}")
    if left:
        say(f"on {gpus} GPU{'s' * (gpus > 1)}, the longest first: {_time(cost.wall_time(left, gpus))}")
    for basis, count in Counter(each.basis for each in estimates.values()).most_common():
        say(f"step times of {count:,} runs {basis}")
    say("training alone: evaluations and start-up come on top")


@app.command()
def run(
    name: Name,
    only: Only = "",
    out: Out = None,
    keep: Keep = None,
    seconds: Annotated[float | None, Option(min=0, max=LONGEST, help=SECONDS)] = None,
    processes: Annotated[int, Option(min=1, max=1024, help="Workers; 1: one run after the other")] = 1,
    retry: Annotated[bool, Option("--retry", help="Try failed runs again")] = False,
    data: Data = None,
    device: Annotated[str, Option(help="auto, cpu, cuda, cuda:1")] = "auto",
    engine: Annotated[str, Option(help="local (this machine), ray (a cluster), slurm (its queue)")] = "local",
    cpus_per_run: Annotated[int, _cluster("ray, slurm: cores", min=1, max=MOST)] = 1,
    gpus_per_run: Annotated[float | None, _cluster(GPUS_PER_RUN, min=0, max=1024)] = None,
    address: Annotated[str, _cluster("ray: HOST:6379 or auto (default: $RAY_ADDRESS, else here)")] = "",
    partition: Annotated[str, _cluster("slurm")] = "",
    minutes: Annotated[int, _cluster("slurm: limit of a job; longer runs resume", min=1, max=MOST)] = 1440,
    array_limit: Annotated[int | None, _cluster("slurm: tasks in an array (default: most)", min=1, max=MOST)] = None,
    at_once: Annotated[int | None, _cluster("slurm: tasks at a time", min=1, max=MOST)] = None,
    sbatch: Annotated[list[str] | None, _cluster("slurm: NAME=VALUE for sbatch, as account=me")] = None,
) -> None:
    """Do the runs that are not done. Stop it at any time; the same command resumes.

    Exit codes: 0 if all runs are done, 1 if some failed, 3 if others wait or are being done elsewhere, 130 if stopped.

    `adamatch grid run handwriting --processes 2`

    `adamatch grid run digits --seconds 540 --keep results/digitfive` as many as fit; each result is kept at once

    `adamatch grid run digits --only mnist-svhn --retry` those that failed, once more

    `adamatch grid run digits --engine ray --address head:6379 --gpus-per-run 0.5`

    `adamatch grid run paper --engine slurm --partition gpu --gpus-per-run 1 --minutes 1440 --sbatch mem=32G`
    """
    if wrong := [text for text in sbatch or [] if "=" not in text]:
        raise InputError(f"--sbatch takes NAME=VALUE, not {wrong[0]!r}")
    options = dict(text.removeprefix("--").split("=", 1) for text in sbatch or [])
    asked = Resources(processes, cpus_per_run, gpus_per_run, address, partition, minutes, array_limit, at_once, options)
    runs = experiments.load(name, only)
    folders = _folders(name, out, keep)
    how: dict[str, Any] = {"device": device, "engine": engine, "resources": asked}
    counts = run_grid(runs, folders.out, keep=keep, seconds=seconds, retry=retry, data=data, **how)
    say(", ".join(f"{count} {state}" for state, count in counts.items()))
    _print_failures(runs, folders)
    if counts["failed"]:
        raise typer.Exit(1)
    if engine != "slurm" and (counts["waiting"] or counts["running"]):  # there they wait in its queue
        say("not all runs are done: run the same command again for those that are left")
        raise typer.Exit(NOT_ALL)


@app.command()
def status(name: Name, only: Only = "", out: Out = None, keep: Keep = None) -> None:
    """How many runs are done, failed, running and waiting; why some failed, and who does which now.

    `adamatch grid status digits --keep results/digitfive`
    """
    runs = experiments.load(name, only)
    folders = _folders(name, out, keep)
    states = {each.id: folders.state(each) for each in runs}

    def counts(runs: list[Run]) -> list[str]:
        found = Counter(states[each.id] for each in runs)
        return [*(str(found[state]) for state in STATES), str(len(runs))]

    _print_sums((*STATES, "all"), runs, counts)
    for each in runs:
        if states[each.id] == "running" and (who := lease.holder(folders.of(each))):
            say(f"running {each.name}: process {who['pid']} on {who['machine'].split()[0]}")
    _print_failures(runs, folders)


@app.command()
def table(
    name: Annotated[str, Argument(metavar="GRID|FOLDER", help="A grid, or a folder of results as --keep makes it")],
    detail: Annotated[bool, Option("--detail", help="Every cell with its seeds, images and seconds as well")] = False,
    only: Only = "",
    out: Out = None,
    keep: Keep = None,
) -> None:
    """The paper's tables from what is done so far, the paper's figures beside ours.

    `adamatch grid table handwriting > results/handwriting.md`

    `adamatch grid table results/digitfive --detail`
    """
    if Path(name).is_dir() and name not in experiments.GRIDS:
        results = [each for each in figures.read(Path(name)) if only in figures.run_of(each).name]
        remedy = "it has no results"
    else:
        folders = _folders(name, out, keep)
        results = [result for each in experiments.load(name, only) if (result := folders.result(each)) is not None]
        remedy = f"do some with `adamatch grid run {name}`, or say where they are with --out or --keep"
    if not any(each.get("accuracy") is not None for each in results):
        raise InputError(f"no result of {name} is there{f' with {only!r} in its name' if only else ''}: {remedy}")
    typer.echo(render.render(tables.tables(results, detail)), nl=False)


@app.command()
def draw(
    name: Annotated[str, Argument(metavar="DRAWING", help=", ".join(drawing.DRAWINGS))],
    folders: Annotated[list[Path], Argument(metavar="FOLDER...", help="Folders of results, kept or of runs")],
    out: Annotated[
        Path | None, Option(help="The picture (.png, .svg, .pdf); or a table, which is printed else")
    ] = None,
) -> None:
    """A table or a figure of the paper from the runs that there are, beside the paper's numbers, and what is missing.

    `adamatch grid draw labels-ssda results/digitfive --out labels.png`
    """
    if name not in drawing.DRAWINGS:
        raise unknown("drawing", name, drawing.DRAWINGS)
    results = [result for folder in folders for result in figures.read(folder)]
    made, missing = drawing.DRAWINGS[name](figures.finished(results))
    if isinstance(made, Picture):
        if out is None or out.suffix not in (".png", ".svg", ".pdf"):
            raise InputError(f"{name} is a picture: give --out FILE.png, .svg or .pdf")
        make_folder(out.parent)
        made.savefig(out, dpi=110, bbox_inches="tight")
    elif out is None:
        typer.echo(render.render(made), nl=False)
    else:
        make_folder(out.parent)
        out.write_text(render.render(made))
    for line in missing:
        say(f"missing: {line}")


def _folders(name: str, out: Path | None, keep: Path | None) -> Folders:
    return Folders(out or Path("runs") / name.rpartition(":")[2], keep)


def _print_sums(columns: Iterable[str], runs: list[Run], sums: Callable[[list[Run]], list[str]]) -> None:
    """A row for each benchmark and task, and one for all."""
    table = Table("benchmark", "task", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right")
    for (benchmark, task), mine in figures.grouped(runs, lambda each: (each.benchmark, each.task)).items():
        table.add_row(benchmark, task, *sums(mine))
    table.add_section()
    table.add_row("all", "", *sums(runs))
    print_table(table)


def _print_failures(runs: list[Run], folders: Folders) -> None:
    failed = [each for each in runs if folders.state(each) == "failed"]
    for each in failed:
        say(f"failed {each.name}: {folders.error(each).get('error', 'its error.json cannot be read')}")
    if failed:
        say("failed runs are left alone until --retry: remove the cause, and run the same command with it")


def _time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
