"""The command `corpus`: a target, or a server that runs it, writes the text that a head is trained on."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from jakiro.bench.questions import load_questions
from jakiro.kernels.linear import packing_works
from jakiro.system import comma_list
from jakiro.target.families import stop_ids
from jakiro.target.llama import LeanDecoder
from jakiro.training.commands.options import Device, Target, Threads, set_up
from jakiro.training.data.corpus import RECIPES, CorpusWriter
from jakiro.training.data.exclusion import RUN_WORDS, evaluation_runs
from jakiro.training.data.writing import write_texts
from jakiro.zoo import table as zoo
from jakiro.zoo import weights

DEFAULT_ROWS, _DEFAULTS = RECIPES["default"]
log = logging.getLogger("jakiro")


def corpus(
    out: Annotated[Path, typer.Argument(help="Folder for the corpus; an unfinished one is continued.")],
    rows: Annotated[int | None, typer.Option(help=f"How many texts to write; {DEFAULT_ROWS} when not given.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="“default”: the settings of the shipped head's self-written text; excludes the options below."
        ),
    ] = None,
    target: Target = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts in Spec-Bench form; without them the target writes its own.")
    ] = None,
    temperatures: Annotated[str, typer.Option(help="Comma list, taken in turn for the answers.")] = ",".join(
        map(str, _DEFAULTS.temperatures)
    ),
    top_k: Annotated[int, typer.Option(help="Sample from this many tokens.")] = _DEFAULTS.top_k,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = _DEFAULTS.max_new_tokens,
    max_message_tokens: Annotated[
        int, typer.Option(help="Longest message that the target writes itself.")
    ] = _DEFAULTS.max_message_tokens,
    batch_size: Annotated[int, typer.Option(help="Texts written at once.")] = 16,
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            help="Prompts in Spec-Bench form to measure heads on, besides our own; may be repeated. Rows that share "
            f"{RUN_WORDS} words in a row with one of them are dropped."
        ),
    ] = None,
    features: Annotated[
        bool,
        typer.Option(
            help="On a CPU keep the target's features beside the rows, so that train need not compute them: 2 bytes × "
            "hidden size per token, 1.2 GB per million tokens for the default target."
        ),
    ] = True,
    min_distinct: Annotated[
        float, typer.Option(help="Drop answers with a smaller share of distinct 4-grams; 0 keeps all.")
    ] = _DEFAULTS.min_distinct,
    seed: Annotated[int, typer.Option(help="The same seed writes the same texts.")] = 0,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of an OpenAI-compatible server that runs the target (vLLM, SGLang).")
    ] = None,
    device: Device = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Threads = None,
) -> None:
    """Let a target write the text that its head is trained on."""
    set_up(threads)
    options = replace(
        _DEFAULTS, seed=seed, temperatures=tuple(comma_list("--temperatures", temperatures, float)), top_k=top_k,
        max_new_tokens=max_new_tokens, max_message_tokens=max_message_tokens, min_distinct=min_distinct,
    )  # fmt: skip
    if recipe is not None:
        if recipe not in RECIPES:
            raise ValueError(f"Recipe must be one of {', '.join(RECIPES)}; you gave {recipe!r}.")
        if options != _DEFAULTS or prompts is not None:
            raise ValueError(f"The recipe {recipe!r} has its own settings; leave the others out, or leave it out.")
        rows, options = rows or RECIPES[recipe][0], RECIPES[recipe][1]
    rows = DEFAULT_ROWS if rows is None else rows
    if min(rows, batch_size, max_new_tokens, max_message_tokens) < 1:
        raise ValueError("Rows, batch size and lengths must be at least 1.")
    messages = None
    if prompts is not None:
        messages = [question.turns[0] for question in load_questions(prompts)]
    excluded = evaluation_runs(exclude or ())
    name, features_of = target or zoo.DEFAULT_TARGET, None
    if endpoint is None:
        model, tokenizer, sha256 = weights.load_target(target, device, dtype)
        ends = stop_ids(model, tokenizer)
        lean = LeanDecoder.build(model, packed=True) if packing_works(model.device, model.dtype) else None
        lean = lean if lean is not None and lean.is_static else None
        features_of = (sha256 or name) if features and lean is not None else None
        write = partial(write_texts, model, batch_size=batch_size, stop_ids=ends, lean=lean)
    else:
        from jakiro.training.data.endpoint import Endpoint

        tokenizer = weights.load_tokenizer(target)
        ends = stop_ids(SimpleNamespace(config=weights.load_config(target)), tokenizer)
        write = Endpoint(endpoint, tokenizer, batch_size).write_texts
    writer = CorpusWriter(
        write, ends, tokenizer, out, options, messages, target=name, excluded=excluded, features_of=features_of
    )
    log.info("Wrote %d tokens to %s.", writer.write(rows), out)
