"""Real targets without their weights: all passes of a slot on torch's `meta` device, operations and bytes counted.

An operation that computes is at least one kernel on a GPU; views and empty tensors are none. Bytes are those of the
tensors that an operation reads and writes, each once. Nothing here says how long anything takes.
"""

import functools
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.heads import HeadDrafter
from jakiro.graphs.capture import Graphs
from jakiro.graphs.pool import SLOT_TOKENS
from jakiro.graphs.slot import Slot
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.layer_head import LayerHead
from jakiro.methods.plain import PlainDrafter
from jakiro.target import model as targets
from jakiro.target.attending import register
from jakiro.target.llama import FusedLlama
from jakiro.target.model import TargetModel
from jakiro.training.start import head_config
from tests.graphs.fake_graphs import storage_of

META = torch.device("meta")
CONTEXT, COLUMNS = 960, 1024
TREE = TreeConfig(width=8, depth=5, nodes=64)
CONFIGS = {
    "Vicuna-7B": ("llama", {
        "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 32_000,
    }),
    "Llama-3-8B": ("llama", {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128_256,
    }),
    "Qwen2.5-7B": ("qwen2", {
        "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152_064,
    }),
}  # fmt: skip
SAMPLINGS = {"greedy": SamplingParams(), "sampled with top-p": SamplingParams(1.0, top_p=0.9)}

# Operations that only name memory
_FREE = {
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view", "_reshape_alias",
    "lift_fresh", "empty_permuted",
}  # fmt: skip


class Counted(TorchDispatchMode):
    """Counts operations that compute, and the bytes they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.num_bytes = 0

    @property
    def kernels(self) -> int:
        return self.operations.total()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if name not in _FREE and (writes(function) or not shares_memory(result, (args, kwargs))):
            self.add(name, _touched(function, args, kwargs, result))
        return result

    def add(self, name: str, tensors: list) -> None:
        self.operations[name] += 1
        again = [each.like for each in tensors if isinstance(each, Shaped)]
        found = {id(each): each for each in tensors if isinstance(each, Tensor)}
        self.num_bytes += sum(each.numel() * each.element_size() for each in (*found.values(), *again))


def writes(function) -> bool:
    """Whether an operation writes into what it is given."""
    return any(each.alias_info is not None and each.alias_info.is_write for each in function._schema.arguments)


def shares_memory(result, given) -> bool:
    """Whether all that an operation returns lies in what it was given, as views do."""
    memory = {storage_of(each) for each in tree_leaves(given)} - {None}
    return all(storage_of(each) in memory for each in tree_leaves(result))


def _touched(function, args, kwargs, result) -> list:
    """What an operation reads and writes; of a table or a store only the rows that it looks up or moves."""
    name, leaves = function._schema.name.removeprefix("aten::"), tree_leaves((args, kwargs))
    if name in ("embedding", "index_select", "index", "gather"):
        return [*leaves[1:], result, Shaped(result)]
    if name in ("index_copy_", "index_put_"):
        return [*leaves[1:], Shaped(leaves[-1])]
    return [*leaves, *tree_leaves(result)]


class Shaped:
    """As many bytes as a tensor has, once more."""

    def __init__(self, like: Tensor) -> None:
        self.like = like


def _attention(counted):
    """One fused kernel in place of what torch makes of it on `meta`."""

    def attend(query, key, value, attn_mask=None, **more):
        attended = torch.empty_like(query)
        counted().add("attention", [query, key, value, attn_mask, attended])
        return attended

    return attend


@contextmanager
def counting(monkeypatch):
    found = Counted()
    with monkeypatch.context() as patch:
        patch.setattr(functional, "scaled_dot_product_attention", _attention(lambda: found))
        with torch.inference_mode(), found:
            yield found


class _NoTrial:
    """Trial passes look at values, which `meta` has none of."""

    def __init__(self, *arguments) -> None:
        register()

    def failure(self, target) -> None:
        return None


@functools.cache
def config_of(name: str):
    kind, values = CONFIGS[name]
    return AutoConfig.for_model(kind, max_position_embeddings=4096, tie_word_embeddings=False, **values)


def target_on(device: torch.device, config, name: str, numerics: str, monkeypatch) -> TargetModel:
    """A target in bfloat16 whose passes run as on a GPU, on a device where nothing is computed."""
    monkeypatch.setattr(targets, "Trial", _NoTrial)
    monkeypatch.setattr(targets, "weight_of", lambda module: module.weight.detach())
    monkeypatch.setattr(targets, "output_function", lambda model, weight: model.get_output_embeddings())
    monkeypatch.setattr(TargetModel, "probe_bit_identity", lambda target: True)
    monkeypatch.setattr(FusedLlama, "build", lambda model, packing: FusedLlama.of(model, None))
    with device, no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    target = TargetModel(model, nn.Module(), name, None, numerics)
    target.bucketed = True
    target._ways = replace(target._ways, wide=torch.float64)
    return target


def head_of(target: TargetModel, fusion: str = "summed") -> LayerHead:
    """A head of the official shape: two experts as wide as the target's hidden state."""
    config = target.config
    before = torch.get_default_dtype()
    torch.set_default_dtype(target.dtype)
    try:
        with target.device:
            head = LayerHead(head_config(JAKIRO, config, fusion=fusion)).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    head.bind(target.embedding, target.output_weight).fuse()
    return head


def step_counts(
    name: str, numerics: str, sampling: SamplingParams, monkeypatch, fusion: str | None = "summed"
) -> dict[str, Counted]:
    """The passes of one step by name; without a head those of plain decoding."""
    target = target_on(META, config_of(name), name, numerics, monkeypatch)
    drafter = PlainDrafter() if fusion is None else HeadDrafter(head_of(target, fusion))
    tree = TreeConfig(depth=0, nodes=1) if fusion is None else TREE
    slot = Slot(target, Graphs(META, False), SLOT_TOKENS)
    slot.open(drafter, sampling, tree, CONTEXT, CONTEXT)
    counts = {}
    for each in slot.needed(drafter, sampling, tree, CONTEXT, CONTEXT):
        function, arguments = each.function.func.__name__, each.function.args
        rows = target.row_bucket(tree.nodes)
        if function == "score_rows" and arguments[:2] != slot._rows_of(tree.nodes):
            continue
        if function in ("score_rows", "verify_rows", "commit_rows") and arguments[0] != rows:
            continue
        if function == "write_root" and fusion is not None:
            continue
        with torch.inference_mode():
            each.function()
        with counting(monkeypatch) as found:
            each.function()
        counts[function] = found
    return counts
