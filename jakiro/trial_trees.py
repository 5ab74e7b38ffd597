"""Trees by which a target is tried before it is used, see `jakiro.target`: tokens are given, nothing was drafted."""

from dataclasses import replace

import torch
from torch import Tensor

from jakiro.tree import DraftTree


def chain_among_siblings(chain: Tensor, siblings: Tensor) -> DraftTree:
    """Nodes chain[0], siblings[0], chain[1], siblings[1], …; every second node continues the chain."""
    count = chain.shape[0]
    depths = torch.arange(count, device=chain.device)
    root = DraftTree.root_only(chain[:1])
    nodes = torch.stack([chain, siblings], dim=1).flatten()
    parents = torch.stack([2 * (depths - 1), 2 * depths], dim=1).flatten()
    parents[0] = -1
    depths = torch.stack([depths, depths + 1], dim=1).flatten()
    return replace(root, token_ids=nodes, parents=parents, depths=depths, max_depth=count)


def root_and_copies(chain: Tensor, num_nodes: int) -> DraftTree:
    """chain[0] and below it only chain[1], over and over."""
    root = DraftTree.root_only(chain[:1])
    depths = torch.ones(num_nodes, dtype=torch.int64, device=chain.device)
    depths[0] = 0
    return replace(root, token_ids=chain[depths], parents=depths - 1, depths=depths, max_depth=1)


def chain_alone(chain: Tensor) -> DraftTree:
    """Each node the child of the one before."""
    depths = torch.arange(chain.shape[0], device=chain.device)
    return replace(
        DraftTree.root_only(chain[:1]), token_ids=chain, parents=depths - 1, depths=depths, max_depth=chain.shape[0] - 1
    )
