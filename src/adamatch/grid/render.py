"""A table of figures as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from adamatch.base.errors import shown


@dataclass(frozen=True)
class Figure:
    """An accuracy: mean over n seeds, their standard deviation, and the paper's figure beside it."""

    mean: float
    std: float | None = None
    n: int = 1
    paper: float | None = None
    wider: bool = False  # the paper's figure is over more pairs than ours
    best: bool = False
    only: int = 0  # over so many pairs only, where others of its column are over more

    def leads(self, other: "Figure") -> bool:
        """By more than both standard deviations."""
        return self.std is not None and other.std is not None and self.mean - other.mean > self.std + other.std

    def __str__(self) -> str:
        ours = f"{self.mean:.1f}" + (f" ± {self.std:.1f}" if self.std is not None else "")
        paper = "" if self.paper is None else f" ({self.paper:.1f}{'*' if self.wider else ''})"
        return (f"**{ours}**" if self.best else ours) + paper + (f" [{self.only}]" if self.only else "")


Cell = str | Figure


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def render(tables: Sequence[Table]) -> str:
    return "\n".join(shown(line) for table in tables for line in _markdown(table).split("\n"))


def _markdown(table: Table) -> str:
    rows = [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in (table.columns, *table.rows)]
    rows.insert(1, " | ".join(["---", *["---:"] * (len(table.columns) - 1)]))
    lines = [f"### {table.title}", "", *(f"| {row} |" for row in rows)]
    return "\n".join([*lines, *(line for note in table.notes for line in ("", note))]) + "\n"
