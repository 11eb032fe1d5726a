"""fit as a library call: whatever holds images, whatever is a network."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import TINY, arrays, network
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import adamatch
from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.images.user_data import UserData
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine

SAME = arrays(81)


def fit(out: Path, **given: Any) -> adamatch.Model:
    """A tiny run of twelve labelled and nine unlabelled images, unless others are given."""
    return adamatch.fit(**{"source": arrays(12), "target": arrays(9)[0], "out": out, **TINY, **given})


class Pairs(Dataset[tuple[Tensor, int]]):
    """A torch dataset with names of classes."""

    classes = ("blue", "green", "red")

    def __init__(self, count: int) -> None:
        self.images, self.labels = arrays(count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[index]), int(self.labels[index])


def test_arrays_learn_to_tell_colours(tmp_path: Path) -> None:
    source, target = arrays(60), arrays(60, seed=1, dark=60)
    more = TINY | {"images": 800, "batch": 8}
    model = adamatch.fit(
        source=source, target=target[0], test=target, network=network(norm=True), out=tmp_path / "run", **more
    )
    assert model.classes == ("0", "1", "2")
    assert model.evaluate(target).accuracy > 90
    estimate = model.history["estimate"]
    assert estimate["target_accuracy"] > 60
    assert estimate["held_out"] == 6
    assert 0 <= estimate["mask"] <= 1
    assert 1 / 3 <= estimate["largest_share"] <= 1


def test_datasets_with_names_of_classes(tmp_path: Path) -> None:
    unlabelled = TensorDataset(torch.from_numpy(arrays(9)[0]))
    model = adamatch.fit(source=Pairs(12), target=unlabelled, out=tmp_path / "run", **TINY)
    assert model.classes == ("blue", "green", "red")
    assert set(model.predict(unlabelled).labels) <= set(model.classes)


def test_the_given_network_is_copied_not_changed(tmp_path: Path) -> None:
    net = network(norm=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    model = fit(tmp_path / "run", network=net)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not torch.equal(model.net.state_dict()["0.weight"], before["0.weight"])
    again = fit(tmp_path / "run", network=net)  # is finished
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(again.net.state_dict()["0.weight"], model.net.state_dict()["0.weight"])
    assert net.training


def test_another_network_of_the_same_class_is_another_run(tmp_path: Path) -> None:
    narrow, wide = (nn.Sequential(nn.Flatten(), nn.Linear(192, n), nn.Linear(n, 3)) for n in (4, 8))
    fit(tmp_path / "run", network=narrow)
    with pytest.raises(InputError, match="holds another run"):
        fit(tmp_path / "run", network=wide)


def test_frozen_layers_stay_as_they_are(tmp_path: Path) -> None:
    net = network(norm=True)
    next(iter(net.children())).requires_grad_(False)
    model = fit(tmp_path / "run", network=net)
    ours, theirs = net.state_dict(), model.net.state_dict()
    assert torch.equal(ours["0.weight"], theirs["0.weight"])
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours if name.endswith("weight"))


@pytest.mark.parametrize("norm", [True, False])
def test_without_batch_norm_it_is_said_once_that_both_forwards_coincide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], norm: bool
) -> None:
    more = TINY | {"quiet": False}
    fit(tmp_path / "run", network=network(norm), **more)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("both forwards of AdaMatch coincide") == (0 if norm else 1)


def test_a_network_that_does_not_fit_the_classes(tmp_path: Path) -> None:
    wrong: Iterator[tuple[nn.Module, str]] = iter(
        [
            (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), r"gives \[2, 5\] for two images: with 3 classes"),
            (nn.Sequential(nn.Flatten(), nn.Linear(7, 3)), r"cannot take images \[2, 3, 8, 8\]"),
        ]
    )
    for net, message in wrong:
        with pytest.raises(InputError, match=message):
            adamatch.fit(source=arrays(12), target=arrays(12)[0], network=net, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("same", "count", "labelled", "unlabelled", "held_out"),
    [(False, None, 81, 9, 9), (True, None, 81, 81, 9), (True, 4, 12, 81, 9), (True, 30, 90, 90, 0)],
)
def test_held_out_images_are_in_no_pool(
    same: bool, count: int | None, labelled: int, unlabelled: int, held_out: int
) -> None:
    images, labels = arrays(90)
    images[:, 0, 0, 0] = np.arange(90)  # each image knows its number
    target = None if same else arrays(9)[0]
    problem = UserData(8, skip_bad=False, quiet=True).problem((images, labels), target, None, None, count, seed=0)
    assert (len(problem.labelled[0]), len(problem.unlabelled)) == (labelled, unlabelled)
    assert ("source" in problem.tests) == (held_out > 0)
    if not held_out:
        return
    apart = problem.tests["source"]
    assert apart.labels is not None
    assert np.bincount(apart.labels).tolist() == [held_out // 3] * 3
    numbers = set(apart.images[:, 0, 0, 0].tolist())
    assert not numbers & set(problem.labelled[0].parts[0][:, 0, 0, 0].tolist())
    if same:
        assert not numbers & set(problem.unlabelled.parts[0][:, 0, 0, 0].tolist())


def test_changed_data_are_another_run(tmp_path: Path) -> None:
    def fit(count: int) -> adamatch.Model:
        return adamatch.fit(source=arrays(12), target=arrays(count)[0], out=tmp_path / "run", **TINY)

    first = fit(9)
    assert torch.equal(fit(9).net.state_dict()["head.weight"], first.net.state_dict()["head.weight"])
    with pytest.raises(InputError, match="another run"):
        fit(10)


def test_options_of_the_method_arrive(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no option 'alignment'"):
        fit(tmp_path / "a", options={"alignment": "none"})
    model = fit(tmp_path / "b", options={"align": "none"})
    assert model.history["run"]["options"] == {"align": "none"}


FIT = importlib.import_module("adamatch.fit")  # the module, not the function


def test_a_run_goes_on_from_wherever_its_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("photos", 12), ("sketches", 6)):
        for number, (image, label) in enumerate(zip(*arrays(count), strict=True)):
            path = tmp_path / name / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    monkeypatch.chdir(tmp_path)
    first = adamatch.fit(source="photos", target="sketches", out="run", **TINY)
    before = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    again = adamatch.fit(source=tmp_path / "photos", target="./sketches/", out=tmp_path / "run", **TINY)
    assert (tmp_path / "run/model.safetensors").stat().st_mtime_ns == before
    assert again.history == first.history
    assert adamatch.load("run").history["estimate"] == first.history["estimate"]
    with pytest.raises(InputError, match="batch was 4 and is 3 now"):
        adamatch.fit(source="photos", target="sketches", out="run", **TINY | {"batch": 3})


def test_views_are_mirrored_unless_told(tmp_path: Path) -> None:
    model = fit(tmp_path / "run", mirror=False)
    assert model.history["run"]["recipe"]["mirror"] is False


def test_a_class_without_a_target_label_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels, labels = arrays(6)
    few, told = labels != 1, TINY | {"quiet": False}
    adamatch.fit(
        source=(pixels, labels),
        target=arrays(9)[0],
        target_labels=(pixels[few], labels[few]),
        out=tmp_path / "a",
        **told,
    )
    assert "has no image of 1: no target label helps there" in " ".join(capsys.readouterr().err.split())
    adamatch.fit(
        source=(pixels, labels), target=arrays(9)[0], target_labels=(pixels, labels), out=tmp_path / "b", **told
    )
    assert "has no image of" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "learned"),
    [
        ({"labels_per_class": 2, "network": "wrn-tiny"}, True),
        ({"labels_per_class": 2, "network": network(norm=True)}, False),  # it may have no features and head
        ({"labels_per_class": 26, "network": "wrn-tiny"}, False),
        ({"network": "wrn-tiny"}, False),
        (
            {"labels_per_class": 2, "network": "wrn-tiny", "method": "supervised"},
            False,
        ),  # it looks at no unlabelled image
        ({"network": "wrn-tiny", "source": tuple(each[:8] for each in SAME), "target": SAME[0]}, True),
        (
            {"network": "wrn-tiny", "source": tuple(each[:8] for each in SAME), "target": SAME[0][1:]},
            False,
        ),  # one is not in it
    ],
)
def test_few_labels_without_a_source_begin_without_labels(given: dict[str, Any], learned: bool, tmp_path: Path) -> None:
    told: dict[str, Any] = {"source": SAME, "target": SAME, "out": tmp_path / "run", **TINY}
    recipe = adamatch.fit(**told | given).history["run"]["recipe"]
    found = tuple(recipe[name] for name in ("contrastive", "fitted_head", "anchored", "lr_end"))
    assert found == ((recipe["images"], True, True, 0.02) if learned else (0, False, False, 0.25))


@pytest.mark.parametrize(("share", "anchored"), [(0.3, True), (0.01, False)])
def test_the_surest_labels_are_held_on_to_where_domains_look_alike(
    share: float, anchored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    save_file(networks.build("wrn-tiny", 5).state_dict(), tmp_path / "start.safetensors")
    given: dict[str, Any] = {"source": arrays(12), "target": arrays(9)[0], "out": tmp_path / "run", **TINY}
    given |= {"network": "wrn-tiny", "weights": str(tmp_path / "start.safetensors")}
    asked: list[tuple[int, int]] = []

    def likeness(net: nn.Module, source: Any, target: Any, machine: Machine) -> float:
        asked.append((len(source[0]), len(target[0])))
        return share

    monkeypatch.setattr(FIT, "likeness", likeness)
    recipe = adamatch.fit(**given).history["run"]["recipe"]
    assert asked == [(12, 9)]
    assert (recipe["anchored"], recipe["lr"], recipe["fitted_head"]) == (anchored, 0.01, True)
    again = adamatch.fit(**given)  # as in the run that is there
    assert again.history["run"]["recipe"] == recipe
    assert len(asked) == 1
    adamatch.fit(**given, overwrite=True)
    assert len(asked) == 2


@pytest.mark.parametrize("how", ["folder", "list", "pairs"])
def test_images_in_the_runs_folder_are_refused(how: str, tmp_path: Path) -> None:
    pixels, labels = arrays(30)
    adamatch.fit(source=(pixels, labels), target=pixels, out=tmp_path / "run", twin=False, **TINY)
    inside = tmp_path / "run" / "mine"
    inside.mkdir()
    files = [inside / f"{i}.png" for i in range(len(pixels))]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    (tmp_path / "mine.csv").write_text("path\n" + "\n".join(map(str, files)))
    target = {"folder": inside, "list": tmp_path / "mine.csv", "pairs": files}[how]
    with pytest.raises(
        InputError, match=r"target lies in .*run, the run's folder, which may be emptied: move it elsewhere"
    ):
        adamatch.fit(source=(pixels, labels), target=target, out=tmp_path / "run", overwrite=True, **TINY)
    assert all(file.exists() for file in files)


def test_nobody_else_has_the_folder_until_the_twin_and_the_page_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def finish(*_: object, **__: object) -> None:
        with pytest.raises(InputError, match="is being used by another process") as refused, RunFolder(tmp_path).hold():
            pass
        said.append(str(refused.value))

    monkeypatch.setattr("adamatch.twin.train", finish)
    monkeypatch.setattr("adamatch.report.page.finish", finish)
    adamatch.fit(source=arrays(30), target=arrays(12)[0], out=tmp_path, **TINY)
    assert len(said) == 2
    with RunFolder(tmp_path).hold():
        pass


def test_paths_may_be_an_array_and_the_folder_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pixels, labels = arrays(30)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    paths = np.array([str(tmp_path / f"{i}.png") for i in range(len(pixels))])
    model = adamatch.fit(source=(pixels, labels), target=paths, out="~/run", twin=False, **TINY)
    assert model.folder == tmp_path / "run"
    assert (tmp_path / "run" / "model.json").is_file()


def test_a_run_among_the_images_is_refused(tmp_path: Path) -> None:
    for name in ("red", "blue"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    for role in ("source", "target", "target_labels", "test"):
        given: dict[str, Any] = {"source": arrays(12), "target": arrays(9)[0], role: tmp_path / "photos"}
        with pytest.raises(InputError, match=f"lies in {role} .*photos, among its images: choose a folder beside it"):
            adamatch.fit(**given, out=tmp_path / "photos" / "run", **TINY)
    assert not (tmp_path / "photos" / "run").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": "big"}, "size is auto or a whole number, not 'big'"),
        ({"batch": 3.5}, "batch is auto or a whole number, not 3.5"),
        ({"seed": 1.5}, "a seed is a whole number from 0"),
        ({"seed": "1"}, "a seed is a whole number from 0"),
        ({"seed": None}, "a seed is a whole number from 0"),
        ({"labels_per_class": 2.5}, "labels per class are a whole number from 1"),
    ],
)
def test_what_is_no_whole_number_is_said(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    told: dict[str, Any] = {"source": arrays(12), "target": arrays(9)[0], "out": tmp_path / "run", **TINY}
    with pytest.raises(InputError, match=says):
        adamatch.fit(**told | given)


def test_what_is_missing_or_no_network_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target is missing"):
        adamatch.fit(source=arrays(12), target=None, out=tmp_path / "run", **TINY)
    with pytest.raises(InputError, match="a class of yours has to be called first"):
        fit(tmp_path / "run", network=nn.Linear)  # type: ignore[arg-type]
