"""fit as a library call: whatever holds images, whatever is a network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import TINY, arrays, network
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import adamatch
from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.base.files import listed
from adamatch.cli import app
from adamatch.images.user_data import UserData
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine

SAME = arrays(81)


def fit(out: Path, **given: Any) -> adamatch.Model:
    """A tiny run of twelve labelled and nine unlabelled images, unless others are given."""
    return adamatch.fit(**{"source": arrays(12), "target": arrays(9)[0], "out": out, **TINY, **given})


def test_arrays_learn_to_tell_colours(tmp_path: Path) -> None:
    source, target = arrays(60), arrays(60, seed=1, dark=60)
    net = network(norm=True)
    model = fit(tmp_path / "run", source=source, target=target[0], test=target, network=net, images=800, batch=8)
    assert model.classes == ("0", "1", "2")
    assert model.evaluate(target).accuracy > 90
    estimate = model.history["estimate"]
    assert estimate["target_accuracy"] > 60
    assert estimate["held_out"] == 6
    assert 0 <= estimate["mask"] <= 1
    assert 1 / 3 <= estimate["largest_share"] <= 1


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
    fit(tmp_path / "run", network=network(norm), quiet=False)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("its two forward passes are the same") == (0 if norm else 1)


def test_a_network_that_does_not_fit_the_classes(tmp_path: Path) -> None:
    flat = nn.Flatten()
    for net, message in (
        (nn.Sequential(flat, nn.Linear(192, 5)), r"gives \[2, 5\] for two images: 3 classes need 3 outputs"),
        (nn.Sequential(flat, nn.Linear(7, 3)), r"cannot take images \[2, 3, 8, 8\]"),
    ):
        with pytest.raises(InputError, match=message):
            fit(tmp_path / "run", network=net)
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


def test_a_run_goes_on_from_wherever_its_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("photos", 12), ("sketches", 6)):
        for number, (image, label) in enumerate(zip(*arrays(count), strict=True)):
            path = tmp_path / name / str(label) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    monkeypatch.chdir(tmp_path)
    first = fit(Path("run"), source="photos", target="sketches")
    before = (tmp_path / "run/model.safetensors").stat().st_mtime_ns
    again = fit(tmp_path / "run", source=tmp_path / "photos", target="./sketches/")
    assert (tmp_path / "run/model.safetensors").stat().st_mtime_ns == before
    assert again.history == first.history
    assert adamatch.load("run").history["estimate"] == first.history["estimate"]
    with pytest.raises(InputError, match="batch was 4 and is 3 now"):
        fit(Path("run"), source="photos", target="sketches", batch=3)


def test_a_class_without_a_target_label_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels, labels = arrays(6)
    for name, shown in (("a", labels != 1), ("b", labels >= 0)):
        few = pixels[shown], labels[shown]
        fit(tmp_path / name, source=(pixels, labels), target_labels=few, quiet=False)
        said = " ".join(capsys.readouterr().err.split())
        assert ("has no image of 1: no target label helps there" in said) == (name == "a")


@pytest.mark.parametrize(
    ("given", "learned"),
    [
        ({"labels_per_class": 2}, True),
        ({"labels_per_class": 2, "network": network(norm=True)}, False),  # it may have no features and head
        ({"labels_per_class": 26}, False),
        ({}, False),
        ({"labels_per_class": 2, "method": "supervised"}, False),  # it looks at no unlabelled image
        ({"source": tuple(each[:8] for each in SAME), "target": SAME[0]}, True),
        ({"source": tuple(each[:8] for each in SAME), "target": SAME[0][1:]}, False),  # one is not in it
    ],
)
def test_few_labels_without_a_source_begin_without_labels(given: dict[str, Any], learned: bool, tmp_path: Path) -> None:
    given = {"source": SAME, "target": SAME, "network": "wrn-tiny", **given}
    recipe = fit(tmp_path / "run", **given).history["run"]["recipe"]
    found = tuple(recipe[name] for name in ("simclr_images", "linear_probe_init", "knn_anchor", "lr_end"))
    assert found == ((recipe["images"], True, True, 0.02) if learned else (0, False, False, 0.25))


@pytest.mark.parametrize(("share", "anchored"), [(0.3, True), (0.01, False)])
def test_the_surest_labels_are_held_on_to_where_domains_look_alike(
    share: float, anchored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    save_file(networks.build("wrn-tiny", 5).state_dict(), tmp_path / "start.safetensors")
    start = str(tmp_path / "start.safetensors")
    given: dict[str, Any] = {"out": tmp_path / "run", "network": "wrn-tiny", "weights": start}
    asked: list[tuple[int, int]] = []

    def likeness(net: nn.Module, source: Any, target: Any, machine: Machine, advance: Any) -> float:
        asked.append((len(source[0]), len(target[0])))
        return share

    monkeypatch.setattr("adamatch.plan.likeness", likeness)
    recipe = fit(**given).history["run"]["recipe"]
    assert asked == [(12, 9)]
    assert (recipe["knn_anchor"], recipe["lr"], recipe["linear_probe_init"]) == (anchored, 0.01, True)
    again = fit(**given)  # as in the run that is there
    assert again.history["run"]["recipe"] == recipe
    assert len(asked) == 1
    fit(**given, overwrite=True)
    assert len(asked) == 2


def test_with_all_blocks_frozen_a_classifier_is_all_that_is_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = networks.build("wrn-tiny", 5)
    save_file(net.state_dict(), tmp_path / "start.safetensors")
    model = fit(tmp_path / "run", network="wrn-tiny", weights=str(tmp_path / "start.safetensors"), frozen="all")
    assert all(torch.equal(*each) for each in zip(net.blocks.parameters(), model.net.blocks.parameters(), strict=True))  # type: ignore[union-attr]
    assert model.history["judge"]["twin"]["steps"] == 0
    with pytest.raises(InputError, match="needs a network that starts from weights"):
        fit(tmp_path / "other", network="wrn-tiny", weights="none", frozen="all")


def test_a_classifier_of_its_own_features_is_put_on_another_run(tmp_path: Path) -> None:
    first = fit(tmp_path / "first", network="wrn-tiny", weights="none")
    few = arrays(6, seed=2)
    model = fit(tmp_path / "run", weights=str(tmp_path / "first"), frozen="all", target_labels=few)
    assert (model.network, model.size) == ("wrn-tiny", 8)
    before, after = first.net.state_dict(), model.net.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"head.weight", "head.bias"}
    with pytest.raises(InputError, match="holds wrn-tiny, not wrn-small: leave out network"):
        fit(tmp_path / "other", network="wrn-small", weights=str(tmp_path / "first"))
    with pytest.raises(InputError, match="is the run to start from: choose another out"):
        fit(tmp_path / "first", weights=str(tmp_path / "first"), frozen="all", overwrite=True)
    fit(tmp_path / "own", network=network(norm=False))
    with pytest.raises(InputError, match="holds a network of your own: give that as network="):
        fit(tmp_path / "other", weights=str(tmp_path / "own"))


@pytest.mark.parametrize("how", ["folder", "list", "pairs"])
def test_images_in_the_runs_folder_are_refused(how: str, tmp_path: Path) -> None:
    pixels, labels = arrays(30)
    fit(tmp_path / "run", source=(pixels, labels), target=pixels, twin=False)
    inside = tmp_path / "run" / "mine"
    inside.mkdir()
    files = [inside / f"{i}.png" for i in range(len(pixels))]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    (tmp_path / "mine.csv").write_text("path\n" + "\n".join(map(str, files)))
    target = {"folder": inside, "list": tmp_path / "mine.csv", "pairs": files}[how]
    with pytest.raises(InputError, match=r"target lies in .*run, the run's folder, which may be emptied"):
        fit(tmp_path / "run", source=(pixels, labels), target=target, overwrite=True)
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
    fit(tmp_path, source=arrays(30))
    assert len(said) == 2
    with RunFolder(tmp_path).hold():
        pass


def test_paths_may_be_an_array_and_the_folder_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pixels, labels = arrays(30)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    paths = np.array([str(tmp_path / f"{i}.png") for i in range(len(pixels))])
    model = fit(Path("~/run"), source=(pixels, labels), target=paths, twin=False)
    assert model.folder == tmp_path / "run"
    assert (tmp_path / "run" / "model.json").is_file()


def test_a_run_among_the_images_is_refused(tmp_path: Path) -> None:
    for name in ("red", "blue"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    for role in ("source", "target", "target_labels", "test"):
        with pytest.raises(InputError, match=f"lies in {role} .*photos, among its images: choose a folder beside it"):
            fit(tmp_path / "photos" / "run", **{role: tmp_path / "photos"})
    assert not (tmp_path / "photos" / "run").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"seed": 1.5}, "seed is a whole number from 0, not 1.5"),
        ({"seed": None}, "seed is a whole number from 0, not None"),
        ({"labels_per_class": 2.5}, "labels_per_class is a whole number from 1, not 2.5"),
        ({"target": None}, "target is missing"),
        ({"network": nn.Linear}, "network is a name or a module"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        fit(tmp_path / "run", **given)


def test_a_run_without_a_page_gets_one_when_the_call_asks_for_it(tmp_path: Path) -> None:
    fit(tmp_path / "run", report=False)
    assert (tmp_path / "run/judge.json").exists()
    assert not (tmp_path / "run/report.html").exists()
    before = (tmp_path / "run/result.json").read_bytes()
    fit(tmp_path / "run")
    assert (tmp_path / "run/report.html").exists()
    assert (tmp_path / "run/result.json").read_bytes() == before  # it is not trained again


def test_the_first_line_comes_before_an_image_is_read_and_every_stage_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = UserData.read

    def read(self: UserData, role: str, *given: Any, **how: Any) -> Any:
        if role == "source":
            told.append(capsys.readouterr().err)
        return reading(self, role, *given, **how)

    told: list[str] = []
    monkeypatch.setattr(UserData, "read", read)
    fit(tmp_path / "run", quiet=False)
    assert told[0].splitlines()[0] == "12 + 9 images, 3 classes"
    lines = capsys.readouterr().err.splitlines()
    stages = ["reading images: source", "reading images: target", "model: training", "twin: training"]
    found = [lines.index(line) for line in (*stages, "the verdict: what can be said without labels")]
    assert found == sorted(found)
    assert found[-1] < lines.index("the page, report.html")


def test_a_run_that_ends_without_its_page_says_what_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, out = arrays(30), arrays(12, 1)[0], tmp_path / "run"
    for error in (KeyboardInterrupt, RuntimeError("of a twin")):
        monkeypatch.setattr("adamatch.twin.train", tiny_error(error))
        with pytest.raises(type(error) if isinstance(error, Exception) else error):
            adamatch.fit(source=source, target=target, out=out, **TINY)
        line = f"the model is in {out}; `adamatch report {out}` makes a page of it"
        assert line in capsys.readouterr().err
    assert adamatch.load(out).report().is_file()


def tiny_error(error: Any) -> Any:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    return fail


def test_every_file_of_a_run_is_listed_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    adamatch.fit(source=arrays(30), target=arrays(12, 1)[0], out=out, **TINY)
    there = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and "events" not in path.parts}
    there = {name for name in there if not name.startswith((".lock", "twin/")) and name != "manifest.json"}
    assert {name for name in listed(out) if "events" not in name} == there | {"twin/manifest.json"}

    def verify() -> str:
        result = CliRunner().invoke(app, ["verify", str(out)])
        return f"{result.output}exit {result.exit_code}"

    assert verify() == f"{out}: every file is as it was written\nexit 0"
    (out / "report.html").write_text("another page")
    assert verify().endswith("exit 0")
    (out / "twin/judge.json").unlink(missing_ok=True)
    (out / "twin/result.json").write_text("{}")
    (out / "map.npz").unlink()
    assert f"{out}/map.npz is missing" in verify()
    assert f"{out}/twin/result.json was changed since it was written\nexit 1" in verify()
