"""`adamatch grid`: plan, run, status, table."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from adamatch.base.console import print_table, say
from adamatch.base.errors import InputError
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import cost, experiments, figures, lease, render, tables
from adamatch.grid.schedule import run_grid
from adamatch.grid.spread import Resources
from adamatch.grid.state import STATES, Folders

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
CLUSTERS = "With --engine ray or slurm"

Name = Annotated[
    str, typer.Argument(metavar="GRID", help=f"{', '.join(experiments.GRIDS)}, or module:function of your own")
]
Only = Annotated[str, typer.Option(help="Only runs with this text in their names, as `ssda` or `mnist-svhn`")]
Out = Annotated[Path | None, typer.Option(help="Where the run folders are (default: runs/GRID)")]
Keep = Annotated[Path | None, typer.Option(help="Folder of results alone, one JSON each: what is there counts as done")]


@app.command()
def plan(
    name: Name,
    only: Only = "",
    gpus: Annotated[int, typer.Option(min=1, max=MOST, help="How many, for the time until all is done")] = 1,
    measured: Annotated[
        Path | None, typer.Option(help="Results and step*.json of your machine, to estimate from")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Sums only, not every run")] = False,
    out: Out = None,
    keep: Keep = None,
) -> None:
    """Every run with its steps and hours, then sums, and the days that K GPUs would take.

    `adamatch grid plan paper --gpus 8 --brief` the paper's 2,420 runs

    `adamatch grid plan digits --only svhn`
    """
    runs = experiments.load(name, only)
    folders = _folders(name, out, keep)
    rates = cost.Rates(cost.measurements(*(path for path in (measured, folders.out, keep) if path is not None)))
    estimates = {run.id: rates.estimate(run) for run in runs}
    if not brief:
        for run in runs:
            done = "  done" if folders.done(run) else ""
            say(f"{run.name}{_own(run)}  {estimates[run.id].steps:,} steps  {_time(estimates[run.id].seconds)}{done}")
    table = Table("benchmark", "task", box=SIMPLE_HEAD)
    for column in ("runs", "steps", "GPU-hours"):
        table.add_column(column, justify="right")
    for benchmark, task in dict.fromkeys((run.benchmark, run.task) for run in runs):
        mine = [estimates[run.id] for run in runs if (run.benchmark, run.task) == (benchmark, task)]
        table.add_row(benchmark, task, *_sums(mine))
    table.add_section()
    table.add_row("all", "", *_sums(list(estimates.values())))
    print_table(table)
    left = [estimates[run.id].seconds for run in runs if not folders.done(run)]
    say(
        f"{len(runs):,} runs, {len(runs) - len(left):,} of them done; the others take {sum(left) / 3600:,.1f} GPU-hours, "
        f"{_time(sum(left))} one after the other"
    )
    if left:
        say(f"on {gpus} GPU{'s' * (gpus > 1)}, the longest first: {_time(cost.wall_time(left, gpus))}")
    for line in cost.step_times(runs, estimates):
        say(line)
    for basis, count in Counter(each.basis for each in estimates.values()).most_common():
        say(f"step times of {count:,} runs {basis}")
    say("training alone: evaluations and start-up come on top")


@app.command()
def run(
    name: Name,
    only: Only = "",
    out: Out = None,
    keep: Keep = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=LONGEST,
            help="Start no run that would not end within so many seconds (each worker's first is always begun)",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=1024, help="Workers; 1 does one run after the other in this process")
    ] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs again")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1")] = "auto",
    engine: Annotated[str, typer.Option(help="local (this machine), ray (a cluster), slurm (its queue)")] = "local",
    cpus_per_run: Annotated[int, typer.Option(min=1, max=MOST, help="ray, slurm: cores", rich_help_panel=CLUSTERS)] = 1,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1024,
            help="ray: fractions as well (default: 1 where there are GPUs); slurm (default: 0)",
            rich_help_panel=CLUSTERS,
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="ray: HOST:6379 or auto (default: $RAY_ADDRESS, else here)", rich_help_panel=CLUSTERS)
    ] = "",
    partition: Annotated[str, typer.Option(help="slurm", rich_help_panel=CLUSTERS)] = "",
    minutes: Annotated[
        int,
        typer.Option(
            min=1, max=MOST, help="slurm: limit of a job; longer runs resume in further jobs", rich_help_panel=CLUSTERS
        ),
    ] = 1440,
    array_limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST, help="slurm: tasks in an array (default: its MaxArraySize)", rich_help_panel=CLUSTERS
        ),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="slurm: tasks at a time", rich_help_panel=CLUSTERS)
    ] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(help="slurm: NAME=VALUE for sbatch, as account=me", rich_help_panel=CLUSTERS)
    ] = None,
) -> None:
    """Do the runs that are not done. Stop it at any time; the same command resumes.

    It ends with 0 if all runs are done, 1 if some failed, 3 if others wait or are being done elsewhere, 130 if it was stopped.

    `adamatch grid run handwriting --processes 2`

    `adamatch grid run digits --seconds 540 --keep results/digitfive` as many as fit; each result is kept the moment it is there

    `adamatch grid run digits --only mnist-svhn --retry` those that failed, once more

    `adamatch grid run digits --engine ray --address head:6379 --gpus-per-run 0.5`

    `adamatch grid run paper --engine slurm --partition gpu --gpus-per-run 1 --minutes 1440 --sbatch mem=32G`
    """
    runs = experiments.load(name, only)
    folders = _folders(name, out, keep)
    counts = run_grid(
        runs,
        folders.out,
        keep=keep,
        seconds=seconds,
        processes=processes,
        retry=retry,
        data=data,
        device=device,
        engine=engine,
        resources=Resources(
            cpus_per_run=cpus_per_run,
            gpus_per_run=gpus_per_run,
            address=address,
            partition=partition,
            minutes=minutes,
            array_limit=array_limit,
            at_once=at_once,
            options=_pairs(sbatch or []),
        ),
    )
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
    table = Table("benchmark", "task", box=SIMPLE_HEAD)
    for column in (*STATES, "all"):
        table.add_column(column, justify="right")
    groups: list[tuple[str, str]] = list(dict.fromkeys((each.benchmark, each.task) for each in runs))
    for benchmark, task in groups:
        mine = Counter(states[each.id] for each in runs if (each.benchmark, each.task) == (benchmark, task))
        table.add_row(benchmark, task, *(str(mine[state]) for state in STATES), str(mine.total()))
    everything = Counter(states.values())
    table.add_section()
    table.add_row("all", "", *(str(everything[state]) for state in STATES), str(everything.total()))
    print_table(table)
    for each in runs:
        if states[each.id] == "running" and (who := lease.holder(folders.of(each))):
            say(f"running {each.name}: process {who['pid']} on {who['machine'].split()[0]}")
    _print_failures(runs, folders)


@app.command()
def table(
    name: Annotated[
        str, typer.Argument(metavar="GRID|FOLDER", help="A grid, or a folder of results as --keep makes it")
    ],
    form: Annotated[str, typer.Option("--format", help=", ".join(render.FORMATS))] = "md",
    detail: Annotated[
        bool, typer.Option("--detail", help="Every cell with its seeds, images and seconds as well")
    ] = False,
    only: Only = "",
    out: Out = None,
    keep: Keep = None,
) -> None:
    """The paper's tables from what is done so far, the paper's figures beside ours.

    `adamatch grid table handwriting > results/handwriting.md`

    `adamatch grid table results/digitfive --format latex --detail`
    """
    if Path(name).is_dir() and name not in experiments.GRIDS:
        results = [each for each in figures.read(Path(name)) if only in figures.run_of(each).name]
    else:
        folders = _folders(name, out, keep)
        results = [result for each in experiments.load(name, only) if (result := folders.result(each)) is not None]
    if not any(each.get("accuracy") is not None for each in results):
        remedy = (
            "it has no results"
            if Path(name).is_dir()
            else f"do some with `adamatch grid run {name}`, or say where they are with --out or --keep"
        )
        raise InputError(f"no result of {name} is there{f' with {only!r} in its name' if only else ''}: {remedy}")
    typer.echo(render.render(tables.tables(results, detail), form), nl=False)


def _folders(name: str, out: Path | None, keep: Path | None) -> Folders:
    return Folders(out or Path("runs") / experiments.short(name), keep)


def _pairs(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise InputError(f"--sbatch takes NAME=VALUE, not {text!r}")
    return dict(text.removeprefix("--").split("=", 1) for text in texts)


def _print_failures(runs: list[Run], folders: Folders) -> None:
    failed = [each for each in runs if folders.state(each) == "failed"]
    for each in failed:
        say(f"failed {each.name}: {folders.error(each).get('error', 'its error.json cannot be read')}")
    if failed:
        say("failed runs are left alone until --retry: remove the cause, and run the same command with it")


def _own(run: Run) -> str:
    """What sets it apart from its benchmark's recipe."""
    own = figures.variant(
        run, recipe(run.benchmark, run.budget, run.task) if run.benchmark in BENCHMARKS else run.recipe
    )
    return f" ({own})" if own else ""


def _sums(estimates: list[cost.Estimate]) -> tuple[str, str, str]:
    hours = sum(each.seconds for each in estimates) / 3600
    return f"{len(estimates):,}", f"{sum(each.steps for each in estimates):,}", f"{hours:,.1f}"


def _time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.0f} seconds"
