"""The table of all that is fuzzed: the formats of `data_targets`, and every file of a store and of a run's folder."""

import atexit
import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from colours import TINY, arrays, network
from fuzz import damage, data_targets
from fuzz.target import Target
from published import formats

import adamatch
from adamatch import networks
from adamatch.base import manifest
from adamatch.base.errors import InputError
from adamatch.base.files import MANIFEST, SEAL, checksum, sealed
from adamatch.cli.choose import choose
from adamatch.config.run import Run
from adamatch.grid import cost, figures, lease, render, tables
from adamatch.grid.state import Folders
from adamatch.images.store import Store
from adamatch.model import Model
from adamatch.report import page, printed
from adamatch.train import checkpoint, speed
from adamatch.train.run_folder import RunFolder

RUN = Run(source="rendered", target="handwritten")


def _store(file: str, folder: Path) -> Path:
    images, labels = formats.random_images(6, 8, 8, 3), formats.random_labels(6, 2)
    return formats.store(folder / "store", images, labels, ("a", "b"), origin="here") / file


def _read_store(path: Path) -> Any:
    store = Store.open(path.parent)
    return np.array(store.images), store.labels, store.classes, dict(store.info)


def _run_json(folder: Path) -> Path:
    with RunFolder(folder).claim(RUN):
        RunFolder(folder).append({"step": 1})
    return folder / "run.json"


def _claim(path: Path) -> Any:
    with RunFolder(path.parent).claim(RUN):
        return "claimed"


def _metrics(folder: Path) -> Path:
    for step in range(1, 9):
        RunFolder(folder).append({"step": step, "loss_source": 1 / step, "target": 50.0, "note": "x"})
    return folder / "metrics.jsonl"


def _rewind(path: Path) -> Any:
    RunFolder(path.parent).rewind(5)
    return path.read_bytes()


def _facts() -> dict[str, Any]:
    """As a finished run writes them."""
    evaluations = [{"step": step, "target": 50.0 + step, "source": 90.0} for step in range(1, 12)]
    found = {"accuracy": 56.5, "source_accuracy": 90.0, "last": 61.0, "best_ORACLE": 61.0, "evaluations": evaluations}
    times = {"seconds": 12.5, "wall_seconds": 13.0, "machine": "cpu", "at_a_time": 1, "ranks": 1, "median_of": 10}
    when = {"versions": {"torch": "2"}, "date": "2026-01-01T00:00:00+00:00"}
    return {"id": RUN.id, "run": asdict(RUN), **found, **times, **when}


def _result(folder: Path) -> Path:
    RunFolder(folder).finish(_facts())
    return folder / "result.json"


def _read_result(path: Path) -> Any:
    result = RunFolder(path.parent).result()
    assert result is not None
    printed.result(result, path.parent)
    return result


def _kept(folder: Path) -> Path:
    (folder / "kept.json").write_text(json.dumps(_facts()))
    return folder / "kept.json"


def _table(path: Path) -> Any:
    results = figures.read(path.parent)
    measured = cost.measurements(path.parent)
    return render.render(tables.tables(results, True)), cost.estimate(RUN, measured)


def _steps(folder: Path) -> Path:
    row = {"method": "adamatch", "network": "wrn-tiny", "size": 8, "batch": 32, "uratio": 3, "strong": "cutout"}
    (folder / "step.json").write_text(json.dumps({"machine": "cpu", "rows": [row | {"ms": 5.0}]}))
    return folder / "step.json"


def _estimate(path: Path) -> Any:
    return cost.estimate(RUN, cost.measurements(path.parent))


@cache
def _model() -> Model:
    torch.manual_seed(0)
    net, history = networks.build("wrn-tiny", 3).eval(), {"accuracy": 50.0, "run": asdict(RUN)}
    return Model(net, ("a", "b", "c"), 8, "wrn-tiny", history=history)


def _saved(file: str, folder: Path) -> Path:
    return _model().save(folder) / file


def _load(path: Path) -> Any:
    model = Model.load(path.parent, device="cpu")
    found = model.predict(formats.random_images(2, 8, 8, 3))
    return found.probabilities, found.labels, model.size, model.history


def _put_right(path: Path) -> Any:
    """As a stranger would who has changed a file: every checksum is made right again."""
    folder = path.parent
    (folder / MANIFEST).unlink()
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        facts = json.loads((folder / "model.json").read_bytes())
        if path.name != "model.json":
            facts["sha256"] = checksum(folder / "model.safetensors")
        facts.pop(SEAL, None)
        (folder / "model.json").write_text(json.dumps(sealed(facts)))
    return _load(path)


def _own(folder: Path) -> Path:
    """A network of one's own beside its ONNX file."""
    torch.manual_seed(0)
    model = Model(network(norm=True).eval(), ("a", "b", "c"), 8, machine=speed.choose("cpu"))
    model.save(folder)
    model.export(folder / "model.onnx")
    return folder / "model.onnx"


def _put_onnx_right(path: Path) -> Any:
    manifest.forget(path.parent, path.name)
    manifest.complete(path.parent, path.name)
    return _predict(path)


def _predict(path: Path) -> Any:
    """As the command does."""
    model = Model.load_for_predictions(path.parent, device="cpu")
    return model.predict(formats.random_images(2, 8, 8, 3)).probabilities


def _odd(folder: Path) -> Path:
    """What is in `odd` chooses a file of the folder, and what comes in its place."""
    _model().save(folder)
    (folder / "odd").write_bytes(bytes(64))
    return folder / "odd"


