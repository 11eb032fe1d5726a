"""Every figure of the README and of docs/ against the files of results/: `python tests/claims.py` prints what differs.

docs/claims.toml lists them. A claim is

    page, text      where it stands: these words, and the figures among them (line breaks do not matter)
    to              words at the end of a longer passage, as of a table; the passage goes on to the end of that line
    files           what it is computed from, below results/
    is              a Python expression of the names of `Known`: one number for each figure of the passage, in order
    told            instead of files and is: why it cannot be computed (a setting; no file was kept, as the page says)
    seeds           words on the page that say which seeds, where an expression leaves some out

A figure is a number with a decimal point, or one before a percent sign; numbers in code, links, dates, versions and the
settings that are listed are none. `open` counts the figures of each page that are not listed yet: it may only fall.
"""

import itertools
import json
import math
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pages import ROOT, pages
from scipy.stats import fisher_exact
from scipy.stats import t as student

from adamatch.base.files import read_json
from adamatch.grid import published
from adamatch.grid.figures import Done, finished, read

LISTED = ROOT / "docs" / "claims.toml"
RESULTS = ROOT / "results"
EVIDENCE = ("command", "machine", "versions", "date")
NUMBER = r"(?<![\w.,-])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w]|\.\d)"
FIGURE = re.compile(rf"{NUMBER}(?=\s?%)|(?<![\w.,])-?\d+(?:,\d{{3}})*\.\d+(?![\w]|\.\d)")
# What is no figure: code, the targets of links, dates and versions, settings of a run.
NOT = re.compile(
    r"```.*?```|~~~.*?~~~|`[^`]*`|\]\([^)]*\)|https?://\S+|\d{4}-\d{2}-\d{2}"
    r"|(?i:torch|tried with|python|version|timm|triton|numpy|apache-|v)\s?\d[\d.]*\+?(?: and \d[\d.]*)?"
    r"|(?i:learning rate|weight decay|momentum|decay|tau|threshold|confidence of|warm-up|times|factor|limit)"
    r"(?: (?:of|at|is|was|to|from|set|fixed|by))* \d[\d.]*"
    r"|\d[\d.]*M\b",
    re.DOTALL,
)
PACS = list(itertools.permutations(("photo", "art_painting", "cartoon", "sketch"), 2))
DIGITS = list(itertools.permutations(("mnist", "mnistm", "svhn", "usps"), 2))
SCRATCH = "lr_end=0.25, knn_anchor=False, simclr_images=0, linear_probe_init=False"  # SSL without pre-training
PAPER_LABELS = "repeat=True, target_labels_from=0.0"  # SSDA as in the paper: from the first step on, repeated
OFFICE = list(itertools.permutations(("amazon", "dslr", "webcam"), 2))


def plain(text: str) -> str:
    return " ".join(text.replace("**", "").split())


class Evidence(Exception):  # noqa: N818
    """Something is wrong with a claim; the words say what."""


