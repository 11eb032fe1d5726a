"""The grids: each is a function that yields runs, the most wanted first."""

import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from adamatch import methods
from adamatch.base.errors import InputError, unknown
from adamatch.config.presets import FAST, PRETRAINED, recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS, check_domains
from adamatch.grid.published import ABLATION_PAIRS, LABELS, SUITES

METHODS = ("baseline_bn", "mcd", "noisystudent", "fixmatch+", "adamatch")  # the paper's five
PRETRAINING = "domainnet224"  # the benchmark of the paper's table of pre-training
PRETRAINED_WEIGHTS = "timm:resnetv2_101.a1h_in1k"  # the authors' are Keras's
ABLATIONS: tuple[dict[str, Any], ...] = (
    {"interpolate": False},
    {"align": "none"},
    {"align": "labels"},  # as in ReMixMatch
    {"threshold": "fixed"},
)
CODE_SSDA: dict[str, Any] = {"pools": 2}  # the authors' code's form, where the text's is the default
# The paper draws its sweeps as pictures. Its text names these thresholds and the ends of this range of weight decay;
# the values of uratio are ours.
SWEEPS: dict[str, tuple[Any, ...]] = {
    "uratio": (1, 2, 3, 5),
    "tau": (0.8, 0.9, 0.95),
    "weight_decay": (0.0001, 0.0005, 0.001, 0.002),
    "strong": ("cutout", "randaugment"),
}
STUDIED: tuple[dict[str, Any], ...] = (  # what `study` changes in the paper's recipe on the hard pair
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
    {"fade_out": True, "images": 2**20},
)
AROUND: tuple[dict[str, Any], ...] = (  # and in the recipe of `fast`
    {},
    {"fade_out": False},
    {"tau": 0.9},
    {"lr": 0.03},
    {"batch": 128, "lr": 0.12},
    {"ema_decay": 0.99},
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


def paper_as_printed() -> Iterator[Run]:
    """The same with what its text says where the authors' code differs: loss as a sum, cutout as the strong view.

    Cutout alone does not carry mnist -> svhn: it stays near chance here, even with the halved loss.
    """
    for run in paper():
        sums = {} if run.method in ("mcd", "fixmatch+") else {"source_loss": "sum"}  # these have one view in that loss
        yield other(replace(run, options=sums), strong="cutout")


def handwriting() -> Iterator[Run]:
    """The embedded benchmark, no data needed: every method on every task, ablations, variants of SSDA; 3 seeds."""
    for seed in range(3):
        uda = Run(benchmark="handwriting", source="rendered", target="handwritten", seed=seed)
        for method in ("adamatch", *METHODS, "supervised"):
            yield replace(uda, method=method)
            for labels in (1, 5):
                yield replace(uda, task="ssl", source="", labels=labels, method=method)
                yield replace(uda, task="ssda", labels=labels, method=method)
        yield oracle(uda)
        yield from (replace(uda, options=options) for options in ABLATIONS)
        yield other(uda, strong="cta")
        for labels in (1, 5):
            yield replace(uda, task="ssda", labels=labels, options=CODE_SSDA)
        yield other(replace(uda, task="ssda", labels=1), repeat=False)


def digits() -> Iterator[Run]:
    """Real digits, fast budget: AdaMatch (3 seeds) and FixMatch+ on 12 pairs, every method on two, ablations."""
    hard = Run(benchmark="digitfive", source="mnist", target="svhn", budget="fast")
    easy = replace(hard, target="mnistm")
    domains = ("mnist", "mnistm", "svhn", "usps")
    twelve = [replace(hard, source=source, target=target) for source, target in pairs(domains)]
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
        yield other(replace(hard, task="ssda", labels=labels, method=method), repeat=False)
    for pair in (hard, easy):
        for options in ({"interpolate": False}, {"align": "none"}, {"threshold": "fixed"}, {"fade_out": False}):
            yield replace(pair, options=options)
        yield other(pair, strong="cutout")
        yield other(replace(pair, method="mcd"), lr=0.03)  # a control: the paper's learning rate
    yield from (replace(hard, seed=seed) for seed in (1, 2, 3, 4, 5))
    yield from (replace(run, method="fixmatch+") for run in twelve)
    yield from (replace(run, seed=seed) for seed, run in itertools.product((1, 2), twelve))


def few() -> Iterator[Run]:
    """Few labels on real digits, fast budget: SSL on SVHN, SSDA on two pairs, 3 seeds; FixMatch+ with one seed.

    Five labels on the hard pair have six seeds, as it has without labels, and six with all labels in each step (half of
    them fell back). One label of SVHN is compared with lower thresholds for classes of which few labels pass.
    """
    svhn = Run(benchmark="digitfive", task="ssl", target="svhn", budget="fast")
    hard = Run(benchmark="digitfive", task="ssda", source="mnist", target="svhn", budget="fast")
    tasks = (svhn, hard, replace(hard, source="usps", target="mnistm"))
    for task, seed, labels in itertools.product(tasks, range(3), (1, 5, 25)):
        yield replace(task, labels=labels, seed=seed)
    yield from (replace(hard, labels=5, seed=seed) for seed in (3, 4, 5))
    yield from (other(replace(hard, labels=5, seed=seed), target_label_steps=1) for seed in range(6))
    yield from (replace(svhn, labels=1, seed=seed, options={"threshold": "classes"}) for seed in range(3))
    for task, labels in itertools.product(tasks, (1, 5, 25)):
        yield replace(task, labels=labels, method="fixmatch+")


def first_step() -> Iterator[Run]:
    """Few labels on real digits as the paper has them: from the first step on, repeated; FixMatch+ with one seed."""
    hard = Run(benchmark="digitfive", source="mnist", target="svhn", budget="fast")
    ssda, ssl = replace(hard, task="ssda"), replace(hard, task="ssl", source="")
    for seed, labels in itertools.product(range(3), (1, 5, 25)):
        yield replace(ssda, labels=labels, seed=seed)
    for task, labels in itertools.product((ssda, ssl), (1, 5, 25)):
        yield replace(task, labels=labels, method="fixmatch+")
    for labels in (1, 5):
        yield other(replace(ssda, labels=labels, method="fixmatch+"), repeat=False)
    yield other(replace(ssda, labels=1), repeat=False)


def study() -> Iterator[Run]:
    """What matters on real digits: half a million images, a thing changed at a time; then other pairs."""
    fast = {**FAST["digitfive"], "images": 500_000}

    def short(source: str, target: str, options: dict[str, Any] | None = None, **changes: Any) -> Run:
        mine = recipe("digitfive", **{"images": fast["images"], "mirror": False, **changes})
        return Run(benchmark="digitfive", source=source, target=target, options=options or {}, recipe=mine)

    hard = ("mnist", "svhn")
    yield from (short(*hard, **changes) for changes in STUDIED)
    yield from (short(*hard, **{**fast, **changes}) for changes in AROUND)
    yield from (short(*hard, options) for options in ({"source_loss": "sum"}, {"warm_up": 0.25}, {"warm_up": 5 / 6}))
    yield from (short(*hard, {"alignment_window": window}, **fast) for window in (32, 512))
    for pair in (("mnistm", "svhn"), ("usps", "svhn"), ("mnist", "mnistm"), ("svhn", "mnist"), ("svhn", "usps")):
        yield short(*pair)
        yield short(*pair, **fast)


def ablation() -> Iterator[Run]:
    """Section 5, six pairs of DomainNet at 64 x 64: without a component; uratio, tau, weight decay, strong view."""
    for source, target in ABLATION_PAIRS:
        run = Run(benchmark="domainnet64", source=source, target=target)
        yield from (replace(run, options=options) for options in ({}, *ABLATIONS))
        for name, values in SWEEPS.items():
            yield from (other(run, **{name: value}) for value in values)


def pretraining() -> Iterator[Run]:
    """The paper's table of pre-training, DomainNet at 224, from scratch and from ImageNet weights; and FixMatch+.

    What a run has at 2M images, and its best window, are among its evaluations.
    """
    for source, target in pairs(BENCHMARKS[PRETRAINING].domains):
        for method in ("adamatch", "mcd", "fixmatch+"):
            scratch = Run(benchmark=PRETRAINING, source=source, target=target, method=method)
            to_the_end = recipe(PRETRAINING, **{**PRETRAINED, "stop_after": 0})
            yield from (scratch, replace(scratch, weights=PRETRAINED_WEIGHTS, recipe=to_the_end))


def oracle(run: Run) -> Run:
    """The same pair with the labels of source and target both used."""
    return replace(run, task="oracle", method="supervised")


def with_labels(run: Run) -> Run:
    """The same pair with labelled target images, by the recipe that its budget has for them."""
    return replace(run, task="ssda", recipe=recipe(run.benchmark, run.budget, "ssda"))


def other(run: Run, **changes: Any) -> Run:
    """The same run with other hyper-parameters."""
    return replace(run, recipe=replace(run.recipe, **changes))


_OURS = (paper, paper_as_printed, handwriting, digits, few, first_step, study, ablation, pretraining)
GRIDS: dict[str, Callable[[], Iterable[Run]]] = {grid.__name__.replace("_", "-"): grid for grid in _OURS}


def load(name: str, only: str = "") -> list[Run]:
    """A grid's runs, each once: one of ours by its name, or your own as module:function. `only` is in run names."""
    found = _function(name)()
    made = list(found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(run, Run) for run in made):
        raise InputError(f"grid {name!r}: the function has to yield runs (adamatch.Run), and nothing else")
    for run in made:
        check_domains(run.benchmark, run.source, run.target)
        methods.get(run.method)
    runs = {run.id: run for run in made}
    if not runs:
        raise InputError(f"grid {name!r} has no run")
    chosen = [run for run in runs.values() if only in run.name]
    if not chosen:
        raise InputError(f"no run of grid {name!r} has {only!r} in its name: see them with `adamatch grid plan {name}`")
    return chosen


def _function(name: str) -> Callable[[], Iterable[Run]]:
    module, colon, function = name.partition(":")
    if not colon:
        if name.replace("_", "-") not in GRIDS:
            raise unknown("grid", name, [*GRIDS, "module:function (your own)"])
        return GRIDS[name.replace("_", "-")]
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
