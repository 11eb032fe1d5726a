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
from adamatch.train import resume

times = st.lists(st.integers(1, 50), min_size=1, max_size=7)


@given(times, st.integers(1, 4))
def test_wall_time_is_that_of_a_walk_through_time(seconds: list[int], machines: int) -> None:
    """Against a clock that ticks: at each tick a free machine takes the longest run that is left."""
    waiting, busy, clock = sorted(seconds), [0] * machines, 0
    while waiting or any(busy):
        for number in range(machines):
            if busy[number] == 0 and waiting:
                busy[number] = waiting.pop()
        busy = [max(0, left - 1) for left in busy]
        clock += 1
    assert cost.wall_time(seconds, machines) == clock


@given(times, st.integers(1, 3))
def test_wall_time_is_near_the_best_of_all_assignments(seconds: list[int], machines: int) -> None:
    best = min(
        max(
            sum(each for each, where in zip(seconds, places, strict=True) if where == machine)
            for machine in range(machines)
        )
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
    assert cost.steps(Run(benchmark="digitfive")) == 32 * 2**20 // 64
    assert cost.steps(Run(benchmark="digitfive", method="noisystudent")) == 2 * 524_288  # a teacher and a student
    assert cost.steps(Run(benchmark="digitfive", method="noisystudent", options={"generations": 3})) == 4 * 524_288


def test_learning_without_labels_first_counts_by_its_operations() -> None:
    run = Run(benchmark="digitfive", task="ssl", target="svhn", labels=5, budget="fast")
    without = replace(run, recipe=replace(run.recipe, contrastive=0))
    assert run.recipe.contrastive == run.recipe.images == 64 * cost.steps(run)
    # Ten images for each labelled one in AdaMatch's step, and two views of each before it.
    assert cost.length(run) == pytest.approx(1.2 * cost.length(without))
    estimates = [cost.Rates().estimate(each) for each in (run, without)]
    assert estimates[0].seconds == pytest.approx(1.2 * estimates[1].seconds)
    assert estimates[0].steps == estimates[1].steps
    lines = [
        cost.step_times([each], {each.id: estimate}) for each, estimate in zip((run, without), estimates, strict=True)
    ]
    assert lines[0] == lines[1]  # a step is as long as it was


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"method": "baseline_bn"}, True),
        ({"method": "supervised"}, False),
        ({"method": "noisystudent"}, False),
        ({"weights": f"{resume.FROM}0123456789"}, False),
        ({"weights": "timm:a"}, True),
        ({"method": "one of another version"}, True),
    ],
)
def test_learning_without_labels_counts_where_it_is_done(changes: dict[str, str], counts: bool) -> None:
    """Not where the method never looks at such images, nor where the run goes on with an earlier one's model."""
    run = Run(benchmark="digitfive", task="ssl", target="svhn", labels=5, budget="fast")
    run = replace(run, **changes)  # type: ignore[arg-type]
    assert run.recipe.contrastive > 0
    assert (cost.length(run) > cost.steps(run)) == counts


def test_nothing_measured_is_an_assumption_that_says_so() -> None:
    run = Run(benchmark="digitfive")
    estimate = cost.Rates().estimate(replace(run, recipe=replace(run.recipe, network="my own")))
    assert estimate.basis == cost.ASSUMPTION
    as_many = 3 * 640 * 2e9 * cost.NETWORKS["resnetv2-101"][0] * (32 / 224) ** 2  # of no known network: as the largest
    assert estimate.seconds == pytest.approx(
        524_288 * as_many / (3 * 640 * 2e9 * cost.NETWORKS["wrn-28-2"][0] / 0.0068)
    )


def test_what_is_known_is_what_the_repositorys_files_say() -> None:
    """The package carries its step times: a plan is the same away from the repository as in it."""
    results = Path(__file__).parents[2] / "results"
    of_files = [each for name in ("step28", "step34", "step101") for each in cost._of_file(results / f"{name}.json")]
    on_gpu = [each for each in cost.KNOWN if each.machine == "NVIDIA H200, bf16, compiled, CUDA graph"]
    assert len(of_files) == len(on_gpu) == 7
    for known, of_file in zip(on_gpu, of_files, strict=True):
        assert (known.shape, known.machine) == (of_file.shape, of_file.machine)
        assert known.seconds == pytest.approx(of_file.seconds, abs=5e-6 + 1e-9)

    on_cpu = [each for each in cost.KNOWN if each not in on_gpu]
    of_runs = cost.measurements(results / "handwriting")
    assert {each.shape for each in on_cpu} == {each.shape for each in of_runs}
    for known in on_cpu:
        mine = [each.seconds for each in of_runs if (each.shape, each.machine) == (known.shape, known.machine)]
        assert known.seconds == pytest.approx(statistics.median(mine), abs=5e-5 + 1e-9)


