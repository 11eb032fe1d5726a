"""Tables for people: at the terminal's width; in a file or a pipe as wide as they need to be."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDEST = 1000


def print_table(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        wanted = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum
        console.width = max(console.width, wanted)
    console.print(table)
