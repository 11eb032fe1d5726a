"""Models: predictions for all that holds images, and files that come back as they were."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, arrays, network
from damage import STRANGE, flip
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

from adamatch import Model, load, networks
from adamatch.base import locks, manifest
from adamatch.base.errors import InputError
from adamatch.base.files import sealed, unsealed
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


def test_one_slice_or_none_of_the_predictions(model: Model) -> None:
    images = arrays(6)[0]
    found = model.predict(images)
    assert [each.label for each in found] == found.labels
    assert found[2].path == "2"
    assert found[-1].confidence == pytest.approx(found.probabilities[-1].max())
    assert found[2:4].paths == ("2", "3")
    assert found[2:4].confidence == pytest.approx(found.confidence[2:4])
    with pytest.raises(IndexError):
        found[6]
    assert (len(model.predict([])), model.predict_proba([]).shape) == (0, (0, 3))
    assert model.to("cpu").predict_proba(images) == pytest.approx(found.probabilities)


def test_features_are_what_the_last_layer_sees(model: Model) -> None:
    images = arrays(6)[0]
    seen = torch.from_numpy(model.features(images))
    assert model.net.head(seen).softmax(1).detach().numpy() == pytest.approx(model.predict_proba(images), abs=1e-5)  # type: ignore[operator]
    assert model.features([]).shape == (0, seen.shape[1])
    with pytest.raises(InputError, match="has no method features"):
        replace(model, net=nn.Flatten()).features(images)


def test_more_images_than_a_batch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    images = arrays(10)[0]
    whole = model.predict(images).probabilities
    monkeypatch.setattr("adamatch.evaluate.BATCH", 4)
    assert model.predict(images).probabilities == pytest.approx(whole, abs=1e-6)


def test_bad_images_in_a_list(model: Model, folder: Path) -> None:
    bad = folder / "red/bad.png"
    bad.write_bytes(b"no image")
    with pytest.raises(InputError, match=r"bad\.png is not an image .*skip_bad=True"):
        model.predict([folder / "blue", bad])  # it is meant
    for given, skip in ((folder, False), ([folder], False), ([folder / "blue", bad], True)):
        found = model.predict(given, skip_bad=skip)
        assert list(found.skipped) == [str(bad)]
        assert str(bad) not in found.paths
        assert len(found) == len(found.probabilities)
    with pytest.raises(InputError, match="does not exist"):
        model.predict([folder, folder / "nowhere"], skip_bad=True)


@pytest.mark.parametrize("own", [None, "norm", "plain"])
def test_saved_and_loaded_it_predicts_the_same(model: Model, tmp_path: Path, own: str | None) -> None:
    if own:
        net = network(norm=own == "norm").eval()
        model = Model(net, CLASSES, 8, "", speed.choose("cpu"), {})
    images = arrays(6)[0]
    model.save(tmp_path / "saved")
    if own:
        with pytest.raises(InputError, match="holds a network of your own: build it and give it as net="):
            load(tmp_path / "saved")
    loaded = load(tmp_path / "saved", net=network(norm=own == "norm") if own else None, device="cpu")
    assert np.array_equal(loaded.predict(images).probabilities, model.predict(images).probabilities)
    assert (loaded.classes, loaded.size, loaded.history) == (model.classes, model.size, model.history)
    assert not loaded.net.training


def test_there_is_no_pickle_in_the_files(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "model.json", "model.safetensors"]
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


def test_a_run_that_is_not_finished_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"not finished: run the same command again$"):
        load(tmp_path)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier/model.json").write_text("{}")
    with pytest.raises(InputError, match=r"run the same command again, or take .*earlier, the run before it"):
        load(tmp_path)


@pytest.mark.posix
def test_a_run_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    lock = locks.take(tmp_path / ".lock")
    assert lock is not None
    with pytest.raises(InputError, match="not finished: wait for it"):
        load(tmp_path)
    lock.release()


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


@pytest.mark.parametrize(("name", "least"), [("model.safetensors", 60), ("model.json", 60), ("manifest.json", 0)])
def test_no_flipped_bit_goes_unnoticed(model: Model, tmp_path: Path, name: str, least: int) -> None:
    found, path = [], model.save(tmp_path) / name
    whole = path.read_bytes()
    for seed in range(60):
        path.write_bytes(whole)
        flip(path, seed)
        found.append(outcome(tmp_path, model))
    assert sum(each != "same" for each in found) >= least
    assert all(str(tmp_path) in each and "\n" not in each for each in found if each != "same")


def test_what_was_changed_is_named(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path) / "model.json"
    text, weights = path.read_text(), (tmp_path / "model.safetensors").read_bytes()
    facts = unsealed(json.loads(text))
    (tmp_path / "manifest.json").unlink()  # as whoever made the folder may have left it out

    def resealed(**changes: object) -> str:
        return json.dumps(sealed(facts | changes))

    for written, content, words in (
        (text, weights[: len(weights) // 2], "model.safetensors was changed since it was saved"),
        (text, weights[:-4] + bytes(4), "model.safetensors was changed since it was saved"),
        (text.replace(CLASSES[0], "purple"), weights, "model.json is damaged"),
        (resealed(classes=["a", "b"]), weights, "holds another network than this WideResNet"),
        (resealed(network="own"), weights, "no network is called 'own'"),
        (resealed(network=""), weights, "holds a network of your own: build it and give it as net= to adamatch.load"),
        (resealed(version=99), weights, "written by another version of adamatch (format 99, this one reads 1)"),
    ):
        path.write_text(written)
        (tmp_path / "model.safetensors").write_bytes(content)
        said = outcome(tmp_path, model)
        assert words in said
        assert "\n" not in said


@pytest.mark.posix
def test_a_model_json_of_another_kind(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path) / "model.json"
    facts = unsealed(json.loads(path.read_text()))
    for text in (*STRANGE, json.dumps(facts), json.dumps(facts | {"size": 9})):  # the last two have no checksum
        path.write_text(text)
        assert outcome(tmp_path, model) == f"{tmp_path}/model.json is damaged: train again, or copy it anew", text[:80]
    path.unlink()
    os.mkfifo(path)
    assert "model.json cannot be read (it is a folder, a pipe or a device" in outcome(tmp_path, model)


def test_saved_twice_it_has_the_same_bytes(model: Model, tmp_path: Path) -> None:
    before = (model.save(tmp_path) / "model.safetensors").read_bytes()
    replace(model, history={"estimate": 1}).save(
        tmp_path
    )  # as `fit` does in the end: killed in between, both fit together
    assert (tmp_path / "model.safetensors").read_bytes() == before


def odd(name: str, path: Path) -> None:
    """Another kind of file in the place of one."""
    path.unlink()
    match name:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to("/etc/hostname")
        case "hole":
            with path.open("wb") as file:
                file.truncate(40 << 30)


@pytest.mark.posix
@pytest.mark.parametrize("kind", ["pipe", "device", "link", "hole", "nothing"])
@pytest.mark.parametrize("file", ["model.json", "model.safetensors", "manifest.json"])
def test_a_folder_with_another_kind_of_file_is_one_line(model: Model, tmp_path: Path, kind: str, file: str) -> None:
    path = model.save(tmp_path) / file
    odd(kind, path)
    said = outcome(tmp_path, model)
    if file == "manifest.json":  # it counts as none
        assert said == "same"
    else:
        words = {"pipe": "not a regular file", "hole": "40,960 MiB, more than", "nothing": f"{file}"}
        assert words.get(kind, f"{file} is a link") in said
        assert "\n" not in said
    assert any(file in line for line in manifest.problems(tmp_path))


JUDGED: tuple[Any, ...] = ("x", [1], {"x": 1}, {"target": {"low": "x"}})


def test_a_model_json_of_a_stranger_says_what_a_model_may_be(model: Model, tmp_path: Path) -> None:
    """Its checksum is right: whoever made it made that, too."""
    path = model.save(tmp_path) / "model.json"
    facts = unsealed(json.loads(path.read_text()))
    (tmp_path / "manifest.json").unlink()
    wrong: tuple[dict[str, Any], ...] = (
        *({"classes": each} for each in (["a", "b", "a"], ["a", "", "b"], [], ["a", 1, "b"], "abc", None, {"a": 1})),
        *({"size": each} for each in (0, -1, 10**9, 8.0, "8", True, None)),
        *({"shape": "round"}, {"network": None}, {"network": 3}, {"history": []}, {"sha256": None}, {"white": -1}),
        *({"history": {"accuracy": each}} for each in ("x", [""], {"": 0})),
        *({"history": {"judge": each}} for each in JUDGED),
    )
    for changes in wrong:
        path.write_text(json.dumps(sealed(facts | changes)))
        assert outcome(tmp_path, model) == f"{tmp_path}/model.json is damaged: train again, or copy it anew", changes
    for name in facts.keys() - {"pixels", "white", "history"}:
        path.write_text(json.dumps(sealed({key: value for key, value in facts.items() if key != name})))
        assert "model.json" in outcome(tmp_path, model), name


def test_weights_that_are_no_numbers(model: Model, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.net.parameters())[0] = float("nan")
    model.save(tmp_path)
    assert "model.safetensors holds weights that are no numbers (NaN)" in outcome(tmp_path, model)


def test_a_missing_file_is_named(model: Model, tmp_path: Path) -> None:
    (model.save(tmp_path) / "model.safetensors").unlink()
    assert f"{tmp_path} is incomplete, model.safetensors is missing" in outcome(tmp_path, model)
    (tmp_path / "model.json").unlink()
    assert "holds no model (no model.json)" in outcome(tmp_path, model)


def test_it_shows_its_classes_and_what_was_measured(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = repr(model).splitlines()
    assert plain == ["adamatch.Model", "  network  wrn-small, images of 8 x 8", "  classes  3: blue, green, red"]
    measured = repr(replace(model, history={"accuracy": 81.25})).splitlines()
    assert measured[-1] == "  measured on labelled target images  81.2 %"
    assert len({line.index(value) for line, value in zip(measured[1:], ("wrn-", "3:", "81.2"), strict=True)}) == 1
    ten, eleven = (repr(replace(model, classes=tuple("abcdefghijk"[:count]))) for count in (10, 11))
    assert ten.endswith("10: a, b, c, d, e, f, g, h, i, j")
    assert eleven.endswith("11: a, b, c, d, e, f, g, h, i, j, ...")
    assert "Sequential, images" in repr(replace(model, net=network(norm=False), network=""))
    monkeypatch.setattr("adamatch.model.summary.table", lambda verdict, **_: [("told", f"of {verdict}")])
    assert repr(replace(model, history={"judge": "it"})).splitlines() == [*plain, "  told     of it"]


def test_of_another_network_the_last_difference_is_named(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds another network than this WideResNet \(size mismatch for head\.bias"):
        load(model.save(tmp_path), net=networks.build("wrn-small", 4), device="cpu")


@pytest.mark.parametrize("white", [0, 4095])
def test_the_white_of_its_images_is_kept(model: Model, tmp_path: Path, white: int) -> None:
    assert model.white == 0
    replace(model, white=white).save(tmp_path)
    assert load(tmp_path, device="cpu").white == white


def test_a_network_of_ones_own_is_taken_from_its_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    class Taken(nn.Module):
        def __init__(self, file: Path, checksum: str) -> None:
            super().__init__()
            given.extend((file, checksum))

    monkeypatch.setattr("adamatch.model.exporting.OnnxNetwork", Taken)
    monkeypatch.setattr("adamatch.model.listed", lambda folder: ["model.onnx"])
    Model(network(norm=False).eval(), CLASSES, 8, "", speed.choose("cpu")).save(tmp_path)
    with pytest.raises(InputError, match="holds a network of your own"):
        Model.load_for_predictions(tmp_path)
    (tmp_path / "model.onnx").touch()
    loaded = Model.load_for_predictions(tmp_path)
    assert isinstance(loaded.net, Taken)
    assert given == [tmp_path / "model.onnx", json.loads((tmp_path / "model.json").read_text())["sha256"]]
    assert (loaded.classes, loaded.size, loaded.folder) == (CLASSES, 8, tmp_path)


def test_what_is_bad_or_of_no_class_is_told_and_many_are_only_skipped_where_it_is_asked_for(
    model: Model, folder: Path
) -> None:
    (folder / "red/bad.png").write_bytes(b"no image")
    assert len(next(model.stream(folder)[1]).skipped) == len(model.evaluate(folder).skipped) == 1
    (folder / "red/worse.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"bad\.png"):
        list(model.stream(folder)[1])
    with pytest.raises(InputError, match=r"bad\.png"):
        model.evaluate(folder)
    found = model.evaluate(folder, skip_bad=True)
    assert list(found.skipped) == [str(folder / f"red/{name}.png") for name in ("bad", "worse")]
    (folder / "purple").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "purple/a.png")
    assert any("purple" in note for note in model.evaluate(folder, skip_bad=True).notes)


def test_a_page_is_opened_only_where_it_is_asked_for(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("adamatch.model.webbrowser.open", opened.append)
    monkeypatch.setattr("adamatch.model.page.write", lambda folder, load: folder / "report.html")
    of_a_run = replace(model, folder=tmp_path)
    assert of_a_run.report() == tmp_path / "report.html"
    assert not opened
    of_a_run.report(show=True)
    assert opened == [(tmp_path / "report.html").as_uri()]
