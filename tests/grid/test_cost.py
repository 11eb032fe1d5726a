import itertools
import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from grid import fakes
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from adamatch import networks
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.grid import cost

H200 = "NVIDIA H200, bf16, compiled, CUDA graph"
UDA = Run(benchmark="digitfive")
STEPS = 524_288  # of the paper's recipe
times = st.lists(st.integers(1, 50), min_size=1, max_size=7)


def measured(run: Run, seconds: float, machine: str = "a GPU") -> cost.Measured:
    return cost.Measured(cost.shape(run), seconds, machine)


@given(times, st.integers(1, 3))
def test_wall_time_is_near_the_best_of_all_assignments(seconds: list[int], machines: int) -> None:
    best = min(
        max(sum(each for each, at in zip(seconds, places, strict=True) if at == machine) for machine in range(machines))
        for places in itertools.product(range(machines), repeat=len(seconds))
    )
    assert best <= cost.wall_time(seconds, machines) <= best * (4 / 3 - 1 / (3 * machines)) + 1e-9  # Graham, 1969


@pytest.mark.parametrize("network", ["wrn-tiny", "wrn-small", "wrn-28-2", "wrn-34-2"])
def test_operations_of_networks(network: str) -> None:
    forward, side = cost.NETWORKS[network]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        networks.build(network, 10).eval()(torch.zeros(1, 3, side, side))
    assert counter.get_total_flops() == pytest.approx(2e9 * forward, rel=0.01)


def test_steps() -> None:
    assert cost.steps(UDA) == 32 * 2**20 // 64 == STEPS
    assert cost.steps(replace(UDA, method="noisystudent")) == 2 * STEPS  # a teacher and a student
    assert cost.steps(replace(UDA, method="noisystudent", options={"generations": 3})) == 4 * STEPS


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"method": "baseline_bn"}, True),
        ({"method": "supervised"}, False),  # never looks at unlabelled images
        ({"method": "noisystudent"}, False),
        ({"continues": "0123456789"}, False),  # goes on with an earlier run's model
        ({"weights": "timm:a"}, True),
    ],
)
def test_learning_without_labels_first_counts_where_it_is_done(changes: dict[str, str], counts: bool) -> None:
    run = Run(benchmark="digitfive", task="ssl", target="svhn", labels=5, budget="fast")
    assert run.recipe.simclr_images == run.recipe.images == 64 * cost.steps(run)
    run = replace(run, **changes)  # type: ignore[arg-type]
    assert (cost.length(run) > cost.steps(run)) == counts
    if not changes:  # ten images for each labelled one in AdaMatch's step, and two views of each before it
        without = replace(run, recipe=replace(run.recipe, simclr_images=0))
        with_it, alone = cost.estimate(run), cost.estimate(without)
        assert with_it.seconds == pytest.approx(1.2 * alone.seconds)
        assert with_it[:2] == alone[:2]  # a step is as long as it was


def test_nothing_measured_is_an_assumption_that_says_so() -> None:
    estimate = cost.estimate(replace(UDA, recipe=replace(UDA.recipe, network="my own")))
    assert estimate.basis == cost.ASSUMPTION
    ratio = cost.NETWORKS["resnetv2-101"][0] * (32 / 224) ** 2 / cost.NETWORKS["wrn-28-2"][0]  # as the largest known
    assert estimate.seconds == pytest.approx(STEPS * 0.0068 * ratio)


def test_what_is_known_is_what_the_repositorys_files_say() -> None:
    """The package carries its step times: a plan is the same away from the repository as in it."""
    results = Path(__file__).parents[2] / "results"
    of_files = [
        each
        for name in ("step28", "step34", "step101")
        for each in cost._of_file(json.loads((results / f"{name}.json").read_text()))
    ]
    assert {each.machine for each in of_files} == {H200}
    assert {each.shape: pytest.approx(each.seconds, abs=5.1e-6) for each in of_files} == cost.KNOWN[H200]
    of_runs: dict[cost.Shape, list[float]] = {}
    for each in cost.measurements(results / "handwriting"):
        assert each.machine in cost.KNOWN
        of_runs.setdefault(each.shape, []).append(each.seconds)
    medians = {shape: pytest.approx(statistics.median(each), abs=5.1e-5) for shape, each in of_runs.items()}
    assert medians == cost.KNOWN["1 CPU thread (x86_64), fp32"]


