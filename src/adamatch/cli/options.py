"""Options that several commands have."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Precision = Annotated[str, typer.Option(help="auto, bf16 or fp32")]
NoCompile = Annotated[bool, typer.Option("--no-compile", help="Do not compile the step (slower, starts at once)")]
Seed = Annotated[
    int, typer.Option(help="Of all that is random. On a CPU the same seed gives the same run, on a GPU nearly")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and list them")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and warnings only")]
