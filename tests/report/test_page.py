"""The page: all that it should show, whatever is missing, and names as text alone."""

import html
import itertools
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, TINY, arrays, network
from report.runs import HOSTILE, Page, edit, images, made
from torch import Tensor, nn

import adamatch
from adamatch import Model
from adamatch.base.errors import InputError
from adamatch.report import image_statistics as image_statistics
from adamatch.report import page, printed
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool
from adamatch.verdict import eval_outputs

ALL = ("verdict", "warnings", "twin", "classes", "images", "mistakes", "curves", "map", "looks", "run")
SMALL: dict[str, Any] = {"network": "wrn-tiny", "weights": "none", **TINY}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `fit` on folders with hostile names, beside its twin and with a verdict."""
    root = tmp_path_factory.mktemp("run")
    source, target = images(root / "source", HOSTILE, 10), images(root / "target", HOSTILE, 6, seed=1)
    given: dict[str, Any] = {"source": source, "target": target, "test": target, **SMALL, "images": 48, "batch": 12}
    adamatch.fit(out=root / "run", **given)
    line = "<b>Few</b> images look like these"
    warned = [
        {"kind": "same images", "line": line, "rows": [0, 3, 999], "pairs": [7, 30, 999]},
        {"kind": "names", "line": "and a second one", "rows": [], "pairs": []},
        {"kind": "unreadable", "line": "a third", "rows": [], "pairs": [], "files": ["a<b>.png", "c.png"]},
    ]
    span = {"at_least": 41.0, "at_best": 73.0}
    edit(root / "run/judge.json", range=span, gain=5.5, held_out=50, warnings=warned)
    return root / "run"


@pytest.fixture(scope="module")
def found(run: Path) -> Page:
    return Page(page.write(run))


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run", symlinks=True))


def test_fit_leaves_a_page_and_what_it_needs(run: Path) -> None:
    for name in ("report.html", "images.json", "map.npz"):
        assert (run / name).stat().st_size > 100
    facts = json.loads((run / "images.json").read_text())
    assert len(facts["source"]["files"]) == len(facts["source"]["labels"]) == 50
    assert len(facts["source"]["trained"]) == 45
    assert not facts["target"]["labels"]  # nobody looks at them
    assert facts["given"]["target"] == str(run.parent / "target")
    assert (Path(facts["target"]["root"]) / facts["target"]["files"][7]).is_file()


def test_everything_is_on_it(found: Page) -> None:
    assert [each for each in found.ids if each in ALL] == list(ALL)
    titles = "Surest|Labelled target images:|Held-out source images:|Loss on labelled images|Threshold|Mask|Divergence"
    titles += "|Accuracy on held-out source images|Source, by label|Brightness|Contrast|Sharpness|Size|same images"
    for words in (
        "of the labelled target images; without labels it was put between 41 and 73 %",
        "than the same network trained on the labelled images alone",
        "mean confidence on the target",
        "Predictions that changed most often" if "Changed" in found.text else "Twin beside adapted",
        *titles.split("|"),
        *("Labelled images beside them", "<b>Few</b> images look like these"),
        *("adamatch fit --source", torch.__version__, "seconds of training"),
    ):
        assert words in found.text, words
    assert len(found.source.encode()) < page.LARGEST
    assert "missing on this page" not in found.text


def test_warnings_show_their_images(run: Path, found: Page) -> None:
    """Rows count the target; pairs count the labelled images that are trained on, which are not all of the source."""
    known = image_statistics.load(run)
    assert known.source is not None
    assert known.target is not None
    part = found.source[found.source.index('id="warnings"') : found.source.index('id="twin"')]
    names = re.findall(r'title="([^"]*)"', part)
    wanted = [known.target.name(0), known.target.name(3)]
    wanted += [known.source.name(known.source.trained[row]) for row in (7, 30)]
    assert [html.unescape(name) for name in names] == [page.plain(name) for name in wanted]
    assert known.source.trained[30] != 30
    assert "2 files a<b>.png c.png" in found.text


def test_nothing_is_fetched_and_nothing_runs(found: Page) -> None:
    assert not found.all("script")
    for tag, attributes in found.tags:
        assert tag not in ("iframe", "object", "embed", "form", "base")
        assert not [name for name in attributes if name.startswith("on")], attributes
        for name in ("src", "href", "srcset", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"url\(|@import|https?:", found.source)
    assert {"http-equiv", "content"} <= next(each for each in found.all("meta") if "http-equiv" in each).keys()


def test_names_are_text(found: Page) -> None:
    assert found.all("b") == [{}] * len(found.all("b"))  # those of the template
    for name in HOSTILE:
        assert " ".join(str(page.plain(name)).split()) in found.text, name
    assert "49" not in found.text.split()  # {{ 7 * 7 }} is not worked out
    assert page.plain(found.source) == found.source
    pictures = found.all("img")
    assert len(pictures) > 20
    assert all("onerror=alert(2)" in each["alt"] for each in pictures)
    assert all(each.keys() <= {"class", "src", "alt", "title", "width", "height"} for each in pictures)


def test_text_is_made_plain() -> None:
    assert page.plain("a\x00b\x1b\ud800\u202ec\u2066") == "a\ufffdb\ufffd\ufffd\ufffdc\ufffd"
    assert page.plain("\U0001f408\u200d\u2b1b \u05e9\u05dc \u00e9\n") == "\U0001f408\u200d\u2b1b \u05e9\u05dc \u00e9\n"
    assert page.plain(7) == 7


def test_templates_have_no_way_around_escaping() -> None:
    folder = Path(page.__file__).parent
    for file in (folder / "templates").iterdir():
        assert not re.search(r"\|\s*safe|autoescape|Markup", file.read_text()), file
    assert [file.name for file in folder.glob("*.py") if "Markup" in file.read_text()] == ["page.py"]


def test_it_can_be_read_by_keyboard_and_screen_reader(found: Page) -> None:
    assert found.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in found.all("meta")
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(later <= before + 1 for before, later in itertools.pairwise(levels))
    assert len(found.ids) == len(set(found.ids))
    links = [each["href"][1:] for each in found.all("a")]
    assert links[0] == "content"  # the first is the one that skips the rest
    assert set(links) <= set(found.ids)
    assert all(each["alt"] for each in found.all("img"))
    assert all(each.get("role") == "img" and each["aria-label"] for each in found.all("svg"))
    scrolled = [each for each in found.all("div") if each.get("class") == "scroll"]
    assert scrolled
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in scrolled)
    assert all("scope" in each for each in found.all("th"))


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("metrics.jsonl", "", "There are no curves"),
        ("outputs", "images", "There are no predictions to show"),
        ("images.json", "images", "There are no pictures"),
        ("map.npz", "map", "There is no map"),
        ("judge.json", "warnings", ""),
        ("twin", "twin", "there is no twin"),
        ("result.json", "", "Under way"),
        ("model.json", "", ""),
    ],
)
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_what_is_missing_is_said_and_the_rest_is_shown(
    copy: Path, name: str, section: str, words: str, how: str
) -> None:
    gone = copy / name
    if gone.is_dir():
        shutil.rmtree(gone)
        if how != "gone":
            gone.mkdir()
            (gone / "step-000000001.npz").write_bytes(b"PK\x03\x04 not really")
    else:
        gone.unlink() if how == "gone" else gone.write_text('{"a')
    found = Page(page.write(copy))
    assert words in found.text
    assert not section or section not in found.ids
    others = {"metrics.jsonl": "images", "outputs": "curves", "images.json": "curves"}.get(name, "classes")
    assert others in found.ids
    assert "run" in found.ids


def test_images_that_are_gone_are_counted(copy: Path) -> None:
    facts = json.loads((copy / "images.json").read_text())
    away = {name: facts[name] | {"root": facts[name]["root"] + "-elsewhere"} for name in ("source", "target")}
    edit(copy / "images.json", **away)
    found = Page(page.write(copy))
    assert not found.all("img")
    assert "of these images cannot be shown: their files are gone" in found.text
    assert {"classes", "curves", "map"} <= set(found.ids)


def test_under_way(tmp_path: Path) -> None:
    path = made(tmp_path / "run", [np.eye(3)[[0, 1, 2, 0]]], CLASSES)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "ima')
    found = Page(page.write(path))
    assert "Under way" in found.text
    assert "has done 1 of 10 steps" in found.text
    assert "images.json is not in the folder" in found.text
    assert {"classes", "curves"} <= set(found.ids)
    assert all(name in found.text for name in CLASSES)
    (path / "outputs/classes.json").unlink()
    found = Page(page.write(path))
    assert "Classes have numbers here" in found.text
    assert "classes" in found.ids


def test_no_run(tmp_path: Path) -> None:
    for name in ("folder", "odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "odd/run.json").write_text("[]")
    refused = {"nowhere": "does not exist", "folder": "is no run's folder", "odd": "run.json cannot be read"}
    for name, words in refused.items():
        with pytest.raises(InputError, match=words) as told:
            page.write(tmp_path / name)
        assert "\n" not in str(told.value)
    assert not list(tmp_path.rglob("report.html"))


def test_where_a_page_may_be_written(copy: Path, tmp_path: Path) -> None:
    """Over nothing but another page, and at the end of a link."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "mine.html").write_text("<p>mine")
    for name, words in (
        ("mine.html", "is no page of adamatch"),
        ("pipe", "pipe is not a regular file .*: choose another name"),  # which would be waited for
        ("", "is a folder: give the name of a file in it"),
        ("nowhere/a.html", "nowhere does not exist: make it, or choose another place for a.html"),
    ):
        with pytest.raises(InputError, match=words):
            page.write(copy, to=tmp_path / name)
    assert (tmp_path / "mine.html").read_text() == "<p>mine"
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link.html").symlink_to("end.html")
    assert page.write(copy, to=tmp_path / "link.html") == tmp_path / "link.html"
    assert (tmp_path / "link.html").is_symlink()
    assert Page(tmp_path / "end.html").ids


