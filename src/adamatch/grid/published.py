"""The paper's accuracies in percent, from published.toml."""

import statistics
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from adamatch.base.regular_files import read_file

SUITES = ("digitfive", "domainnet64", "domainnet224")
LABELS = (1, 5, 10, 25)
ABLATION_PAIRS = (  # of section 5
    ("clipart", "infograph"),
    ("infograph", "painting"),
    ("painting", "quickdraw"),
    ("quickdraw", "real"),
    ("real", "sketch"),
    ("sketch", "clipart"),
)

_NUMBERS = tomllib.loads(read_file(Path(__file__).parent / "published.toml").decode())
UDA, SSL, SSDA = (_NUMBERS[task] for task in ("uda", "ssl", "ssda"))  # rows: methods; SSL, SSDA end with their Avg
PRETRAINED, ABLATION = _NUMBERS["pretraining"], _NUMBERS["ablation"]
PRETRAINED_COLUMNS = ("random init (8M)", "pre-train (8M)", "pre-train (2M)", "pre-train (best window: ORACLE)")
DIGITFIVE = {(source, target): value for source, row in _NUMBERS["digitfive"].items() for target, value in row.items()}


def accuracy(
    benchmark: str, task: str, method: str, labels: int, pairs: Collection[tuple[str, str]], variant: str = ""
) -> tuple[float | None, bool]:
    """The mean over these pairs if the paper has it, else over all (SSL: domains); and whether it is over more pairs.

    An oracle is a method of UDA here.
    """
    ours = (benchmark, task, method)
    if ours == ("domainnet64", "uda", "adamatch") and set(pairs) == set(ABLATION_PAIRS) and variant in ABLATION:
        return ABLATION[variant], False
    if variant in PRETRAINED_COLUMNS:
        row = PRETRAINED.get(method)  # of FixMatch+ there is no number
        return (row[PRETRAINED_COLUMNS.index(variant)], len(pairs) < 30) if row else (None, False)
    if variant:
        return None, False
    if ours == ("digitfive", "uda", "adamatch") and DIGITFIVE.keys() >= set(pairs):
        return statistics.fmean(DIGITFIVE[pair] for pair in pairs), False
    found, domains = mean(benchmark, task, method, labels), {"digitfive": 5}.get(benchmark, 6)
    return found, found is not None and len(pairs) < (domains if task == "ssl" else domains * (domains - 1))


def mean(benchmark: str, task: str, method: str, labels: int = 0) -> float | None:
    """The mean over all pairs (SSL: domains) of a benchmark, where the paper has it."""
    tables: dict[str, Mapping[str, Sequence[float]]] = {"uda": UDA, "ssl": SSL, "ssda": SSDA}
    row = tables.get(task, {}).get(method)
    columns = (0,) if task == "uda" else LABELS
    if row is None or benchmark not in SUITES or labels not in columns:
        return None
    return row[SUITES.index(benchmark) * len(columns) + columns.index(labels)]