def test_ones_own_measurements_go_before_what_is_known() -> None:
    known = cost.estimate(UDA)
    assert known.seconds == pytest.approx(0.0068 * STEPS)
    assert known.basis == f"measured on {H200}"
    slower = cost.estimate(UDA, [measured(replace(UDA, method="supervised"), 0.03, "a GPU of mine")])
    assert slower.seconds == pytest.approx(known.seconds * 0.03 / 0.00303)  # as both were measured on one machine
    assert slower.basis == "scaled from other steps of wrn-28-2 at 32 on a GPU of mine"


def test_measured_results_and_step_times_are_used(tmp_path: Path) -> None:
    run = replace(UDA, recipe=recipe("digitfive", images=6400))  # 100 steps
    folder = tmp_path / "runs" / run.name
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(fakes.result(run, seconds=2.0)))
    row: dict[str, object] = {"network": "wrn-34-2", "size": 64, "method": "adamatch", "strong": "cta"}
    row |= {"batch": 64, "ms": 40.0}
    others: list[dict[str, object]] = [{"method": "plain adamatch", "ms": 400.0}, {"ms": 90.0, "kernels": False}]
    rows = [row, *(row | other for other in others)]
    (tmp_path / "step.json").write_text(json.dumps({"machine": "a GPU", "rows": rows}))
    no_use = [fakes.result(run, seconds=9.0) | {"at_a_time": 5}, fakes.result(run, seconds=9.0) | {"ranks": 8}]
    no_use += [[1, 2], {"rows": [1, 2]}, {"run": {"recipe": {}}, "seconds": 1}, {"run": 3, "seconds": 1}]  # type: ignore[list-item]
    no_use += [{"rows": [row | {"size": 0}]}, {"rows": [row | {"ms": float("nan")}]}]
    for number, facts in enumerate(no_use):
        (tmp_path / f"{number}.json").write_text(json.dumps(facts))
    found = cost.measurements(tmp_path)
    assert len(found) == 2

    other = cost.estimate(Run(benchmark="digitfive", source="usps", target="svhn", seed=5), found)
    assert other.seconds == pytest.approx(0.02 * STEPS)
    assert other.basis == "measured on 1 CPU threads, fp32"
    assert cost.estimate(Run(benchmark="domainnet64"), found).seconds == pytest.approx(0.04 * 131_072)
    # FixMatch+ forwards 2 x (64 + 192) images where AdaMatch forwards 2 x (64 + 64 + 192).
    scaled = cost.estimate(Run(benchmark="domainnet64", method="fixmatch+"), found)
    assert scaled.seconds == pytest.approx(0.04 * 131_072 * 512 / 640)
    assert scaled.basis.startswith("scaled")


def test_noisystudents_step_is_a_supervised_one_and_the_same_method_is_the_best_to_scale_from() -> None:
    found = [measured(replace(UDA, method="supervised"), 0.003), measured(UDA, 0.007)]
    assert cost.estimate(replace(UDA, method="noisystudent"), found).seconds == pytest.approx(2 * 0.003 * STEPS)
    # Two labelled pools: 896 images where there were 640.
    ssda = cost.estimate(replace(UDA, task="ssda", labels=1), found)
    assert ssda.seconds == pytest.approx(0.007 * STEPS * 896 / 640)


def test_the_fastest_machine_counts_by_its_median() -> None:
    slow = [measured(UDA, seconds, "slow") for seconds in (1.0, 1.0, 0.1)]
    fast = [measured(UDA, seconds, "fast") for seconds in (0.5, 0.6, 9.0)]
    estimate = cost.estimate(UDA, [*slow, *fast])
    assert estimate.seconds == pytest.approx(0.6 * STEPS)
    assert estimate.basis == "measured on fast"
