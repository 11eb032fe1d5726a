"""The grids: each is a function that yields runs, the most wanted first."""

import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError, unknown
from adamatch.config.presets import FAST, recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS, check_domains
from adamatch.grid import pretraining

METHODS = ("baseline_bn", "mcd", "noisystudent", "fixmatch+", "adamatch")  # the paper's five
LABELS = (1, 5, 10, 25)  # per class, in SSL and SSDA
SUITES = ("digitfive", "domainnet64", "domainnet224")
ABLATIONS: tuple[dict[str, Any], ...] = (
    {"interpolate": False},
    {"align": "none"},
    {"align": "labels"},  # as in ReMixMatch
    {"threshold": "fixed"},
)
CODE_SSDA: dict[str, Any] = {"pools": 2}  # the authors' code's form, where the text's is the default
PROTOCOLS = (  # of section 5
    ("clipart", "infograph"),
    ("infograph", "painting"),
    ("painting", "quickdraw"),
    ("quickdraw", "real"),
    ("real", "sketch"),
    ("sketch", "clipart"),
)
# The paper draws its sweeps as pictures. Of their values its text names these thresholds and the ends of this range of weight
# decay; those of uratio are ours.
TAUS = (0.8, 0.9, 0.95)
WEIGHT_DECAYS = (0.0001, 0.0005, 0.001, 0.002)
URATIOS = (1, 2, 3, 5)
STUDIED: tuple[
    dict[str, Any], ...
] = (  # what `study` changes on the hard pair, one after the other, from the paper's recipe
    {},
    {"mirror": True},
    {"images": 2**20},
    {"lr_end": 0.0},
    {"lr": 0.1, "lr_end": 0.0},
    {"weight_decay": 0.001},
    {"batch": 32, "uratio": 7, "images": 250_000},
    {"tau": 0.97},
    {"tau": 0.97, "lr": 0.06},
    {"tau": 0.97, "lr": 0.06, "images": 2**20},
    {"release": True, "images": 2**20},
)
AROUND: tuple[dict[str, Any], ...] = (  # and from the recipe of `fast`
    {},
    {"release": False},
    {"tau": 0.9},
    {"lr": 0.03},
    {"batch": 128, "lr": 0.12},
    {"average": 0.99},
    {"strong": "randaugment"},
    {"strong": "cutout"},
    {"images": 2**21},
)


def pairs(domains: Iterable[str]) -> list[tuple[str, str]]:
    """Every source with every other domain as its target."""
    return list(itertools.permutations(domains, 2))


def paper() -> Iterator[Run]:
    """All 2,420 runs of the paper: 400 UDA, 1,600 SSDA, 340 SSL, 80 oracles."""
    for suite in SUITES:
        domains = BENCHMARKS[suite].domains
        for source, target in pairs(domains):
            uda = Run(benchmark=suite, source=source, target=target)
            for method in METHODS:
                yield replace(uda, method=method)
                for labels in LABELS:
                    yield replace(uda, task="ssda", labels=labels, method=method)
            yield oracle(uda)
        for target, labels, method in itertools.product(domains, LABELS, METHODS):
            yield Run(benchmark=suite, task="ssl", target=target, labels=labels, method=method)


def handwriting() -> Iterator[Run]:
    """The embedded benchmark, no data needed: every method on every task, 3 seeds, ablations, CTAugment, SSDA's other forms."""
    for seed in range(3):
        uda = Run(benchmark="handwriting", source="rendered", target="handwritten", seed=seed)
        for method in ("adamatch", *METHODS, "supervised"):
            yield replace(uda, method=method)
            for labels in (1, 5):
                yield replace(uda, task="ssl", source="", labels=labels, method=method)
                yield replace(uda, task="ssda", labels=labels, method=method)
        yield oracle(uda)
        for options in ABLATIONS:
            yield replace(uda, options=options)
        yield replace(uda, recipe=replace(uda.recipe, strong="cta"))
        for labels in (1, 5):
            yield replace(uda, task="ssda", labels=labels, options=CODE_SSDA)
        yield never_twice(replace(uda, task="ssda", labels=1))


