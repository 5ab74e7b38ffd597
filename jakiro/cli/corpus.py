"""The command `corpus`: fills a `CorpusConfig` from its options."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from jakiro.cli.loading import set_up
from jakiro.cli.options import OneDevice, OneDtype, Target, Threads, argument, option
from jakiro.system import comma_list
from jakiro.training.corpus import CorpusConfig, CorpusOptions, write_corpus
from jakiro.training.exclusion import RUN_WORDS

_SAMPLING = CorpusOptions()
_TEMPERATURES = ",".join(map(str, _SAMPLING.temperatures))
log = logging.getLogger("jakiro")


def corpus(
    out: Annotated[Path, argument("Folder for the corpus; an unfinished one is continued.")],
    rows: Annotated[int, option("How many texts to write.")] = 5000,
    target: Target = None,
    prompts: Annotated[Path | None, option("Spec-Bench prompts to answer; else the target writes its own.")] = None,
    made: Annotated[
        bool, option("Answer messages of many kinds, made from lists of words; else the target writes its own.")
    ] = False,
    passages: Annotated[
        Path | None, option("With --made, a corpus whose answers are the texts to summarise, rewrite and ask about.")
    ] = None,
    temperatures: Annotated[str, option("Comma list, taken in turn for the answers.")] = _TEMPERATURES,
    top_k: Annotated[int, option("Sample from this many tokens.")] = _SAMPLING.top_k,
    max_new_tokens: Annotated[int, option("Longest answer.")] = _SAMPLING.max_new_tokens,
    max_message_tokens: Annotated[int, option("Longest message of the target's own.")] = _SAMPLING.max_message_tokens,
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
    ] = _SAMPLING.min_distinct,
    seed: Annotated[int, option("The same seed writes the same texts.")] = 0,
    endpoint: Annotated[str | None, option("URL of an OpenAI-compatible server that runs the target.")] = None,
    device: OneDevice = None,
    dtype: OneDtype = None,
    threads: Threads = None,
) -> None:
    """Let a target write the text that its head is trained on."""
    set_up(threads)
    options = replace(
        _SAMPLING, seed=seed, temperatures=tuple(comma_list("--temperatures", temperatures, float)), top_k=top_k,
        max_new_tokens=max_new_tokens, max_message_tokens=max_message_tokens, min_distinct=min_distinct,
    )  # fmt: skip
    config = CorpusConfig(
        out=str(out), rows=rows, options=options, target=target,
        prompts=prompts and str(prompts), made=made, passages=passages and str(passages), batch_size=batch_size,
        exclude=tuple(map(str, exclude or ())), keep_features=features, endpoint=endpoint, device=device, dtype=dtype,
    )  # fmt: skip
    log.info("Wrote %d tokens to %s.", write_corpus(config), out)
