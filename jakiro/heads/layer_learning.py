"""Initial weights of a `LayerHead`, close to a linear prediction, and whitening of its inputs."""

import torch
from torch import Tensor, nn

from jakiro.heads.kind import Texts
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.learning import Rows, fit, randomise, ridge, sample_rows, whitening_matrix


@torch.no_grad()
def start(head: LayerHead, texts: Texts, seed: int) -> None:
    """Initialize the first layer of a bound head by least squares, without gradients.

    `fc` becomes the best linear prediction of h_{t+1} from [E[x_{t+1}]; h_t]. The experts' last matrices become the
    best correction of it from their random inner features, for both branches together. Attention adds nothing.
    """
    torch.manual_seed(seed)
    randomise(head)
    start_from_rows(head, sample_rows(head, texts))


@torch.no_grad()
def start_from_rows(head: LayerHead, rows: Rows) -> None:
    """Initialize a head with random layers from the rows of `sample_rows`; see `start`."""
    inputs, next_features, after_next = rows
    attention, mixture = head.layers[0].self_attn, head.layers[0].mlp_moe
    stream = whitening_matrix(next_features)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.copy_(projection.weight @ stream)
    attention.o_proj.weight.zero_()
    mixture.gate.weight.mul_(0.1)
    fit(head.fc, inputs, next_features)
    start_experts(head, head.fc(inputs), next_features, after_next)


def whiten_readers(experts: nn.ModuleList, rows: Tensor) -> None:
    """Whiten the inputs of the experts' random matrices that read `rows`: all except the last one of each expert."""
    white = whitening_matrix(rows)
    for expert in experts:
        for reader in list(expert.children())[:-1]:
            reader.weight.copy_(reader.weight @ white)


@torch.no_grad()
def layer_whitening(head: LayerHead, rows: Rows) -> dict[str, Tensor]:
    """Return, by name, the whitening matrix of each weight that reads features, from the rows of `sample_rows`."""
    inputs, features, _ = rows
    stream, hidden = whitening_matrix(features), head.config.hidden_size
    matrices = {"fc.weight": whitening_matrix(inputs)}
    for index, layer in enumerate(head.layers):
        read = stream if layer.input_layernorm is None else whitening_matrix(layer.input_layernorm(features))
        matrices |= {f"layers.{index}.self_attn.{name}_proj.weight": read for name in "qkv"}
        normed = whitening_matrix(layer.post_attention_layernorm(features))
        for name, parameter in layer.named_parameters(f"layers.{index}"):
            if ".experts." in name and parameter.shape[1] == hidden:
                matrices[name] = normed
    return matrices


def whitening(head: LayerHead, texts: Texts) -> dict[str, Tensor]:
    """Return `layer_whitening` of the rows of texts; see `HeadKind.whitening`."""
    return layer_whitening(head, sample_rows(head, texts))


def start_experts(head: LayerHead, stream: Tensor, next_features: Tensor, after_next: Tensor) -> None:
    """Whiten the inputs of the experts' random matrices and fit their last matrices.

    Args:
        stream: (rows, hidden), to which the experts' outputs are added.
        now: (rows, hidden), features at t + 1.
        ahead: (rows, hidden), features at t + 2.
    """
    normed = head.layers[0].post_attention_layernorm(stream)
    experts = head.layers[0].mlp_moe.experts
    whiten_readers(experts, normed)
    readers = [list(expert.children())[:-1] for expert in experts]
    inner = [
        expert.inner(*(read(normed) for read in expert_readers))
        for expert, expert_readers in zip(experts, readers, strict=True)
    ]
    _fit_experts(head, inner, normed, next_features - stream, after_next - stream)


def _fit_experts(head: LayerHead, inner: list[Tensor], normed: Tensor, main: Tensor, contrastive: Tensor) -> None:
    """Solve for the experts' last matrices, which correct the main branch and the contrastive branch if it exists.

    Args:
        inner: (rows, inner) per expert, inputs of its last matrix.
        main: (rows, hidden), required addition of the main branch to the stream.
        contrastive: (rows, hidden), the same of the contrastive branch.
    """
    mixture = head.layers[0].mlp_moe
    if head.has_contrastive_branch:
        # Otherwise the stronger expert of the contrastive pair would change from row to row. The gate has no bias, but
        # normed features share a large mean, so a weight along that mean acts as a bias.
        mean = normed.mean(0)
        mixture.gate.weight[-2:] += 1.5 * torch.stack([mean, -mean]) / mean.square().sum()
    lasts = [list(expert.children())[-1] for expert in mixture.experts]
    if head.mixes_experts:
        for last, features in zip(lasts, inner, strict=True):
            last.weight.copy_(ridge(features, main).T)
        return

    def weighted(shares: Tensor) -> Tensor:
        return torch.cat([share[:, None] * features for share, features in zip(shares.T, inner, strict=True)], dim=1)

    router = mixture.gate(normed)
    rows, expected = weighted(router[:, : len(inner)].softmax(-1)), main
    if head.has_contrastive_branch:
        pair = router[:, len(inner) :]
        signed = pair.softmax(-1) * torch.where(pair >= pair.flip(-1), 1.0, -1.0)
        rows, expected = torch.cat([rows, weighted(signed)]), torch.cat([main, contrastive])
    for last, part in zip(lasts, ridge(rows, expected).split([last.in_features for last in lasts]), strict=True):
        last.weight.copy_(part.T)
