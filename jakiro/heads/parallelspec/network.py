"""The ParallelSpec head: a layer with one expert and k learned mask tokens after the root, one pass for all levels.

The root's row predicts the next feature, mask i the feature i positions later. Rows are causal, so a mask attends to
the masks before it. ParallelSpec, arXiv 2410.05589.
"""

import torch
from torch import Tensor, nn

from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput
from jakiro.heads.parallelspec.config import ParallelSpecConfig
from jakiro.ops.cache import RowCache


class MaskedHead(LayerHead):
    """A layer with mask tokens; each mask has a learned embedding and a learned feature."""

    def __init__(self, config: ParallelSpecConfig) -> None:
        super().__init__(config)
        self.mask_embeddings = nn.Parameter(torch.zeros(config.num_masks, config.hidden_size))
        self.mask_features = nn.Parameter(torch.zeros(config.num_masks, config.feature_size))
        self.root_rows = 1 + config.num_masks

    @property
    def levels(self) -> int:
        return 1 + self.config.num_masks

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Extend the cache by tokens and by the masks after them; the caller removes the masks' rows."""
        embeddings = torch.cat([self.embed(token_ids), self.mask_embeddings])
        return self._extend(embeddings, torch.cat([features, self.mask_features]), cache)
