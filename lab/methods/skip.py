"""Skipped layers: the target drafts for itself with some of its layers left out; nothing is trained.

From FTP (arXiv 2412.11494), which skips blocks to be fast and accepts another text; here the whole target checks every
token. FTP's routers choose blocks for each token; here one subset serves all, found on text by
`python -m lab.training.skip_search`. A router would be worth its training only where the subset comes close
to break-even, see lab/README.md.
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

# The first ids are the commonest: byte-pair tokenizers number their merges in the order in which they were made
DRAFT_VOCABULARY = 16_384


class SkippingHead(DraftHead):
    """Layers of the target as a draft head of their own, which reads tokens alone."""

    skipped_tokens, root_rows = 0, 1
    capturable = False

    def __init__(self, target: TargetModel, plan: LayerPlan) -> None:
        rows = min(DRAFT_VOCABULARY, target.vocab_size)
        super().__init__(
            DraftConfig(
                hidden_size=target.hidden_size,
                vocab_size=target.vocab_size,
                draft_vocab_size=rows,
                calibration=plan.calibration,
            )
        )
        self.draft_token_ids = torch.arange(rows, device=target.device)
        self.embedding, self.output_weight = target.embedding, looked_up(target.output_weight, self.draft_token_ids)
        self._layers = LayerSubset(target, plan.kept)

    def pack_matrices(self, packing: Packing) -> None:
        """The layers are the target's, as they are there."""

    def new_cache(self, capacity: int) -> RowCache:
        return self._layers.new_cache(capacity)

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Reads committed tokens, (rows,) int64; the target's features are not needed."""
        start, rows = cache.length, token_ids.shape[0]
        positions = torch.arange(start, start + rows, device=token_ids.device)
        order = positions - start
        visible = cache.visible(order <= order[:, None])
        embeddings = self.embed(token_ids)[None]
        return self(embeddings, embeddings, positions[None], visible[None, None], cache)

    def forward(
        self, embeddings: Tensor, features: Tensor, positions: Tensor, mask: Tensor, cache: RowCache
    ) -> HeadOutput:
        """(1, rows, hidden) embeddings, whose features are not read; the cache is extended."""
        hidden = self._layers(embeddings[0], positions[0], mask[0, 0], cache)
        return row_output(self._layers.normed(hidden)[None])


def proposers_of(kept: int | None = None, whole: int = 0) -> tuple[Proposer, ...]:
    """The layers that are kept."""
    many = "Some layers" if kept is None else f"{kept} of {whole} layers"
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
    sentence="The target drafts for itself with some of its layers left out, then all of them check the draft.",
    paper="2412.11494",
    proposers=proposers_of(),
    needs=Needs(layers=True),
    load=_load,
)
