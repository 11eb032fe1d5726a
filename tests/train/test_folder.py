"""A run's folder belongs to one run and one process."""

import itertools
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from damage import STRANGE, VALUES, changed
from train import tiny

from adamatch.base.errors import InputError
from adamatch.model import Model
from adamatch.train import checkpoint
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    first = tiny.solve(run, out)
    files = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    wanted = {"run.json", "metrics.jsonl", "model.safetensors", "model.json", "result.json"}
    assert wanted <= {path.name for path in files}
    assert not (out / "checkpoints").exists()
    monkeypatch.setattr(Captured, "__call__", lambda *_: pytest.fail("it was trained again"))
    again = tiny.solve(run, out)
    assert tiny.same(first.net.state_dict(), again.net.state_dict())
    assert files == {path: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_another_run_is_refused_unless_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    tiny.solve(tiny.a_run(method="noisystudent"), out)
    for other in (tiny.a_run(), tiny.a_run(method="noisystudent", seed=1), tiny.a_run(method="noisystudent", lr=0.1)):
        with pytest.raises(
            InputError, match=r"holds another run \(\w+ was .+ now\): choose another folder, or give overwrite=True"
        ):
            tiny.solve(other, out)
    before = (out / "result.json").stat().st_mtime_ns
    tiny.solve(tiny.a_run(method="noisystudent"), out, overwrite=True)  # the same run begins anew
    assert (out / "result.json").stat().st_mtime_ns > before
    assert [row["step"] for row in tiny.rows(out)] == [3, 6, 9, 12]
    tiny.solve(tiny.a_run(), out, overwrite=True)
    assert json.loads((out / "result.json").read_text())["id"] == tiny.a_run().id
    assert not (out / "generation-0").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_left_alone(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "figures").mkdir()
    with pytest.raises(InputError):
        tiny.solve(tiny.a_run(), tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "figures").is_dir()


def test_an_empty_folder_will_do_and_one_left_half_written_too(tmp_path: Path) -> None:
    (tmp_path / ".run.json.part").write_text('{"bench')
    with RunFolder(tmp_path).claim(tiny.a_run()):
        pass
    assert (tmp_path / "run.json").read_text() == tiny.a_run().to_json()


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    ready, done = tmp_path / "ready", tmp_path / "done"
    holder = threading.Thread(target=tiny.in_process, args=(tiny.holding, out, run.to_json(), ready, done))
    holder.start()
    try:
        while not ready.exists():
            time.sleep(0.01)
        for overwrite in (False, True):
            with pytest.raises(InputError, match="is being used by another process"):
                tiny.solve(run, out, overwrite=overwrite)
    finally:
        done.touch()
        holder.join()
    with RunFolder(out).claim(run):
        pass


def test_options_that_json_writes_in_another_way_are_the_same_run(tmp_path: Path) -> None:
    run = tiny.a_run(options={"align": "target", "target": (0.25, 0.25, 0.5)})
    for _ in range(2):
        with RunFolder(tmp_path).claim(run):
            pass


def test_a_run_that_was_stopped_before_it_did_anything_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "run").claim(tiny.a_run()):
        raise KeyboardInterrupt
    with RunFolder(tmp_path / "run").claim(tiny.a_run(seed=1)):  # which is another one
        pass


def test_a_path_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="cannot be written"), RunFolder(path).claim(tiny.a_run()):
            pass


def test_metrics_are_cut_back_to_a_step(tmp_path: Path) -> None:
    path, folder = tmp_path / "metrics.jsonl", RunFolder(tmp_path)
    strange = [*STRANGE, '{"step": []}', '{"step": "3"}', '{"step": 1e999}', '{"step": NaN}', "\x85", "\r", '{"ste']
    path.write_text("\n".join(['{"step": 3, "a": 1}', *strange, '{"step": 6}', '{"step": 9}', ""]))
    with path.open("ab") as file:
        file.write(b'\xff\xfe{"step": 6}\n')
    folder.rewind(9)
    assert [row["step"] for row in tiny.rows(tmp_path)] == [3, 6, 9]
    folder.append({"step": 12})
    folder.rewind(6)
    folder.append({"step": 9, "new": True})
    assert tiny.rows(tmp_path) == [{"step": 3, "a": 1}, {"step": 6}, {"step": 9, "new": True}]
    folder.rewind(0)
    assert tiny.rows(tmp_path) == []


