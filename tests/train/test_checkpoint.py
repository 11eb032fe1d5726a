"""What happens to a checkpoint that is damaged, or that meets a full disk."""

import errno
import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import STRANGE, changed
from safetensors import SafetensorError
from torch import nn
from train import tiny

from adamatch.base.errors import InputError, Interruption
from adamatch.base.files import sealed, unsealed
from adamatch.config.run import Run
from adamatch.train import checkpoint
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7), "state": torch.arange(5, dtype=torch.uint8)}


def flip(path: Path, count: int = 8) -> None:
    data = bytearray(path.read_bytes())
    for place in random.sample(range(len(data)), min(count, len(data))):
        data[place] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def reseal(path: Path, **changes: Any) -> None:
    """Other facts, and a checksum that is right."""
    path.write_text(json.dumps(sealed(unsealed(json.loads(path.read_text())) | changes)))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped tensors": lambda path: flip(path),
    "one bit of the tensors": lambda path: flip(path, 1),
    "one bit of a value": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "half the tensors": halve,
    "no tensors": Path.unlink,
    "one bit of the JSON": lambda path: flip(path.with_suffix(".json"), 1),
    "half the JSON": lambda path: halve(path.with_suffix(".json")),
    "no checksum of its own": lambda path: path.with_suffix(".json").write_text(
        changed(path.with_suffix(".json"), "step", 2)
    ),
    "another step": lambda path: reseal(path.with_suffix(".json"), step=1),
    "a step that is no number": lambda path: reseal(path.with_suffix(".json"), step="2"),
}
for text in STRANGE:
    DAMAGES[f"JSON {text[:9]!r}"] = partial(lambda text, path: path.with_suffix(".json").write_text(text), text)


def loaded(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    found = checkpoint.load(folder, pytest.fail)
    assert found is not None
    return found


def test_two_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path / "nowhere", pytest.fail) is None
    assert checkpoint.newest(tmp_path / "nowhere") is None
    facts = {"evaluations": [{"target": 12.5, "loss": float("inf")}], "seconds": 0.1}
    for step in (5, 70, 1_000_000):
        checkpoint.save(tmp_path, step, TENSORS | {"c": torch.tensor(float(step))}, facts)
    assert len(list(tmp_path.iterdir())) == 4
    tensors, read = loaded(tmp_path)
    assert tiny.same(tensors, TENSORS | {"c": torch.tensor(1e6)})
    assert {name: read[name] for name in ("step", *facts)} == {"step": 1_000_000, **facts}
    assert checkpoint.newest(tmp_path) == tmp_path / "step-001000000.safetensors"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_named_and_the_one_before_it_used(damage: str, tmp_path: Path) -> None:
    for step in (1, 2):
        path = checkpoint.save(tmp_path, step, TENSORS, {"seconds": 123.4})
    DAMAGES[damage](path)
    said: list[str] = []
    found = checkpoint.load(tmp_path, said.append)
    assert found is not None
    assert found[1]["step"] == 1
    assert said == [f"{path} is damaged: using the checkpoint before it, or starting anew where there is none"]


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    checkpoint.save(tmp_path, 1, net.state_dict(), {})
    tensors, _ = loaded(tmp_path)
    assert torch.equal(tensors["2.weight"], tensors["0.weight"])


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Path]:
    """A run that ended all at once in its step 9, with checkpoints of steps 3 and 6."""
    run, out = tiny.a_run(), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Captured, "__call__", tiny.raising(Captured.__call__, 9, Interruption("stopped")))
        with pytest.raises(Interruption):
            tiny.solve(run, out)
    assert sorted(path.name for path in (out / "checkpoints").glob("*.json")) == [
        "step-000000003.json",
        "step-000000006.json",
    ]
    return run, out


