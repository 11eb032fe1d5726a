"""A power loss at any moment: the run is done, with its model, or resumes, to the same weights bit for bit."""

from pathlib import Path
from typing import Any

import pytest
from train import power, tiny

from adamatch.base import files
from adamatch.model import Model, load
from adamatch.train import checkpoint, loop
from adamatch.train.run_folder import RunFolder

RUN = tiny.a_run(images=4 * 6, batch=4)  # six steps, two checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    tiny.solve(RUN, out)
    return out


def losses(root: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> power.Disk:
    """Do the run in root/run, and note what power losses would leave of it: at any time, or after training."""
    root.mkdir()
    disk = power.Disk(root)
    if part == "all":
        with disk.watched():
            tiny.solve(RUN, root / "run")
        return disk
    watch = disk.watched()
    trained = loop.train

    def then_watch(*args: Any) -> Any:
        done = trained(*args)
        watch.__enter__()
        return done

    monkeypatch.setattr(loop, "train", then_watch)
    tiny.solve(RUN, root / "run")
    watch.__exit__(None, None, None)
    monkeypatch.undo()
    return disk


def check(disk: power.Disk, there: Path, whole: Path, from_step: int = 0) -> dict[str, int]:
    """Start again from all that may be left; how often the run was done already, and how often it went on."""
    ended = {"done": 0, "went on": 0}
    for number, (tree, moment) in enumerate(disk.trees.items()):
        out = power.write(tree, there / str(number)) / "run"
        done = (out / "result.json").exists()
        ended["done" if done else "went on"] += 1
        try:
            if done:
                assert RunFolder(out).result()
                load(out, device="cpu")
            elif from_step:  # nothing is to be done again
                found = checkpoint.load(out / "checkpoints", print)
                assert found is not None
                assert found[1]["step"] == from_step
            tiny.solve(RUN, out)
        except Exception as error:
            raise AssertionError(f"{moment}: {sorted(name for name, _ in tree)}") from error
        assert tiny.same(tiny.weights(out), tiny.weights(whole)), moment
        assert [row["step"] for row in tiny.rows(out)] == [3, 6], moment
    return ended


def test_at_every_point_of_the_end(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = losses(tmp_path / "disk", monkeypatch, "end")
    # The model's tensors and its JSON, the manifest, result.json, the manifest: each file and its folder; then
    # checkpoints are removed.
    assert disk.calls["fsync"] == 10
    assert disk.calls["replace"] == 5
    assert disk.calls["unlink"] == 4
    ended = check(disk, tmp_path / "again", whole, from_step=6)
    assert min(ended.values()) > 3, ended


@pytest.mark.slow
def test_at_every_point_of_a_run(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = losses(tmp_path / "disk", monkeypatch, "all")
    ended = check(disk, tmp_path / "again", whole)
    assert ended["went on"] > 30, ended


real_sync = files.sync
BROKEN = {
    "no file is waited for": (files, "sync", lambda path: None if path.is_file() else real_sync(path)),
    "no name is waited for": (files, "sync", lambda path: None if path.is_dir() else real_sync(path)),
    "the model comes after the result": (Model, "save", lambda self, folder: folder),
}


@pytest.mark.parametrize("how", BROKEN)
def test_the_disk_finds_what_is_wrong(how: str, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = BROKEN[how]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, instead)
        disk = losses(tmp_path / "disk", monkeypatch, "end")
    with pytest.raises(AssertionError):
        check(disk, tmp_path / "again", whole, from_step=6)
