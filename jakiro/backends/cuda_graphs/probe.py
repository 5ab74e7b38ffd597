"""Whether the very passes that answers run round alike, plain and drafted: a trial in a slot, captured or not.

The target's own probe runs over a sliced cache; kernels may choose otherwise for a slot's shapes and addresses.
"""

import torch

from jakiro.backends.cuda_graphs.slot import Slot
from jakiro.core.tree import DraftTree
from jakiro.models.passes import TREE_ROWS
from jakiro.models.probes import random_ids, star_tree

NUM_PROMPT = 24


@torch.inference_mode()
def rounds_alike(slot: Slot) -> bool:
    """Whether every row of the largest tree that runs with plain decoding's rows has the bits of plain decoding.

    Args:
        slot: opened for greedy answers with trees; afterwards it holds nothing of use.
    """
    target = slot.target
    ids = random_ids(NUM_PROMPT + 2, target.vocab_size, target.device)
    prompt, chain = ids[:NUM_PROMPT], ids[NUM_PROMPT:]
    slot.prefill(prompt)
    alone = []
    for place in range(len(chain)):
        slot.hold(NUM_PROMPT + place)
        slot.score(DraftTree.root_only(chain[place : place + 1]))
        alone.append(slot.logits(1)[0].clone())
    slot.hold(NUM_PROMPT)
    tree = star_tree(chain, TREE_ROWS)
    slot.score(tree)
    return torch.equal(slot.logits(tree.num_nodes), torch.stack(alone)[tree.depths])