def test_a_run_whose_page_cannot_be_written_says_where_the_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words that can be copied into a shell."""
    replace = os.replace

    def refuse(part: Path, path: Path) -> None:
        if Path(path).name == page.NAME:
            raise OSError(28, os.strerror(28), str(part))  # no space
        replace(part, path)

    monkeypatch.setattr(os, "replace", refuse)
    out = tmp_path / "my run"
    with pytest.raises(InputError) as told:
        adamatch.fit(source=arrays(60), target=arrays(30, seed=1)[0], network=network(norm=True), out=out, **TINY)
    why = "its page cannot be written (the disk is full): see to it"
    assert str(told.value) == f"the model is in {out}, but {why}, then `adamatch report '{out}'`"
    assert not list(out.glob("*.part"))


def test_what_to_do_next_can_be_copied_into_a_shell(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed.ending(adamatch.load(run, device="cpu"), Path("my runs/it's"))
    line = re.search("adamatch predict .*", capsys.readouterr().out)
    assert line
    assert shlex.split(line[0]) == ["adamatch", "predict", "my runs/it's", "IMAGES"]


@pytest.mark.parametrize(("classes", "limit", "pictures"), [(3, 200_000, 6), (150, 2_000_000, 100), (150, 150_000, 0)])
def test_a_page_keeps_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, limit: int, pictures: int
) -> None:
    """Noise compresses badly: with less room there are fewer pictures, of every class some."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (40, 96, 96, 3), dtype=np.uint8)
    said = rng.dirichlet(np.ones(classes), 300).astype(np.float32)
    path = made(tmp_path / "run", [said], [f"class {number}" for number in range(classes)], accuracy=None)
    pool = Pool(300, parts=(noise[:20], *(noise[rng.permutation(40)] for _ in range(7))))
    monkeypatch.setattr(page, "LARGEST", limit)
    text = Page(page.write(path, images=ImageStatistics(target=pool)))
    assert len(text.source.encode()) <= page.LARGEST
    assert pictures <= len(text.all("img")) <= 3 * pictures
    assert ("pictures of the 100 classes with the most doubtful images, of 150" in text.text) == (pictures == 100)
    assert ("The other 130" in text.text) == (classes == 150)


