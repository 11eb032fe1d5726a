"""The command line as a person meets it: every mistake gets one line and exit code 2, and nothing is lost."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import adamatch
from adamatch import cli
from adamatch.base import cli_names
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.images.decode import kinds
from adamatch.train import checkpoint
from adamatch.train.run_folder import RunFolder

TINY = ("--size", "8", "--images", "8", "--batch", "4", "--device", "cpu")
COLOURS = {"blue": (40, 60, 200), "green": (40, 180, 60), "red": (210, 50, 40)}


KINDS = f"is not an image of a kind that is read here ({', '.join(kinds())})"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


def images(folder: Path, classes: tuple[str, ...] = tuple(COLOURS), count: int = 3, seed: int = 0) -> Path:
    """One folder per class of noisy one-coloured images."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            noisy = np.asarray(COLOURS.get(name, (0, 0, 0))) + rng.integers(-40, 40, (12, 12, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["adamatch", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """source/, target/, few/ with three classes, and a trained model in run/."""
    root = tmp_path_factory.mktemp("data")
    images(root / "source", count=10)
    images(root / "target", seed=1)
    images(root / "few", count=1, seed=2)
    command = ["-m", "adamatch", "fit", "--source", "source", "--target", "target", "--out", "run"]
    made = subprocess.run([sys.executable, *command, *TINY], cwd=root, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (root / "said.txt").write_text(made.stderr)
    (root / "printed.txt").write_text(made.stdout)
    return root


def refused(outcome: Outcome, *words: object) -> None:
    """One line on stderr that says these words, exit code 2."""
    lines = outcome.err.splitlines()
    assert outcome.code == 2, outcome
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert outcome.out == ""
    for word in words:
        assert str(word) in lines[0]


def fit(call: Call, source: Path, target: Path, out: Path, *more: object) -> Outcome:
    return call("fit", "--source", source, "--target", target, "--out", out, "--quiet", *TINY, *more)


def test_fit_tells_its_choices_and_an_honest_estimate(data: Path) -> None:
    said = " ".join((data / "said.txt").read_text().split())
    assert "network: wrn-small, because there is no GPU" in said
    counts = "27 labelled and 9 unlabelled images; 3 more labelled ones are set aside"
    assert f"3 classes (blue, green, red), {counts}" in said
    assert "9 unlabelled images are fewer than the 12 of a training step: some come twice in it" in said
    printed = (data / "printed.txt").read_text()
    assert "accuracy on 3 held-out source images: " in printed
    assert "target predictions" in printed  # what adaptation changed
    assert "target images used as pseudo-labels" in printed
    assert "adamatch predict run IMAGES" in printed


def test_the_same_line_does_ssda_and_ssl(data: Path, tmp_path: Path, call: Call) -> None:
    more = ("--target-labels", data / "few", "--test", data / "target")
    few = fit(call, data / "source", data / "target", tmp_path / "ssda", *more)
    assert few.code == 0
    assert "accuracy on the labelled target images: " in few.out
    assert "Adaptation " in few.out
    assert "cannot be told" not in few.out
    ssl = fit(call, data / "source", data / "few/../source", tmp_path / "ssl", "--labels-per-class", 2)
    assert ssl.code == 0
    assert "accuracy on 3 held-out images: " in ssl.out
    tasks = [json.loads((tmp_path / name / "run.json").read_text())["task"] for name in ("ssda", "ssl")]
    assert tasks == ["ssda", "ssl"]
    subset = json.loads((tmp_path / "ssl/result.json").read_text())["labelled_subset"]
    assert len(subset["rows"]) == 6


def test_predict_writes_a_csv(data: Path, tmp_path: Path, call: Call) -> None:
    one = data / "few/red/0.png"
    outcome = call("predict", data / "run", data / "target", one, "--csv", tmp_path / "out.csv")
    assert outcome.code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "class", "probability", *COLOURS]
    assert len(rows) == 1 + 9 + 1
    assert rows[-1][0] == str(one)
    for row in rows[1:]:
        assert row[1] in COLOURS
        assert sum(map(float, row[3:])) == pytest.approx(1, abs=2e-3)
        assert float(row[2]) == max(map(float, row[3:]))
    table = call("predict", data / "run", one)
    assert str(one) in table.out  # however long: not cut where it goes to a file
    assert "%" in table.out


def test_predict_tells_the_likeliest_classes_and_sorts_into_folders(data: Path, tmp_path: Path, call: Call) -> None:
    table = call("predict", data / "run", data / "few", "--top", 3)
    assert [line.count("%") for line in table.out.splitlines() if ".png" in line] == [3] * 3
    asked = ("predict", data / "run", data / "target", "--top", 2, "--sort-into", tmp_path / "sorted")
    outcome = call(*asked, "--csv", tmp_path / "out.csv")
    assert outcome.code == 0
    assert f"9 images copied into {tmp_path / 'sorted'}: {tmp_path / 'sorted/copies.csv'} lists them" in outcome.out
    with (tmp_path / "out.csv").open(newline="") as file:
        said = {row["path"]: row["class"] for row in csv.DictReader(file)}
    with (tmp_path / "sorted/copies.csv").open(newline="") as file:
        copied = list(csv.DictReader(file))
    assert {row["from"]: Path(row["to"]).parent.name for row in copied} == said
    for row in copied:
        assert (tmp_path / "sorted" / row["to"]).read_bytes() == Path(row["from"]).read_bytes()
    refused(call(*asked), tmp_path / "sorted", "is there and not empty")
    inside = call("predict", data / "run", data / "target", "--sort-into", data / "target/sorted")
    refused(inside, "lies in", data / "target")
    assert not (data / "target/sorted").exists()


def test_evaluate_prints_accuracy_and_a_table(data: Path, tmp_path: Path, call: Call) -> None:
    more = ("--csv", tmp_path / "out.csv", "--page", tmp_path / "out.html")
    outcome = call("evaluate", data / "run", data / "target", *more)
    assert outcome.code == 0
    assert all(name in outcome.out for name in COLOURS)
    assert "% on 9 images" in outcome.out
    assert "balanced accuracy" in outcome.out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 10
    assert "images of <bdi>target</bdi> are wrong" in (tmp_path / "out.html").read_text()
    (tmp_path / "mine.html").write_text("mine")
    refused(call("evaluate", data / "run", data / "target", "--page", tmp_path / "mine.html"), "is no page of adamatch")


def test_missing_and_empty_folders(data: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "run"
    refused(fit(call, data / "nowhere", data / "target", out), data / "nowhere", "does not exist")
    refused(fit(call, data / "source", data / "nowhere", out), data / "nowhere", "does not exist")
    refused(fit(call, tmp_path / "empty", data / "target", out), tmp_path / "empty", "no images")
    refused(fit(call, data / "source", tmp_path / "empty", out), tmp_path / "empty", "no images")
    refused(call("predict", data / "run", data / "nowhere"), data / "nowhere", "does not exist")
    refused(call("predict", data / "nowhere", data / "target"), data / "nowhere", "no model")
    refused(call("evaluate", data / "run", tmp_path / "empty"), tmp_path / "empty", "no images")
    nowhere = call("predict", data / "run", data / "few", "--csv", tmp_path / "no/out.csv")
    refused(nowhere, tmp_path / "no", "does not exist")
    assert not out.exists()


def test_one_class_no_classes_strange_classes(data: Path, tmp_path: Path, call: Call) -> None:
    one = images(tmp_path / "one", ("red",))
    flat = images(tmp_path / "flat", ("red",)) / "red"
    strange = images(tmp_path / "strange", ("red", "purple"))
    target, out = data / "target", tmp_path / "run"
    refused(fit(call, one, target, out), one, "one class only (red)")
    refused(fit(call, flat, target, out), flat, "one folder per class")
    refused(fit(call, data / "source", target, out, "--target-labels", strange), strange, "purple")
    assert not out.exists()
    for done in (fit(call, data / "source", target, out, "--test", strange), call("evaluate", data / "run", strange)):
        assert done.code == 0
        assert "3 of 6 images are of classes that were not learnt ('purple'): left out" in done.err


def damage(path: Path, kind: str) -> None:
    whole = path.read_bytes()
    corrupt, half = whole[:40] + b"\xff" * 60, whole[: len(whole) // 2]
    path.write_bytes({"empty": b"", "truncated": half, "corrupt": corrupt, "text": b"hello"}[kind])


@pytest.mark.parametrize("kind", ["empty", "truncated", "corrupt", "text"])
def test_few_bad_images_are_left_out_and_many_are_named_at_once(
    data: Path, tmp_path: Path, call: Call, kind: str
) -> None:
    source, target = images(tmp_path / "source"), images(tmp_path / "target")
    bad, worse = source / "green/1.png", (target / "red/0.png", target / "blue/2.png")
    for path in (bad, *worse):
        damage(path, kind)
    refused(fit(call, source, target, tmp_path / "run"), bad, *worse, "3 of 18 images", "--skip-bad")
    refused(call("evaluate", data / "run", target), *worse, "--skip-bad")
    refused(call("predict", data / "run", data / "few", bad), bad)
    assert not (tmp_path / "run").exists()
    few = fit(call, source, data / "target", tmp_path / "few")
    assert "images cannot be read: left out" in few.err
    for outcome in (
        few,
        call("evaluate", data / "run", source),
        call("predict", data / "run", source),
        fit(call, source, target, tmp_path / "run", "--skip-bad"),
        call("predict", data / "run", data / "few", bad, source, "--skip-bad", "--csv", tmp_path / "out.csv"),
        call("evaluate", data / "run", source, "--skip-bad"),
    ):
        assert outcome.code == 0
        assert str(bad) in outcome.err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + 3 + 8
    assert "on 8 images" in outcome.out
    refused(call("predict", data / "run", bad, "--skip-bad"), bad, "none of 1")


def test_more_labels_than_there_are(data: Path, tmp_path: Path, call: Call) -> None:
    source = data / "source"
    assert fit(call, source, source, tmp_path / "all", "--labels-per-class", 10).code == 0  # held-out images give way
    assert fit(call, source, source, tmp_path / "more", "--labels-per-class", 11).code == 0  # all there are
    refused(fit(call, source, source, tmp_path / "run", "--labels-per-class", 0), "from 1")


@pytest.mark.parametrize(
    ("command", "option", "value", "nearest"),
    [
        ("fit", "--method", "adamach", "adamatch"),
        ("fit", "--network", "wrn-28", "wrn-28-2"),
        ("fit", "--device", "cpuu", "cpu"),
        ("fit", "--precision", "bf17", "bf16"),
        ("train", "--benchmark", "handwritin", "handwriting"),
        ("train", "--task", "uba", "uda"),
        ("train", "--method", "adamach", "adamatch"),
        ("train", "--network", "wrn-smal", "wrn-small"),
        ("train", "--strong", "randaugmnt", "randaugment"),
        ("train", "--budget", "fsat", "fast"),
        ("train", "--source", "renderd", "rendered"),
    ],
)
def test_unknown_names_get_the_nearest(
    data: Path, tmp_path: Path, call: Call, command: str, option: str, value: str, nearest: str
) -> None:
    pair = {"fit": (data / "source", data / "target"), "train": ("rendered", "handwritten")}[command]
    given = {"--source": pair[0], "--target": pair[1], "--images": 64, "--out": tmp_path / "run", option: value}
    refused(call(command, "--quiet", *(part for each in given.items() for part in each)), f"did you mean '{nearest}'?")
    assert command == "train" or not (tmp_path / "run").exists()


def test_usage_mistakes_name_the_option(call: Call) -> None:
    outcome = call("fit", "--source", "photos")
    assert outcome.code == 2
    assert "--target" in outcome.err
    refused(call("train", "--option", "align"), "name=value", "align")
    refused(call("train", "--target", "handwritten", "--source", "rendered", "--lr", "-1"), "lr is a number from 0")


@pytest.mark.parametrize(("asked", "form"), [(["--repeat"], (0.0, 1)), (["--no-repeat"], (0.5, 5)), ([], (0.5, 5))])
def test_repeated_labels_count_from_the_first_step_on(
    call: Call, monkeypatch: pytest.MonkeyPatch, asked: list[str], form: tuple[float, int]
) -> None:
    runs: list[Run] = []

    def train(run: Run, **_: object) -> None:
        runs.append(run)
        raise InputError("that is enough")

    monkeypatch.setattr("adamatch.experiment.train", train)
    pair = ("--source", "rendered", "--target", "handwritten")
    refused(call("train", *pair, "--task", "ssda", "--labels", "5", "--budget", "fast", *asked), "that is enough")
    assert (runs[0].recipe.target_labels_from, runs[0].recipe.target_label_steps) == form


def test_the_version(call: Call) -> None:
    assert call("--version").out.strip() == adamatch.__version__


def test_settings_are_called_as_the_reader_gives_them() -> None:
    settings = (("skip_bad", True), ("twin", False), ("frozen", 0), ("weights", "none"))
    told = [cli_names.argument(*each) for each in settings]
    assert told == ["skip_bad=True", "twin=False", "frozen=0", "weights='none'"]
    with cli_names.as_command():
        told = [cli_names.argument(*each) for each in settings]
    assert told == ["--skip-bad", "--no-twin", "--frozen 0", "--weights none"]


def test_options_are_words_numbers_and_lists() -> None:
    texts = ["a=none", "b=False", "c=3", "d=1e2", "e=.5", "f=0.25,0.75"]
    assert cli_names.options(texts) == {"a": "none", "b": False, "c": 3, "d": 100.0, "e": 0.5, "f": [0.25, 0.75]}


def test_a_disk_that_is_full_for_a_csv(data: Path, call: Call) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    refused(call("predict", data / "run", data / "few", "--csv", "/dev/full"), "No space left")
    assert Path("/dev/full").is_char_device()


def test_ctrl_c_saves_and_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adamatch", "fit", "--source", "source", "--target", "target"]
    command += [*TINY[:2], "--batch", "4", "--images", "8000", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=data, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run/metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    last = err.strip().splitlines()[-1]
    assert last.startswith("stopped at step ")
    assert last.endswith("run the same command again to resume")
    assert "Traceback" not in err
    assert checkpoint.load(tmp_path / "run/checkpoints", print) is not None
    held = Run.from_json((tmp_path / "run/run.json").read_text())
    with RunFolder(tmp_path / "run").claim(held):
        pass


COMMANDS = ["", "demo", "fit", "predict", "evaluate", "report", "export", "choose", "train", "data", "grid"]
COMMANDS += [f"data {name}" for name in ("list", "download", "prepare", "verify")]
COMMANDS += [f"grid {name}" for name in ("plan", "run", "status", "table")]


@pytest.mark.parametrize("width", ["80", "120"])
def test_every_help_teaches_by_example(call: Call, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", int(width))
    for command in COMMANDS:
        outcome = call(*command.split(), "--help")
        assert outcome.code == 0, command
        assert max(map(len, outcome.out.splitlines())) <= int(width)
        assert "[bold]" not in outcome.out
        text = " ".join(outcome.out.replace("│", " ").split())
        taught = text.partition("[OPTIONS]")[2]  # after the line of usage
        assert f"adamatch {command}".strip() in taught or command == "data list", command
        if command.startswith("data ") and "--data" in text:
            assert "$ADAMATCH_DATA" in text, command  # square brackets vanish from help texts


def test_python_m_adamatch_and_no_arguments() -> None:
    made = subprocess.run([sys.executable, "-m", "adamatch"], capture_output=True, text=True)
    assert "Usage:" in made.stdout + made.stderr
    assert "fit" in made.stdout + made.stderr


def test_odd_names_are_shown_and_written_harmlessly(
    data: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files and of classes: cursors stay where they are, markup is text, a formula is none, and UTF-8 it is."""
    monkeypatch.chdir(tmp_path)
    odd = Path("=1+1\x1b[2J[") / "bold]:smile:\u00fc\udce9.png"
    odd.parent.mkdir()
    odd.write_bytes((data / "few/red/0.png").read_bytes())
    Path("bad\n.png").write_bytes(b"%!PS")
    names = ("=cmd()", "\x1b]0;x\x07[/red]", "@sum")
    adamatch.Model(adamatch.load(data / "run").net, names, 8, "wrn-small").save("model")
    table = call("predict", "model", odd, "bad\n.png", "--skip-bad")
    assert table.code == 0
    assert r"=1+1\x1b[2J[/bold]:smile:ü\xe9.png" in table.out
    assert table.err.endswith(f"bad\\n.png {KINDS}\n")
    assert table.err.count("\n") == 1
    assert "\x1b" not in table.out + table.err
    assert call("predict", "model", odd, "--csv", "out.csv").code == 0
    with Path("out.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        header, row = csv.reader(file)
    assert header == ["path", "class", "probability", "'=cmd()", names[1], "'@sum"]
    assert row[0] == f"'{odd}"
    refused(call("predict", "model", "bad\n.png"), r"bad\n.png", "is not an image")
    refused(call("predict", "\x1b[2J[/bold]", odd), r"\x1b[2J[/bold] holds no model")
    assert "apostrophe" in call("predict", "--help").out


def test_predictions_may_be_written_among_the_images(data: Path, tmp_path: Path, call: Call) -> None:
    shutil.copytree(data / "few", tmp_path / "few")
    for _ in range(2):
        for option, name in (("--csv", "out.csv"), ("--parquet", "out.parquet")):
            done = call("predict", data / "run", tmp_path / "few", option, tmp_path / "few" / name)
            assert done.code == 0, done.err
    assert len((tmp_path / "few" / "out.csv").read_text().splitlines()) == 1 + 3
