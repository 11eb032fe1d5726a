"""The page in a browser: pictures are enlarged and filtered with mouse and keyboard, and no script is needed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from report.browser import ENTER, ESCAPE, MISSING, SPACE, TAB, Browser, browser
from report.runs import images, made

from adamatch.evaluate import score
from adamatch.images.store import Store
from adamatch.report import mistakes, page, sections
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool

pytestmark = pytest.mark.skipif(MISSING, reason="there is no chromium, or no chromedriver")
CLASSES = tuple(f"class {number:02}" for number in range(20))
ACTIVE = "return document.activeElement.getAttribute('popovertarget')"
NAMES = "return document.querySelector('.names pre').innerText.trim().split('\\n').filter(Boolean)"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = images(tmp_path_factory.mktemp("files") / "images", CLASSES, 6, size=400)
    return tuple(sorted(map(str, folder.rglob("*.png"))))


@pytest.fixture
def report(chromium: Browser, files: tuple[str, ...], tmp_path: Path) -> Browser:
    """Of 20 classes with six images each. The first k % 4 of class k were changed, and are unsure where k is even.

    Where k % 4 is 1, the last is unsure, too.
    """
    number = np.arange(120)
    truth = number // 6
    changed = number % 6 < truth % 4
    unsure = changed & (truth % 2 == 0) | (number % 6 == 5) & (truth % 4 == 1)
    said = np.where(unsure[:, None], 0.4, 0.9) * np.eye(20)[truth] + 0.001
    path = made(tmp_path / "run", [said], CLASSES, accuracy=None)
    made(path / "twin", [np.eye(20)[(truth + changed) % 20]], CLASSES, method="supervised", accuracy=None)
    chromium.open(page.write(path, images=ImageStatistics(target=Pool.of_files(files))))
    return chromium


def test_a_picture_is_enlarged_and_put_back(report: Browser) -> None:
    first = "#images .strip li:nth-child(2) button"
    wide = f"return document.querySelector('{first} img').getBoundingClientRect().width"
    pictures, before = report.seen("img"), report.ask(wide)
    report.click(first)
    place = report.ask("return scrollY")
    assert report.seen(":popover-open .name") == 1
    assert report.ask(wide) > 4 * before
    assert report.ask(f"return document.querySelector('{first} img').naturalWidth") == 384
    assert report.seen("img") == 1  # what lies behind is out of reach
    report.click(first)
    assert report.seen("img") == pictures
    report.press(ENTER)
    assert report.seen(":popover-open") == 1
    mine = report.ask(ACTIVE)
    report.press(TAB)  # leaves the page, and comes back to the only thing there is
    report.press(TAB)
    assert report.ask(ACTIVE) == mine
    report.press(ESCAPE)
    assert report.seen(":popover-open") == 0
    assert report.ask(ACTIVE) == mine
    assert report.ask("return scrollY") == place
    report.press(TAB)
    assert report.ask(ACTIVE) not in (mine, None)  # the next picture
    report.press(SPACE)
    report.ask("document.elementFromPoint(5, 5).click()")
    assert report.seen(":popover-open") == 1
    assert report.complaints() == []


def test_filters_by_class_by_doubt_and_by_change(report: Browser) -> None:
    report.ask("document.querySelector('.names').open = true")

    def cards() -> list[str]:
        told: list[str] = report.ask(
            "return [...document.querySelectorAll('.class')].filter(e => e.checkVisibility())"
            ".map(e => e.querySelector('h3 bdi').innerText)"
        )
        return told

    worst = sorted(range(20), key=lambda kind: -(0, 2, 2, 3)[kind % 4])
    assert cards() == [CLASSES[kind] for kind in worst][: sections.FIRST]
    report.click("#every")
    assert (len(cards()), len(report.ask(NAMES))) == (20, 120)
    report.click("#only-changed")
    assert sorted(cards()) == sorted(name for kind, name in enumerate(CLASSES) if kind % 4)
    assert len(report.ask(NAMES)) == 30
    assert report.seen(".class li:not(.changed)") == report.seen("h4 + .strip:not(:has(.changed))") == 0
    report.click("#only-unsure")
    assert sorted(cards()) == sorted(name for kind, name in enumerate(CLASSES) if kind % 4 == 2)
    assert len(report.ask(NAMES)) == 10
    report.click("#only-changed")
    assert len(report.ask(NAMES)) == 15
    report.click("#only-unsure")
    report.click("#every")
    report.ask("document.querySelector('select').focus()")
    report.press("class 16")  # which is not among the first
    assert cards() == ["class 16"]
    names = report.ask(NAMES)
    assert len(names) == 6
    assert all(name.startswith("class 16/") for name in names)
    report.click(".names pre")
    assert report.ask("return getSelection().toString()").split("\n") == names
    assert report.complaints() == []


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_window(report: Browser, width: int) -> None:
    report.call(
        "POST",
        "/goog/cdp/execute",
        cmd="Emulation.setDeviceMetricsOverride",
        params={"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    report.click("#every")
    assert report.ask("return document.documentElement.scrollWidth") <= width
    report.call("POST", "/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})


def test_mistakes_are_filtered_by_either_class(chromium: Browser, files: tuple[str, ...], tmp_path: Path) -> None:
    labels = np.arange(120) // 6
    guesses = np.where(np.arange(120) % 6 < 2, (labels + 1) % 20, labels)
    store = Store(np.zeros((120, 1, 1, 3), np.uint8), labels, CLASSES, {"files": files})
    found = score(np.eye(20, dtype=np.float32)[guesses], store)
    chromium.open(mistakes.write(found, tmp_path / "mistakes.html", name="images"))
    assert chromium.seen(".class") == sections.FIRST
    chromium.ask("document.querySelector('select').focus()")
    chromium.press("class 18")
    assert chromium.seen(".class") == 2  # taken for 19, and 17 taken for it
    assert chromium.seen(".class img") == 4
    assert chromium.complaints() == []
