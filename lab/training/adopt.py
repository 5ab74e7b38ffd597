"""First weights from a trained head of another shape: `python -m lab.training.adopt SOURCE FEATURES OUT --method NAME`.

The draft vocabulary and all parameters before the experts are copied; experts are fitted to them by least squares,
along texts of FEATURES, a folder written by `train`. `train --init OUT` continues. The shipped heads of other methods
and the decoupled head started this way from the summed head.
"""

import json
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from jakiro.cli.loading import set_up
from jakiro.cli.options import Target, Threads, argument, option
from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.config import DraftConfig
from jakiro.heads.kind import HeadKind, Texts
from jakiro.heads.kinds import make_head
from jakiro.heads.layer_config import DecoderConfig, LayerConfig
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layer_learning import start_experts
from jakiro.heads.learning import randomise, sample_rows
from jakiro.loading import registry, weights
from jakiro.system import write_atomically
from jakiro.training.corpus import MANIFEST_NAME, read_manifest
from jakiro.training.features import FeatureCache
from jakiro.training.start import head_config
from jakiro.training.train import START_TEXTS
from lab import KNOWN
from lab.commands import run
from lab.published.gumiho.learn import start_further
from lab.published.gumiho.network import GumihoHead


def equal_width(source: DraftConfig, kind: HeadKind, fusion: str) -> int | None:
    """Return the inner width with which a kind's experts have as many parameters as the source's, or None."""
    if not isinstance(source, DecoderConfig):
        return None
    matrices = {"summed": 3, "decoupled": 2}
    num_experts = getattr(source, "num_experts", 1), getattr(kind.config, "num_experts", 1)
    total = source.expert_intermediate_size * num_experts[0] * matrices[getattr(source, "fusion", "summed")]
    return total // (num_experts[1] * matrices[fusion])


@torch.no_grad()
def adopt_stream(head: LayerHead, texts: Texts, source: DraftHead, seed: int) -> None:
    """Copy everything before the experts from a trained head, and fit new experts by least squares.

    Raises:
        ValueError: the source has no such layer.
    """
    require(
        isinstance(source.config, LayerConfig),
        "The source head has no layer that can be copied; choose a head with a layer.",
    )
    torch.manual_seed(seed)
    layer, read = head.layers[0], source.layers[0]
    head.fc.load_state_dict(source.fc.state_dict())
    layer.self_attn.load_state_dict(read.self_attn.state_dict())
    layer.post_attention_layernorm.load_state_dict(read.post_attention_layernorm.state_dict())
    randomise(layer.mlp_moe)
    layer.mlp_moe.gate.weight.mul_(0.1)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for text in texts:
        inputs, now, following = sample_rows(head, [text])
        hidden = head.fc(inputs)[None]
        angles = head.angles(hidden, torch.arange(hidden.shape[1], device=hidden.device)[None])
        parts.append(((hidden + layer.self_attn(hidden, angles, None, None))[0], now, following))
    start_experts(head, *map(torch.cat, zip(*parts, strict=True)))


def started_from(source: DraftHead, head: DraftHead, texts: Texts, seed: int) -> None:
    """Initialise a bound head as its kind does, with the source's layer if both have one."""
    KNOWN.kinds[head.config.kind].start(head, texts, seed)
    if isinstance(head, LayerHead):
        adopt_stream(head, texts, source, seed)
    if isinstance(head, GumihoHead):
        start_further(head, texts, seed)


def adopt(
    source: Annotated[str, argument("The trained head: a known name, a folder, or a Hub id.")],
    features: Annotated[Path, argument("Folder of features written by train.")],
    out: Annotated[Path, argument("Folder for the head, for train --init.")],
    method: Annotated[str, option("The method of the new head.")] = "jakiro",
    fusion: Annotated[str, option("summed or decoupled.")] = "summed",
    expert_width: Annotated[int | None, option("Inner width; default: as many parameters as SOURCE has.")] = None,
    validation_rows: Annotated[int, option("Rows of the corpus that training holds out.")] = 100,
    seed: Annotated[int, option("Equal seeds give equal weights.")] = 0,
    target: Target = None,
    threads: Threads = None,
) -> None:
    """Initialise a head of another shape from a trained one."""
    set_up(threads)
    pair, chosen = registry.resolve(target, source), KNOWN.named(method)
    kind, folder = KNOWN.kinds[chosen.needs.head[0]], pair.head_folder()
    trained = load_head(folder, kinds=KNOWN.kinds)
    model, _, sha256 = weights.load_target(target, "cpu", "float32")
    fields = {**chosen.trains, "target_name": pair.target_name, "target_sha256": sha256 or ""}
    if "fusion" in {field.name for field in fields_of(kind.config)}:
        fields["fusion"] = fusion
    width = expert_width or equal_width(trained.config, kind, fields.get("fusion", "summed"))
    head = make_head(head_config(kind, model.config, width, trained.config.draft_vocab_size, **fields), KNOWN.kinds)
    head.draft_token_ids.copy_(trained.draft_token_ids)
    head.bind(model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach())
    texts = FeatureCache(features).texts(validation_rows, START_TEXTS, torch.device("cpu"))
    require(len(texts) > 0, f"{features} has no texts after {validation_rows} held-out rows; reduce --validation-rows.")
    started_from(trained, head, texts, seed)
    save_head(head, out)
    # The new head counts as trained on the same texts; its own training time is still 0
    manifest = {name: value for name, value in read_manifest(folder).items() if name != "minutes"}
    write_atomically(out / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    run(adopt)
