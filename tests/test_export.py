"""Exported files: they say what `predict` says, to a program without torch as well."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from colours import network
from mixed import write_mixed
from test_examples import example

from adamatch import Model, export, load, networks
from adamatch.base import manifest
from adamatch.base.errors import InputError
from adamatch.base.files import checksum
from adamatch.images.decode import Shape, read_image, square
from adamatch.networks.norm import estimate_statistics
from adamatch.networks.pretrained import has_imagenet, imagenet, images_of
from adamatch.networks.weights import load_weights
from adamatch.train import speed

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
CLASSES = ("red", "blue", "green")  # not in alphabetical order


@pytest.fixture(scope="module")
def infer() -> ModuleType:
    return example("infer_onnx")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_mixed(tmp_path_factory.mktemp("mixed"), 1000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path, float]:
    """A model, its ONNX file, and the difference that was told."""
    model, file = model_of("wrn-small", 16), tmp_path_factory.mktemp("onnx") / "model.onnx"
    return model, file, model.export(file)


def model_of(name: str, size: int, shape: Shape = "squeeze") -> Model:
    """A network whose statistics and head are not those of the start, so that images make a difference."""
    torch.manual_seed(0)
    net = networks.build(name, 3)
    x = torch.nn.functional.interpolate(torch.randn(16, 3, 4, 4), size)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        estimate_statistics(net, [x])
        head, logits = net.get_submodule("head"), net.eval()(x)
        head.weight /= logits.std(0)[:, None]
        head.bias -= net(x).mean(0)
    return Model(net, CLASSES, size, name, speed.choose("cpu"), shape=shape)


def compare(model: Model, file: Path, files: list[Path], infer: ModuleType) -> None:
    """The example's way through the file, against `predict`."""
    expected = model.predict(files[0].parent)
    classify = infer.Classifier(file)
    found = np.concatenate([classify(list(map(str, files[i : i + 100]))) for i in range(0, len(files), 100)])
    assert np.ptp(expected.probabilities, axis=0).max() > 0.1  # they do not all look alike to it
    assert np.abs(found - expected.probabilities).max() < 1e-4


def test_a_wide_residual_network_in_onnx(
    tmp_path: Path, small: tuple[Model, Path, float], mixed: list[Path], infer: ModuleType
) -> None:
    model, file, difference = small
    assert 0 < difference < 1e-5
    compare(model, file, mixed, infer)
    facts = {each.key: each.value for each in onnx.load(file).metadata_props}
    assert json.loads(facts["classes"]) == list(CLASSES)
    assert (facts["size"], facts["shape"], facts["network"]) == ("16", "squeeze", "wrn-small")
    assert facts["sha256"] == checksum(model.save(tmp_path) / "model.safetensors")
    assert str(Path(export.__file__).parent).encode() not in file.read_bytes()
    assert list(file.parent.iterdir()) == [file]  # nothing half written is left


@pytest.mark.slow
@pytest.mark.skipif(not has_imagenet("efficientnet-lite0"), reason="needs the extra `photos`")
def test_a_pretrained_network_in_onnx(tmp_path: Path, mixed: list[Path], infer: ModuleType) -> None:
    model = model_of("efficientnet-lite0", 32, images_of("efficientnet-lite0").shape)
    load_weights(model.net, imagenet("efficientnet-lite0"))
    assert model.shape == "crop"
    assert model.export(tmp_path / "model.onnx") < 1e-4
    compare(model, tmp_path / "model.onnx", mixed, infer)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("resnetv2-50", 64), ("wrn-28-2", 32), ("efficientnet-lite2", 260)])
def test_every_family_in_both_formats(tmp_path: Path, name: str, size: int, infer: ModuleType) -> None:
    model = model_of(name, size, images_of(name).shape)
    assert model.export(tmp_path / "model.onnx") < 1e-4
    assert model.export(tmp_path / "model.pt2") < 1e-5
    compare(model, tmp_path / "model.onnx", write_mixed(tmp_path / "mixed", 100), infer)