def test_a_damaged_run_json_is_named_and_can_be_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(tiny.a_run().to_json())
    recipe = json.loads(tiny.a_run().to_json())["recipe"]
    texts = [*STRANGE, '{"bench', '{"colour": 3, "recipe": {}}']
    texts += [changed(path, name, value) for name in ("method", "options", "labels") for value in VALUES]
    texts += [changed(path, "recipe", recipe | {name: value}) for name in ("batch", "lr") for value in VALUES]
    for text in texts:
        path.write_text(text)
        with pytest.raises(InputError) as error, RunFolder(tmp_path).claim(tiny.a_run(seed=5)):
            pass
        assert str(error.value).startswith((f"{path} cannot be read", f"{tmp_path} holds another run")), text[:200]
        assert "\n" not in str(error.value)
    with RunFolder(tmp_path).claim(tiny.a_run(), overwrite=True):
        pass


def test_a_result_that_was_changed_is_named(tmp_path: Path) -> None:
    folder, path = RunFolder(tmp_path), tmp_path / "result.json"
    facts = {"id": "x", "accuracy": 12.5, "seconds": 3, "evaluations": [{"target": 12.5}], "run": {}}
    folder.finish(facts)
    assert folder.result() == facts
    for text in [path.read_text().replace("12.5", "92.5", 1), *STRANGE, changed(path, "accuracy", "x")]:
        path.write_text(text)
        if text != "{}":
            with pytest.raises(InputError, match=r"result\.json is damaged: remove it"):
                folder.result()


def test_killed_while_it_is_emptied_it_is_no_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any moment: neither done without a model, nor a folder that nobody may use."""
    run, out = tiny.a_run(), tmp_path / "run"
    tiny.solve(run, tmp_path / "done")
    for number in itertools.count(1):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "done", out)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", tiny.raising(os.unlink, number, KeyboardInterrupt()))
            try:
                with RunFolder(out).claim(run, overwrite=True):
                    break  # all of it was removed
            except KeyboardInterrupt:
                pass
        assert not (out / "result.json").exists() or all(
            (out / f"model.{end}").exists() for end in ("json", "safetensors")
        )
        with RunFolder(out).claim(run):
            pass
    assert number > 5


MOMENTS: dict[str, tuple[Any, str]] = {
    "step": (Captured, "__call__"),
    "line": (RunFolder, "append"),
    "checkpoint": (checkpoint, "save"),
    "model": (Model, "save"),
    "result": (RunFolder, "finish"),
}


@pytest.mark.parametrize(("method", "made_anew"), [("adamatch", True), ("noisystudent", False)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_folder_that_is_removed_under_way_is_an_error(
    method: str, made_anew: bool, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, (owner, name) = tmp_path / "run", MOMENTS[moment]

    def remove() -> None:
        shutil.rmtree(out)
        if made_anew:
            out.mkdir()

    monkeypatch.setattr(owner, name, getattr(owner, name))  # to be undone
    tiny.at_call(owner, name, 1, remove)
    with pytest.raises(InputError, match="was removed while the run was running: run the same command again"):
        tiny.solve(tiny.a_run(method=method), out)
    assert not (out / "result.json").exists()


def test_what_a_killed_process_left_half_written_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    tiny.in_process(tiny.doomed, tiny.a_run().to_json(), out, "tensors 2")
    (out / "checkpoints" / ".step-000000003.safetensors.1234.part").write_bytes(b"half")
    (out / ".model.safetensors.5678.part").write_bytes(b"half")
    (out / "checkpoints" / "step-000000001.safetensors").write_bytes(b"without its JSON file")
    monkeypatch.setattr(RunFolder, "finish", lambda *_: None)  # which removes the checkpoints
    tiny.solve(tiny.a_run(), out)
    assert list(out.rglob("*.part")) == []
    assert len(list((out / "checkpoints").iterdir())) == 4
