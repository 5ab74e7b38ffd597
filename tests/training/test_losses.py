import pytest
import torch
from torch import nn

from jakiro.heads.layers import HeadOutput
from jakiro.heads.learning import whitening_matrix
from jakiro.training.cross_entropy import MixtureCrossEntropy, SoftCrossEntropy, VocabularySlice
from jakiro.training.losses import (
    LossWeights,
    Objective,
    learnable_positions,
    sample_vocabulary,
)
from jakiro.training.optimizer import ROUTER_RATE, muon_and_adamw, orthogonalised
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def everything(head) -> VocabularySlice:
    return VocabularySlice(head.output_weight, None)


def test_soft_cross_entropy_and_its_gradient_equal_the_plain_formula():
    torch.manual_seed(0)
    features = torch.randn(7, 5, requires_grad=True)
    rows, target = torch.randn(11, 5), torch.randn(7, 11).softmax(-1)
    expected = -(target * (features @ rows.T).log_softmax(-1)).sum(-1).mean()
    (expected_grad,) = torch.autograd.grad(3 * expected, features)
    loss = SoftCrossEntropy.apply(features, rows, None, target)
    (grad,) = torch.autograd.grad(3 * loss, features)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("experts", [1, 2])
def test_mixture_cross_entropy_and_its_gradients_equal_the_plain_formula(experts):
    torch.manual_seed(0)
    features, router = torch.randn(experts, 7, 5, requires_grad=True), torch.randn(7, experts, requires_grad=True)
    rows, target = torch.randn(11, 5), torch.randn(7, 11).softmax(-1)

    def plain():
        log_probs = (features @ rows.T).log_softmax(-1) + router.log_softmax(-1).T[..., None]
        return -(target * log_probs.logsumexp(0)).sum(-1).mean()

    expected_grads = torch.autograd.grad(plain(), (features, router))
    loss, shares, normalisers = MixtureCrossEntropy.apply(features, router.log_softmax(-1), rows, None, target)
    grads = torch.autograd.grad(loss, (features, router))
    torch.testing.assert_close(loss, plain())
    torch.testing.assert_close(shares.sum(-1), torch.ones(7))
    torch.testing.assert_close(normalisers, (features @ rows.T).logsumexp(-1))
    for ours, theirs in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(ours, theirs)


class Oracle(nn.Module):
    """A head that returns the target's features, `shift` positions too late."""

    def __init__(self, head, batch, shift: int) -> None:
        super().__init__()
        self.config, self.output_weight, self.draft_token_ids = head.config, head.output_weight, head.draft_token_ids
        self.embed, self.mixes_experts = head.embed, head.mixes_experts
        self.features, self.shift = batch.features, shift

    def map_features(self, features):
        return features

    def forward(self, embeddings, features, positions, mask, cache):
        main = self.features.roll(-1 - self.shift, dims=1)[:, : embeddings.shape[1]]
        contrastive = self.features.roll(-2 - self.shift, dims=1)[:, : embeddings.shape[1]]
        return HeadOutput(main, contrastive, main, main[None], None, None)


def test_oracle_has_no_gap_to_the_target_unless_it_is_shifted(tmp_path):
    target = tiny_target()
    head, batch = tiny_head(target), tiny_cache(tmp_path, target).batch([0, 1, 2])
    _, parts = Objective(Oracle(head, batch, 0), LossWeights())(batch, everything(head), 3)
    for step in (1, 2, 3):
        for branch in ("main", "contrastive"):
            assert parts[f"{branch}_{step}/token"] == pytest.approx(parts["target_entropy"], abs=1e-5)
            assert parts[f"{branch}_{step}/feature"] == pytest.approx(0, abs=1e-6)
    _, parts = Objective(Oracle(head, batch, 1), LossWeights())(batch, everything(head), 1)
    assert parts["main_1/token"] > parts["target_entropy"] + 1e-3
    assert parts["contrastive_1/feature"] > 0.1


def test_learned_positions_predict_only_tokens_of_the_answer(tmp_path):
    batch = tiny_cache(tmp_path, tiny_target()).batch([0, 1])
    learn = learnable_positions(batch, 1)
    for row, length in enumerate(batch.lengths.tolist()):
        assert learn[row].nonzero()[:, 0].tolist() == list(range(2, length - 1))
    assert learnable_positions(batch, 4)[0].nonzero()[0].item() == 5


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_unrolled_rows_equal_step_by_step_drafting(tmp_path, fusion):
    """Compare with drafted rows that follow a true row, one pass at a time with the head's own cache."""
    target = tiny_target()
    cached = tiny_cache(tmp_path, target)
    head, batch = tiny_head(target, fusion), cached.batch([int(cached.lengths.argmax())])
    objective = Objective(head, LossWeights())
    embeddings = head.embed(batch.ids)
    with torch.no_grad():
        unrolled = list(objective.unroll(batch, 4, None))
        for start in (2, 5):
            cache = head.new_cache(32)
            positions = torch.arange(start + 1)[None]
            output = head(embeddings[:, 1 : start + 2], batch.features[:, : start + 1], positions, None, cache)
            for step in (2, 3, 4):
                row = start + step - 1
                feature = last_own_feature(objective, output, next_id=batch.ids[:, row + 1])
                mask = torch.ones(1, 1, 1, cache.length + 1, dtype=torch.bool)
                output = head(embeddings[:, row + 1 : row + 2], feature, torch.tensor([[row]]), mask, cache)
                expected = unrolled[step - 1].features[..., row : row + 1, :]
                torch.testing.assert_close(output.features, expected, atol=1e-5, rtol=1e-4)


