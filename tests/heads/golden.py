"""Comparison with figures of the official algorithm (tests/data/README.md): trees, masks and depths of three rounds."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import ancestor_mask
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.head import HeadDrafter
from jakiro.heads.layer_head import LayerHead
from tests.support import committed, prompt_of

DATA = Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "cases.json").read_text())


def paths(token_ids: list[int], mask: torch.Tensor, depths: list[int]) -> set[tuple[int, ...]]:
    """Return the tokens from the root to each node, read from the ancestor mask."""
    result = set()
    for row in mask:
        ancestors = sorted(row.nonzero().flatten().tolist(), key=lambda node: depths[node])
        assert [depths[node] for node in ancestors] == list(range(len(ancestors)))
        result.add(tuple(token_ids[node] for node in ancestors))
    return result


def assert_grows_the_official_trees(head: LayerHead, case: dict) -> None:
    """Check that a head grows the trees of the published two-expert code."""
    golden = load_file(DATA / f"case{case['case']}_golden.safetensors")
    config = TreeConfig(width=case["top_k"], depth=case["depth"] + 1, nodes=case["total_tokens"])
    assert_grows(HeadDrafter(head), golden, config, case["rounds"])


def assert_grows(
    drafter: HeadDrafter, golden: dict, config: TreeConfig, rounds: int, read=lambda states: states
) -> None:
    """Check tokens, depths, masks and leaves of all rounds; `read` turns published states into features."""
    session, num_read = None, 0
    for number in range(rounds):
        expected = {name.removeprefix(f"r{number}."): tensor for name, tensor in golden.items()}
        features, ids = read(expected["hidden_states"][0]), expected["input_ids"].flatten()
        if session is None:
            session = drafter.start(prompt_of(ids, features), SamplingParams(), KeyedNoise(0))
        else:
            session.observe(committed(ids[num_read + 1 :], features))
        num_read += features.shape[0]
        tree = session.propose(DraftRequest(config)).tree
        assert session.cache.length == num_read == ids.shape[0] - 1
        tokens, depths = (expected[name].flatten().tolist() for name in ("draft_tokens", "tree_position_ids"))
        assert int(tree.token_ids[0]) == tokens[0] and sorted(tree.depths.tolist()) == sorted(depths)
        ours = paths(tree.token_ids.tolist(), ancestor_mask(tree.parents, tree.max_depth), tree.depths.tolist())
        assert ours == paths(tokens, expected["tree_mask"].squeeze().bool(), depths)
        leaves = [row[row >= 0].tolist() for row in expected["retrieve_indices"].squeeze(0)]
        assert {tuple(tokens[node] for node in path) for path in leaves} <= ours


def assert_gives_the_official_features(head: LayerHead) -> None:
    golden = load_file(DATA / "star_golden.safetensors")
    with torch.no_grad():
        output = head(head.embed(golden["input_ids"]), golden["hidden_states"], torch.arange(9)[None])
    stronger = output.router_weights.argmax(-1)[None, ..., None].expand(1, -1, -1, 64)
    for index, expert in enumerate((stronger, 1 - stronger)):
        features = output.features.gather(0, expert)[0]
        torch.testing.assert_close(features, golden["expert_features"][index], atol=1e-5, rtol=1e-5)
