"""The benchmarks by name: their domains, and the stores and problems made of them."""

from dataclasses import dataclass, replace
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.datasets import rendered
from adamatch.datasets.prepared import open_store
from adamatch.images.store import Store
from adamatch.images.tasks import Problem, Unlabelled, pose

ALL = "all"  # as a source: every domain but the target


@dataclass(frozen=True)
class Benchmark:
    """`set` is the prepared set that it reads, at `size`."""

    set: str
    size: int
    domains: tuple[str, ...]
    unlabelled: str = ""  # a split of further images, which SSL takes as unlabelled ones beside those of "train"
    generated: tuple[str, ...] = ()  # domains that `adamatch data generate` makes: not part of the published benchmark


_DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
BENCHMARKS = {
    "handwriting": Benchmark("handwriting", 8, ("rendered", "handwritten")),
    "digitfive": Benchmark(
        "digitfive", 32, ("mnist", "mnistm", "svhn", "syn", "usps"), generated=("mnistm_generated", "synthetic_drawn")
    ),
    "domainnet32": Benchmark("domainnet", 32, _DOMAINNET),
    "domainnet64": Benchmark("domainnet", 64, _DOMAINNET),
    "domainnet128": Benchmark("domainnet", 128, _DOMAINNET),
    "domainnet224": Benchmark("domainnet", 224, _DOMAINNET),
    "office31-64": Benchmark("office31", 64, ("amazon", "dslr", "webcam")),
    "office31-224": Benchmark("office31", 224, ("amazon", "dslr", "webcam")),
    "pacs64": Benchmark("pacs", 64, ("art_painting", "cartoon", "photo", "sketch")),
    "cifar10": Benchmark("cifar10", 32, ("cifar10",)),
    "cifar100": Benchmark("cifar100", 32, ("cifar100",)),
    "stl10": Benchmark("stl10", 32, ("stl10",), unlabelled="unlabelled"),
    "svhn": Benchmark("svhn", 32, ("svhn",), unlabelled="extra"),
}


def get(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


def check_domains(name: str, source: str, target: str) -> None:
    """Refuse a name that is no domain of the benchmark; either may be empty."""
    benchmark = get(name)
    for role, domain in (("source", source), ("target", target)):
        if domain and domain not in (*benchmark.domains, *benchmark.generated, ALL):
            raise unknown(f"{role} domain of {name}", domain, benchmark.domains)


def load(name: str, domain: str, split: str, root: Path | None = None) -> Store:
    """One domain's `split`: "train", "test", or that of further unlabelled images."""
    benchmark = get(name)
    if domain not in (*benchmark.domains, *benchmark.generated):
        raise unknown(f"domain of {name}", domain, benchmark.domains)
    if domain == "rendered":
        return (
            rendered.rendered(5000, benchmark.size, seed=0)
            if split == "train"
            else rendered.rendered(1000, benchmark.size, 1)
        )
    if domain == "handwritten":
        return rendered.handwritten("train" if split == "train" else "test", benchmark.size)
    return open_store(benchmark.set, domain, split, benchmark.size, root)


def problem(
    name: str, *, task: str, source: str, target: str, labels: int = 0, seed: int = 0, root: Path | None = None
) -> Problem:
    """The problem of one cell of a table. `source` may be "all": every domain but the target."""
    check_domains(name, source, target)
    domains = get(name).domains
    sources: tuple[str, ...]
    if not target or not (source or task == "ssl"):
        raise InputError(
            f"task {task} needs a target{'' if task == 'ssl' else ' and a source'}: {name} has {', '.join(domains)}"
        )
    if task == "ssl":
        if source not in ("", target):
            raise InputError(
                f"task ssl has one domain and {source!r} is a second one: leave source out, or choose ssda"
            )
        sources = ()
    elif source == ALL:
        sources = tuple(domain for domain in domains if domain != target)
    elif source == target:
        raise InputError(f"source and target are both {source!r}: choose two domains, or task ssl for one")
    else:
        sources = (source,)
    tests = {"target": load(name, target, "test", root)}
    if len(sources) == 1:
        tests["source"] = load(name, sources[0], "test", root)
    trained = [load(name, each, "train", root) for each in sources]
    posed = pose(task, trained, load(name, target, "train", root), tests, labels=labels, seed=seed)
    if task != "ssl" or not get(name).unlabelled:
        return posed
    more = load(name, target, get(name).unlabelled, root).images
    return replace(posed, unlabelled=Unlabelled((*posed.unlabelled.parts, more)))
