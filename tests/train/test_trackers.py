"""TensorBoard, W&B and MLflow get a run as metrics.jsonl has it. Each is read back by its own package."""

import json
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from train import tiny

from adamatch.base.errors import InputError, Interruption
from adamatch.train import loop, trackers

INSTALL = "is an extra of its own: pip install -e '.[wandb,mlflow]'"
BLOCK = 2**15  # of W&B's files, which are LevelDB's logs
Found = tuple[list[dict[str, float]], dict[str, Any], dict[str, Any]]  # rows, configuration, result


def test_tensorboard_can_read_the_events(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run, out = tiny.a_run(), tmp_path / "run"
    tiny.in_process(tiny.doomed, run.to_json(), out, "step 8")  # after a row that is measured again
    tiny.solve(run, out)
    found = reader.EventAccumulator(str(out / "events")).Reload()
    steps = [event.step for event in found.Scalars("target")]
    assert steps == [3, 6, 9, 12]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx([row["loss"] for row in tiny.rows(out)])


def read_mlflow(out: Path) -> Found:
    from mlflow import MlflowClient

    client, name = MlflowClient(), (out / "events/mlflow.txt").read_text()
    run = client.get_run(name)
    assert run.info.status == "FINISHED"
    losses, targets = (client.get_metric_history(name, metric) for metric in ("loss", "target"))
    rows = [{"step": a.step, "loss": a.value, "target": b.value} for a, b in zip(losses, targets, strict=True)]
    return rows, run.data.params, run.data.metrics


def records(file: Path) -> Iterator[bytes]:
    """Of a .wandb file: seven bytes, then parts with checksum, length and kind (whole, first, middle, last)."""
    content, at, record = file.read_bytes(), 7, b""
    while at < len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def read_wandb(out: Path) -> Found:
    from wandb.proto.wandb_internal_pb2 import Record

    rows: list[dict[str, float]] = []
    facts: dict[str, Any] = {}
    result: dict[str, Any] = {}
    names: set[str] = set()
    for file in sorted(out.glob("events/wandb/offline-run-*/*.wandb")):
        for _ in range(100):  # it is written after `finish` has come back
            told = [Record.FromString(content) for content in records(file)]
            if any(record.HasField("exit") for record in told):
                break
            time.sleep(0.1)
        for record in told:
            items = {"/".join(each.nested_key) or each.key: json.loads(each.value_json) for each in record.history.item}
            if items:
                rows.append(items | {"step": items["_step"]})
            facts |= {each.key: json.loads(each.value_json) for each in record.run.config.update}
            result |= {each.key: json.loads(each.value_json) for each in record.summary.update}
            names |= {record.run.run_id} - {""}
    assert names == {(out / "events/wandb.txt").read_text()}
    return rows, facts | {"recipe.lr": str(facts["recipe"]["lr"])}, result


READERS: dict[str, Callable[[Path], Found]] = {"wandb": read_wandb, "mlflow": read_mlflow}


@pytest.fixture(params=READERS)
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a tracker that is installed, all of which stays on this machine."""
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} {INSTALL}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return str(request.param)


def test_a_run_that_was_stopped_and_resumed_is_read_back(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "stop_agreed", lambda noted, done, last: done == 8)
        with pytest.raises(Interruption):
            tiny.solve(run, out, log=log)
    model = tiny.solve(run, out, log=log)
    rows, facts, result = READERS[log](out)
    assert [(row["step"], row["target"]) for row in rows] == [(row["step"], row["target"]) for row in tiny.rows(out)]
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in tiny.rows(out)])
    assert (facts["id"], facts["method"], facts["recipe.lr"]) == (run.id, "adamatch", "0.03")
    assert result["accuracy"] == pytest.approx(model.history["accuracy"])


def test_no_place_and_no_digest_of_images_is_told(log: str, tmp_path: Path) -> None:
    run = tiny.a_run(weights="/hidden-place/weights.pt", digests={"source": "5ec8e7d1"}, test="photos (5ec8e7d2)")
    (tmp_path / "run").mkdir()
    with trackers.tracker(log, tmp_path / "run", run, 0, pytest.fail) as track:
        track({"step": 1, "target": 0.5, "loss": 0.1})
    assert READERS[log](tmp_path / "run")[1]["weights"] == "weights.pt"
    told = [*tmp_path.glob("run/events/wandb/*/*.wandb"), *tmp_path.glob("run/events/wandb/*/files/*")]
    for file in (*told, *tmp_path.glob("mlflow.db")):
        content = file.read_bytes()
        assert b"hidden-place" not in content, file
        assert b"5ec8e7d" not in content, file


def test_a_tracker_that_fails_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot begin is an error in one line; what fails later must not end a run of hours."""

    def broken(*_: Any) -> Any:
        raise OSError("no server")

    warned: list[str] = []
    monkeypatch.setitem(trackers.TRACKERS, "wandb", lambda *_: (broken, broken))
    with trackers.tracker("wandb", tmp_path, tiny.a_run(), 0, warned.append) as track:
        for step in range(3):
            track({"step": step})
    assert warned == ["wandb failed and gets no more of this run, which goes on (no server)"] * 2
    monkeypatch.setitem(trackers.TRACKERS, "wandb", broken)
    with pytest.raises(InputError, match=r"log='wandb' cannot begin \(no server\)"):
        tiny.solve(tiny.a_run(), tmp_path / "run", log="wandb")


def test_a_tracker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no tracker is called 'wanbd': did you mean 'wandb'"):
        trackers.check("wanbd")
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs mlflow: pip install 'adamatch\[mlflow\]'"):
        trackers.check("mlflow")
