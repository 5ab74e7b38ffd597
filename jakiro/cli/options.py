"""Options that several commands share; a command's own are declared there."""

from pathlib import Path
from typing import Annotated

import typer


def option(text: str, *names: str, **settings):
    """typer's option with its help text first; `names` replace the parameter's own name."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str):
    """typer's argument with its help text."""
    return typer.Argument(help=text)


Prompt = Annotated[str, typer.Option(help="The user's message, or with --raw the text to continue.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the chat template.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy; otherwise logits are divided by it.")]
TopP = Annotated[float, typer.Option(help="Nucleus mass, above 0 and at most 1.")]
TopK = Annotated[int, typer.Option(help="Keep the k likeliest tokens; 0 keeps all.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same text, with and without drafting.")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")]
MaxNewTokens = Annotated[int, typer.Option(help="At most this many tokens.")]
Nodes = Annotated[int | None, typer.Option(help="A fixed tree of this many nodes, root included; 1 is plain decoding.")]
Depth = Annotated[int | None, typer.Option(help="A fixed tree whose deepest node has this depth.")]
Width = Annotated[int | None, typer.Option(help="Children tried per node and nodes expanded per level.")]
Target = Annotated[str | None, typer.Option(help="Target model: a known name, a folder, a GGUF file, or a Hub id.")]
Head = Annotated[str | None, typer.Option(help="Draft head: a known name, a folder, a Hub id, or “none”.")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, or auto (all devices together); default: a GPU if there is one.")
]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, float16, 8bit or 4bit; what suits the device.")]
Numerics = Annotated[
    str | None,
    typer.Option(
        help="exact (plain and drafted passes round alike) or fast; compiled passes on a CPU are exact anyway."
    ),
]
DraftPrecision = Annotated[str | None, typer.Option(help="On a CPU: int8 (head in 8 bits: faster, same text) or full.")]
MethodsFrom = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Add the drafting methods in this module's METHODS; repeatable."),
]
Graphs = Annotated[
    bool, typer.Option("--graphs/--no-graphs", help="On a GPU: replay captured passes, or run kernel by kernel.")
]

# Of the commands around training, which take one device and compute with unrounded weights
OneDevice = Annotated[str | None, option("cpu or cuda; a GPU is taken where there is one.")]
OneDtype = Annotated[str | None, option("float32, bfloat16 or float16; what suits the device.")]
Threads = Annotated[int | None, option("CPU threads; all if not given.", min=1)]
CorpusPaths = Annotated[list[Path], argument("Corpus files (*.jsonl.gz) or folders that hold them.")]
Prompts = Annotated[Path | None, option("Prompts in Spec-Bench form; our own if not given.")]
