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
    std: float | None = None
    n: int = 1
    paper: float | None = None
    wider: bool = False  # the paper's figure is over more pairs than ours
    best: bool = False
    only: int = 0  # over so many pairs only, where others of its column are over more

    def leads(self, other: "Figure") -> bool:
        """By more than both standard deviations."""
        return self.std is not None and other.std is not None and self.mean - other.mean > self.std + other.std

    def text(self, bold: str, plus_minus: str = "±") -> str:
        """`bold` is a pattern for the best of a column, with {} for what is to be bold."""
        spread = f" {plus_minus} {self.std:.1f}" if self.std is not None else ""
        ours = f"{self.mean:.1f}{spread}"
        paper = "" if self.paper is None else f" ({self.paper:.1f}{'*' if self.wider else ''})"
        return (bold.format(ours) if self.best else ours) + paper + (f" [{self.only}]" if self.only else "")


Cell = str | Figure


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def markdown(table: Table) -> str:
    def row(cells: Sequence[Cell]) -> str:
        shown = [cell.replace("|", "\\|") if isinstance(cell, str) else cell.text("**{}**") for cell in cells]
        return f"| {' | '.join(shown)} |"

    lines = [f"### {table.title}", "", f"| {' | '.join(table.columns)} |"]
    lines += ["| --- |" + " ---: |" * (len(table.columns) - 1), *map(row, table.rows)]
    return "\n".join([*lines, *(line for note in table.notes for line in ("", note))]) + "\n"


LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "->": r"$\rightarrow$", "±": r"$\pm$"}


def latex(table: Table) -> str:
    def show(cell: Cell) -> str:
        if isinstance(cell, Figure):
            return cell.text(r"\textbf{{{}}}", r"$\pm$")
        for plain, written in LATEX.items():
            cell = cell.replace(plain, written)
        return cell

    head, *rows = (" & ".join(map(show, row)) + r" \\" for row in (table.columns, *table.rows))
    caption = " ".join(map(show, (f"{table.title}.", *table.notes)))
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", r"\toprule"]
    lines += [head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


CSV_COLUMNS = ("table", "row", "column", "mean", "spread", "n", "paper", "paper_over_more_pairs", "only")


def as_csv(table: Table) -> str:
    """One line per figure, in full precision; `only`: its number of pairs, where others of its column are over more."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in table.rows:
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if isinstance(cell, Figure):
                names = [no_formula(shown(str(each))) for each in (table.title, row[0], column)]
                writer.writerow([*names, cell.mean, cell.std, cell.n, cell.paper, cell.wider, cell.only])
    return file.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "latex": latex, "csv": as_csv}


def render(tables: Sequence[Table], form: str = "md") -> str:
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if form == "csv":
        return ",".join(CSV_COLUMNS) + "\n" + "".join(as_csv(table) for table in tables)
    return "\n".join(shown(line) for table in tables for line in FORMATS[form](table).split("\n"))