def test_torchs_own_format(tmp_path: Path) -> None:
    model = model_of("wrn-small", 8)
    assert model.export(tmp_path / "model.pt2") < 1e-5
    extra = {"adamatch.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
    found = program.module()(torch.from_numpy(images)).detach().numpy()
    assert np.abs(found - model.predict(images).probabilities).max() < 1e-6
    assert json.loads(json.loads(extra["adamatch.json"])["classes"]) == list(CLASSES)
    assert str(Path(export.__file__).parent).encode() not in (tmp_path / "model.pt2").read_bytes()


def test_a_network_of_ones_own_predicts_without_its_code(tmp_path: Path, mixed: list[Path]) -> None:
    model = Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))
    model.save(tmp_path)
    with pytest.raises(InputError, match="holds a network of your own"):
        Model.load_for_predictions(tmp_path)
    assert load(tmp_path, net=network(norm=True)).export(tmp_path / "model.onnx") < 1e-5
    found = Model.load_for_predictions(tmp_path)
    expected = model.predict(mixed[:20])
    assert np.abs(found.predict(mixed[:20]).probabilities - expected.probabilities).max() < 1e-5
    with pytest.raises(InputError, match="holds a network of your own"):
        load(tmp_path)
    other = Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))
    other.save(tmp_path)
    with pytest.raises(InputError, match=r"model\.onnx is of other weights than model\.safetensors: make it anew"):
        Model.load_for_predictions(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"model\.onnx cannot be read"):
        Model.load_for_predictions(tmp_path)


def test_a_file_that_says_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("wrn-small", 8)
    monkeypatch.setattr("adamatch.export.normalise", lambda x: (x.float() - 100) / 128)
    with pytest.raises(InputError, match="would differ from predict by"):
        model.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3)) if x.mean() > 0 else -x.mean((2, 3))

    model = model_of("wrn-small", 8)
    for words, asked, name, to in (
        (r"\.onnx or \.pt2", model, "model.h5", None),
        ("'onx'", model, "model.onnx", "onx"),
        ("does not exist", model, "nowhere/model.onnx", None),
        ("Asking cannot be exported", Model(Asking(), CLASSES, 8, machine=speed.choose("cpu")), "model.onnx", None),
    ):
        with pytest.raises(InputError, match=words) as told:
            asked.export(tmp_path / name, to=to)
        assert "\n" not in str(told.value)
    monkeypatch.setattr("adamatch.export.NEEDED", ("onnx", "onnxscript_that_is_not_there"))
    with pytest.raises(InputError, match=r"needs onnxscript_that_is_not_there: pip install 'adamatch\[export\]'"):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_ending_says_the_format_and_nothing_else_may_be_asked_for() -> None:
    endings = (("a.PT2", None, "torch"), ("a.onnx", None, "onnx"), ("a.pt2", "torch", "torch"), ("a", "onnx", "onnx"))
    for name, to, found in endings:
        assert export.format_of(Path(name), to) == found
    with pytest.raises(
        InputError, match=r"a\.pt2 ends in \.pt2, but to is onnx: let it end in \.onnx, or leave to out"
    ):
        export.format_of(Path("a.pt2"), "onnx")


