"""Memory: what a step needs is estimated, a batch that fits is named or chosen, and too little memory is one line."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from colours import TINY, arrays, network
from torch import Tensor, nn
from train import tiny

import adamatch
from adamatch import cli, networks
from adamatch.base import errors
from adamatch.base.errors import InputError
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.images.tasks import Problem, make_problem
from adamatch.train import memory
from adamatch.train.batches import Batches, method_of
from adamatch.train.execution import Execution
from adamatch.train.memory import Need
from adamatch.train.speed import Captured, Machine
from adamatch.train.step import Step

OUT_OF_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 10 GiB\nmore"
    ),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
    ),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
]


def posed(size: int) -> Problem:
    """Images of any size."""
    stores = [tiny.store(6, seed) for seed in (1, 2)]
    source, target = (replace(each, images=each.images.repeat(size // 8, 1).repeat(size // 8, 2)) for each in stores)
    return make_problem("uda", [source], target, {})


def of(name: str, size: int, batch: int, method: str = "adamatch") -> tuple[Run, Problem, nn.Module]:
    recipe = Recipe(network=name, size=size, images=8 * batch, batch=batch, weight_decay=0.0, strong="cutout")
    return Run(benchmark="x", method=method, recipe=recipe), posed(size), networks.build(name, 3)


def needed(name: str, size: int, batch: int, method: str = "adamatch", machine: Machine = tiny.CPU) -> Need:
    run, problem, net = of(name, size, batch, method)
    found = memory.need(net, method_of(run, problem, net), run.recipe, problem, machine)
    assert found is not None
    return found


def take_steps(name: str, size: int, batch: int, method: str, told: Path) -> None:
    """Two steps; into the file, the process's peak memory above what it had before."""
    torch.set_num_threads(1)
    run, problem, net = of(name, size, batch, method)
    step = Step(net, method_of(run, problem, net), run.recipe, tiny.CPU, print)
    batches = Batches(run, problem, step, Execution(tiny.CPU))
    before = in_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    for done in range(2):
        step(batches.next(done))
    told.write_text(str(in_memory("VmHWM") - before))


def in_memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells the most memory that was used"
)
@pytest.mark.parametrize(
    ("name", "size", "batch", "method"),
    [("wrn-28-2", 32, 3, "adamatch"), ("efficientnet-lite0", 64, 4, "adamatch"), ("efficientnet-lite0", 64, 8, "mcd")],
)
def test_an_estimate_is_what_a_step_takes_within_a_third(
    name: str, size: int, batch: int, method: str, tmp_path: Path
) -> None:
    assert tiny.in_process(take_steps, name, size, batch, method, tmp_path / "most") == 0
    most = int((tmp_path / "most").read_text())
    print(f"{needed(name, size, batch, method).of(batch) / most:.2f} of {most / 2**20:.0f} MiB")
    assert most / 1.33 < needed(name, size, batch, method).of(batch) < most * 1.33


@pytest.mark.parametrize(
    ("room", "batch"), [(0, 0), (100, 0), (109, 0), (110, 1), (129, 2), (130, 2), (179, 4), (180, 8), (800, 64)]
)
def test_the_largest_batch_that_fits(room: int, batch: int) -> None:
    need = Need(fixed=100, each=10)
    assert need.largest(room) == batch
    assert batch == 0 or need.of(batch) <= room


def test_an_estimate_leaves_network_method_and_random_numbers_alone() -> None:
    run, problem, net = of("wrn-tiny", 8, 4)
    net.eval()
    method = method_of(run, problem, net)
    before, drawn = copy.deepcopy([net.state_dict(), method.state_dict()]), torch.get_rng_state()
    assert memory.need(net, method, run.recipe, problem, tiny.CPU) is not None
    assert torch.equal(drawn, torch.get_rng_state())
    for was, now in zip(before, (net.state_dict(), method.state_dict()), strict=True):
        assert all(torch.equal(was[name], now[name]) for name in was)
    assert all(each.device.type == "cpu" and each.grad is None for each in net.parameters())
    assert not net.training


