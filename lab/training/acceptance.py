"""How often the target's choice is among k candidates: keyed noise against the tests by p ÷ q, on made-up p and q."""

from pathlib import Path

import torch
from torch import Tensor

from lab.charts import share_lines, write_charts

COUNTS = (1, 2, 4, 8)
RULES = ("p ÷ q, without replacement", "keyed, the k best", "keyed, independent draws", "the k best of q")


def pair(vocab_size: int, sharpness: float, distance: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two distributions, (vocab_size,) float64: the target's p, and a draft's q whose logits are p's with noise."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(vocab_size, generator=generator, dtype=torch.float64)
    other = logits + distance * torch.randn(vocab_size, generator=generator, dtype=torch.float64)
    return logits.softmax(-1), other.softmax(-1)


def accepted_shares(p: Tensor, q: Tensor, draws: int = 20_000, seed: int = 0) -> dict[str, list[float]]:
    """By rule and number of candidates: the share of draws at which one of them is kept."""
    generator = torch.Generator().manual_seed(seed)

    def gumbel(*shape: int) -> Tensor:
        times = torch.empty(*shape, dtype=torch.float64).exponential_(generator=generator)
        return -times.log()

    most, size = max(COUNTS), p.shape[0]
    noise = gumbel(draws, size)
    choice = (p.log() + noise).argmax(-1)
    coupled = (q.log() + noise).topk(most).indices
    fixed = q.topk(most).indices.expand(draws, -1)
    found = {rule: [] for rule in RULES}
    for count in COUNTS:
        first = torch.randint(count, (draws, size), generator=generator)
        waits = (-gumbel(draws, count, size)).exp()
        waits.scatter_(1, first[:, None], 0.0)
        independent = (q.log() - ((-noise).exp()[:, None] / count + waits).log()).argmax(-1)
        shares = [float((each[:, :count] == choice[:, None]).any(-1).double().mean()) for each in (coupled, fixed)]
        found[RULES[0]].append(_tested(p, q, count, (q.log() + gumbel(draws, size)).topk(count).indices, generator))
        found[RULES[1]].append(shares[0])
        found[RULES[2]].append(float((independent == choice[:, None]).any(-1).double().mean()))
        found[RULES[3]].append(shares[1])
    return found


def _tested(p: Tensor, q: Tensor, count: int, candidates: Tensor, generator: torch.Generator) -> float:
    """Candidates one after another: kept with min(1, p ÷ q), else p loses q, and q the candidate (arXiv 2401.06706)."""
    draws = candidates.shape[0]
    left, draft = p.expand(draws, -1).clone(), q.expand(draws, -1).clone()
    kept = torch.zeros(draws, dtype=torch.bool)
    for place in range(count):
        token = candidates[:, place : place + 1]
        ratio = (left.gather(1, token) / draft.gather(1, token))[:, 0]
        kept |= torch.rand(draws, generator=generator, dtype=torch.float64) < ratio
        left = (left - draft).clamp(min=0.0)
        left /= left.sum(-1, keepdim=True).clamp(min=1e-300)
        draft = draft.scatter(1, token, 0.0)
        draft /= draft.sum(-1, keepdim=True)
    return float(kept.double().mean())


def write_chart(path: Path, tables: dict[str, dict[str, list[float]]]) -> None:
    """A report with one plot for each pair and a line for each rule."""
    x = [str(count) for count in COUNTS]
    figures = [share_lines(title, "candidates", "one of them is kept", x, shares) for title, shares in tables.items()]
    write_charts(path, "Acceptance against the number of candidates", figures)