class Known:
    """What an expression can use: results by the words that name them, rows of other files, numbers of the paper."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files, self.left_out = files, False

    def names(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "names"}
        usual = {"mean": statistics.fmean, "std": statistics.stdev, "paper": published}
        pairs = {"pacs": PACS, "office": OFFICE, "digits": DIGITS}
        return own | usual | pairs | {"scratch": SCRATCH, "paper_labels": PAPER_LABELS}

    def done(self, name: str, variant: str = "", seeds: Sequence[int] | None = None, folder: str = "") -> list[Done]:
        """The runs of "uda mnist svhn adamatch", "ssda5 ...", "ssl1 svhn ..." by seed; all, unless seeds are named."""
        task, *domains, method = name.split()
        pair = (domains[0], domains[1]) if len(domains) == 2 else ("", domains[0])
        mine = [
            each
            for each in _finished(folder or self.files[0])
            if (each.task + str(each.run.labels or ""), each.pair, each.method) == (task, pair, method)
            and each.variant == variant
        ]
        if not mine:
            raise Evidence(f"no run of {name} {variant!r} is in {folder or self.files[0]}")
        if seeds is not None:
            self.left_out |= {each.run.seed for each in mine} != set(seeds)
            mine = [each for each in mine if each.run.seed in seeds]
        return sorted(mine, key=lambda each: each.run.seed)

    def runs(self, name: str, variant: str = "", seeds: Sequence[int] | None = None, folder: str = "") -> list[float]:
        """Their accuracies."""
        return [each.result["accuracy"] for each in self.done(name, variant, seeds, folder)]

    def ms(self, name: str, variant: str = "", seeds: Sequence[int] | None = None) -> list[float]:
        """Mean and sample standard deviation of these, one number where there is one seed."""
        return self.spread(self.runs(name, variant, seeds))

    @staticmethod
    def spread(values: list[float]) -> list[float]:
        return [statistics.fmean(values), statistics.stdev(values)] if len(values) > 1 else values

    def curve(self, name: str, variant: str = "", seed: int = 0, what: str = "target", folder: str = "") -> list[float]:
        """What the evaluations of one run said of something."""
        (one,) = [each for each in self.done(name, variant, folder=folder) if each.run.seed == seed]
        return [row[what] for row in one.result["evaluations"] if what in row]

    def photos(self, name: str, seeds: Sequence[int] | None = None, folder: str = "") -> list[float]:
        """The accuracies of "photo sketch adamatch" (as its files are named) in a folder of photographs, by seed."""
        files = map(read_json, self._paths(name, folder or self.files[0]))
        found = {row["seed"]: row["accuracy"] for row in files}
        if not found:
            raise Evidence(f"no run of {name} is in {folder or self.files[0]}")
        self.left_out |= seeds is not None and found.keys() != set(seeds)
        return [found[seed] for seed in sorted(found) if seeds is None or seed in seeds]

    def within(self, name: str) -> float:
        """The range of the last ten evaluations, of the seed in which it is largest."""
        return max(float(read_json(path)["spread_of_last"]) for path in self._paths(name, self.files[0]))

    @staticmethod
    def _paths(name: str, folder: str) -> list[Path]:
        return sorted((RESULTS / folder).glob(f"{name.replace(' ', '-')}-s*.json"))

    def rows(self, file: str = "", **where: Any) -> list[dict[str, Any]]:
        """The rows of a file in which these columns have these values."""
        content = _content(file or self.files[0])
        found = content if isinstance(content, list) else content.get("rows", content)
        return [row for row in found if all(row.get(name) == value for name, value in where.items())]

    def col(self, column: str, file: str = "", **where: Any) -> list[float]:
        return [row[column] for row in self.rows(file, **where)]

    def content(self, file: str = "") -> Any:
        return _content(file or self.files[0])

    def trio(self, name: str, variant: str = "") -> list[float]:
        """A run's accuracy, its best evaluation (with test labels), its last."""
        (one,) = self.done(name, variant)
        return [one.result[key] for key in ("accuracy", "best_ORACLE", "last")]

    def trio0(self, name: str) -> list[float]:
        """The same of seed 0, where there are others: tables of one seed say so."""
        result = self.done(name)[0].result
        return [result[key] for key in ("accuracy", "best_ORACLE", "last")]

    @staticmethod
    def early_three() -> list[float]:
        """Alignment gone by three quarters of the run: results/digitfive/early, seeds 0, 1, 2."""
        rows = [each.result for each in _finished("digitfive/early") if each.run.task == "ssda"]
        return [row["accuracy"] for row in sorted(rows, key=lambda row: row["run"]["seed"])]

    @staticmethod
    def at_most(value: float, places: int) -> float:
        """Rounded up, for what is said to be at most so much."""
        return float(math.ceil(value * 10**places) / 10**places)

    @staticmethod
    def worth(whole: list[float], without: list[float]) -> list[float]:
        """How much less accurate without a part, seed by seed: the mean, and its 95 % interval (Student's t)."""
        less = [a - b for a, b in zip(whole, without, strict=True)]
        middle = statistics.fmean(less)
        half = float(student.ppf(0.975, len(less) - 1)) * statistics.stdev(less) / math.sqrt(len(less))
        return [middle, middle - half, middle + half]

    @staticmethod
    def fisher(table: list[list[int]]) -> float:
        """Fisher's exact test, two-sided: p."""
        return float(fisher_exact(table).pvalue)

    @staticmethod
    def told(value: float) -> float:
        """A number among others for which there is no file, as its page says."""
        return value

    def twelve(self, method: str = "adamatch", seeds: Sequence[int] | None = None, without: str = "") -> list[float]:
        """The mean of each of the twelve pairs of digits, but for one."""
        return [
            statistics.fmean(self.runs(f"uda {a} {b} {method}", seeds=seeds))
            for a, b in DIGITS
            if f"{a} {b}" != without
        ]

    def papers(self, without: str = "") -> list[float]:
        return [published.DIGITFIVE[a, b] for a, b in DIGITS if f"{a} {b}" != without]


