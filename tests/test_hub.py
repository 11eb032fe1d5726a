"""The Hub, played by a folder: what goes there, what comes from there, and the card that goes along. No network."""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import numpy as np
import pytest
from colours import CLASSES, arrays
from PIL import Image

import adamatch
from adamatch import Model, card, load
from adamatch.base import manifest
from adamatch.base.errors import InputError
from adamatch.base.files import listed

hub = pytest.importorskip("huggingface_hub", reason="it is in the extra hub: pip install -e '.[hub]'")
WILD = "r|ed\n*x* [y](z) www.z.com"  # the name of a class
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FIT: dict[str, Any] = {"network": "wrn-tiny", "size": 8, "images": 40, "batch": 4, "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on folders whose names are markup."""
    root = tmp_path_factory.mktemp("hidden-place")
    for seed, name in enumerate(("photos_2024", "art<b>")):
        for number, (image, label) in enumerate(zip(*arrays(30, seed), strict=True)):
            where = root / name / CLASSES[label].replace("red", WILD)
            where.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(where / f"{number}.png")
    adamatch.fit(root / "photos_2024", root / "art<b>", root / "run", **FIT)
    load(root / "run", device="cpu").export(root / "run/model.onnx")
    return root / "run"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """An HfApi whose server is the folder `server`; files come from there as the real cache has them: as links."""
    server, cache = tmp_path / "server", tmp_path / "cache"
    made: Mock = create_autospec(hub.HfApi, instance=True)
    made.create_repo.return_value = "https://huggingface.co/me/model"
    made.model_info.return_value.private = True

    def upload(*, folder_path: Path, allow_patterns: list[str], **_: Any) -> None:
        for file in hub.utils.filter_repo_objects(os.listdir(folder_path), allow_patterns=allow_patterns):
            server.mkdir(exist_ok=True)
            shutil.copy(folder_path / file, server / file)

    def fetch(*, allow_patterns: list[str], dry_run: bool = False, **_: Any) -> Any:
        names = list(hub.utils.filter_repo_objects(os.listdir(server), allow_patterns=allow_patterns))
        if dry_run:
            return [Mock(filename=name, file_size=(server / name).stat().st_size) for name in names]
        snapshot = cache / "snapshots" / COMMIT
        snapshot.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(server / name, cache / name)
            (snapshot / name).unlink(missing_ok=True)
            (snapshot / name).symlink_to(cache / name)
        return str(snapshot)

    made.upload_folder.side_effect = upload
    monkeypatch.setattr(hub, "HfApi", lambda: made)
    monkeypatch.setattr(hub, "snapshot_download", create_autospec(hub.snapshot_download, side_effect=fetch))
    monkeypatch.setattr(hub.constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return made


def test_a_model_goes_to_the_hub_and_comes_back(run: Path, api: Mock, tmp_path: Path) -> None:
    model = load(run, device="cpu")
    assert model.push_to_hub("me/model") == "https://huggingface.co/me/model"
    api.create_repo.assert_called_once_with("me/model", private=True, exist_ok=True)
    back = load("hf://me/model@v1", device="cpu")
    assert hub.snapshot_download.call_args.kwargs["revision"] == "v1"
    assert np.array_equal(back.predict(arrays(6)[0]).probabilities, model.predict(arrays(6)[0]).probabilities)
    assert back.folder is not None
    assert not any(file.is_symlink() for file in back.folder.iterdir())
    assert not list(manifest.problems(back.folder))
    assert repr(back) == repr(model)
    assert Model.load_for_predictions(Path("hf://me/model")).classes == model.classes  # as the command line has it
    (tmp_path / "server/model.safetensors").write_bytes(b"changed")
    shutil.rmtree(tmp_path / "assets")
    with pytest.raises(InputError, match=r"model\.safetensors was changed since it was saved"):
        load("hf://me/model")


def test_nothing_but_the_model_and_its_card_leaves_the_machine(run: Path, api: Mock, tmp_path: Path) -> None:
    """Neither answers nor pictures, and no place of a file anywhere in what goes."""
    (run / "README.md").write_text(
        (run / "README.md").read_text().replace("license: unknown # fill in", "license: mit")
    )
    load(run, device="cpu").push_to_hub("me/model")
    server = tmp_path / "server"
    names = {file.name for file in server.iterdir()}
    assert names == {"model.safetensors", "model.json", "model.onnx", "README.md", "manifest.json"}
    assert {*listed(server)} == names - {"manifest.json"}
    told = json.loads((server / "model.json").read_text())["history"]
    assert told["estimate"] == load(run, device="cpu").history["estimate"]
    assert {*told["run"]} == {"task", "method", "options", "labels", "seed", "recipe"}
    digests = [digest.encode() for digest in json.loads((run / "run.json").read_text())["digests"].values()]
    for file in server.iterdir():
        for secret in (b"hidden-place", str(run.parent).encode(), *digests):
            assert secret not in file.read_bytes(), file.name
    assert b"photos_2024" not in (server / "model.json").read_bytes()
    assert "license: mit" in (server / "README.md").read_text()  # as it was filled in
    assert not list(manifest.problems(run))


def test_what_is_public_or_too_large_is_refused(run: Path, api: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    api.model_info.return_value.private = False
    with pytest.raises(InputError, match="hf://me/model is there already, and public: give private=False"):
        load(run, device="cpu").push_to_hub("me/model")
    api.upload_folder.assert_not_called()
    load(run, device="cpu").push_to_hub("me/model", private=False)
    monkeypatch.setitem(adamatch.hub.FILES, "model.safetensors", 1 << 10)
    with pytest.raises(InputError, match=r"model\.safetensors has 0 MiB, more than the 0 MiB"):
        load("hf://me/model")
    with pytest.raises(InputError, match="a model on the Hub is hf://NAME/REPO"):
        load("hf://model")


def test_without_a_network_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"^hf://me/model cannot be fetched \(.*\): check its name and the network"):
        load("hf://me/model")


def test_the_card_says_what_the_terminal_says_and_its_names_are_text(run: Path) -> None:
    text = (run / "README.md").read_text()
    header = hub.ModelCard(text).data.to_dict()
    assert (header["library_name"], header["pipeline_tag"]) == ("adamatch", "image-classification")
    for line in ("| labelled images | photos\\_2024, 27 |", "| target images, without labels | art\\<b\\>, 30 |"):
        assert line in text
    assert "cannot be told without labels" in text
    markdown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    page = markdown.render(text.partition("---\n")[2].partition("---\n")[2])
    assert "<b>" not in page
    assert WILD.replace("\n", "\\n") in page
    assert page.count("<a ") == 1  # the paper


def test_a_card_of_a_model_that_says_nothing_of_itself() -> None:
    text = card.text(classes=("a", "b"), network="", size=8, history={})
    assert "It was not measured." in text
    assert "a network of its own, images of 8 x 8" in text.replace("\\", "")
