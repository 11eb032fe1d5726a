"""The page in a real browser: no complaints, nothing is fetched, all shows, at any width and in both schemes."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report import browser
from report.browser import TAB, Browser, chromium
from report.runs import HOSTILE, images, made

from adamatch.report import compare, page
from adamatch.report.image_statistics import FeatureMap, Notes
from adamatch.report.pool import Pool

pytestmark = pytest.mark.skipif(bool(browser.missing()), reason=f"no browser: {browser.missing()}")

SIZES = [(360, False), (360, True), (1440, False), (1440, True)]
FOCUS = """
const each = document.activeElement, box = each.getBoundingClientRect(), style = getComputedStyle(each);
return [each.tagName, each.getAttribute("href") || each.getAttribute("aria-label") || "",
        box.width > 0 && box.height > 0, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, box.top];
"""
# Of every text that shows: its colour and the colour behind it, layer upon layer.
COLOURS = """
const brush = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgba = (text) => {
  brush.clearRect(0, 0, 1, 1); brush.fillStyle = text; brush.fillRect(0, 0, 1, 1);
  return [...brush.getImageData(0, 0, 1, 1).data];
};
const found = new Map();
for (const each of document.querySelectorAll("body *")) {
  const written = [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (each.closest("svg, .skip") || !written) continue;
  const layers = [];
  for (let node = each; node; node = node.parentElement) {
    layers.unshift(rgba(getComputedStyle(node).backgroundColor));
    if (layers[0][3] === 255) break;
  }
  let behind = [255, 255, 255];
  for (const layer of layers) behind = behind.map((value, i) => value + (layer[i] - value) * layer[3] / 255);
  const ink = rgba(getComputedStyle(each).color).slice(0, 3);
  found.set(ink + "|" + behind.map(Math.round), [ink, behind, each.textContent.trim().slice(0, 40), each.className]);
}
return [...found.values()];
"""
# What sticks out to the right, but for what scrolls by itself.
OUTSIDE = """
return [...document.querySelectorAll("body *")].filter(each => !each.closest(".scroll, nav, .skip, .aside"))
  .filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.tagName + "." + each.className);
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page with everything on it, and one of two runs; all names are hostile."""
    root, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    k = len(HOSTILE)
    folder = images(root / "target", HOSTILE, 12, size=120)
    files = [str(file) for file in sorted(folder.rglob("*.png"))]
    pixels = np.stack([np.asarray(Image.open(file).resize((16, 16))) for file in files])
    labels = rng.integers(0, k, len(files))
    said = [rng.dirichlet(np.full(k, 0.4), len(files)) for _ in range(3)]
    warned = [{"kind": "<i>odd</i>", "line": "<script>alert(3)</script>", "rows": [1, 2], "pairs": [3, 4]}]
    judge = {"range": {"at_least": 60, "at_best": 80}, "warnings": warned}
    held = (0, 1, 2, 3, 4, 0)
    made(root / "run", said, HOSTILE, held_out=held, judge=judge, accuracy=71.0, source_accuracy=90.0)
    made(root / "run/twin", said[::-1], HOSTILE, loss=2.0, accuracy=60.0)
    target = Pool.of((pixels,), files)
    points = [rng.normal(size=(len(files), 2)).astype(np.float32) for _ in range(2)]
    drawn = FeatureMap(points[0], labels, points[1], said[0].argmax(1), "t-SNE")
    source = Pool.of((pixels,), labels=tuple(labels.tolist()))
    notes = Notes(source, target, np.eye(k, dtype=np.int64) * 3 + 1, drawn)
    one = page.write(root / "run", notes=notes)
    return {"one": one, "two": compare.write([root / "run", root / "run/twin"], to=root / "two.html")}


@pytest.mark.parametrize(("width", "dark"), SIZES)
@pytest.mark.parametrize("name", ["one", "two"])
def test_it_shows_whole_and_asks_for_nothing(
    window: Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    window.show(pages[name], width=width, dark=dark)
    assert window.console() == []
    assert window.requests() == [pages[name].as_uri()]
    whole = "i.complete && i.naturalWidth && i.clientWidth >= 40"
    assert window.run(f"return [...document.images].filter(i => !({whole})).map(i => i.alt)") == []
    assert name == "two" or window.run("return document.images.length") > 30
    # Wide tables scroll by themselves; the page never does.
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run(OUTSIDE) == []


def test_nothing_in_a_name_runs_or_is_markup(window: Browser, pages: dict[str, Path]) -> None:
    window.show(pages["one"], width=1440)
    assert window.run("return document.querySelectorAll('script, iframe, main b, main i:not(.key i)').length") == 0
    text = window.run("return document.body.innerText")
    assert "<script>alert(1)<script>" in text
    assert "<script>alert(3)</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert window.run("return document.title").endswith("adamatch")


@pytest.mark.parametrize("width", [360, 1440])
def test_by_keyboard(window: Browser, pages: dict[str, Path], width: int) -> None:
    """First the link that skips, then the sections in order, then what scrolls; each is seen when it has the focus."""
    window.show(pages["one"], width=width)
    found = []
    for _ in range(40):
        window.press(TAB)
        found.append(window.run(FOCUS))
        if found[-1][0] == "BODY":
            break
    reached = [each for each in found if each[0] != "BODY"]
    names = [name for tag, name, *_ in reached if tag == "A"]
    assert names[0] == "#content"
    assert names[1:] == window.run(
        "return [...document.querySelectorAll('nav a')].map(each => each.getAttribute('href'))"
    )
    assert [name for tag, name, *_ in reached if tag == "DIV"] == window.run(
        "return [...document.querySelectorAll('[tabindex]')].map(each => each.getAttribute('aria-label'))"
    )
    assert all(shows and outlined for _, _, shows, outlined, _ in reached), reached
    assert reached[0][4] >= 0  # the hidden link comes into view
    sections = window.run("return [...document.querySelectorAll('main section')].map(each => '#' + each.id)")
    assert names[1:] == sections


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["one", "two"])
def test_text_stands_out_in_both_schemes(window: Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    """Contrast of at least 4.5, as WCAG's level AA asks for."""
    window.show(pages[name], width=1440, dark=dark)
    back = window.run("return getComputedStyle(document.body).backgroundColor")
    assert (_luminance([int(each) for each in re.findall(r"\d+", back)]) < 0.1) == dark
    found = window.run(COLOURS)
    assert len(found) > 6
    for ink, behind, text, look in found:
        lights = sorted((_luminance(ink), _luminance(behind)))
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, (text, look, ink, behind)


def test_charts_are_drawn(window: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """Where a curve is, there is its colour on the screen."""
    window.show(pages["one"], width=1440)
    picture = Image.open(io.BytesIO(window.picture(tmp_path / "page.png").read_bytes())).convert("RGB")
    box = window.run(
        "const b = document.querySelector('#curves svg').getBoundingClientRect(); return [b.x, b.y, b.right, b.bottom]"
    )
    top = window.run("return scrollY")
    pixels = np.asarray(picture.crop((int(box[0]), int(box[1] + top), int(box[2]), int(box[3] + top)))).reshape(-1, 3)
    for colour in ((0x35, 0x56, 0xC8), (0xA8, 0x54, 0x0A)):  # adapted, twin
        assert (np.abs(pixels.astype(int) - colour).max(1) < 12).sum() > 20
    dots = window.run("return document.querySelectorAll('#map .dots').length")
    assert dots == 2 * (1 + len(HOSTILE))


def _luminance(colour: list[float]) -> float:
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (each / 255 for each in colour[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
