"""The command `corpus`: a target, or a server that runs it, writes the text that a head is trained on."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

from jakiro.kernels.linear import packing_works, packs_bfloat16
from jakiro.prompts import load_questions
from jakiro.system import comma_list
from jakiro.target.families import stop_ids
from jakiro.target.llama import LeanDecoder
from jakiro.training.commands.options import Device, Dtype, Target, Threads, argument, option, set_up
from jakiro.training.corpus import RECIPES, CorpusWriter, Row, read_corpus
from jakiro.training.exclusion import RUN_WORDS, evaluation_runs
from jakiro.training.messages import made_messages
from jakiro.training.writing import write_texts
from jakiro.zoo import table as zoo
from jakiro.zoo import weights
from jakiro.zoo.loading import choose_device, choose_dtype, read_target

DEFAULT_ROWS, _DEFAULTS = RECIPES["default"]
_TEMPERATURES = ",".join(map(str, _DEFAULTS.temperatures))
# Words of a text that is worth a summary
_SHORTEST_PASSAGE = 40
log = logging.getLogger("jakiro")


def corpus(
    out: Annotated[Path, argument("Folder for the corpus; an unfinished one is continued.")],
    rows: Annotated[int | None, option(f"How many texts to write; {DEFAULT_ROWS} if not given.")] = None,
    recipe: Annotated[
        str | None, option("“default”: how the shipped heads' self-written text was sampled; leave out what sets this.")
    ] = None,
    target: Target = None,
    prompts: Annotated[Path | None, option("Spec-Bench prompts to answer; else the target writes its own.")] = None,
    made: Annotated[
        bool, option("Answer messages of many kinds, made from lists of words; else the target writes its own.")
    ] = False,
    passages: Annotated[
        Path | None, option("With --made, a corpus whose answers are the texts to summarise, rewrite and ask about.")
    ] = None,
    temperatures: Annotated[str, option("Comma list, taken in turn for the answers.")] = _TEMPERATURES,
    top_k: Annotated[int, option("Sample from this many tokens.")] = _DEFAULTS.top_k,
    max_new_tokens: Annotated[int, option("Longest answer.")] = _DEFAULTS.max_new_tokens,
    max_message_tokens: Annotated[int, option("Longest message of the target's own.")] = _DEFAULTS.max_message_tokens,
    batch_size: Annotated[int, option("Texts written at once.")] = 16,
    exclude: Annotated[
        list[Path] | None,
        option(
            "Spec-Bench prompts that heads are measured on, besides our own; may be repeated. Rows that share "
            f"{RUN_WORDS} words in a row with one of them are dropped."
        ),
    ] = None,
    features: Annotated[
        bool,
        option(
            "On a CPU keep the target's features beside the rows, so that train need not compute them: 2 bytes × "
            "hidden size per token, 1.2 GB per million tokens for the default target."
        ),
    ] = True,
    min_distinct: Annotated[
        float, option("Drop answers with a smaller share of distinct 4-grams; 0 keeps all.")
    ] = _DEFAULTS.min_distinct,
    seed: Annotated[int, option("The same seed writes the same texts.")] = 0,
    endpoint: Annotated[str | None, option("URL of an OpenAI-compatible server that runs the target.")] = None,
    device: Device = None,
    dtype: Dtype = None,
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
        if options != _DEFAULTS or prompts is not None or made:
            raise ValueError(f"The recipe {recipe!r} has its own settings; leave the others out, or leave it out.")
        rows, options = rows or RECIPES[recipe][0], RECIPES[recipe][1]
    rows = DEFAULT_ROWS if rows is None else rows
    if min(rows, batch_size, max_new_tokens, max_message_tokens) < 1:
        raise ValueError("Rows, batch size and lengths must be at least 1.")
    if (made and prompts is not None) or (passages is not None and not made):
        raise ValueError("--made takes no --prompts, and --passages are texts for --made: leave one of them out.")
    messages = None if prompts is None else [question.turns[0] for question in load_questions(prompts)]
    excluded = evaluation_runs(exclude or ())
    name, sha256, features_of = target or zoo.DEFAULT_TARGET, None, None
    if endpoint is None:
        place = choose_device(device)
        model, tokenizer, sha256 = read_target(target, place, choose_dtype(dtype, place))
        ends = stop_ids(model, tokenizer)
        packed = packing_works(model.device, model.dtype) or packs_bfloat16(model.device, model.dtype)
        lean = LeanDecoder.build(model, packed=True) if packed else None
        lean = lean if lean is not None and lean.is_static else None
        features_of = (sha256 or name) if features and lean is not None else None
        write = partial(write_texts, model, batch_size=batch_size, stop_ids=ends, lean=lean)
    else:
        from jakiro.training.endpoint import Endpoint

        tokenizer = weights.load_tokenizer(target)
        ends = stop_ids(SimpleNamespace(config=weights.load_config(target)), tokenizer)
        write = Endpoint(endpoint, tokenizer, batch_size).write_texts
    if made:
        texts = [] if passages is None else _answers(read_corpus([passages]), tokenizer)
        messages = made_messages(rows, seed, texts)
    writer = CorpusWriter(write, ends, tokenizer, out, options, messages, name, sha256, excluded, features_of)
    log.info("Wrote %d tokens to %s.", writer.write(rows), out)


def _answers(rows: list[Row], tokenizer) -> list[str]:
    """The answers that are long enough to be summarised, without the template."""
    texts = [tokenizer.decode(row.ids[row.a0 :], skip_special_tokens=True).strip() for row in rows]
    return [text for text in texts if len(text.split()) >= _SHORTEST_PASSAGE]
