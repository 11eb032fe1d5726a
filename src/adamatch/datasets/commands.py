"""`adamatch data`: list, download, prepare, verify."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.progress import DownloadColumn, Progress
from rich.table import Table
from rich.text import Text

from adamatch.base.console import console as plain_console
from adamatch.base.console import print_table
from adamatch.base.errors import InputError, shown
from adamatch.datasets.catalog import SETS, default_root, domains_of, plan, stores
from adamatch.datasets.download import fetch
from adamatch.datasets.prepare import store_split
from adamatch.datasets.source import Domain
from adamatch.datasets.verify import verify as check

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Published data sets: download or bring the archives, prepare stores, check them.",
    epilog="""Typical:

`adamatch data download digitfive`, then the `prepare` command that it prints; or, with archives of your own,

`adamatch data prepare digitfive --from ~/downloads`, then `adamatch data verify digitfive`""",
)
console = plain_console()

Root = Annotated[
    Path | None, typer.Option("--data", help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")
]
Name = Annotated[str, typer.Argument(metavar="SET", help="One of those that `adamatch data list` shows")]
Domains = Annotated[list[str] | None, typer.Option("--domain", help="Only this domain; may be given several times")]


@app.command("list")
def list_sets(data: Root = None) -> None:
    """Sets and domains: number of images, size of the download, licence, and what is prepared."""
    root = data or default_root()
    table = Table(box=SIMPLE_HEAD, title=shown(f"prepared sets are in {root}"), title_justify="left")
    for column in ("set", "domain", "images", "download", "licence", "here"):
        table.add_column(column, no_wrap=column in ("set", "domain", "images", "download"))
    for name, data_set in SETS.items():
        here = stores(root, name)
        for domain, entry in data_set.domains.items():
            images = " + ".join(f"{np.sum(count):,}" for count in entry.counts.values())
            paths = [path for (of, _), splits in here.items() if of == domain for path in splits.values()]
            table.add_row(name, domain, images, _download_size(entry), entry.licence, _on_disk(paths))
    print_table(table)
    console.print("fetch with `adamatch data download SET`, or bring the files: `adamatch data prepare SET --from DIR`")


@app.command()
def download(
    name: Name,
    domain: Domains = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the archives (default: archives/SET below --data)")
    ] = None,
    data: Root = None,
) -> None:
    """Fetch a set's archives. Stop it at any time: the same command resumes.

    Example: `adamatch data download domainnet --domain clipart --domain sketch --to /big/disk`
    """
    wanted = {file: entry.page for entry in domains_of(name, domain).values() for file in entry.files}
    folder = to or (data or default_root()) / "archives" / name
    failed: list[InputError] = []
    with Progress(*Progress.get_default_columns(), DownloadColumn(), console=console) as progress:
        for file, page in wanted.items():
            task = progress.add_task(file.name, total=file.size)
            try:
                for done, total in fetch(file, folder, page):
                    progress.update(task, completed=done, total=total)
            except InputError as error:
                failed.append(error)
                _say(str(error), "missing", "red")
            else:
                _say(f"{folder / file.name}: {'checksum holds' if file.checksum else 'no checksum is published'}")
    if len(failed) < len(wanted):
        _say(f"next: adamatch data prepare {name} --from {folder}{_data_option(data)}")
    if failed:
        raise InputError(f"{len(failed)} of {len(wanted)} files of {name} could not be fetched; the last: {failed[-1]}")


@app.command()
def prepare(
    name: Name,
    source: Annotated[Path, typer.Option("--from", help="Folder with the archives, also in sub-folders")],
    domain: Domains = None,
    size: Annotated[int | None, typer.Option(help="Side of the images (default: the set's usual one)")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read")] = False,
    data: Root = None,
) -> None:
    """Make stores of the archives in a folder; nothing is unpacked. Finished stores are left as they are.

    Example: `adamatch data prepare domainnet --from /big/disk --size 64`
    """
    jobs, missing = plan(name, source, data or default_root(), domain, size)
    for line in missing:
        _say(line, "missing", "yellow")
    with Progress(console=console) as progress:
        for job in jobs:
            task = progress.add_task(f"{job.info['domain']}/{job.path.name}", total=None)
            kept = " (already there: left as it is; remove it to make another)" if job.path.exists() else ""
            done = 0
            for done, total in store_split(job.find, job.path, job.size, info=job.info, skip_bad=skip_bad):
                progress.update(task, completed=done, total=total)
            _say(f"{job.path}: {done:,} images{kept}")
    _say(f"next: adamatch data verify {name}{_data_option(data)}")


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(metavar="SET", help="One set; left out, every prepared one")] = None,
    data: Root = None,
) -> None:
    """Compare stores with what was published: checksums, unreadable images, number of images.

    Example: `adamatch data verify digitfive`
    """
    root = data or default_root()
    names = [name] if name else [each for each in SETS if stores(root, each)]
    if not names:
        raise InputError(f"{root} holds no prepared set: make one with `adamatch data prepare SET --from DIR`")
    failed, colours = False, {"ok": "green", "note": "yellow", "error": "red"}
    for level, store, text in (finding for each in names for finding in check(root, each)):
        failed |= level == "error"
        _say(f"{store}: {text}", f"{level:5}", colours[level])
    if failed:
        raise typer.Exit(1)


def _say(line: str, level: str = "", colour: str = "") -> None:
    console.print(Text.assemble((level, colour), " " * bool(level), shown(line)))


def _data_option(data: Path | None) -> str:
    return f" --data {data}" if data else ""


def _download_size(entry: Domain) -> str:
    if not any(file.sources for file in entry.files):
        return "by hand"
    sizes = [file.size for file in entry.files if file.size]
    return f"{sum(sizes) / 1e6:,.0f} MB" if len(sizes) == len(entry.files) else "size unknown"


def _on_disk(paths: list[Path]) -> str:
    if not paths:
        return "-"
    total = sum(file.stat().st_size for path in paths for file in path.iterdir())
    return shown(f"{' '.join(sorted(path.name for path in paths))} ({total / 1e6:,.0f} MB)")
