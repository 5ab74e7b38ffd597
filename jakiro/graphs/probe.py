"""Whether the very passes that answers run round alike, plain and drafted: a trial in a lane, captured or not.

The target's own probe runs over a sliced cache; kernels may choose otherwise for a lane's shapes and addresses.
"""

import torch

from jakiro.core.tree import DraftTree
from jakiro.graphs.lane import Lane
from jakiro.target.model import ROW_BUCKETS
from jakiro.target.probes import random_ids, root_and_copies

NUM_PROMPT = 24


@torch.inference_mode()
def rounds_alike(lane: Lane) -> bool:
    """Whether every row of the largest tree that runs with plain decoding's rows has the bits of plain decoding.

    Args:
        lane: opened for greedy answers with trees; afterwards it holds nothing of use.
    """
    target = lane.target
    ids = random_ids(NUM_PROMPT + 2, target.vocab_size, target.device)
    prompt, chain = ids[:NUM_PROMPT], ids[NUM_PROMPT:]
    lane.prefill(prompt)
    alone = []
    for place in range(len(chain)):
        lane.hold(NUM_PROMPT + place)
        lane.score(DraftTree.root_only(chain[place : place + 1]))
        alone.append(lane.logits(1)[0].clone())
    lane.hold(NUM_PROMPT)
    tree = root_and_copies(chain, ROW_BUCKETS[-1])
    lane.score(tree)
    return torch.equal(lane.logits(tree.num_nodes), torch.stack(alone)[tree.depths])
