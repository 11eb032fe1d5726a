"""Several ranks compute what one process does, in float64, for every method and task."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from train import several, tiny

from adamatch.base import ranks
from adamatch.config.run import Run
from adamatch.train import distributed
from adamatch.train.execution import Execution

METHODS: dict[str, dict[str, Any]] = {
    "adamatch": {},
    "mcd": {"method": "mcd"},
    "fixmatch+": {"method": "fixmatch+", "tau": 0.6},
    "noisystudent": {"method": "noisystudent", "tau": 0.45},
    "baseline_bn": {"method": "baseline_bn"},
    "supervised": {"method": "supervised"},
    "begun": {"simclr_images": 32, "batch": 4, "images": 24},
    "ablated": {"options": {"align": "labels", "interpolate": False}},
}
TASKS: dict[str, dict[str, Any]] = {
    "uda": {},
    "ssl": {"task": "ssl", "labels": 3},
    "ssda": {"task": "ssda", "labels": 2},
    "oracle": {"task": "oracle"},
}
CASES: dict[str, Run] = {
    f"{method} {task}": several.a_run(**METHODS[method], **TASKS[task]) for task in TASKS for method in METHODS
}
FAST = (
    "adamatch uda",
    "adamatch ssda",
    "begun ssl",
    "mcd uda",
    "fixmatch+ ssl",
    "noisystudent uda",
    "supervised oracle",
)


def chosen(*names: str) -> dict[str, Run]:
    return {name: CASES[name] for name in names}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process does."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("alone")
    several.do(chosen(*FAST), folder)
    return folder


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    assert several.on_ranks(2, several.do, chosen(*FAST), folder) == [0, 0]
    return folder


def measured(out: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in tiny.rows(out)]


def check(name: str, found: Path, alone: Path) -> None:
    """Weights, their averages, running statistics, class averages, CTAugment's rates, momenta; and the metrics."""
    state = several.state(alone / name)
    several.assert_equal(several.state(found / name), state)
    assert any("policy.rates" in key for key in state)
    assert any("running_var" in key for key in state)
    assert all(
        value.dtype == torch.float64 for key, value in state.items() if "net." in key and value.is_floating_point()
    )
    rows, wanted = measured(found / name), measured(alone / name)
    assert [row["target"] for row in rows] == [row["target"] for row in wanted]
    for row, other in zip(rows, wanted, strict=True):
        assert row.keys() == other.keys()
        for key, value in row.items():
            assert value == pytest.approx(other[key], abs=1e-9), key


@pytest.mark.parametrize("name", FAST)
def test_two_ranks_do_what_one_process_does(name: str, on_two: Path, alone: Path) -> None:
    check(name, on_two, alone)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_every_method_on_every_task(count: int, tmp_path: Path) -> None:
    several.do(CASES, tmp_path / "alone")
    assert several.on_ranks(count, several.do, CASES, tmp_path / "several", seconds=600) == [0] * count
    for name in CASES:
        check(name, tmp_path / "several", tmp_path / "alone")


def test_the_comparison_sees_something_happen(alone: Path) -> None:
    """Pseudo-labels are used, and the teacher is sure of some images and not of all."""
    for name in ("adamatch uda", "fixmatch+ ssl"):
        assert any(0 < row["mask"] < 1 for row in tiny.rows(alone / name))
    state = several.state(alone / "adamatch uda")
    assert (state["adamatch uda views.policy.rates"] != 1).sum() > 50
    assert len({row["target"] for row in tiny.rows(alone / "adamatch uda")}) > 1


def test_begun_on_two_ranks_and_ended_on_one(tmp_path: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = chosen("adamatch ssda")
    assert several.on_ranks(2, several.do, case, tmp_path, 5) == [0, 0]
    assert [path.name for path in (tmp_path / "adamatch ssda/checkpoints").glob("*.json")] == ["step-000000008.json"]
    said: list[str] = []
    monkeypatch.setattr(Execution, "say", lambda self, line: said.append(line))
    several.do(case, tmp_path)
    assert "resuming from step 8 of 12" in said
    assert any("on 2 ranks before and is on 1 now" in line and "not the same bit for bit" in line for line in said)
    several.assert_equal(several.state(tmp_path / "adamatch ssda"), several.state(alone / "adamatch ssda"))
    found, wanted = ([row["target"] for row in tiny.rows(folder / "adamatch ssda")] for folder in (tmp_path, alone))
    assert found == wanted


class Foreign(nn.Module):
    """Somebody's own network, with batch norm of PyTorch, and other random numbers on every rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(100 + ranks.rank())
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


def statistics_of_their_own(folder: Path) -> None:
    """All ranks end with the same weights and running statistics."""
    with distributed.joined(several.CPU):
        ends = []
        for name, changes, net in (
            ("foreign", {}, Foreign()),
            ("per rank", {"batch_norm": "rank"}, None),
            ("global", {}, None),
        ):
            seconds = 1000.0 * ranks.rank()  # ranks whose clocks differ do not wait for each other
            model = tiny.solve(several.a_run(**changes), folder / name, net=net, seconds_per_checkpoint=seconds)
            ends.append({key: value.double().sum().item() for key, value in model.net.state_dict().items()})
            first, second = ranks.everyone(ends[-1])
            assert first == second, name
        assert ends[1] != ends[2]
        again = tiny.solve(several.a_run(), folder / "global")  # done: every rank has the model that rank 0 reads
        assert {key: value.double().sum().item() for key, value in again.net.state_dict().items()} == ends[2]
        assert "accuracy" in again.history


def test_ranks_stay_the_same_where_statistics_are_their_own(tmp_path: Path) -> None:
    assert several.on_ranks(2, statistics_of_their_own, tmp_path) == [0, 0]
