"""Trees grown from a head are valid, and each node has the head's output on its own path, computed without a cache."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import Committed, DraftRequest
from jakiro.drafters.candidates import Chain
from jakiro.drafters.head import HeadDrafter
from jakiro.heads.layer_head import LayerHead
from jakiro.ops import kernels
from tests import needs
from tests.support import DEVICE, HEADS, HIDDEN_SIZE, assert_is_a_tree, prompt_of, tiny_head, tiny_target

NUM_PROMPT = 12
IDS = torch.randint(0, 250, (NUM_PROMPT + 1,), generator=torch.Generator().manual_seed(5)).to(DEVICE)
FEATURES = torch.randn((NUM_PROMPT, HIDDEN_SIZE), generator=torch.Generator().manual_seed(6)).to(DEVICE)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def heads(target):
    return {name: tiny_head(target, **options) for name, options in HEADS.items()}


def grown(head, config, sampling=SamplingParams()):  # noqa: B008
    session = HeadDrafter(head).start(prompt_of(IDS, FEATURES), sampling, KeyedNoise(sampling.seed))
    return session.propose(DraftRequest(config)).tree


def no(head, tree):
    return None


def candidates(config, contrastive, vocab_size):
    """Return the number of candidates of all levels: K on the first and K² on each of the others."""
    width = min(config.width, config.nodes - 1, vocab_size)
    return width + (config.depth - 1) * width**2


CONFIGS = st.builds(
    TreeConfig,
    width=st.integers(1, 10),
    depth=st.integers(1, 7),
    nodes=st.integers(2, 48),
    shared_noise=st.booleans(),
)
SAMPLINGS = st.builds(SamplingParams, temperature=st.sampled_from([0, 0.5, 1.0, 2.0]), seed=st.integers(0, 2**63 - 1))


@pytest.mark.parametrize("name", HEADS)
def test_every_grown_tree_is_valid_and_has_the_requested_size(heads, name):
    head = heads[name]

    @settings(max_examples=25)
    @given(CONFIGS, SAMPLINGS)
    def check(config, sampling):
        tree = grown(head, config, sampling)
        assert_is_a_tree(tree)
        vocab_size = head.draft_token_ids.shape[0]
        assert tree.num_nodes == min(config.nodes, 1 + candidates(config, head.has_contrastive_branch, vocab_size))
        assert int(tree.depths.max()) <= config.depth
        assert set(tree.token_ids[1:].tolist()) <= set(head.draft_token_ids.tolist())
        parents = tree.parents[1:]
        assert (tree.scores[1:] <= tree.scores[parents]).all() and torch.isfinite(tree.scores).all()

    check()


@pytest.mark.skipif(DEVICE.type != "cpu", reason="on a GPU every node of a level is expanded")
@pytest.mark.parametrize("name", HEADS)
def test_omitting_nodes_that_cannot_win_does_not_change_the_tree(heads, name, monkeypatch):
    head = heads[name]

    def proposal(limits, sampling, everything):
        session = HeadDrafter(head).start(prompt_of(IDS, FEATURES), sampling, KeyedNoise(sampling.seed))
        rows, catch_up = [], session.catch_up
        monkeypatch.setattr(session, "catch_up", lambda: (catch_up(), rows.append(session.cache.length)))
        # Growth ends with this call. Reading pending tokens makes it too, but has no rows to remove here
        monkeypatch.setattr(session.cache, "keep", lambda length: rows and rows.append(session.cache.length - rows[0]))
        if everything:
            monkeypatch.setattr(session, "_explored", lambda tree: None)
        return session.propose(limits), rows[1]

    saved = set()

    @settings(max_examples=30)
    @given(CONFIGS, SAMPLINGS, st.booleans())
    def check(config, sampling, chained):
        chain = Chain.of([5, 7, 9], [-0.5, -0.2, -0.1], 3, DEVICE) if chained else None
        limits = DraftRequest(config, chain=chain)
        (few, few_rows), (all_, all_rows) = proposal(limits, sampling, False), proposal(limits, sampling, True)
        assert few_rows <= all_rows
        saved.add(few_rows < all_rows)
        for column in ("token_ids", "parents", "depths", "proposers", "also"):
            assert torch.equal(few.tree.columns[column], all_.tree.columns[column])
        torch.testing.assert_close(few.tree.scores, all_.tree.scores)

    check()
    assert saved == {False, True}


@pytest.fixture(scope="module")
def packed_heads(target):
    return {name: tiny_head(target, **options).pack("full") for name, options in HEADS.items()}


def assert_same_proposals(actual, expected):
    for column in ("token_ids", "parents", "depths", "draft_passes", "proposers", "also"):
        assert torch.equal(actual.tree.columns[column], expected.tree.columns[column]), column
    for column in ("scores", "draft_probs"):
        torch.testing.assert_close(
            actual.tree.columns[column], expected.tree.columns[column], equal_nan=True, rtol=1e-4, atol=1e-5
        )
    assert list(actual.tree.evidence) == list(expected.tree.evidence)
    for name, numbers in expected.tree.evidence.items():
        torch.testing.assert_close(actual.tree.evidence[name], numbers, equal_nan=True, rtol=1e-4, atol=1e-4)


@needs.compiled_functions
@pytest.mark.parametrize("name", HEADS)
def test_compiled_growth_equals_growth_with_torch(packed_heads, name, monkeypatch):
    """Runs on the first tokens of a text, several at a time as after accepted steps, and once without new tokens."""
    head, calls = packed_heads[name], []
    tree_growth = kernels.current().tree_growth

    def count_calls(head, tree):
        grow = tree_growth(head, tree)
        return grow and (lambda *arguments: calls.append(1) or grow(*arguments))

    def proposals(limits, sampling, with_evidence, compiled):
        monkeypatch.setattr(kernels.current(), "tree_growth", count_calls if compiled else no)
        drafter = HeadDrafter(head, has_evidence=with_evidence)
        session = drafter.start(prompt_of(IDS[:6], FEATURES[:5]), sampling, KeyedNoise(sampling.seed))
        results = [session.propose(limits)]
        for begin, end in ((6, 7), (7, 10), (10, 10), (10, 13)):
            if end > begin:
                ids = IDS[begin:end]
                session.observe(Committed(ids.tolist(), ids, FEATURES[begin - 1 : end - 1]))
            results.append(session.propose(limits))
            assert session.cache.length == end - 1
        return results

    @settings(max_examples=25)
    @given(CONFIGS, SAMPLINGS, st.booleans(), st.booleans(), st.booleans())
    def check(config, sampling, chained, contrastive, with_evidence):
        chain = Chain.of([5, 7, 9], [-0.5, -0.2, -0.1], 3, DEVICE) if chained else None
        limits = DraftRequest(replace(config, contrastive=contrastive), chain=chain)
        both = (proposals(limits, sampling, with_evidence, compiled) for compiled in (True, False))
        for actual, expected in zip(*both, strict=True):
            assert_same_proposals(actual, expected)

    check()
    assert len(calls) >= 5


@needs.compiled_functions
@pytest.mark.parametrize("name", HEADS)
def test_only_the_last_row_of_a_long_prompt_is_read_with_the_tree(packed_heads, name, monkeypatch):
    from jakiro.backends.native.head_layer import MOST_ROWS

    head, generator = packed_heads[name], torch.Generator().manual_seed(7)
    ids = torch.randint(0, 250, (MOST_ROWS + 9,), generator=generator)
    features, limits = torch.randn((len(ids) - 1, HIDDEN_SIZE), generator=generator), DraftRequest(TreeConfig(4, 3, 12))
    results = []
    for tree_growth in (kernels.current().tree_growth, no):
        monkeypatch.setattr(kernels.current(), "tree_growth", tree_growth)
        session = HeadDrafter(head).start(prompt_of(ids, features), SamplingParams(), KeyedNoise(0))
        results.append(session.propose(limits))
        assert session.cache.length == len(ids) - 1
    assert_same_proposals(*results)


class NegatedHead(LayerHead):
    """A head of another kind, with an additional operation in its pass."""

    def forward(self, *arguments, **options):
        output = super().forward(*arguments, **options)
        return output._replace(features=-output.features)


def test_head_with_its_own_pass_grows_its_tree_with_that_pass(target):
    head = tiny_head(target, num_experts=1)
    head.__class__ = NegatedHead
    expected = grown(head, TreeConfig(4, 3, 12)).token_ids
    assert torch.equal(grown(head.pack("full"), TreeConfig(4, 3, 12)).token_ids, expected)


@torch.no_grad()
def outputs_along(head, tokens, experts):
    """Return the head's output at the root and after each drafted token, with every row recomputed in one causal pass.

    Args:
        experts: with decoupled fusion, the expert of the feature that continues the chain after each token.
    """
    ids, features, outputs = IDS[1:], FEATURES, []
    for depth in range(len(tokens) + 1):
        positions = torch.arange(ids.shape[0], device=DEVICE)[None]
        output = head(head.embed(ids)[None], features[None], positions)
        outputs.append(output)
        if depth < len(tokens):
            last = output.features[..., -1, :]
            feature = last[experts[depth], 0] if head.mixes_experts else last[0]
            ids = torch.cat([ids, torch.tensor(tokens[depth : depth + 1], device=DEVICE)])
            features = torch.cat([features, feature[None]])
    return outputs


@pytest.mark.parametrize("temperature", [0, 0.6])
@pytest.mark.parametrize("name", HEADS)
def test_every_node_has_probability_and_evidence_of_its_own_path(heads, name, temperature):
    head, beta = heads[name], temperature or 1.0
    decoupled = head.mixes_experts
    tree = grown(head, TreeConfig(width=4, depth=4, nodes=53, shared_noise=False), SamplingParams(temperature))
    tokens, parents, experts = tree.token_ids.tolist(), tree.parents.tolist(), tree.proposers.tolist()
    index_of = {token: index for index, token in enumerate(head.draft_token_ids.tolist())}
    directions = head.output_weight - head.output_weight.mean(0)
    router_weights, contributions = tree.evidence["router_weights"], tree.evidence["expert_contributions"]
    residuals, branches = tree.evidence["residual_contribution"][:, 0], set()
    assert experts[0] == -1 and all(rows[0].isnan().all() for rows in tree.evidence.values()), (
        "the root has no proposer"
    )

    def chain(node):
        return [] if node <= 0 else [*chain(parents[node]), node]

    for node in range(1, tree.num_nodes):
        above, index = chain(node)[:-1], index_of[tokens[node]]
        contrastive = experts[node] == head.num_experts
        branches.add(contrastive)
        assert contrastive == (head.has_contrastive_branch and tree.depths[node] == 4)
        # The contrastive row of a pass predicts two positions ahead: it is the row of the grandparent
        rows = above[:-1] if contrastive else above
        output = outputs_along(head, [tokens[i] for i in rows], [experts[i] for i in rows])[-1]
        weights = output.router_weights[0, -1]
        if decoupled:
            probs = (head.logits(output.features[:, 0, -1]) / beta).softmax(-1)[:, index] * weights
            expected, proposer = probs.sum(), int(probs.argmax())
        else:
            feature = (output.contrastive if contrastive else output.features)[0, -1]
            expected = (head.logits(feature) / beta).softmax(-1)[index]
        assert float(tree.draft_probs[node]) == pytest.approx(float(expected), rel=1e-3)
        edge = float(tree.scores[node] - tree.scores[parents[node]])
        assert edge == pytest.approx(float(expected.log()), abs=1e-3)
        if contrastive:
            pair = output.contrastive_weights[0, -1].abs()
            torch.testing.assert_close(router_weights[node], pair, atol=1e-4, rtol=1e-3)
            assert contributions[node].isnan().all() and residuals[node].isnan()
            continue
        torch.testing.assert_close(router_weights[node], weights, atol=1e-4, rtol=1e-3)
        residual = float(directions[index] @ output.residual[0, -1])
        assert float(residuals[node]) == pytest.approx(residual, abs=1e-3)
        if decoupled:
            assert experts[node] == proposer
        else:
            pushes = weights * (output.expert_outputs[:, 0, -1] @ directions[index])
            torch.testing.assert_close(contributions[node], pushes, atol=1e-3, rtol=1e-3)
            assert experts[node] == int(pushes.argmax())
            logits = head.logits(feature)
            total = float(contributions[node].sum() + residuals[node])
            assert total == pytest.approx(float(logits[index] - logits.mean()), abs=1e-3)
    assert branches == ({False, True} if head.has_contrastive_branch else {False})


def assert_ranked(head, tree, parent, feature, weigh):
    """Check that the children of a node are the best choices of the head after `feature`, weighted and renormalized.

    Returns:
        The children, and the head's probability of each.
    """
    log_q = (head.logits(feature) / 0.7).log_softmax(-1)
    position = torch.tensor([NUM_PROMPT + int(tree.depths[parent]) + 1], device=DEVICE)
    weighed = weigh(log_q, KeyedNoise(21).at(position, head.draft_token_ids)).log_softmax(-1)
    children = (tree.parents == parent).nonzero().flatten()
    best = weighed.topk(len(children))
    assert tree.token_ids[children].tolist() == head.draft_token_ids[best.indices].tolist()
    torch.testing.assert_close(tree.scores[children] - tree.scores[parent], best.values, atol=1e-4, rtol=1e-4)
    return children, log_q[best.indices].exp()


def test_contrastive_candidates_use_the_noise_and_calibration_of_their_depth_and_branch(target):
    head, sampling = tiny_head(target), SamplingParams(0.7, seed=21)
    head.config.calibration.update({"contrastive/3/sampled": 2.0, "contrastive/3/noise": 0.5, "main/3/sampled": 5.0})
    tree = grown(head, TreeConfig(width=3, depth=3, nodes=22), sampling)
    tokens, parents, depths = tree.token_ids.tolist(), tree.parents.tolist(), tree.depths.tolist()
    above = sorted({parent for parent, depth in zip(parents, depths, strict=True) if depth == 3})
    assert len(above) == 3
    for parent in above:
        feature = outputs_along(head, [tokens[parents[parent]]], [0])[-1].contrastive[0, -1]
        children, _ = assert_ranked(head, tree, parent, feature, lambda log_q, noise: 2.0 * log_q + 0.5 * noise)
        assert len(children) == 3


@pytest.mark.parametrize("name", ["summed", "summed, reduced vocabulary"])
def test_calibration_weights_log_q_and_shared_noise_separately(target, name):
    head, sampling = tiny_head(target, **HEADS[name]), SamplingParams(0.7, seed=21)
    head.config.calibration.update({"main/1/sampled": 3.0, "main/1/noise": 0.5, "main/2/sampled": 2.0})
    tree = grown(head, TreeConfig(width=4, depth=2, nodes=21, contrastive=False), sampling)
    at_root = outputs_along(head, [], [])[0].features[0, -1]
    first, probs = assert_ranked(head, tree, 0, at_root, lambda log_q, noise: 3.0 * log_q + 0.5 * noise)
    torch.testing.assert_close(tree.draft_probs[first], probs, atol=1e-5, rtol=1e-3)
    feature = outputs_along(head, [tree.token_ids[first[0]].item()], [0])[-1].features[0, -1]
    second, _ = assert_ranked(head, tree, first[0], feature, lambda log_q, noise: 2.0 * (log_q + noise))
    assert len(first) == len(second) == 4 and tree.scores[0] == 0