def test_loss_from_computed_rows_equals_that_from_all_rows(tmp_path, monkeypatch):
    """Missing normalizers are computed later; the loss equals one that computes all rows again."""
    target = tiny_target()
    batch = tiny_cache(tmp_path, target).batch([0, 1])
    head = tiny_head(target, "decoupled")
    objective, rows = Objective(head, LossWeights()), VocabularySlice(head.output_weight, None)
    loss, _ = objective(batch, rows, 3)
    stock = objective.unroll
    monkeypatch.setattr(objective, "unroll", lambda batch, steps, noise, _: stock(batch, steps, noise))
    expected, _ = objective(batch, rows, 3)
    torch.testing.assert_close(loss, expected)


def test_loss_of_several_steps_is_their_decayed_sum(tmp_path):
    target = tiny_target()
    head, batch = tiny_head(target, "decoupled"), tiny_cache(tmp_path, target).batch([0, 1])
    weights = LossWeights(token=2.0, feature=3.0, contrastive=0.5, unroll_decay=0.6)
    loss, parts = Objective(head, weights)(batch, everything(head), 3)
    expected = 0.0
    for step, decay in ((1, 1.0), (2, 0.6), (3, 0.36)):
        for branch, weight in (("main", 1.0), ("contrastive", 0.5)):
            token, feature = (parts.get(f"{branch}_{step}/{name}", 0.0) for name in ("token", "feature"))
            expected += decay * weight * (2 * token + 3 * feature)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def last_own_feature(objective, output, next_id):
    """Return the last row's feature; for a decoupled head, of the expert with the largest w q for the next token."""
    features = output.features[..., -1:, :]
    if features.ndim == 3:
        return features
    log_probs = objective.head.logits(features).log_softmax(-1)[..., next_id[0]]
    proposer = (log_probs[:, 0, 0] + output.router_weights[0, -1].log()).argmax()
    return features[proposer]


def test_sampled_vocabulary_keeps_normalizers_unbiased():
    torch.manual_seed(0)
    rows, feature = torch.randn(200, 4), torch.randn(4)
    frequent = torch.zeros(200, dtype=torch.bool)
    frequent[:20] = True
    generator = torch.Generator().manual_seed(1)
    sums = []
    for _ in range(600):
        sample = sample_vocabulary(rows, frequent, torch.tensor([150]), 40, generator)
        assert (sample.rows == rows[150]).all(-1).any()
        sums.append((sample.rows @ feature + sample.log_weights).exp().sum())
    assert float(torch.stack(sums).mean()) == pytest.approx(float((rows @ feature).exp().sum()), rel=0.05)


def test_whitened_rows_have_nearly_the_unit_matrix_as_second_moment():
    rows = torch.randn(20000, 12, generator=torch.Generator().manual_seed(0))
    rows[:, 3] = 40 * rows[:, 3] + 100
    white = rows @ whitening_matrix(rows, damping=1e-4)
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(12), atol=5e-3, rtol=0)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_update_in_bfloat16_is_nearly_orthogonal(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    half = orthogonalised(matrix, torch.bfloat16)
    assert half.dtype == torch.float32
    assert (half - orthogonalised(matrix)).norm() < 0.05 * half.norm()
    singular = torch.linalg.svdvals(half)
    assert singular.min() > 0.5 and singular.max() < 1.3


def test_norms_and_routers_follow_the_formula_of_the_recipe():
    """AdamW with decoupled decay and a varying learning rate, a fiftieth of it for routers; Muon updates matrices."""
    generator = torch.Generator().manual_seed(7)
    shapes = {"norm.weight": (6,), "gate.weight": (2, 6), "fc.weight": (5, 6)}
    ours = {name: torch.nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}
    muon, adamw = muon_and_adamw(ours.items(), 0.1, weight_decay=0.01, routers=["gate.weight"])
    expected = {name: ours[name].detach().clone() for name in ("norm.weight", "gate.weight")}
    mean, square = ({name: torch.zeros_like(tensor) for name, tensor in expected.items()} for _ in range(2))
    for step, rate in enumerate((0.1, 0.07, 0.02, 0.005), start=1):
        for parameter in ours.values():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for group in (*muon.param_groups, *adamw.param_groups):
            group["lr"] = rate * group.get("rate", 1.0)
        for name, weight in expected.items():
            scaled_rate, gradient = rate * (ROUTER_RATE if name == "gate.weight" else 1.0), ours[name].grad
            mean[name] = 0.9 * mean[name] + 0.1 * gradient
            square[name] = 0.95 * square[name] + 0.05 * gradient**2
            update = mean[name] / (1 - 0.9**step) / ((square[name] / (1 - 0.95**step)).sqrt() + 1e-8)
            expected[name] = weight * (1 - scaled_rate * 0.01) - scaled_rate * update
        before = ours["fc.weight"].detach().clone()
        muon.step()
        adamw.step()
        for name, weight in expected.items():
            torch.testing.assert_close(ours[name].detach(), weight, atol=1e-6, rtol=1e-5)
        assert not torch.equal(before, ours["fc.weight"])
