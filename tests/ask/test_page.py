"""The page in a real Chromium, by keyboard and by touch: thirty answers, undo, reload, a kill of the server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ask import made
from ask.browser import CHROMIUM, DRIVER, Browser, browser

from adamatch.ask.answers import CLASS, NONE, UNSURE, Answer, Book

pytestmark = [
    pytest.mark.posix,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
SHOWN = "!document.getElementById('asking').hidden && document.getElementById('image').naturalWidth > 0"


@contextmanager
def served(run: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The command, and its page's address."""
    words = [sys.executable, "-m", "adamatch", "ask", str(run), "--no-browser"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "The page: http://127.0.0.1:" in line, line
        yield line.split("The page: ")[1].strip(), process
    finally:
        process.kill()
        process.wait()


def place(page: Browser) -> int:
    """The number of the question that is shown, from 0."""
    return int(page.run("return document.getElementById('question').textContent.match(/[0-9]+/)[0]")) - 1


def wait(page: Browser, number: int) -> None:
    page.until(f"{SHOWN} && document.getElementById('question').textContent.startsWith('Image {number + 1} of')")


def truths(run: Path, classes: tuple[str, ...] = made.CLASSES) -> list[str]:
    return [made.truth(question.name, classes) for question in Book.read(run).questions]


def test_thirty_answers_by_keyboard_through_a_reload_and_a_kill(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    with browser(1200, 800) as page:
        with served(run) as (address, process):
            page.open(address)
            wait(page, 0)
            assert page.run("return location.search + document.cookie") == ""
            expected = [Answer(CLASS, each) for each in truths(run)]
            guesses = [
                each.lower() for each in page.run("return state.questions.map(q => state.classes[q.guesses[0]])")
            ]
            for number in range(12):
                wait(page, number)
                answer = expected[number]
                if number == 4:
                    expected[number] = Answer(NONE)
                    page.press("-")
                elif number == 6:
                    expected[number] = Answer(UNSURE)
                    page.press("?")
                elif guesses[number] == answer.label:
                    page.press("Enter")
                elif number % 2:
                    page.press(str(made.CLASSES.index(answer.label) + 1))
                else:
                    page.press(answer.label[:2])
                    page.press("Enter")
            wait(page, 12)
            page.press("Backspace")  # takes the last one back
            wait(page, 11)
            assert Book.read(run).answers()[11] is None
            page.press("Enter")
            expected[11] = Answer(CLASS, guesses[11])
            wait(page, 12)
            page.reload()
            wait(page, 12)
            page.press("ArrowLeft")
            wait(page, 11)
            page.press("ArrowRight")
            wait(page, 12)
            process.kill()
            process.wait()
            page.press("Enter")
            page.until("!document.getElementById('trouble').hidden")
            assert "every answer is kept" in page.run("return document.getElementById('trouble').textContent")
            assert place(page) == 12
        assert Book.read(run).answers()[:12] == expected[:12]
        assert Book.read(run).open == 18
        with served(run) as (address, process):
            page.open(address)
            for number in range(12, 30):
                wait(page, number)
                page.press(str(made.CLASSES.index(expected[number].label) + 1))
            page.until("!document.getElementById('result').hidden")
            said = page.run("return document.getElementById('lines').innerText")
            assert "Accuracy: " in said
            assert "from 29 answers" in said
            page.tap("#finish")
            page.until("!document.getElementById('ended').hidden")
            assert process.stdout is not None
            rest = process.stdout.read()
            assert process.wait() == 0
            assert said.splitlines()[0] in rest
    assert Book.read(run).answers() == expected


def test_thirty_answers_by_touch_on_a_small_screen(tmp_path: Path) -> None:
    names = tuple(f"class {number:03}" for number in range(345))
    run = made.run(tmp_path, 400, names)
    with browser(400, 800, touch=True, dark=True) as page, served(run) as (address, _):
        page.open(address)
        expected = [Answer(CLASS, each) for each in truths(run, names)]
        for number in range(30):
            wait(page, number)
            assert page.run("return document.documentElement.scrollWidth <= innerWidth")
            if number == 3:
                page.tap("#unsure")
                expected[number] = Answer(UNSURE)
                wait(page, 4)
                page.tap("#undo")
                wait(page, 3)
                page.tap("#none")
                expected[number] = Answer(NONE)
            elif page.run(f"return state.classes[state.questions[{number}].guesses[0]]") == expected[number].label:
                page.tap("#guesses .first")
            else:
                page.tap("#search")
                page.press(expected[number].label[-3:])
                page.until("document.querySelectorAll('#classes li').length === 1")
                page.tap("#classes .name")
        page.until("!document.getElementById('result').hidden")
        assert "Of 345 single classes they say little" in page.run("return document.body.innerText")
        page.tap("#more")
        wait(page, 30)
    assert Book.read(run).answers()[:30] == expected


def test_digits_are_answered_by_their_own_key(tmp_path: Path) -> None:
    names = tuple(map(str, range(10)))
    run = made.run(tmp_path, 40, names, wrong=0.9)
    with browser() as page, served(run) as (address, _):
        page.open(address)
        for number, label in enumerate(truths(run, names)[:5]):
            wait(page, number)
            page.press(label)
        wait(page, 5)
        assert [answer and answer.label for answer in Book.read(run).answers()[:5]] == truths(run, names)[:5]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 400])
def test_everything_can_be_seen_and_named(tmp_path: Path, width: int, dark: bool) -> None:
    run = made.run(tmp_path)
    with browser(width, 800, dark=dark, touch=width == 400) as page, served(run) as (address, _):
        page.open(address)
        wait(page, 0)
        if kept := os.environ.get("ADAMATCH_PICTURES"):
            page.picture(Path(kept) / f"ask-{width}-{'dark' if dark else 'light'}.png")
        unnamed = (
            "[...document.querySelectorAll('button, input, img')].filter(e => !(e.labels?.length || e.ariaLabel || "
        )
        assert page.run(f"return {unnamed} e.alt || e.textContent.trim())).map(e => e.outerHTML)") == []
        small = "[...document.querySelectorAll('button')].filter(e => e.offsetParent && e.offsetHeight < 44).length"
        assert page.run(f"return {small}") == 0
        assert page.run("return getComputedStyle(document.body).backgroundColor") == (
            "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"
        )
