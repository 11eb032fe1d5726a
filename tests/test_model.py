"""Models: predictions for all that holds images, and files that come back as they were."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, TINY, arrays, network
from damage import STRANGE, VALUES, changed, flip
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

from adamatch import Model, fit, load, networks
from adamatch.base import locks
from adamatch.base.errors import InputError
from adamatch.model import csv_rows, left_out
from adamatch.train import speed


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(networks.build("wrn-small", 3).eval(), CLASSES, 8, "wrn-small", speed.choose("cpu"), {"note": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (image, label) in enumerate(zip(*arrays(6), strict=True)):
        (tmp_path / "images" / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "images" / CLASSES[label] / f"{number}.png")
    return tmp_path / "images"


def test_every_way_to_give_images_says_the_same(model: Model, folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    images = np.stack([np.asarray(Image.open(file)) for file in files])
    expected = model.predict(images)
    assert expected.paths == tuple(map(str, range(6)))
    assert expected.probabilities.sum(1) == pytest.approx(np.ones(6))
    assert expected.labels == [CLASSES[row.argmax()] for row in expected.probabilities]
    (folder.parent / "list.csv").write_text("path\n" + "\n".join(map(str, files)))
    named = (folder, str(folder), folder.parent / "list.csv", files, [str(file) for file in files])
    arrays = (np.array(files), np.array(list(map(str, files))), (file for file in files), set(files))
    for given in (*named, *arrays, [folder / "blue", folder / "green", *sorted((folder / "red").iterdir())]):
        found = model.predict(given)
        assert found.paths == tuple(map(str, files))
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-6)
    for unnamed in (images.transpose(0, 3, 1, 2), images / 255, TensorDataset(torch.from_numpy(images))):
        assert model.predict(unnamed).probabilities == pytest.approx(expected.probabilities, abs=1e-6)
    half = torch.from_numpy(images / 255).to(torch.bfloat16)
    assert model.predict(half).probabilities == pytest.approx(model.predict(half.float()).probabilities)
    assert model.predict(image for image in images).paths == expected.paths
    one = model.predict(files[2])
    assert one.paths == (str(files[2]),)
    assert one.probabilities[0] == pytest.approx(expected.probabilities[2], abs=1e-6)


def test_more_images_than_a_batch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    images = arrays(10)[0]
    whole = model.predict(images).probabilities
    monkeypatch.setattr("adamatch.evaluate.BATCH", 4)
    assert model.predict(images).probabilities == pytest.approx(whole, abs=1e-6)


def test_bad_images_in_a_list(model: Model, folder: Path) -> None:
    bad = folder / "red/bad.png"
    bad.write_bytes(b"no image")
    for given in (folder, [folder], [folder / "blue", bad]):
        with pytest.raises(InputError, match=r"bad\.png"):
            model.predict(given)
        found = model.predict(given, skip_bad=True)
        assert list(found.skipped) == [str(bad)]
        assert str(bad) not in found.paths
        assert len(found) == len(found.probabilities)
    with pytest.raises(InputError, match="does not exist"):
        model.predict([folder, folder / "nowhere"], skip_bad=True)


def test_very_many_bad_images_are_counted() -> None:
    lines = left_out({str(number): f"{number} is empty" for number in range(25)})
    assert lines[0] == "left out: 0 is empty"
    assert lines[-1] == "left out: 5 more"
    assert len(lines) == 21
    assert left_out({}) == []


@pytest.mark.parametrize("own", [None, "norm", "plain"])
def test_saved_and_loaded_it_predicts_the_same(model: Model, tmp_path: Path, own: str | None) -> None:
    if own:
        net = network(norm=own == "norm").eval()
        model = Model(net, CLASSES, 8, "", speed.choose("cpu"), {})
    images = arrays(6)[0]
    model.save(tmp_path / "saved")
    if own:
        with pytest.raises(InputError, match="net="):
            load(tmp_path / "saved")
    loaded = load(tmp_path / "saved", net=network(norm=own == "norm") if own else None, device="cpu")
    assert np.array_equal(loaded.predict(images).probabilities, model.predict(images).probabilities)
    assert (loaded.classes, loaded.size, loaded.history) == (model.classes, model.size, model.history)
    assert not loaded.net.training


def test_there_is_no_pickle_in_the_files(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    assert json.loads((tmp_path / "model.json").read_text())["classes"] == list(CLASSES)
    assert load_file(tmp_path / "model.safetensors").keys() == model.net.state_dict().keys()
    content = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")  # then a header in JSON, then bare numbers
    header = json.loads(content[8 : 8 + length])
    assert (
        sum(end - begin for begin, end in (entry["data_offsets"] for entry in header.values()))
        == len(content) - 8 - length
    )


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 192), nn.Linear(192, 192), nn.Linear(192, 3))
        net[2].weight = net[1].weight
        return net.eval()

    model = Model(tied(), CLASSES, 8, machine=speed.choose("cpu"))
    model.save(tmp_path)
    images = arrays(3)[0]
    again = load(tmp_path, net=tied(), device="cpu")
    assert np.array_equal(again.predict(images).probabilities, model.predict(images).probabilities)


def test_a_run_that_is_not_finished_has_no_model(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="not finished"):
        load(tmp_path)


def test_a_run_that_is_not_finished_names_the_one_before_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "source": arrays(30),
        "target": arrays(12)[0],
        "out": tmp_path / "run",
        "twin": False,
        **TINY,
    }
    fit(**given)
    (tmp_path / "run" / "earlier").mkdir()
    for file in ("model.json", "result.json"):
        (tmp_path / "run" / file).rename(tmp_path / "run" / "earlier" / file)
    with pytest.raises(
        InputError, match=r"not finished: run the same command again, or take .*earlier, the run before it"
    ):
        load(tmp_path / "run")


@pytest.mark.posix
def test_a_run_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    lock = locks.take(tmp_path / ".lock")
    assert lock is not None
    with pytest.raises(InputError, match="not finished: wait for it"):
        load(tmp_path)
    lock.release()


def test_rows_for_a_csv_file(model: Model) -> None:
    found = model.predict(arrays(2)[0])
    header, first, _ = csv_rows(found)
    assert header == ["path", "class", "probability", *CLASSES]
    assert first[:2] == ["0", found.labels[0]]
    assert [float(cell) for cell in first[3:]] == pytest.approx(found.probabilities[0].tolist(), abs=5e-5)


def test_others_may_read_what_is_saved(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path)
    modes = {(tmp_path / name).stat().st_mode for name in ("model.safetensors", "model.json")}
    assert len(modes) == 1


def outcome(folder: Path, model: Model) -> str:
    """What loading it raises, or that nothing is different."""
    try:
        loaded = load(folder, device="cpu")
    except InputError as error:
        return str(error)
    images = arrays(6)[0]
    assert np.array_equal(loaded.predict(images).probabilities, model.predict(images).probabilities)
    assert (loaded.classes, loaded.size, loaded.history) == (model.classes, model.size, model.history)
    return "same"


@pytest.mark.parametrize(("name", "least"), [("model.safetensors", 60), ("model.json", 45)])
def test_no_flipped_bit_goes_unnoticed(
    model: Model, tmp_path: Path, name: str, least: int, recwarn: pytest.WarningsRecorder
) -> None:
    found, path = [], model.save(tmp_path) / name
    whole = path.read_bytes()
    for seed in range(60):
        path.write_bytes(whole)
        flip(path, seed)
        found.append(outcome(tmp_path, model))
        if found[-1] == "same" and name == "model.json":  # white space, or the checksum's own name
            assert not recwarn.list or "without a checksum" in str(recwarn.pop().message)
    assert sum(each != "same" for each in found) >= least
    assert all(str(tmp_path) in each and "\n" not in each for each in found if each != "same")


def test_what_was_changed_is_named(model: Model, tmp_path: Path) -> None:
    other = Model(networks.build("wrn-small", 3).eval(), CLASSES, 8, "wrn-small", speed.choose("cpu"))
    other.save(tmp_path / "other")
    model.save(tmp_path / "model")
    (tmp_path / "model/model.safetensors").write_bytes((tmp_path / "other/model.safetensors").read_bytes())
    assert "model.safetensors was changed since it was saved" in outcome(tmp_path / "model", model)
    model.save(tmp_path / "model")
    text = (tmp_path / "model/model.json").read_text()
    (tmp_path / "model/model.json").write_text(text.replace(CLASSES[0], "purple"))
    assert "model.json is damaged" in outcome(tmp_path / "model", model)


def test_models_from_before_there_were_checksums_load_with_a_note(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path) / "model.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in facts.items() if not name.endswith("sha256")}))
    with pytest.warns(UserWarning, match=r"model\.safetensors was saved without a checksum"):
        assert outcome(tmp_path, model) == "same"


@pytest.mark.posix
def test_a_model_json_of_another_kind(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path) / "model.json"
    texts = [*STRANGE, *(changed(path, name, value) for name in ("classes", "size", "network") for value in VALUES)]
    texts += [changed(path, "version", value) for value in VALUES if value != 1]
    for text in [*texts, changed(path, "history", 3), changed(path, "sha256", []), changed(path, "classes", ["a"] * 4)]:
        path.write_text(text)
        said = outcome(tmp_path, model)
        assert said.startswith((str(tmp_path), "no network is called")), text[:80]
        assert len(said) < 400
        assert "\n" not in said
    path.unlink()
    os.mkfifo(path)
    assert "model.json is damaged" in outcome(tmp_path, model)


def test_saved_twice_it_has_the_same_bytes(model: Model, tmp_path: Path) -> None:
    before = (model.save(tmp_path) / "model.safetensors").read_bytes()
    replace(model, history={"estimate": 1}).save(
        tmp_path
    )  # as `fit` does in the end: killed in between, both fit together
    assert (tmp_path / "model.safetensors").read_bytes() == before
