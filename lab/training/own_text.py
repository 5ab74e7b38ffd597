"""Text written by a draft without the target: `python -m lab.training.own_text CORPUS OUT --head HEAD`.

DistillSpec (arXiv 2310.08461) trains a draft on such text: the target's distribution after each drafted token is the
training goal. An early-exit head answers the messages of a corpus; the rows are a corpus for `train`.
"""

import logging
from pathlib import Path
from typing import Annotated

import torch

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Target, Threads, argument, option
from jakiro.core.noise import KeyedNoise
from jakiro.heads.checkpoint import load_head
from jakiro.loading import registry, weights
from jakiro.models.target import TargetModel
from jakiro.training.corpus import Row, read_corpus, write_part
from jakiro.training.split import in_order_of_content
from lab import KNOWN
from lab.commands import run
from lab.layers.exit_head import ExitHead

KIND = "drafted"
PART_NAME = "part-00000.jsonl.gz"
log = logging.getLogger("jakiro")


@torch.inference_mode()
def drafted(head: ExitHead, prompt: list[int], stop_ids: set[int], max_new_tokens: int, seed: int) -> list[int]:
    """Return the tokens that an exit head writes at temperature 1, stop token included."""
    cache, noise = head.new_cache(len(prompt) + max_new_tokens), KeyedNoise(seed)
    noise, written = noise.over(head.draft_token_ids), []
    new = torch.tensor(prompt)
    while len(written) < max_new_tokens:
        features = head.extend(new, new, cache).features[0, -1]
        choice = (head.logits(features[None])[0].float() + noise.rows(cache.length, 1)[0]).argmax()
        new = head.draft_token_ids[choice][None]
        written.append(int(new))
        if written[-1] in stop_ids:
            break
    return written


def own_text(
    corpora: CorpusPaths,
    out: Annotated[Path, argument("Folder for the text.")],
    head: Annotated[str, option("A head for the method exit or distillspec: a folder or a Hub id.")],
    target: Target = None,
    first: Annotated[int, option("Number of messages to skip: as many as train holds out.")] = 100,
    rows: Annotated[int, option("Messages to answer.")] = 400,
    max_new_tokens: Annotated[int, option("Longest answer.")] = 128,
    seed: Annotated[int, option("Seed of the noise, together with the number of a message.")] = 0,
    threads: Threads = None,
) -> None:
    """Answer the messages of a corpus with a draft, as training text for the draft."""
    set_up(threads)
    pair = registry.resolve(target, head)
    draft_head = load_head(pair.head_folder(), kinds=KNOWN.kinds)
    if not isinstance(draft_head, ExitHead):
        raise ValueError(f"{head} needs the target's last feature, so it cannot write text; use a head for exit.")
    model, tokenizer, sha256 = weights.load_target(target, "cpu", "float32")
    source = TargetModel(model, tokenizer, pair.target_name, sha256, "fast")
    draft_head.bind(source.embedding, source.output_weight).pack()
    draft_head.attach(source)
    written = []
    for number, row in enumerate(in_order_of_content(read_corpus(corpora))[first : first + rows]):
        prompt = row.ids[: row.a0]
        answer = drafted(draft_head, prompt, set(source.stop_ids), max_new_tokens, seed * 1_000_003 + number)
        written.append(Row(prompt + answer, KIND, 1.0, len(prompt), len(prompt)))
    out.mkdir(parents=True, exist_ok=True)
    write_part(out / PART_NAME, written)
    log.info("Wrote %d answers with %d tokens.", len(written), sum(len(row.ids) - row.a0 for row in written))


if __name__ == "__main__":
    run(own_text)