def _flat(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    else:
        for each in value:
            yield from _flat(each)


@cache
def _finished(folder: str) -> list[Done]:
    return finished(read(RESULTS / folder))


@cache
def _content(file: str) -> Any:
    path = RESULTS / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else read_json(path)


def covered(text: str, claim: dict[str, Any]) -> tuple[int, int]:
    """Where a claim's passage is on its page, whose line breaks are gone."""
    first = plain(claim["text"])
    if text.count(first) != 1:
        raise Evidence(f"stands {text.count(first)} times on the page: {first!r}")
    start = text.index(first)
    end = start + len(first)
    if "to" in claim:
        last = plain(claim["to"])
        if last not in text[start:]:
            raise Evidence(f"ends nowhere: {last!r}")
        end = text.index(last, start) + len(last)
    return start, end


def figures(text: str) -> list[tuple[int, int, str]]:
    """Where figures are, and how they are written."""
    blank = NOT.sub(lambda match: " " * len(match[0]), text)
    return [(match.start(), match.end(), match[0]) for match in FIGURE.finditer(blank)]


def same(value: float, written: str) -> bool:
    """Rounded to as many places as are written."""
    places = len(written.partition(".")[2])
    return bool(abs(value - float(written.replace(",", ""))) <= 0.5 * 0.1**places + 1e-9)


def check(text: str, claim: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a claim."""
    start, end = covered(text, claim)
    written = [each for first, last, each in figures(text) if start <= first and last <= end]
    known = Known(claim["files"])
    try:
        values = list(_flat(eval(f"({claim['is']})", known.names())))
    except (Evidence, LookupError, TypeError, ValueError, NameError, OSError) as error:
        yield f"{type(error).__name__}: {error}"
        return
    if len(values) != len(written):
        yield f"{len(written)} figures {written}, {len(values)} values {[round(value, 3) for value in values]}"
        return
    for each, value in zip(written, values, strict=True):
        if not same(value, each):
            yield f"{each} is written, the files say {value:.4f}"
    if known.left_out and not ("seeds" in claim and plain(claim["seeds"]) in text):
        yield "seeds are left out, and the claim names no words of the page that say so"


def lacks(file: str, given: dict[str, Any]) -> list[str]:
    """Which evidence a file has neither itself nor in claims.toml."""
    path = RESULTS / file
    if path.is_dir():
        runs = [each for each in map(read_json, path.glob("*.json")) if isinstance(each, dict) and "accuracy" in each]
        found = [json.dumps(each) for each in runs]
        words = {"command": '"run": {'}  # a run's configuration is its command
    else:
        found, words = [path.read_text()], {"command": '"command"'}
    return [
        name
        for name in EVIDENCE
        if name not in given and not all(words.get(name, f'"{name}"') in text for text in found)
    ]


def problems() -> list[str]:
    """All that is wrong, a line each."""
    listed = tomllib.loads(LISTED.read_text())
    texts = {str(page.relative_to(ROOT)): plain(page.read_text()) for page in pages()}
    spans: dict[str, list[tuple[int, int]]] = {page: [] for page in texts}
    found = []
    for claim in listed["claim"]:
        try:
            spans[claim["page"]].append(covered(texts[claim["page"]], claim))
            if "files" in claim:
                found += [
                    f"{claim['page']}: {claim['text'][:60]!r}: {each}" for each in check(texts[claim["page"]], claim)
                ]
        except Evidence as error:
            found.append(f"{claim['page']}: {error}")
    for page, text in texts.items():
        missing = [
            written
            for first, last, written in figures(text)
            if not any(start <= first and last <= end for start, end in spans[page])
        ]
        allowed = listed["open"].get(page, 0)
        if len(missing) > allowed:
            counts = ", ".join(each for each, _ in Counter(missing).most_common(12))
            found.append(f"{page}: {len(missing)} figures are not listed, {allowed} are allowed: {counts}, ...")
    files = {file for claim in listed["claim"] for file in claim.get("files", [])}
    for file in sorted(files):
        if not (RESULTS / file).exists():
            found.append(f"results/{file} is not there")
        elif lacking := lacks(file, listed["file"].get(file, {})):
            found.append(f"results/{file} lacks its {', '.join(lacking)}: add it under [file] in claims.toml")
    return found


if __name__ == "__main__":
    wrong = problems()
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))