def test_ones_own_measurements_go_before_what_is_known() -> None:
    run = Run(benchmark="digitfive")
    known = cost.Rates().estimate(run)
    assert known.seconds == pytest.approx(0.0068 * 524_288)
    assert known.basis == "measured on NVIDIA H200, bf16, compiled, CUDA graph"
    slower = cost.Rates([cost.Measured(cost.shape(replace(run, method="supervised")), 0.03, "a GPU of mine")])
    assert slower.estimate(run).seconds == pytest.approx(known.seconds * 0.03 / 0.00303)
    assert slower.estimate(run).basis.endswith("on a GPU of mine")


def test_measured_results_and_step_times_are_used(tmp_path: Path) -> None:
    run = Run(benchmark="digitfive", recipe=recipe("digitfive", images=6400))  # 100 steps
    folder = tmp_path / "runs" / run.name
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(fakes.result(run, seconds=2.0)))
    (tmp_path / "shared.json").write_text(json.dumps(fakes.result(run, seconds=9.0) | {"at_a_time": 5}))  # says nothing
    (tmp_path / "several.json").write_text(json.dumps(fakes.result(run, seconds=9.0) | {"ranks": 8}))  # nor does this
    for number, text in enumerate(
        ["[1, 2]", '{"rows": [1, 2]}', '{"run": {"recipe": {}}, "seconds": 1}', '{"run": 3, "seconds": 1}']
    ):
        (tmp_path / f"result-that-is-none-{number}.json").write_text(text)
    rows = [
        {"network": "wrn-34-2", "size": 64, "method": "adamatch", "strong": "cta", "batch": 64, "ms": 40.0},
        {"network": "wrn-34-2", "size": 64, "method": "plain adamatch", "ms": 400.0},
        {
            "network": "wrn-34-2",
            "size": 64,
            "method": "adamatch",
            "strong": "cta",
            "batch": 64,
            "ms": 90.0,
            "kernels": False,
        },
    ]
    (tmp_path / "step.json").write_text(json.dumps({"machine": "a GPU", "rows": rows}))
    rates = cost.Rates(cost.measurements(tmp_path))
    assert len(rates.measured) == 2

    other = Run(benchmark="digitfive", source="usps", target="svhn", seed=5)
    assert rates.estimate(other).seconds == pytest.approx(0.02 * 524_288)
    assert rates.estimate(other).basis == "measured on 1 CPU threads, fp32"
    assert rates.estimate(Run(benchmark="domainnet64")).seconds == pytest.approx(0.04 * 131_072)
    # FixMatch+ forwards 2 x (64 + 192) images where AdaMatch forwards 2 x (64 + 64 + 192).
    scaled = rates.estimate(Run(benchmark="domainnet64", method="fixmatch+"))
    assert scaled.seconds == pytest.approx(0.04 * 131_072 * 512 / 640)
    assert scaled.basis.startswith("scaled")
    assert rates.estimate(Run(benchmark="domainnet224")).basis.startswith("scaled from other steps of resnetv2-101")


def test_noisystudents_step_is_a_supervised_one_and_the_same_method_is_the_best_to_scale_from() -> None:
    uda = Run(benchmark="digitfive")
    supervised, adamatch = cost.shape(replace(uda, method="supervised")), cost.shape(uda)
    rates = cost.Rates([cost.Measured(supervised, 0.003, "a GPU"), cost.Measured(adamatch, 0.007, "a GPU")])
    assert rates.estimate(replace(uda, method="noisystudent")).seconds == pytest.approx(2 * 0.003 * 524_288)
    # Two labelled pools: 896 images where there were 640.
    ssda = rates.estimate(replace(uda, task="ssda", labels=1))
    assert ssda.seconds == pytest.approx(0.007 * 524_288 * 896 / 640)


def test_a_step_is_scaled_as_both_were_measured_on_one_machine() -> None:
    uda = Run(benchmark="digitfive")
    rates = cost.Rates([cost.Measured(cost.shape(uda), 0.0136, "half a GPU")])  # 6.80 ms on a whole one
    assert rates.estimate(replace(uda, method="noisystudent")).seconds == pytest.approx(
        2 * 0.00606 * 524_288
    )  # 3.03 ms


def test_the_fastest_machine_counts_by_its_median() -> None:
    run = Run(benchmark="digitfive")
    shape = cost.shape(run)
    slow = [cost.Measured(shape, seconds, "slow") for seconds in (1.0, 1.0, 0.1)]
    fast = [cost.Measured(shape, seconds, "fast") for seconds in (0.5, 0.6, 9.0)]
    estimate = cost.Rates([*slow, *fast]).estimate(run)
    assert estimate.seconds == pytest.approx(0.6 * 524_288)
    assert estimate.basis == "measured on fast"