def test_the_command_makes_the_same_run_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adamatch import cli

    line = re.search(r"adamatch fit .*?--out run-again", Page(page.write(run)).text)
    assert line
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [*shlex.split(line[0]), "--device", "cpu", "--quiet"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert (tmp_path / "run-again/run.json").read_text() == (run / "run.json").read_text()


def test_arrays_and_networks_of_ones_own(tmp_path: Path) -> None:
    source, target = arrays(60), arrays(30, seed=1)[0]
    more: dict[str, Any] = {"network": network(norm=True), "options": {"align": "none"}, **TINY}
    model = adamatch.fit(source=source, target=target, out=tmp_path / "run", **more)
    found = Page(tmp_path / "run/report.html")
    assert "the network has no features(x)" in found.text
    assert found.all("img")[0]["alt"].startswith("image ")
    assert "adamatch.fit(source=source, target=target, method='adamatch', network=network, size=8" in found.text
    assert "options={'align': 'none'}" in found.text
    assert model.report() == tmp_path / "run/report.html"
    gone = Page(model.report())  # images were never files: what can be read again has no pictures
    assert not gone.all("img")
    with pytest.raises(InputError, match="of no run"):
        Model(model.net, model.classes, model.size).report()


def test_report_opens_the_page(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    adamatch.load(run, device="cpu").report(show=True)
    assert opened == [(run / "report.html").as_uri()]


def test_one_folder_for_source_and_target(tmp_path: Path) -> None:
    """The target is what is not held out of the source, and the page shows the right files."""
    source = images(tmp_path / "one", CLASSES, 20)
    adamatch.fit(source=source, target=source, labels_per_class=4, out=tmp_path / "run", **SMALL)
    notes = image_statistics.load(tmp_path / "run")
    assert notes.source is not None
    assert notes.target is not None
    held = set(notes.source.files) - set(notes.target.files)
    assert list(notes.target.files) == [name for name in notes.source.files if name not in held]
    assert len(notes.target.files) == 54
    assert not held & {notes.source.files[row] for row in notes.source.trained}
    assert Page(tmp_path / "run/report.html").all("img")


class Odd(nn.Module):
    """Whatever is called features."""

    def __init__(self, features: Any) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out


@pytest.mark.parametrize(
    ("given", "sound"),
    [
        (lambda x: x.mean((2, 3)), True),
        (nn.Identity(), False),  # layers, as torchvision calls them
        (lambda x: 1 / 0, False),
        (lambda x: x * float("nan"), False),
        (7, False),
    ],
)
def test_features_of_ones_own(given: Any, sound: bool) -> None:
    model = Model(Odd(given).eval(), CLASSES, 8)
    pools = [Pool.of((arrays(20)[0],), labels=tuple(arrays(20)[1].tolist())) for _ in range(2)]
    found = image_statistics.feature_map(model, *pools)
    assert (found is not None) == sound
    if found is not None:
        assert found.source.shape == (20, 2)
        assert found.how == "PCA"


def test_which_image_is_which_among_very_many(tmp_path: Path) -> None:
    """Of more than 4,000 images some are looked at: each picture is of the file that the prediction is about."""
    count = 9000
    rows = eval_outputs.sampled_rows(count)
    said = np.full((len(rows), 2), 0.5)
    said[1234] = 0.01, 0.99
    path = made(tmp_path / "run", [said], ("plain", "special"), accuracy=None)
    pixels = np.zeros((count, 8, 8, 3), np.uint8)
    names = [f"{tmp_path}/{row}.png" for row in range(count)]
    found = Page(
        page.write(path, images=ImageStatistics(target=Pool(count, str(tmp_path), tuple(names), parts=(pixels,))))
    )
    special = [each["alt"] for each in found.all("img") if "special" in each["alt"]]
    assert special == [f"{tmp_path}/{rows[1234]}.png: special, 99% sure"]


def test_other_images_than_the_run_has_seen(tmp_path: Path) -> None:
    path = made(tmp_path / "run", [np.eye(2)[[0, 1, 1]]], ("a", "b"), accuracy=None)
    found = Page(page.write(path, images=ImageStatistics(target=Pool.of((arrays(7)[0],)))))
    assert not found.all("img")
    assert "classes" in found.ids


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    source, target = images(tmp_path / "source", CLASSES, 4), images(tmp_path / "target", CLASSES, 2)
    first = next((target / "red").iterdir())
    os.rename(first, os.fsencode(target / "red") + b"/\xff\xfe.png")
    adamatch.fit(source=source, target=target, out=tmp_path / "run", **SMALL)
    found = Page(page.write(tmp_path / "run"))
    assert len([each for each in found.all("img") if "\ufffd\ufffd.png" in each["alt"]]) >= 1


def test_text_stands_out_in_both_schemes() -> None:
    """Contrast of at least 4.5, as WCAG's level AA asks for."""
    light, dark = (Path(page.__file__).parent / "templates/page.css").read_text().split("prefers-color-scheme: dark")
    for colours in (dict(re.findall(r"--([\w-]+): (#\w{6})", each)) for each in (light, dark)):
        washed = [(name.removesuffix("-wash"), name) for name in colours if name.endswith("-wash")]
        for ink, behind in [
            *itertools.product(("ink", "soft", "adapted", "twin", "source"), ("paper", "card")),
            *washed,
        ]:
            lights = sorted(luminance(colours[name]) for name in (ink, behind))
            assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, (ink, behind)


def luminance(colour: str) -> float:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))
