"""A table of figures as Markdown, LaTeX or CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adamatch.base.console import no_formula
from adamatch.base.errors import shown, unknown


@dataclass(frozen=True)
class Figure:
    """An accuracy: mean over n seeds, their standard deviation, and the paper's figure beside it."""

    mean: float
    spread: float | None = None
    n: int = 1
    paper: float | None = None
    wider: bool = False  # the paper's figure is over more pairs than ours
    best: bool = False
    only: int = 0  # over so many pairs only, where others of its column are over more

    def text(self, plus_minus: str = "±") -> str:
        spread = f" {plus_minus} {self.spread:.1f}" if self.spread is not None else ""
        return f"{self.mean:.1f}{spread}"

    def beside(self) -> str:
        paper = "" if self.paper is None else f" ({self.paper:.1f}{'*' if self.wider else ''})"
        return f"{paper} [{self.only}]" if self.only else paper


Cell = str | Figure


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def markdown(table: Table) -> str:
    def show(cell: Cell) -> str:
        if isinstance(cell, str):
            return cell.replace("|", "\\|")
        return (f"**{cell.text()}**" if cell.best else cell.text()) + cell.beside()

    lines = [f"### {table.title}", ""]
    lines += [
        f"| {' | '.join(table.columns)} |",
        "|" + "".join(" --- |" if i == 0 else " ---: |" for i in range(len(table.columns))),
    ]
    lines += [f"| {' | '.join(show(cell) for cell in row)} |" for row in table.rows]
    return "\n".join([*lines, *(line for note in table.notes for line in ("", note))]) + "\n"


def latex(table: Table) -> str:
    def escape(text: str) -> str:
        for plain, written in (
            ("&", r"\&"),
            ("%", r"\%"),
            ("_", r"\_"),
            ("#", r"\#"),
            ("->", r"$\rightarrow$"),
            ("±", r"$\pm$"),
        ):
            text = text.replace(plain, written)
        return text

    def show(cell: Cell) -> str:
        if isinstance(cell, str):
            return escape(cell)
        figure = cell.text(r"$\pm$")
        return (rf"\textbf{{{figure}}}" if cell.best else figure) + cell.beside()

    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", r"\toprule"]
    lines += [" & ".join(escape(column) for column in table.columns) + r" \\", r"\midrule"]
    lines += [" & ".join(show(cell) for cell in row) + r" \\" for row in table.rows]
    caption = " ".join(escape(text) for text in (f"{table.title}.", *table.notes))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"


CSV_COLUMNS = ("table", "row", "column", "mean", "spread", "n", "paper", "paper_over_more_pairs", "only")


def as_csv(table: Table) -> str:
    """One line per figure, in full precision; `only`: its number of pairs, where others of its column are over more."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in table.rows:
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if isinstance(cell, Figure):
                figures = (cell.mean, cell.spread, cell.n, cell.paper, cell.wider, cell.only)
                line = (table.title, row[0], column, *figures)
                writer.writerow([no_formula(shown(each)) if isinstance(each, str) else each for each in line])
    return file.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "latex": latex, "csv": as_csv}


def render(tables: Sequence[Table], form: str = "md") -> str:
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if form == "csv":
        return ",".join(CSV_COLUMNS) + "\n" + "".join(as_csv(table) for table in tables)
    return "\n".join(shown(line) for table in tables for line in FORMATS[form](table).split("\n"))
