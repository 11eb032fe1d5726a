"""Several seeds of one run: what is trained, dropped and made of them."""

import copy
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import TINY, arrays, network
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner
from verdict import made

import adamatch
from adamatch import networks, seeds
from adamatch.ask.target import Target
from adamatch.base import ranks
from adamatch.base.errors import InputError, Interruption
from adamatch.cli import app
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.experiment import train
from adamatch.images.user_data import UserData
from adamatch.prepare import Training, prepare
from adamatch.train import loop, speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import between_seeds, eval_outputs
from adamatch.verdict.eval_outputs import EvalOutputs

TARGET = arrays(30, seed=1, dark=60)
TRUE, HELD = made.labels([1, 1, 1, 1], 600, seed=1), made.labels([1, 1, 1, 1], 200)


def fit(out: Path, **more: Any) -> adamatch.Model:
    torch.manual_seed(0)  # for the network's first weights
    given = {"source": arrays(60), "target": TARGET[0], "network": network(norm=True), "twin": False, "seeds": 3}
    return adamatch.fit(**{**given, "out": out, **TINY, "images": 32, **more})


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    both = weights(one), weights(other)
    return all(torch.equal(value, both[1][name]) for name, value in both[0].items())


def facts(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())["seeds"]
    return found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three seeds, with a test set and a twin."""
    out = tmp_path_factory.mktemp("three") / "run"
    fit(out, network="wrn-tiny", test=TARGET, twin=True)
    return out


def test_one_seed_is_the_run_that_it_was(three: Path, tmp_path: Path) -> None:
    run = Run(seed=3, seeds=3)
    assert Run(seed=3).id == Run(seed=3, seeds=1).id == run.each_seed[0].id != run.id
    assert [(each.seed, each.seeds, each.first_seed) for each in run.each_seed] == [(3, 1, None), (4, 1, 3), (5, 1, 3)]
    assert Run(seed=3).each_seed == [Run(seed=3)]
    fit(tmp_path / "run", network="wrn-tiny", test=TARGET, seeds=1)
    assert not (tmp_path / "run/seeds").exists()
    assert "seeds" not in json.loads((tmp_path / "run/result.json").read_text())
    assert same(tmp_path / "run", three / "seeds/0")


def test_seeds_start_alike_and_end_apart(three: Path, tmp_path: Path) -> None:
    run = Run(seeds=3, recipe=Recipe(network="wrn-tiny", size=8, images=32, batch=4, weight_decay=0.0))
    problem = UserData(8, quiet=True).problem(arrays(60), TARGET[0], None, None, None, 0)
    execution = Execution(speed.choose("cpu"), quiet=True)
    nets = [prepare(Training(each, problem, RunFolder(tmp_path), execution)).step.net for each in run.each_seed]
    starts = [net.state_dict() for net in nets]
    assert all(torch.equal(starts[0][name], other[name]) for other in starts[1:] for name in other)
    assert not same(three / "seeds/0", three / "seeds/1")
    assert not same(three / "seeds/1", three / "seeds/2")


def test_what_is_left_is_a_run_like_any_other(three: Path, tmp_path: Path) -> None:
    model = adamatch.load(three)
    result = json.loads((three / "result.json").read_text())
    assert model.evaluate(TARGET).accuracy == pytest.approx(result["accuracy"])
    assert result["seeds"]["seeds"] == [0, 1, 2]
    assert result["seconds"] == pytest.approx(
        sum(json.loads((three / f"seeds/{each}/result.json").read_text())["seconds"] for each in range(3))
    )
    said = Target.read(three).said.classes
    assert [model.classes[each] for each in said] == list(model.predict(TARGET[0]).labels)
    assert len(model.ask(3, images=TARGET[0])) == 3
    model.export(tmp_path / "model.onnx")
    page = model.report().read_text()
    line = between_seeds.lines(result["seeds"])[0]
    assert line in page
    assert line in (three / "README.md").read_text().replace("\\", "")
    assert "seeds=3" in page  # in the command
    verified = CliRunner().invoke(app, ["verify", str(three)])
    assert verified.exit_code == 0, verified.output
    (three / "seeds/1/metrics.jsonl").rename(tmp_path / "kept")
    assert "seeds/1/metrics.jsonl is missing" in CliRunner().invoke(app, ["verify", str(three)]).output
    (tmp_path / "kept").rename(three / "seeds/1/metrics.jsonl")
    chosen = CliRunner().invoke(app, ["choose", *(str(three / f"seeds/{each}") for each in range(3))])
    assert chosen.exit_code == 0, chosen.output


def test_it_is_told_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path / "run", twin=True, quiet=False)
    printed, said = capsys.readouterr()
    assert "training 3 seeds one after another (3 times as long)" in said.splitlines()[1]
    assert [line for line in said.splitlines() if line.endswith(": training")] == [
        *(f"seed {number} of 3: training" for number in (1, 2, 3)),
        "twin: training",
    ]
    assert "7% to 13% more time" in said
    assert between_seeds.lines(facts(tmp_path / "run"))[0] in printed
    before = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    fit(tmp_path / "run", twin=True, quiet=False)
    assert "is finished, and is not trained again" in capsys.readouterr().err
    assert (tmp_path / "run/model.safetensors").stat().st_mtime_ns == before


def test_a_stop_in_the_middle_of_a_seed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = eval_outputs.OutputWriter.__call__

    def stop(self: eval_outputs.OutputWriter, net: Any, step: int) -> None:
        write(self, net, step)
        if self.folder.parent.name == "1" and step == 4:
            signal.raise_signal(signal.SIGINT)

    fit(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(eval_outputs.OutputWriter, "__call__", stop)
        with pytest.raises(Interruption, match=r"stopped at step 4 of 8, all of it saved in .*seeds/1"):
            fit(tmp_path / "run")
    first = (tmp_path / "run/seeds/0/model.safetensors").stat().st_mtime_ns
    assert not (tmp_path / "run/seeds/2").exists()
    fit(tmp_path / "run")
    assert (tmp_path / "run/seeds/0/model.safetensors").stat().st_mtime_ns == first
    assert same(tmp_path / "run", tmp_path / "whole")
    assert facts(tmp_path / "run") == facts(tmp_path / "whole")


@pytest.mark.parametrize("where", ["_result", "saved"])
def test_a_stop_after_the_last_seed_changes_nothing(
    where: str, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(seeds, where, stop)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "run", network="wrn-tiny", test=TARGET)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", stop)  # none is trained again
        fit(tmp_path / "run", network="wrn-tiny", test=TARGET)
    assert same(tmp_path / "run", three)
    assert facts(tmp_path / "run") == facts(three)


def test_the_middle_of_a_run_is_that_of_its_steps() -> None:
    run = made.outputs([0.3, 0.5, 0.7, 0.9], TRUE, HELD)
    for steps, middle in (((1, 2, 3, 4), 1), ((1, 10, 20, 100), 3), ((50, 60, 70, 100), 0)):
        found = between_seeds.middle_and_last(replace(run, steps=steps))
        assert np.array_equal(found.target, run.target[[middle, 3]])
        assert found.steps == (steps[middle], steps[3])


def outputs(right: float, seed: int, middle: float = 0.8) -> EvalOutputs:
    """Of a run: in its middle, and at its end."""
    target = np.stack([made.said(TRUE, 4, part, seed=seed) for part in (middle, right)])
    return EvalOutputs((50, 100), target, np.stack([made.said(HELD, 4, 0.9, seed=seed)] * 2), HELD)


def mistaken(found: EvalOutputs, part: float) -> EvalOutputs:
    """The same, with so many images of class 0 called 1 at the end."""
    rows = np.flatnonzero(TRUE == 0)[: int(part * (TRUE == 0).sum())]
    target = found.target.copy()
    target[-1][rows] = target[-1][rows][:, [1, 0, 2, 3]]
    return replace(found, target=target)


def test_a_seed_that_fell_is_dropped() -> None:
    good = {seed: outputs(0.97, seed) for seed in (0, 1, 2)}
    assert between_seeds.compared(good)["dropped"] == []
    told = between_seeds.compared({**good, 1: mistaken(good[1], 0.6)})
    assert [(each["seed"], each["sign"]) for each in told["dropped"]] == [(1, "late")]
    assert told["dropped"][0]["agreement"] < 85 < 90 < told["dropped"][0]["others"]
    assert between_seeds.remaining(told) == [0, 2]
    assert told["nearest"] in (0, 2)
    assert [pair[:2] for pair in told["agreement"]] == [[0, 1], [0, 2], [1, 2]]
    early = replace(good[1], target=np.stack([mistaken(good[1], 1.0).target[-1]] * 2))  # it was so from the first
    sign = [each["sign"] for each in between_seeds.compared({**good, 1: early})["dropped"]]
    assert sign == ["information"]


def test_a_seed_is_kept_where_not_enough_speaks_against_it() -> None:
    good = {seed: outputs(0.97, seed) for seed in (0, 1, 2)}
    two = {seed: good[seed] for seed in (0, 2)} | {2: mistaken(good[2], 1.0)}
    assert between_seeds.compared(two)["dropped"] == []  # nobody knows which
    early = replace(good[1], target=np.stack([mistaken(good[1], 0.6).target[-1]] * 2))
    sure = np.full((*early.target.shape[:2], 4), 1e-6)
    np.put_along_axis(sure, early.target.argmax(-1)[..., None], 1.0, -1)
    assert between_seeds.compared({**good, 1: replace(early, target=sure)})["dropped"] == []  # no second sign
    exact = {seed: outputs(1.0, 5) for seed in (0, 1, 2)}
    assert between_seeds.compared({**exact, 1: mistaken(exact[1], 0.1)})["dropped"] == []  # 2.5 % are no fall
    hard = {seed: mistaken(outputs(0.8, seed), (seed == 1)) for seed in (0, 1, 2)}
    rates = [rate for *_, rate in between_seeds.compared(hard)["agreement"]]
    assert rates[1] > max(rates[0], rates[2]) + 5  # 0 and 2 are nearer to each other,
    assert between_seeds.compared(hard)["dropped"] == []  # but not by far


def test_of_five_seeds_a_minority_can_fall() -> None:
    good = {seed: outputs(0.97, seed) for seed in range(5)}
    fallen = {seed: mistaken(good[seed], 0.5 + 0.1 * seed) for seed in (1, 2, 3)}
    dropped = [each["seed"] for each in between_seeds.compared({**good, 1: fallen[1], 2: outputs(0.3, 9)})["dropped"]]
    assert dropped == [2, 1]
    four = {0: good[0], 1: fallen[3], 2: outputs(0.3, 9), 3: good[3]}
    assert [each["seed"] for each in between_seeds.compared(four)["dropped"]] == [2]


def test_a_spoiled_seed_is_not_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = eval_outputs.read

    def spoiled(folder: Path) -> EvalOutputs | None:
        found = read(folder)
        if found is None or folder.name != "1":
            return found
        return replace(found, target=np.concatenate([found.target[:-1], np.roll(found.target[-1:], 1, -1)]))

    monkeypatch.setattr(eval_outputs, "read", spoiled)
    out = tmp_path / "run"
    fit(out, network=network(norm=False), images=800, batch=8)
    found = facts(out)
    assert [each["seed"] for each in found["dropped"]] == [1]
    assert found["average"]
    ours, first, last = (weights(out / each) for each in ("", "seeds/0", "seeds/2"))
    assert all(torch.allclose(ours[name], (first[name] + last[name]) / 2, atol=1e-7) for name in ours)
    assert "Seed 1 was dropped: it agrees with the others on 0 %" in " ".join(between_seeds.lines(found))


def test_where_the_average_does_not_work_the_nearest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(nets: Iterator[nn.Module]) -> nn.Module:
        net = copy.deepcopy(next(nets))
        for each in net.parameters():
            nn.init.zeros_(each)
        return net

    monkeypatch.setattr(seeds, "mean_of", nothing)
    out = tmp_path / "run"
    fit(out)
    found = facts(out)
    assert not found["average"]
    assert found["target"][0] < found["target"][1]
    nearest = out / f"seeds/{found['nearest']}"
    assert same(out, nearest)
    ours, its = eval_outputs.read(out), eval_outputs.read(nearest)
    assert ours is not None
    assert its is not None
    assert np.array_equal(ours.last, its.last)
    line = between_seeds.lines(found)[-1]
    assert line.startswith(f"The model is seed {found['nearest']}, nearest to their mean prediction")


def test_the_average_has_to_be_no_worse_on_held_out_images() -> None:
    found = {seed: outputs(0.97, seed) for seed in (0, 1)}
    told = between_seeds.compared(found)
    mean = np.mean([each.last for each in found.values()], axis=0)[None]
    near = replace(found[told["nearest"]], target=mean)
    judged = between_seeds.judged(told, found, near)
    assert (judged["average"], judged["target"][0]) == (True, 100.0)
    assert "The model is the average of the weights of seeds 0 and 1" in between_seeds.lines(judged)[-1]
    worse = replace(near, source=made.said(HELD, 4, 0.5)[None])
    judged = between_seeds.judged(told, found, worse)
    assert (judged["average"], judged["target"][0]) == (False, 100.0)
    assert "of the held-out source images, this one on 9" in between_seeds.lines(judged)[-1]
    far = replace(near, target=np.roll(mean, 1, -1))
    judged = between_seeds.judged(told, found, far)
    assert (judged["average"], judged["source"][0]) == (False, judged["source"][1])
    none = {seed: replace(each, source=each.source[:, :0], source_labels=HELD[:0]) for seed, each in found.items()}
    judged = between_seeds.judged(told, none, replace(near, source=near.source[:, :0], source_labels=HELD[:0]))
    assert (judged["average"], judged["source"]) == (True, [None, None])


def test_labels_of_the_target_change_nothing(tmp_path: Path) -> None:
    images, labels = TARGET
    for name, given in (("true", labels), ("false", (labels + 1) % 3)):
        fit(tmp_path / name, test=(images, given))
    assert same(tmp_path / "true", tmp_path / "false")
    assert facts(tmp_path / "true") == facts(tmp_path / "false")
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("true", "false")]
    assert results[0]["accuracy"] != results[1]["accuracy"]


def test_a_test_set_may_come_later(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    before = weights(tmp_path / "run")
    assert adamatch.load(tmp_path / "run", net=network(norm=True)).history["accuracy"] is None
    model = fit(tmp_path / "run", test=TARGET)
    assert model.history["accuracy"] == pytest.approx(model.evaluate(TARGET).accuracy)
    assert all(torch.equal(before[name], value) for name, value in weights(tmp_path / "run").items())
    assert between_seeds.lines(model.history["estimate"]["seeds"])


def test_a_longer_run_starts_from_the_one_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    fit(out, images=16)
    fit(out, images=32)
    assert (out / "earlier/seeds/2/result.json").exists()
    runs = [Run.read(out / f"seeds/{seed}/run.json") for seed in range(3)]
    assert {each.continues for each in runs} == {Run.read(out / "earlier/run.json").id}
    result = json.loads((out / "seeds/1/result.json").read_text())
    assert str(out / "earlier") in result["weights"]


def test_frozen_blocks_stay_as_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    start = networks.build("efficientnet-lite0", 5).state_dict()
    save_file(start, tmp_path / "start.safetensors")
    given = {"network": "efficientnet-lite0", "weights": str(tmp_path / "start.safetensors"), "frozen": 11}
    fit(tmp_path / "run", source=arrays(12), **given, size=32, images=8, seeds=2, twin=True)
    ours, first, second = (weights(tmp_path / "run" / each) for each in ("", "seeds/0", "seeds/1"))
    below = [name for name in ours if torch.equal(start[name], first[name])]
    assert "conv_stem.weight" in below
    assert "bn1.running_var" in below
    assert len(below) > len(ours) / 3
    assert all(torch.equal(start[name], each[name]) for each in (second, ours) for name in below)
    assert not torch.equal(first["conv_head.weight"], second["conv_head.weight"])
    runs = [Run.read(tmp_path / "run" / each / "run.json") for each in ("seeds/1", "twin")]
    assert runs[0].seed == runs[1].seed  # whose features are still there


def test_every_seed_has_teachers_of_its_own(tmp_path: Path) -> None:
    fit(tmp_path / "run", method="noisystudent", seeds=2, images=16)
    assert (tmp_path / "run/seeds/1/generation-0/result.json").exists()
    assert facts(tmp_path / "run")["dropped"] == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"seeds": 0}, "seeds is a whole number from 1, not 0"),
        ({"seeds": -1}, "seeds is a whole number from 1, not -1"),
        ({"seeds": 65}, "seeds is a number from 1 to 64, not 65"),
        ({"seeds": "two"}, "seeds is a whole number from 1, not 'two'"),
        ({"seeds": None}, "seeds is a whole number from 1, not None"),
        ({"seed": 2**48}, "seed is a number from 0 to"),
        ({"network": "wrn-tiny", "frozen": "all"}, "every seed ends with the same one: leave out seeds"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        fit(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_several_processes_and_benchmarks_have_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "count", lambda: 2)
    seeds.check(1, trained=True)
    with pytest.raises(InputError, match="by one process: leave out seeds, or torchrun"):
        seeds.check(3, trained=True)
    monkeypatch.undo()
    with pytest.raises(InputError, match="several seeds are for fit"):
        train(Run(benchmark="handwriting", source="rendered", target="handwritten", seeds=2))


def test_another_number_of_seeds_is_another_run(tmp_path: Path) -> None:
    fit(tmp_path / "run", seeds=2)
    with pytest.raises(InputError, match="seeds was 2 and is 3 now"):
        fit(tmp_path / "run")
    fit(tmp_path / "run", overwrite=True)
    assert facts(tmp_path / "run")["seeds"] == [0, 1, 2]
