"""Systems: without what only POSIX has, and on a Mac's GPU as on a CPU; `adamatch --help` without torch."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from train import tiny

import adamatch
from adamatch import methods, networks
from adamatch.base import system
from adamatch.base.errors import InputError
from adamatch.config.recipe import PseudoLabels
from adamatch.train import speed
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution
from adamatch.train.speed import Machine
from adamatch.train.step import Step

TESTS = Path(__file__).parents[1]
IMPORT_ALL = """
import importlib, pkgutil, adamatch
for module in pkgutil.walk_packages(adamatch.__path__, "adamatch."):
    if module.name != "adamatch.__main__" and not module.name.endswith("_kernels"):  # Triton is for Linux
        importlib.import_module(module.name)
"""
TRAIN = """
from pathlib import Path
from colours import TINY, arrays
model = adamatch.fit(source=arrays(30), target=arrays(30, 1)[0], out="run", **TINY)
assert adamatch.load("run", device="cpu").predict(arrays(4)[0]).labels == model.predict(arrays(4)[0]).labels
from adamatch.images.store import Writer
writer = Writer("store", count=3, size=8)
writer.images[:] = 7
assert (writer.commit(None, ("a", "b"), {}).images == 7).all()
"""


def python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(Path(adamatch.__file__).parents[1]), str(TESTS)])
    # Other people's plugins of pytest may need POSIX.
    environment = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_it_is_imported_and_trains_without_posix(tmp_path: Path) -> None:
    done = python(["-c", "import no_posix" + IMPORT_ALL + TRAIN], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_tests_that_need_no_posix_pass_without_it(tmp_path: Path) -> None:
    files = ["test_model.py", "test_fit.py", "test_evaluate.py", "images", "networks", "train/test_step.py"]
    options = ["-q", "-p", "no_posix", "-p", "no:cacheprovider", "-m", "not slow and not posix"]
    options += [f"--basetemp={tmp_path}/tests", *(str(TESTS / file) for file in files)]
    done = python(["-m", "pytest", *options], TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    "asked", [["--help"], ["predict", "--help"], ["export", "--help"], ["--version"], ["nonsense"]]
)
def test_help_comes_without_torch(asked: list[str], tmp_path: Path) -> None:
    program = f"import sys; sys.modules['torch'] = sys.modules['numpy'] = None; sys.argv = ['adamatch', *{asked}]; "
    done = python(["-c", program + "from adamatch.cli import main; main()"], tmp_path)
    assert done.returncode == (2 if asked == ["nonsense"] else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_names_of_the_package_are_functions_whatever_was_imported_before(tmp_path: Path) -> None:
    program = """
import adamatch.fit, adamatch.train.speed, sys, types
import adamatch
assert isinstance(adamatch.fit, types.FunctionType) and isinstance(adamatch.train, types.FunctionType)
from adamatch import *
assert all(name in dir(adamatch) and callable(globals()[name]) for name in adamatch.__all__)
"""
    done = python(["-c", program], tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError):
        _ = adamatch.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(("limit", "left"), [("max", 8000 * 1024), ("5000000", 5000000 - 4000000 + 3000000)])
def test_free_memory_is_what_a_container_has_left_without_the_cache(
    limit: str, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2**20 < system.free_memory() < 2**50
    monkeypatch.setattr(system, "PROC", tmp_path)
    monkeypatch.setattr(system, "GROUPS", tmp_path / "groups")
    job = tmp_path / "groups" / "slurm" / "job"
    job.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/other\n0::/slurm/job\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 8000 kB\n")
    (job.parent / "memory.max").write_text(limit)
    (job.parent / "memory.current").write_text("4000000")
    (job.parent / "memory.stat").write_text("anon 1\ninactive_file 1000000\nactive_file 2000000\n")
    assert system.free_memory() == left


@pytest.mark.parametrize("length", [0, 5, 3 * 2**20 + 1])
def test_a_file_gets_its_room_and_keeps_what_it_holds(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    file = tmp_path / "sparse"
    with file.open("wb") as sparse:
        sparse.write(b"head"[:length])
        sparse.truncate(length)
    content = file.read_bytes()
    system.fill(file)
    assert file.read_bytes() == content
    assert file.stat().st_blocks * 512 >= length


def test_a_macs_gpu_is_refused_where_there_is_none() -> None:
    if not torch.backends.mps.is_available():
        with pytest.raises(InputError, match="no GPU of a Mac: use device="):
            speed.choose("mps")


class Apart(Machine):
    """A GPU beside which views are made on the CPU, as beside a Mac's."""

    @property
    def images(self) -> torch.device:
        return torch.device("cpu")


MPS = pytest.mark.skipif(not torch.backends.mps.is_available(), reason="needs a Mac's GPU")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("mps", marks=MPS), pytest.param("cuda", marks=[CUDA, pytest.mark.gpu])]
)
def test_a_step_with_views_on_the_cpu_is_the_step_of_a_cpu(device: str) -> None:
    machine = Apart(torch.device(device), "fp32", compile=False, graph=False)
    states = []
    for each in (tiny.CPU, machine):
        run = tiny.a_run(strong="cta")
        torch.manual_seed(0)
        net = networks.build("wrn-tiny", 3)
        problem = tiny.problem()
        step = Step(
            net,
            methods.build("adamatch", classes=3, net=net, recipe=PseudoLabels(tau=0.4), options={}),
            run.recipe,
            each,
            pytest.fail,
        )
        batches = Batches(run, problem, step, Execution(each))
        for done in range(3):
            step(batches.next(done))
        states.append({name: copy.deepcopy(value).cpu() for name, value in step.state().items()})
    torch.testing.assert_close(*states, rtol=1e-3, atol=1e-4)
