"""Test of batch invariance with the very passes that answers run, captured or not.

The target's own probe runs over a sliced cache; for buffers of other shapes and addresses, libraries may choose other
kernels.
"""

import torch

from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.core.tree import DraftTree
from jakiro.models.probes import random_ids, star_tree
from jakiro.models.target import TREE_ROWS

NUM_PROMPT = 24


@torch.inference_mode()
def is_batch_invariant(buffers: GraphBuffers) -> bool:
    """Return whether every row of the largest tree has the bits of plain decoding.

    Only trees with as many rows as a plain pass are compared.

    Args:
        buffers: opened for greedy answers with trees; their content is overwritten.
    """
    target = buffers.target
    ids = random_ids(NUM_PROMPT + 2, target.vocab_size, target.device)
    prompt, chain = ids[:NUM_PROMPT], ids[NUM_PROMPT:]
    buffers.prefill(prompt)
    plain = []
    for place in range(len(chain)):
        buffers.set_length(NUM_PROMPT + place)
        buffers.score(DraftTree.root_only(chain[place : place + 1]))
        plain.append(buffers.logits(1)[0].clone())
    buffers.set_length(NUM_PROMPT)
    tree = star_tree(chain, TREE_ROWS)
    buffers.score(tree)
    return torch.equal(buffers.logits(tree.num_nodes), torch.stack(plain)[tree.depths])
