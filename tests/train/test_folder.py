"""A run's folder belongs to one run and one process."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from train import tiny

from adamatch.errors import InputError
from adamatch.train.folder import RunFolder
from adamatch.train.speed import Captured

LINES = '{"step": 3, "a": 1}\n{"step": 6}\n{"step": 9}\n{"ste'


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    first = tiny.solve(run, out)
    files = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert {"run.json", "metrics.jsonl", "model.safetensors", "model.json", "result.json"} <= {path.name for path in files}
    assert not (out / "checkpoints").exists()
    monkeypatch.setattr(Captured, "__call__", lambda *_: pytest.fail("it was trained again"))
    again = tiny.solve(run, out)
    assert tiny.same(first.net.state_dict(), again.net.state_dict())
    assert files == {path: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_an_unfinished_run_of_another_form_is_said_to_be_one(tmp_path: Path) -> None:
    run = tiny.a_run(method="noisystudent")
    with RunFolder(tmp_path / "run").claim(replace(run, form=0)):
        (tmp_path / "run" / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="of an earlier version, in which"), RunFolder(tmp_path / "run").claim(run):
        pass


def test_another_run_is_refused_unless_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    tiny.solve(tiny.a_run(method="noisystudent"), out)
    for other in (tiny.a_run(), tiny.a_run(method="noisystudent", seed=1), tiny.a_run(method="noisystudent", lr=0.1)):
        with pytest.raises(InputError, match=r"holds another run \(.+ here\): choose another folder, or give --overwrite"):
            tiny.solve(other, out)
    tiny.solve(tiny.a_run(), out, overwrite=True)
    assert json.loads((out / "result.json").read_text())["id"] == tiny.a_run().id
    assert not (out / "generation-0").exists()


def test_overwrite_begins_anew(tmp_path: Path) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    tiny.solve(run, out)
    before = (out / "result.json").stat().st_mtime_ns
    tiny.solve(run, out, overwrite=True)
    assert (out / "result.json").stat().st_mtime_ns > before
    assert [row["step"] for row in tiny.rows(out)] == [3, 6, 9, 12]


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


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    run = tiny.a_run()
    tiny.in_process(tiny.doomed, run.to_json(), tmp_path / "run", "step 2")
    with RunFolder(tmp_path / "run").claim(run):
        pass


def test_options_that_json_writes_in_another_way_are_the_same_run(tmp_path: Path) -> None:
    run = tiny.a_run(options={"align": "target", "target": (0.25, 0.25, 0.5)})
    for _ in range(2):
        with RunFolder(tmp_path).claim(run):
            pass


@pytest.mark.parametrize("text", ["", '{"bench', "[]", "{}", '{"colour": 3, "recipe": {}}'])
def test_a_damaged_run_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    folder = RunFolder(tmp_path)
    with pytest.raises(InputError, match=r"run\.json cannot be read"), folder.claim(tiny.a_run()):
        pass
    with folder.claim(tiny.a_run(), overwrite=True):
        pass


def test_a_path_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="cannot be written"), RunFolder(path).claim(tiny.a_run()):
            pass


def test_metrics_are_cut_back_to_a_step(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)
    folder = RunFolder(tmp_path)
    folder.rewind(9)
    assert [row["step"] for row in tiny.rows(tmp_path)] == [3, 6, 9]
    folder.append({"step": 12})
    folder.rewind(6)
    folder.append({"step": 9, "new": True})
    assert tiny.rows(tmp_path) == [{"step": 3, "a": 1}, {"step": 6}, {"step": 9, "new": True}]
    folder.rewind(0)
    assert tiny.rows(tmp_path) == []