def resumes(run: Run, out: Path, whole: Path) -> None:
    """To the same weights and evaluations as an uninterrupted run."""
    tiny.solve(run, out)
    tiny.solve(run, whole)
    assert tiny.same(tiny.weights(out), tiny.weights(whole))
    assert [row["step"] for row in tiny.rows(out)] == [3, 6, 9, 12]


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_run_resumes_from_the_one_before_or_starts_again(
    damaged: int, stopped: tuple[Run, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = stopped
    paths = sorted((out / "checkpoints").glob("*.safetensors"), reverse=True)[:damaged]
    for path in paths:
        flip(path)
    resumes(run, out, tmp_path / "whole")
    said = capsys.readouterr().err  # though it is quiet
    assert all(f"{path} is damaged: using the checkpoint before it" in said for path in paths)


FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN_WRITES = {
    "tensors": (
        checkpoint,
        "save_file",
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ),
    "rename": (os, "replace", FULL),
    "JSON": (checkpoint, "write_atomically", FULL),
    "fsync": (os, "fsync", FULL),
    "denied": (checkpoint, "save_file", PermissionError(errno.EACCES, "Permission denied")),
}


@pytest.mark.parametrize("where", BROKEN_WRITES)
def test_a_failed_write_is_said_and_nothing_is_lost(
    where: str, stopped: tuple[Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = stopped
    owner, name, error = BROKEN_WRITES[where]
    before = sorted((out / "checkpoints").iterdir())
    save = checkpoint.save
    with monkeypatch.context() as patch:

        def broken(*args: Any) -> Path:
            patch.setattr(owner, name, tiny.raising(getattr(owner, name), 1, error))
            return save(*args)

        patch.setattr(checkpoint, "save", broken)
        with pytest.raises(InputError) as failed:
            tiny.solve(run, out)
    why, remedy = ("Permission denied", "see to that") if where == "denied" else ("the disk is full", "make room")
    line = f"{out}/checkpoints: the checkpoint of step 9 could not be written ({why}): {remedy} and run"
    assert str(failed.value).startswith(line)
    assert "\n" not in str(failed.value)
    assert sorted((out / "checkpoints").iterdir()) == before  # the older ones, and no rubbish beside them
    resumes(run, out, tmp_path / "whole")


@pytest.mark.parametrize("name", ["append", "finish"])
def test_a_disk_that_fills_up_elsewhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, name, tiny.raising(getattr(RunFolder, name), 1, FULL))
        with pytest.raises(InputError, match="run: the disk is full: make room and run the same command again"):
            tiny.solve(run, out)
    tiny.solve(run, out)
    assert json.loads((out / "result.json").read_text())["id"] == run.id


@pytest.mark.parametrize("change", ["lost", "shape", "kind", "step"])
def test_tensors_of_another_run(change: str, stopped: tuple[Run, Path]) -> None:
    run, out = stopped
    tensors, facts = loaded(out / "checkpoints")
    step = facts.pop("step") + (0 if change != "step" else 100)
    if change == "lost":
        del tensors["generator"]
    else:
        name = next(name for name in tensors if name.startswith("net."))
        tensors[name] = torch.zeros(2) if change == "shape" else tensors[name]
        tensors["generator"] = torch.zeros(3, dtype=torch.complex64) if change == "kind" else tensors["generator"]
    checkpoint.save(out / "checkpoints", step, tensors, facts)
    if change == "kind":  # of another length: as from another kind of device
        tiny.solve(run, out)
        return
    with pytest.raises(
        InputError, match=r"holds a checkpoint that this run cannot have written .*: give overwrite=True"
    ) as error:
        tiny.solve(run, out)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["read_json", "read_checked"])
def test_a_disk_that_cannot_be_read_loses_no_work(
    name: str, stopped: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than to start anew, as if there were no checkpoint, it ends."""
    run, out = stopped
    error = OSError(errno.EIO, "Input/output error")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, tiny.raising(getattr(checkpoint, name), 1, error))
        with pytest.raises(
            InputError, match=r"step-000000006\.safetensors cannot be read .Input/output error.: see to that"
        ):
            tiny.solve(run, out)
    tiny.solve(run, out)
