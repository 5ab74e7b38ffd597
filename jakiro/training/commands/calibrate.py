"""The command `calibrate`: fits a head's calibration anew.

Weights are fitted on rows of the corpus, then the target answers their messages at temperatures 0, 0.7 and 1, and trees
along these answers show what share of the promised chances is kept. `train` fits the weights alone, because the target
is gone by then.
"""

import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from jakiro.config import SamplingParams
from jakiro.heads.checkpoint import load_head, write_config
from jakiro.methods import METHODS
from jakiro.system import cache_folder
from jakiro.training.answers import AnswerFolder
from jakiro.training.calibrate import REGIMES, kept_shares
from jakiro.training.calibrate import calibrate as fit_weights
from jakiro.training.commands.options import CorpusPaths, Target, Threads, argument, option, set_up
from jakiro.training.corpus import read_corpus, with_starts
from jakiro.training.features import FeatureCache
from jakiro.training.kept_features import KeptFeatures
from jakiro.training.split import held_out_rows, in_order_of_content
from jakiro.training.train import extract
from jakiro.training.validation import held_out
from jakiro.zoo import weights

log = logging.getLogger("jakiro")


def calibrate(
    head: Annotated[Path, argument("Folder of the head; only its config is rewritten.")],
    data: CorpusPaths,
    target: Target = None,
    rows: Annotated[int, option("Held-out rows to fit weights on.")] = 100,
    texts: Annotated[int, option("Their messages that the target answers at each temperature.")] = 40,
    max_new_tokens: Annotated[int, option("Longest answer.")] = 96,
    unread: Annotated[bool, option("Use rows that the head's manifest does not list as held out.")] = False,
    seed: Annotated[int, option("The same seed gives the same positions, noise and answers.")] = 1,
    threads: Threads = None,
) -> None:
    """Calibrate a head again, at temperatures 0, 0.7 and 1, on text that it was not trained on."""
    set_up(threads)
    draft_head, corpus = load_head(head), read_corpus(data)
    if draft_head.config.exit_layers:
        raise ValueError(
            f"{head} drafts with the target's own layers, which `calibrate` cannot replay; `train` has calibrated it "
            "already."
        )
    target = target or draft_head.config.target_name
    model, tokenizer, sha256 = weights.load_target(target, "cpu", "float32")
    corpus = with_starts(corpus, tokenizer)
    chosen = in_order_of_content(corpus)[:rows] if unread else held_out_rows(head, corpus, rows)
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    draft_head.bind(embedding, output).eval()
    with TemporaryDirectory() as folder:
        layers = draft_head.config.read_layers
        extract(model, chosen, Path(folder), layers, KeptFeatures(data, sha256 or target))
        read = held_out(FeatureCache(Path(folder), layers), range(len(chosen)), output)
        draft_head.config = replace(draft_head.config, calibration=fit_weights(draft_head, read, seed))
    layers = draft_head.config.feature_layers
    answers = AnswerFolder(model, tokenizer, sha256 or target, cache_folder() / "answers", texts, layers)
    written = {}
    prompts = [row.ids[: row.a0] for row in chosen[:texts]]
    for temperature in REGIMES:
        sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=max_new_tokens)
        written[temperature] = [(sampling, answer) for answer in answers.answers_to_ids(prompts, sampling)]
    # As heads run on a CPU
    draft_head.pack("int8")
    drafter = METHODS.drafter_of(draft_head)
    shares = kept_shares(draft_head, drafter, written)
    config = replace(draft_head.config, calibration=draft_head.config.calibration | shares)
    write_config(config, head)
    for level, share in shares.items():
        log.info("%s %.3f", level, share)
