"""The benchmarks by name: their domains, and the stores and problems made of them."""

from dataclasses import dataclass, replace
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.datasets import rendered
from adamatch.datasets.catalog import SETS, open_store
from adamatch.images.store import Store
from adamatch.images.tasks import Problem, Unlabelled, make_problem

ALL = "all"  # as a source: every domain but the target


@dataclass(frozen=True)
class Benchmark:
    """`set` is the prepared set that it reads, at `size`."""

    set: str
    size: int
    domains: tuple[str, ...]
    unlabelled: str = ""  # as in DataSet


BENCHMARKS = {"handwriting": Benchmark("handwriting", 8, ("rendered", "handwritten"))} | {
    name: Benchmark(key, size, tuple(data_set.domains), data_set.unlabelled)
    for key, data_set in SETS.items()
    for name, size in data_set.benchmarks.items()
}


def get(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


def check_domains(name: str, source: str, target: str) -> None:
    """Refuse a name that is no domain of the benchmark; either may be empty."""
    benchmark = get(name)
    for role, domain in (("source", source), ("target", target)):
        if domain and domain not in (*benchmark.domains, ALL):
            raise unknown(f"{role} domain of {name}", domain, benchmark.domains)


def load(name: str, domain: str, split: str, root: Path | None = None) -> Store:
    """One domain's `split`: "train", "test", or that of further unlabelled images."""
    benchmark = get(name)
    if domain not in benchmark.domains:
        raise unknown(f"domain of {name}", domain, benchmark.domains)
    if domain == "rendered":
        count, seed = (5000, 0) if split == "train" else (1000, 1)
        return rendered.rendered(count, benchmark.size, seed)
    if domain == "handwritten":
        return rendered.handwritten("train" if split == "train" else "test", benchmark.size)
    return open_store(benchmark.set, domain, split, benchmark.size, root)


def problem(
    name: str, *, task: str, source: str, target: str, labels: int = 0, seed: int = 0, root: Path | None = None
) -> Problem:
    """The problem of one cell of a table. `source` may be "all": every domain but the target."""
    check_domains(name, source, target)
    benchmark = get(name)
    if not target or not (source or task == "ssl"):
        domains = "a target" if task == "ssl" else "a target and a source"
        raise InputError(f"task {task} needs {domains}: {name} has {', '.join(benchmark.domains)}")
    if task == "ssl" and source not in ("", target):
        raise InputError(f"task ssl has one domain and {source!r} is a second one: leave source out, or choose ssda")
    if task != "ssl" and source == target:
        raise InputError(f"source and target are both {source!r}: choose two domains, or task ssl for one")
    sources = [source]
    if task == "ssl":
        sources = []
    elif source == ALL:
        sources = [domain for domain in benchmark.domains if domain != target]
    tests = {"target": load(name, target, "test", root)}
    if len(sources) == 1:
        tests["source"] = load(name, sources[0], "test", root)
    trained = [load(name, each, "train", root) for each in sources]
    posed = make_problem(task, trained, load(name, target, "train", root), tests, labels=labels, seed=seed)
    if task != "ssl" or not benchmark.unlabelled:
        return posed
    more = load(name, target, benchmark.unlabelled, root).images
    return replace(posed, unlabelled=Unlabelled((*posed.unlabelled.parts, more)))
