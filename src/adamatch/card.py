"""The card of a model, README.md in its folder: what it was trained on and how, how good it is, and what to fill in.

It begins with the header that the Hugging Face Hub reads. Names of classes and folders come from outside: they are
escaped, and never in the header.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import adamatch
from adamatch.base.errors import shown
from adamatch.report import printed
from adamatch.verdict import summary

CARD = "README.md"
NAMED = 100  # classes that are named
HEADER = """\
---
library_name: adamatch
pipeline_tag: image-classification
license: unknown # fill in
tags: [adamatch, domain-adaptation, semi-supervised-learning]
---
"""
LOAD = """\
## How to load it

```python
import adamatch

model = adamatch.load("FOLDER")  # this folder; or "hf://NAME/REPO"
model.predict("images/").labels
```

Or `adamatch predict FOLDER images/ --csv out.csv`. `model.safetensors` and `model.json` are the model;
`manifest.json` has the size and checksum of each file.
"""
LIMITS = """\
## Limits

- It always gives one of its classes. It has no "none of these".
- Its probabilities tend to be too high on images of a new kind.
- What is said of its accuracy holds for images like those that it was adapted to. Measure it where it will work.
- Pseudo-labels can give a whole group of images the wrong name. Look at its predictions before you rely on them.

## Intended use

To fill in: what it is for, and what it must not be used for.

## Licence

To fill in, here and in the header. The licences of the images and of the starting weights may bind it, too.

## Reference

Berthelot, Roelofs, Sohn, Carlini, Kurakin: AdaMatch: A Unified Approach to Semi-Supervised Learning and Domain
Adaptation. ICLR 2022. [arXiv:2106.04732](https://arxiv.org/abs/2106.04732)
"""


def text(*, classes: Sequence[str], network: str, size: int, history: Mapping[str, Any]) -> str:
    """The card in Markdown. `history` is what training said of itself; what it does not say is left out."""
    run = history.get("run", {})
    names = ", ".join(map(escaped, classes[:NAMED])) + (", ..." if len(classes) > NAMED else "")
    parts = [
        HEADER,
        f"# An image classifier for {escaped(run.get('target') or 'images')}: {len(classes)} classes\n",
        "It takes an image and gives a class, with a probability for each. It was trained with adamatch: from labelled "
        "images,\nand with images like those that it is meant for, most or all of them without labels.\n",
        LOAD,
        f"## Data\n\n{_table(_data(history))}\n\nClasses: {names}\n",
        f"## Recipe\n\n{_table(_recipe(run, network, size))}\n",
        f"## Accuracy\n\n{_accuracy(history, len(classes))}\n",
        LIMITS,
    ]
    return "\n".join(parts)


def escaped(name: str) -> str:
    """A name as text on one line: no markup, no HTML, no links."""
    return re.sub(r"[\\`*_{}\[\]<>|~&#$@!]|:(?=//)|(?<=www)\.", r"\\\g<0>", shown(name))


def _data(history: Mapping[str, Any]) -> list[tuple[str, str]]:
    run, counts = history.get("run", {}), history.get("images", {})
    rows = []
    for name, of, count in (
        ("labelled images", "source", "labelled"),
        ("a few labelled target images", "target_labels", "target_labels"),
        ("target images, without labels", "target", "unlabelled"),
        ("held out, to estimate accuracy", "", "held_out"),
    ):
        told = [escaped(run[of])] if run.get(of) else []
        told += [f"{counts[count]:,}"] if counts.get(count) else []
        rows += [(name, ", ".join(told))] if told else []
    return rows


def _recipe(run: Mapping[str, Any], network: str, size: int) -> list[tuple[str, str]]:
    recipe = run.get("recipe", {})
    trained = f"{recipe['images']:,}" if recipe.get("images") else "none: a classifier on the network's features"
    weights = run.get("weights", "")
    rows: list[tuple[str, Any]] = [
        ("method", run.get("method")),
        ("task", run.get("task")),
        ("network", f"{network or 'a network of its own'}, images of {size} x {size}"),
        ("starting weights", weights if weights == "imagenet" or weights.startswith("timm:") else ""),
        ("labelled images trained on, repeats counted", trained if recipe else ""),
        ("labelled images in a batch", recipe.get("batch")),
        ("learning rate", recipe.get("lr")),
        ("seed", run.get("seed")),
        ("version of adamatch", adamatch.__version__),
    ]
    return [(name, escaped(str(value))) for name, value in rows if value not in (None, "")]


def _accuracy(history: Mapping[str, Any], classes: int) -> str:
    """In the words of the terminal and of the report."""
    known, verdict, lines = history.get("estimate"), history.get("judge"), list[str]()
    if known:
        task = history.get("run", {}).get("task", "")
        lines = printed.lines(known, task=task, classes=classes, estimated=bool(verdict))
    if known and verdict:
        lines = [*printed.verdict(known, verdict, Path("FOLDER")), *lines, *summary.lines(verdict)]
    return "\n".join(f"- {escaped(line)}" for line in lines) or "It was not measured."


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])
