"""Muon for the head's matrices and AdamW for all other weights, which takes fewer steps than AdamW.

Muon (Jordan et al. 2024) replaces the momentum of a matrix by the nearest orthogonal matrix, computed by Newton–Schulz
iterations; the update is scaled to AdamW's usual size (Liu et al., arXiv 2502.16982), so both share one learning rate.
torch.optim.Muon cannot be used because it has no whitening and always iterates in bfloat16, which is slow without
bfloat16 units.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ROUTER_RATE = 0.02
# In Nesterov's form
MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon with whitening and a choice of the dtype.

    Args:
        parameters: matrices.
        lr: learning rate.
        weight_decay: decoupled.
        whitening: by parameter, a (columns, columns) matrix that whitens its inputs; updates use those coordinates.
            Language models have a few features that are many times larger than all others; without whitening they
            would dominate each update.
        dtype: of the Newton–Schulz iterations.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        whitening: dict[Tensor, Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.whitening, self.dtype = whitening or {}, dtype
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    self._update(parameter, self.state[parameter], group)

    def _update(self, parameter: Tensor, state: dict, group: dict) -> None:
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(parameter.grad, 1 - MOMENTUM)
        direction = parameter.grad.lerp(momentum, MOMENTUM)
        whitening = self.whitening.get(parameter)
        direction = orthogonalised(direction if whitening is None else direction @ whitening, self.dtype)
        if whitening is not None:
            direction = direction @ whitening
        parameter.add_(direction, alpha=-group["lr"] * 0.2 * max(parameter.shape) ** 0.5)


def muon_and_adamw(
    named_parameters: Iterable[tuple[str, Tensor]],
    lr: float,
    weight_decay: float = 0.0,
    whitening: dict[str, Tensor] | None = None,
    routers: Iterable[str] = (),
    dtype: torch.dtype = torch.float32,
) -> list[torch.optim.Optimizer]:
    """Return Muon for matrices and AdamW for the others; a group's `rate` is a factor of the learning rate.

    Args:
        named_parameters: of the head.
        lr: learning rate.
        weight_decay: decoupled.
        whitening: by parameter name, see `Muon`.
        routers: names of router weights, which AdamW updates at a fiftieth of the rate: both optimizers move every
            weight by a fixed amount even if its gradient is weak, and a router that drifts swaps the experts' roles.
        dtype: see `Muon`.
    """
    routers, whitening = set(routers), whitening or {}
    named = {name: parameter for name, parameter in named_parameters if parameter.requires_grad}
    matrices = {name: parameter for name, parameter in named.items() if parameter.ndim == 2 and name not in routers}
    remaining = [parameter for name, parameter in named.items() if name not in matrices and name not in routers]
    gentle = [parameter for name, parameter in named.items() if name in routers]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        white = {matrices[name]: matrix for name, matrix in whitening.items() if name in matrices}
        optimizers.append(Muon(matrices.values(), lr, weight_decay, whitening=white, dtype=dtype))
    groups = [{"params": params, "rate": rate} for params, rate in ((remaining, 1.0), (gentle, ROUTER_RATE)) if params]
    if groups:
        optimizers.append(torch.optim.AdamW(groups, lr, betas=(0.9, 0.95), weight_decay=weight_decay))
    return optimizers


def orthogonalised(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return approximately the orthogonal factor of a matrix; its singular values are between about 0.7 and 1.2."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = (x / (x.norm() + 1e-7)).to(dtype)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)
