"""The ParallelSpec head: a layer of one expert and k learned mask tokens that follow the root, one pass for all levels.

The root's row predicts the next feature, mask i the one i positions further. Rows are causal, so a mask sees the masks
before it. ParallelSpec, arXiv 2410.05589.
"""

import torch
from torch import Tensor, nn

from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput
from jakiro.heads.parallelspec.config import ParallelSpecConfig
from jakiro.ops.cache import RowCache


class MaskedHead(LayerHead):
    """A layer with mask tokens; each has a row in place of a token's embedding and one in place of a feature."""

    def __init__(self, config: ParallelSpecConfig) -> None:
        super().__init__(config)
        self.mask_embeddings = nn.Parameter(torch.zeros(config.num_masks, config.hidden_size))
        self.mask_features = nn.Parameter(torch.zeros(config.num_masks, config.feature_size))
        self.root_rows = 1 + config.num_masks

    @property
    def levels(self) -> int:
        return 1 + self.config.num_masks

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """As `LayerHead.extend`, with the masks' rows after the tokens'; the caller drops them from the cache."""
        embeddings = torch.cat([self.embed(token_ids), self.mask_embeddings])
        return self._extend(embeddings, torch.cat([features, self.mask_features]), cache)