def digits() -> Iterator[Run]:
    """Real digits with the fast budget: AdaMatch (3 seeds) and FixMatch+ on 12 pairs, every method on two, ablations."""
    hard = Run(benchmark="digitfive", source="mnist", target="svhn", budget="fast")
    easy = replace(hard, target="mnistm")
    twelve = [
        replace(hard, source=source, target=target) for source, target in pairs(("mnist", "mnistm", "svhn", "usps"))
    ]
    yield from twelve
    for pair in (hard, easy):
        for method in (*METHODS, "supervised"):
            yield replace(pair, method=method)
        yield oracle(pair)
    for labels, method in itertools.product((1, 5, 25), ("adamatch", "fixmatch+")):
        yield replace(hard, task="ssl", source="", labels=labels, method=method)
        yield replace(with_labels(hard), labels=labels, method=method)
        yield replace(hard, task="ssda", labels=labels, method=method)
    for labels in (1, 5, 25):
        yield replace(hard, task="ssda", labels=labels, options=CODE_SSDA)
    for labels, method in itertools.product((1, 5), ("adamatch", "fixmatch+")):
        yield never_twice(replace(hard, task="ssda", labels=labels, method=method))
    for pair in (hard, easy):
        for options in ({"interpolate": False}, {"align": "none"}, {"threshold": "fixed"}, {"release": False}):
            yield replace(pair, options=options)
        yield replace(pair, recipe=replace(pair.recipe, strong="cutout"))
        yield replace(pair, method="mcd", recipe=replace(pair.recipe, lr=0.03))  # a control: the paper's learning rate
    for seed in (1, 2, 3, 4, 5):
        yield replace(hard, seed=seed)
    for run in twelve:
        yield replace(run, method="fixmatch+")
    for seed, run in itertools.product((1, 2), twelve):
        yield replace(run, seed=seed)


def few() -> Iterator[Run]:
    """Few labels on real digits, by the fast budget's recipes: SSL on SVHN, SSDA on two pairs, 3 seeds; FixMatch+ with one.

    Five labels on the hard pair have the seeds that the pair has without labels: six; and the same with every label in every
    step, of which half fell back. One label of SVHN, where digits get lost, has lower thresholds for classes of which few
    labels pass, for comparison.
    """
    svhn = Run(benchmark="digitfive", task="ssl", target="svhn", budget="fast")
    hard = Run(benchmark="digitfive", task="ssda", source="mnist", target="svhn", budget="fast")
    tasks = (svhn, hard, replace(hard, source="usps", target="mnistm"))
    for task, seed, labels in itertools.product(tasks, range(3), (1, 5, 25)):
        yield replace(task, labels=labels, seed=seed)
    for seed in (3, 4, 5):
        yield replace(hard, labels=5, seed=seed)
    for seed in range(6):
        yield not_spread(replace(hard, labels=5, seed=seed))
    for seed in range(3):
        yield replace(svhn, labels=1, seed=seed, options={"threshold": "classes"})
    for task, labels in itertools.product(tasks, (1, 5, 25)):
        yield replace(task, labels=labels, method="fixmatch+")


def study() -> Iterator[Run]:
    """What matters on real digits at short budgets: half a million images, a thing changed at a time; then other pairs."""

    fast = {**FAST["digitfive"], "images": 500_000}

    def short(source: str, target: str, options: dict[str, Any] | None = None, **changes: Any) -> Run:
        mine = recipe("digitfive", **{"images": fast["images"], "mirror": False, **changes})
        return Run(benchmark="digitfive", source=source, target=target, options=options or {}, recipe=mine)

    for changes in STUDIED:
        yield short("mnist", "svhn", **changes)
    for changes in AROUND:
        yield short("mnist", "svhn", **{**fast, **changes})
    for options in ({"source_loss": "sum"}, {"warm_up": 0.25}, {"warm_up": 5 / 6}):
        yield short("mnist", "svhn", options)
    for window in (32, 512):
        yield short("mnist", "svhn", {"window": window}, **fast)
    for source, target in (
        ("mnistm", "svhn"),
        ("usps", "svhn"),
        ("mnist", "mnistm"),
        ("svhn", "mnist"),
        ("svhn", "usps"),
    ):
        yield short(source, target)
        yield short(source, target, **fast)


