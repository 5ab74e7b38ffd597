"""Muon for the head's matrices, AdamW for everything else: training takes fewer steps.

Muon (Jordan et al. 2024) replaces the momentum of a matrix by the nearest orthogonal matrix, found by Newton–Schulz
iterations; the update is scaled to AdamW's usual size (Liu et al., arXiv 2502.16982), so both share one learning rate.
Its iterations run in float32 or, where the processor multiplies it in hardware, in bfloat16, as those of
torch.optim.Muon do.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ROUTER_RATE = 0.02


class MuonAdamW(torch.optim.Optimizer):
    """One optimizer over named parameters.

    Args:
        named_parameters: matrices go to Muon, the others to AdamW.
        lr, weight_decay: shared; decay is decoupled.
        momentum: of Muon, Nesterov form.
        betas: of AdamW.
        whitening: by parameter name, a (columns, columns) matrix that whitens the inputs of the parameter; Muon then
            works in those coordinates. Every language model has a few features that are many times larger than all
            others; without whitening they would dominate each update.
        dtype: of the Newton–Schulz iterations.
        routers: names of the router weights. They go to AdamW at a fiftieth of the rate: both optimizers move every
            weight by a fixed amount however weak its gradient is, and a router that drifts swaps the experts' roles.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        whitening: dict[str, Tensor] | None = None,
        routers: Iterable[str] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        matrices, others, gentle = [], [], []
        self.dtype = dtype
        routers = set(routers)
        self.whitening: dict[Tensor, Tensor] = {}
        for name, parameter in named_parameters:
            if whitening and name in whitening:
                self.whitening[parameter] = whitening[name]
            kind = gentle if name in routers else matrices if parameter.ndim == 2 else others
            kind.append(parameter)
        groups = [
            {"params": matrices, "muon": True, "rate": 1.0},
            {"params": others, "muon": False, "rate": 1.0},
            {"params": gentle, "muon": False, "rate": ROUTER_RATE},
        ]
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "betas": betas}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            update = self._muon if group["muon"] else self._adamw
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    update(parameter, self.state[parameter], group)

    def _muon(self, parameter: Tensor, state: dict, group: dict) -> None:
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(parameter.grad, 1 - group["momentum"])
        direction = parameter.grad.lerp(momentum, group["momentum"])
        whitening = self.whitening.get(parameter)
        direction = orthogonalised(direction if whitening is None else direction @ whitening, self.dtype)
        if whitening is not None:
            direction = direction @ whitening
        parameter.add_(direction, alpha=-group["lr"] * 0.2 * max(parameter.shape) ** 0.5)

    @staticmethod
    def _adamw(parameter: Tensor, state: dict, group: dict) -> None:
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
        state["step"] += 1
        first, second = group["betas"]
        state["mean"].lerp_(parameter.grad, 1 - first)
        state["square"].lerp_(parameter.grad.square(), 1 - second)
        mean = state["mean"] / (1 - first ** state["step"])
        square = state["square"] / (1 - second ** state["step"])
        parameter.addcdiv_(mean, square.sqrt().add_(1e-8), value=-group["lr"] * group["rate"])


def orthogonalised(matrix: Tensor, dtype: torch.dtype = torch.float32, iterations: int = 5) -> Tensor:
    """Approximately the orthogonal factor of a matrix: its singular values lie between about 0.7 and 1.2."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = (x / (x.norm() + 1e-7)).to(dtype)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)


def whitening_matrix(rows: Tensor, damping: float = 0.3) -> Tensor:
    """The symmetric M for which the second moment of rows @ M is nearly the unit matrix.

    Args:
        rows: (count, columns) samples of a matrix's input.
        damping: added to every eigenvalue of the second moment, relative to their median; keeps directions that
            hardly occur from being blown up.
    """
    rows = rows.double()
    moment = rows.T @ rows / len(rows)
    values, vectors = torch.linalg.eigh(moment)
    # Fewer rows than half the columns leave the median at zero.
    floor = torch.maximum(damping * values.median(), 1e-6 * values.mean())
    return ((vectors / (values.clamp(min=0) + floor).sqrt()) @ vectors.T).float()
