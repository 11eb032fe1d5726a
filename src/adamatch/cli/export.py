"""`adamatch export`: a trained model as one file, for use without adamatch."""

from pathlib import Path
from typing import Annotated

import typer

from adamatch.base import interrupts
from adamatch.base.console import say


def export(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    to: Annotated[
        str | None,
        typer.Option(help="onnx, or torch (a program of torch.export). Default: as --out ends; without it, onnx"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: model.onnx or model.pt2 in the run)")
    ] = None,
) -> None:
    """One file for use elsewhere: uint8 images in, probabilities out.

    The file is compared with `adamatch predict` before it is written. examples/infer_onnx.py uses it without torch.

    [bold]Examples[/bold]:

      adamatch export runs/art --to onnx

      adamatch export runs/art --out art.pt2
    """
    from adamatch.base.files import place
    from adamatch.export import SUFFIXES, format_of
    from adamatch.model import load

    file = out or run / f"model{SUFFIXES.get(to or 'onnx', '')}"
    if out is not None:  # before the model is read, which takes a while
        place(out)
    to = format_of(file, to)
    model = load(run, device="cpu")
    with interrupts.working():
        difference = model.export(file, to=to)
    say(f"{file}: uint8 RGB images [n, {model.size}, {model.size}, 3] in, {len(model.classes)} probabilities out")
    say(f"largest difference to adamatch predict: {difference:.1g} in probability")