class Counting(nn.Module):
    """A network that asks for numbers: nothing can be told of it beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits * float(x.mean() > -9)


def test_a_network_of_which_nothing_can_be_told_is_trained_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free", lambda device: 1)
    tiny.solve(tiny.a_run(), tmp_path / "run", net=Counting())


@pytest.mark.parametrize(
    ("room", "changes", "said"),
    [
        ("2", {"batch": 8}, r"a step of 8 labelled images needs about .* GiB are free: batch 2 would fit"),
        (1000, {}, "a smaller network or size may fit"),
        (2**33, {"batch": 2**20, "images": 2**20}, r"and 8\.0 GiB are free: batch \d+ would fit"),  # before it is made
    ],
)
def test_a_step_that_cannot_fit_is_refused_with_a_remedy(
    room: int | str, changes: dict[str, int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_free = room if isinstance(room, int) else bytes_of_a_step(int(room))
    monkeypatch.setattr(memory, "free", lambda device: bytes_free)
    with pytest.raises(InputError, match=f"{said}$") as refused:
        tiny.solve(tiny.a_run(**changes), tmp_path / "run")
    assert "\n" not in str(refused.value)
    if room == "2":
        tiny.solve(tiny.a_run(batch=2), tmp_path / "run")  # as it says, and in the same folder


def bytes_of_a_step(batch: int) -> int:
    run, problem, net = tiny.a_run(), tiny.problem(), networks.build("wrn-tiny", 3)
    takes = memory.need(net, method_of(run, problem, net), run.recipe, problem, tiny.CPU)
    assert takes is not None
    return takes.of(batch)


def test_a_step_that_may_not_fit_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room = int(bytes_of_a_step(4) / 1.2)
    monkeypatch.setattr(memory, "free", lambda device: room)
    tiny.solve(tiny.a_run(), tmp_path / "run")
    said = capsys.readouterr().err
    assert said.count("warning: a step of 4 labelled images needs about") == 1
    assert "batch 2 would fit" in said


def fit(out: Path, **changes: Any) -> adamatch.Model:
    given = {name: value for name, value in TINY.items() if name != "batch"} | {"images": 64, "twin": False} | changes
    return adamatch.fit(source=arrays(60), target=arrays(60, 1)[0], out=out, network=network(norm=True), **given)


def batch_of(out: Path) -> int:
    return int(json.loads((out / "run.json").read_text())["recipe"]["batch"])


def test_fit_chooses_a_batch_that_fits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Need] = []
    need: Callable[..., Any] = memory.need

    def noted(*given: Any) -> Need:
        found.append(need(*given))
        return found[-1]

    monkeypatch.setattr(memory, "need", noted)
    monkeypatch.setattr(memory, "free", lambda device: 1)
    with pytest.raises(InputError, match="may fit"):
        fit(tmp_path / "none")
    room = int(found[0].of(16) / memory.FILLED + 100_000)
    monkeypatch.setattr(memory, "free", lambda device: room)
    fit(tmp_path / "run", quiet=False)
    assert batch_of(tmp_path / "run") == 16
    said = " ".join(capsys.readouterr().err.split())
    assert "16 labelled images instead of 64, so that a step fits the free memory" in said


def test_a_run_goes_on_with_its_batch_whatever_is_free_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(tmp_path / "whole")
    assert batch_of(tmp_path / "whole") == 64  # there is room
    monkeypatch.setattr(memory, "fitting", lambda *given: 8)
    with monkeypatch.context() as patch:
        patch.setattr(Captured, "__call__", tiny.raising(Captured.__call__, 5, MemoryError()))
        with pytest.raises(InputError, match="out of memory"):
            fit(tmp_path / "run")
    assert batch_of(tmp_path / "run") == 8
    monkeypatch.setattr(memory, "fitting", lambda *given: 64)
    fit(tmp_path / "run")
    assert batch_of(tmp_path / "run") == 8
    fit(tmp_path / "run", overwrite=True)
    assert batch_of(tmp_path / "run") == 64
    monkeypatch.setattr(memory, "fitting", lambda *given: 8)
    before = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    fit(tmp_path / "run")  # and the other way round
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == before


def test_a_batch_that_was_asked_for_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "fitting", lambda *given: 2)
    fit(tmp_path / "run", batch=4)
    assert batch_of(tmp_path / "run") == 4


@pytest.mark.parametrize("error", OUT_OF_MEMORY[:2], ids=["host", "GPU"])
def test_out_of_memory_is_one_line_and_the_same_command_goes_on(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.a_run()
    tiny.solve(run, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Captured, "__call__", tiny.raising(Captured.__call__, 5, error))
        with pytest.raises(InputError) as failed:
            tiny.solve(run, tmp_path / "run")
    where = " of the GPU" if "CUDA" in str(error) else ""
    assert str(failed.value) == (
        f"out of memory{where}: end what else uses it and run the same command again (it resumes from step 3), "
        "or start over with overwrite=True and a smaller batch"
    )
    tiny.solve(run, tmp_path / "run")
    assert tiny.same(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "whole"))
    assert [row["step"] for row in tiny.rows(tmp_path / "run")] == [3, 6, 9, 12]


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Captured, "__call__", tiny.raising(Captured.__call__, 2, RuntimeError("shapes cannot be multiplied"))
    )
    with pytest.raises(RuntimeError, match="shapes"):
        tiny.solve(tiny.a_run(), tmp_path / "run")


def test_out_of_memory_behind_another_error_is_recognised() -> None:
    """As where a CUDA graph is captured: the error that arrives is about the capture."""
    arrived = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    assert not errors.is_out_of_memory(arrived)
    arrived.__context__ = OUT_OF_MEMORY[1]
    assert errors.is_out_of_memory(arrived)


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: str(error)[:20] or "MemoryError")
def test_elsewhere_the_command_says_it_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: out of memory: end what else uses it, or give fewer or smaller images\n"