def _load_odd(path: Path) -> Any:
    choose, known = Random(path.read_bytes()), path.read_bytes() == bytes(64)
    file = path.with_name(choose.choice(("model.json", "model.safetensors", MANIFEST)))
    kinds = (os.mkfifo, lambda place: place.symlink_to("/dev/zero"), lambda place: place.symlink_to("/etc/passwd"))
    more = (lambda place: os.truncate(os.open(place, os.O_CREAT | os.O_WRONLY), 40 << 30), Path.mkdir, lambda place: 0)
    if not known:
        file.unlink()
        choose.choice((*kinds, *more))(file)
    problems = list(manifest.problems(path.parent))
    assert known or file.name in problems[0]
    return _load(path)


def _checkpoint(file: str, folder: Path) -> Path:
    for step in (5, 10):
        checkpoint.save(folder, step, {"w": torch.arange(40.0) + step}, {"seconds": 1.0, "generator": [1, 2]})
    return folder / file


def _newest(path: Path) -> Any:
    def say(line: str) -> None:
        raise InputError(line)  # said, and so not silent

    found = checkpoint.load(path.parent, say)
    assert found is not None
    return found


def _lease(folder: Path) -> Path:
    facts = {"machine": "elsewhere 1", "pid": 1, "token": "x", "locked": True}
    (folder / "lease-1").write_text(json.dumps(facts))
    return folder / "lease-1"


def _hold(path: Path) -> Any:
    known = [str(each) for each in lease.holders(path.parent)], str(lease.holder(path.parent))
    with lease.Lease(path.parent).hold() as held:
        return held, len(known)


def _error(folder: Path) -> Path:
    path = Folders(folder).make(RUN) / "error.json"
    path.write_text(json.dumps({"id": RUN.id, "error": "ValueError: x", "traceback": "trace", "date": "2026-01-01"}))
    return path


def _state(path: Path) -> Any:
    folders = Folders(path.parent.parent)
    error = folders.error(RUN)
    return folders.state(RUN), f"{error.get('error')}"


@cache
def _fitted() -> Path:
    """A finished run of one's own images, with its twin and its verdict."""
    out = Path(tempfile.mkdtemp(prefix="fuzz-fitted-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    _fit(out / "run")
    return out / "run"


def _fit(out: Path) -> Model:
    return adamatch.fit(source=arrays(30), target=arrays(12, 1)[0], out=out, **TINY)


def _finished(file: str, folder: Path) -> Path:
    shutil.copytree(_fitted(), folder / "run")
    return folder / "run" / file


def _again(path: Path) -> Any:
    """As the same command given again does, and the other commands that look into a run's folder."""
    folder = next(parent for parent in path.parents if (parent / "README.md").exists())
    if "outputs" in path.parts:
        (folder / "judge.json").unlink()  # so that it is made anew, from what is damaged
    model = _fit(folder)
    printed.ending(model, folder)
    choose([folder])
    return model.history, repr(model)


def _write_page(path: Path) -> Any:
    folder = next(parent for parent in path.parents if (parent / "README.md").exists())
    return page.write(folder).read_text()


JSON = (damage.jsons, damage.jsons)
TARGETS: dict[str, Target] = {
    **data_targets.TARGETS,
    "store.json": Target(partial(_store, "store.json"), _read_store, inside=JSON),
    "store's images": Target(partial(_store, "images.npy"), _read_store, inside=(damage.text,)),
    "store's labels": Target(partial(_store, "labels.npy"), _read_store, True, inside=(damage.text,)),
    "run.json": Target(_run_json, _claim, inside=JSON),
    "metrics.jsonl": Target(_metrics, _rewind, inside=(damage.lines, damage.lines)),
    "result.json": Target(_result, _read_result, True, JSON),
    "kept result": Target(_kept, _table, inside=JSON),
    "step times": Target(_steps, _estimate, inside=JSON),
    "model.json": Target(partial(_saved, "model.json"), _load, True, JSON),
    "model.safetensors": Target(partial(_saved, "model.safetensors"), _load, True, (damage.safetensors,)),
    "manifest.json": Target(partial(_saved, MANIFEST), _load, True, JSON),
    "tampered model.json": Target(partial(_saved, "model.json"), _put_right, inside=JSON * 3),
    "tampered model.safetensors": Target(
        partial(_saved, "model.safetensors"), _put_right, inside=(damage.safetensors,) * 3
    ),
    "odd model folder": Target(_odd, _load_odd, True),
    "model.onnx": Target(_own, _predict, True),
    "tampered model.onnx": Target(_own, _put_onnx_right),
    "checkpoint.json": Target(partial(_checkpoint, "step-000000010.json"), _newest, True, JSON),
    "checkpoint.safetensors": Target(
        partial(_checkpoint, "step-000000010.safetensors"), _newest, True, (damage.safetensors,)
    ),
    **{
        f"page of {file}": Target(partial(_finished, file), _write_page, inside=inside, share=0.3)
        for file, inside in {
            **dict.fromkeys(("run.json", "result.json", "judge.json", "images.json", "outputs/classes.json"), JSON),
            "metrics.jsonl": (damage.lines,),
            "map.npz": (damage.zipped,),
            "outputs/step-000000002.npz": (damage.zipped,),
        }.items()
    },
    **{
        f"finished run's {file}": Target(partial(_finished, file), _again, checked, inside, share=0.05)
        for file, checked, inside in (
            ("run.json", False, JSON),
            ("model.json", True, JSON),
            ("judge.json", True, JSON),
            ("outputs/classes.json", False, JSON),
            ("outputs/step-000000002.npz", False, (damage.zipped,)),
            ("twin/outputs/step-000000002.npz", False, (damage.zipped,)),
        )
    },
    "lease": Target(_lease, _hold, inside=JSON),
    "error.json": Target(_error, _state, inside=JSON),
}