def ablation() -> Iterator[Run]:
    """Section 5, on six pairs of DomainNet at 64 x 64: a component out at a time; uratio, tau, weight decay, strong view."""
    for source, target in PROTOCOLS:
        run = Run(benchmark="domainnet64", source=source, target=target)
        yield run
        for options in ABLATIONS:
            yield replace(run, options=options)
        sweeps: list[tuple[str, tuple[Any, ...]]] = [
            ("uratio", URATIOS),
            ("tau", TAUS),
            ("weight_decay", WEIGHT_DECAYS),
            ("strong", ("cutout", "randaugment")),
        ]
        for name, values in sweeps:
            for value in values:
                yield replace(run, recipe=replace(run.recipe, **{name: value}))


def pre_trained() -> Iterator[Run]:
    """The paper's table of pre-training: MCD and AdaMatch on DomainNet at 224, from nothing and from ImageNet's weights."""
    yield from pretraining.runs(pairs(BENCHMARKS[pretraining.SUITE].domains))


def oracle(run: Run) -> Run:
    """The same pair with the labels of source and target both used."""
    return replace(run, task="oracle", method="supervised")


def with_labels(run: Run) -> Run:
    """The same pair with labelled target images, by the recipe that its budget has for them."""
    return replace(run, task="ssda", recipe=recipe(run.benchmark, run.budget, "ssda"))


def not_spread(run: Run) -> Run:
    """The same run with every labelled target image in every step, as far as a batch has room."""
    return replace(run, recipe=replace(run.recipe, spread=1))


def never_twice(run: Run) -> Run:
    """The same run with no labelled target image twice in a step, however few they are."""
    return replace(run, recipe=replace(run.recipe, repeat=False))


GRIDS: dict[str, Callable[[], Iterable[Run]]] = {
    "paper": paper,
    "handwriting": handwriting,
    "digits": digits,
    "few": few,
    "study": study,
    "ablation": ablation,
    "pretraining": pre_trained,
}


def load(name: str, only: str = "") -> list[Run]:
    """A grid's runs, each once: one of ours by its name, or your own as module:function. `only` is a part of run names."""
    found = _function(name)()
    made = list(found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(run, Run) for run in made):
        raise InputError(f"grid {name!r}: the function has to yield runs (adamatch.Run), and nothing else")
    for run in made:
        check_domains(run.benchmark, run.source, run.target)
    runs = {run.id: run for run in made}
    if not runs:
        raise InputError(f"grid {name!r} has no run")
    chosen = [run for run in runs.values() if only in run.name]
    if not chosen:
        raise InputError(f"no run of grid {name!r} has {only!r} in its name: see them with `adamatch grid plan {name}`")
    return chosen


def short(name: str) -> str:
    """The name of a grid's folder."""
    return name.rpartition(":")[2]


def _function(name: str) -> Callable[[], Iterable[Run]]:
    if name in GRIDS:
        return GRIDS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise unknown("grid", name, [*GRIDS, "module:function (your own)"])
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise InputError(f"grid {name!r}: {error}; the module must lie in this folder or be installed") from None
    except (SyntaxError, TypeError, ValueError) as error:
        raise InputError(f"grid {name!r} cannot be read: {error}") from None
    if not callable(found):
        raise InputError(f"grid {name!r}: module {module} has no function {function}")
    return found  # type: ignore[no-any-return]