def test_a_link_is_followed_and_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    model = model_of("wrn-small", 8)
    os.mkfifo(tmp_path / "pipe.pt2")
    with pytest.raises(InputError, match=r"pipe\.pt2 is not a regular file .*: choose another name"):
        model.export(tmp_path / "pipe.pt2")
    (tmp_path / "link.pt2").symlink_to("end.pt2")
    model.export(tmp_path / "link.pt2")
    assert (tmp_path / "link.pt2").is_symlink()
    assert torch.export.load(tmp_path / "end.pt2")


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Neither a name of ours in the error, nor the end of the process, which torch writing to a full disk is."""

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError) as told:
        model_of("wrn-small", 8).export(tmp_path / name)
    words = f"cannot be written ({os.strerror(errno.ENOSPC)}): make room, or choose another place"
    assert str(told.value) == f"{tmp_path / name} {words}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", ["squeeze", "crop"])
def test_the_example_makes_the_same_pixels(tmp_path: Path, shape: Shape, infer: ModuleType) -> None:
    files = write_mixed(tmp_path, 300, seed=1)
    for number, file in enumerate(files):
        for size in (8, 1 + number % 64):
            assert np.array_equal(infer.prepare(file, size, shape), square(read_image(file), size, shape)), (file, size)


def test_the_example_runs_without_torch_and_without_adamatch(tmp_path: Path, small: tuple[Model, Path, float]) -> None:
    model, file, _ = small
    files = list(map(str, write_mixed(tmp_path / "images", 3)))
    program = "import runpy, sys; sys.modules['torch'] = sys.modules['adamatch'] = None; sys.argv = sys.argv[1:]; " + (
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = Path(__file__).parent.parent / "examples/infer_onnx.py"
    done = subprocess.run(
        [sys.executable, "-c", program, script, file, *files], capture_output=True, text=True, check=True
    )
    said = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    assert said == [[file, label] for file, label in zip(files, model.predict(files).labels, strict=True)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network of one's own, for the command line in ONNX."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("own")
    model = Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))
    model.save(folder)
    model.export(folder / "model.onnx")
    return folder


def tampered(own: Path, to: Path, change: Callable[[Any], object]) -> Path:
    """A copy whose ONNX file a stranger has changed, the list of files as well."""
    shutil.copytree(own, to)
    proto = onnx.load(to / "model.onnx")
    change(proto)
    manifest.forget(to, "model.onnx")
    (to / "model.onnx").write_bytes(proto.SerializeToString())
    manifest.complete(to)
    return to


def loop(proto: Any) -> None:
    body = onnx.helper.make_graph([], "body", [], [])
    proto.graph.node.append(onnx.helper.make_node("Loop", ["n", "go"], ["x"], body=body))


def external(proto: Any) -> None:
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../etc/passwd")


def foreign(proto: Any) -> None:
    proto.graph.node[0].domain = "com.microsoft"


def local(proto: Any) -> None:
    proto.functions.add(name="f", domain="mine")


@pytest.mark.parametrize("change", [loop, external, foreign, local])
def test_an_onnx_file_holds_standard_operators_alone(
    own: Path, tmp_path: Path, change: Callable[[Any], object]
) -> None:
    folder = tampered(own, tmp_path / "run", change)
    with pytest.raises(InputError, match=r"model\.onnx cannot be read \(it has operators that adamatch"):
        Model.load_for_predictions(folder)


def turned(proto: Any) -> None:
    """The first permutation loses an axis: the runtime opens the file, and stops at the first image."""
    axes = next(each for node in proto.graph.node if node.op_type == "Transpose" for each in node.attribute)
    axes.ints.remove(3)


def test_an_onnx_file_that_opens_and_does_not_work(own: Path, tmp_path: Path) -> None:
    model = Model.load_for_predictions(tampered(own, tmp_path / "run", turned))
    with pytest.raises(InputError, match=r"model\.onnx does not work \(.*make it anew with model\.export"):
        model.predict(np.zeros((2, 8, 8, 3), np.uint8))


def test_an_onnx_file_is_listed_and_as_it_was_written(own: Path, tmp_path: Path) -> None:
    folder = tampered(own, tmp_path / "run", lambda proto: None)
    assert len(Model.load_for_predictions(folder).classes) == 3
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(InputError, match="changed since it was written"):
        Model.load_for_predictions(folder)
    manifest.forget(folder, "model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx is not in its manifest\.json: make it anew"):
        Model.load_for_predictions(folder)


def test_names_of_classes_that_are_no_text(tmp_path: Path) -> None:
    classes = ("caf\udce9", "b", "c")
    model = Model(network(norm=False).eval(), classes, 8, machine=speed.choose("cpu"))
    model.export(tmp_path / "model.onnx")
    facts = {each.key: each.value for each in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert tuple(json.loads(facts["classes"])) == classes
    model.export(tmp_path / "model.pt2")
