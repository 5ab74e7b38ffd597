"""Skipped layers: the target drafts for itself without some of its layers; nothing is trained.

FTP (arXiv 2412.11494) skips blocks to be fast and accepts another text; here the whole target verifies every token.
FTP's routers choose blocks for each token; here one subset, found by `python -m lab.training.skip_search` on text, is
used for all tokens. Training a router would only pay off if the subset came close to break-even; see lab/README.md.
"""

import torch
from torch import Tensor

from jakiro.drafters.base import Method, Needs, Proposer, Resources
from jakiro.drafters.head import HeadDrafter
from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.models.target import TargetModel
from jakiro.ops.cache import RowCache
from jakiro.ops.linear import Packing, looked_up
from lab.layers.plan import LayerPlan, find_plan
from lab.layers.subset import LayerSubset

# The first ids are the most common: byte-pair tokenizers number their merges in the order in which they were made
DRAFT_VOCABULARY = 16_384


class SkippingHead(DraftHead):
    """Layers of the target as a draft head that reads only tokens."""

    skipped_tokens, root_rows = 0, 1
    capturable = False

    def __init__(self, target: TargetModel, plan: LayerPlan) -> None:
        rows = min(DRAFT_VOCABULARY, target.vocab_size)
        sizes = {"hidden_size": target.hidden_size, "vocab_size": target.vocab_size, "draft_vocab_size": rows}
        super().__init__(DraftConfig(**sizes, calibration=plan.calibration))
        self.draft_token_ids = torch.arange(rows, device=target.device)
        self.embedding, self.output_weight = target.embedding, looked_up(target.output_weight, self.draft_token_ids)
        self._layers = LayerSubset(target, plan.kept)

    def pack_matrices(self, packing: Packing) -> None:
        """Do nothing: the layers belong to the target and are used as they are."""

    def new_cache(self, capacity: int) -> RowCache:
        return self._layers.new_cache(capacity)

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Read committed tokens, (rows,) int64; the features are not used."""
        start, rows = cache.length, token_ids.shape[0]
        positions = torch.arange(start, start + rows, device=token_ids.device)
        order = positions - start
        visible = cache.visible(order <= order[:, None])
        embeddings = self.embed(token_ids)[None]
        return self(embeddings, embeddings, positions[None], visible[None, None], cache)

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor, cache: RowCache
    ) -> HeadOutput:
        """Draft rows from (1, rows, hidden) embeddings and append them to the cache; the features are not used."""
        hidden = self._layers(embeddings[0], positions[0], mask[0, 0], cache)
        return row_output(self._layers.normed(hidden)[None])


def proposers_of(num_kept: int | None = None, num_layers: int = 0) -> tuple[Proposer, ...]:
    """Return the proposer of a draft with this number of layers."""
    many = "Some layers" if num_kept is None else f"{num_kept} of {num_layers} layers"
    return (Proposer("skip", many, f"{many} of the target itself, the others skipped."),)


def _load(resources: Resources) -> HeadDrafter:
    target = resources.target
    count, path = target.config.num_hidden_layers, find_plan(target.name)
    plan = LayerPlan.every_second(count) if path is None else LayerPlan.load(path, count)
    head = SkippingHead(target, plan).pack()
    info = {"name": f"layers {', '.join(map(str, plan.kept))}", "sha256": plan.sha256, "precision": head.precision}
    return HeadDrafter(head, info, proposers=proposers_of(len(plan.kept), count), has_evidence=False)


METHOD = Method(
    name="skip",
    title="Skipped layers",
    sentence="The target drafts for itself without some of its layers, then all of its layers check the draft.",
    paper="2412.11494",
    proposers=proposers_of(),
    needs=Needs(layers=True),
    load=_load,
)
