"""The target model: a causal language model of transformers; trial passes at load determine how its passes run."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from jakiro.config import NUMERICS
from jakiro.models.families import (
    EAGER,
    OWN,
    STOCK,
    makers_settings,
    readable_positions,
    refuse_what_cannot_work,
    stop_ids,
)
from jakiro.models.features import check_feature_layers
from jakiro.models.passes import AttentionModes, PassSettings, TargetPasses
from jakiro.models.probes import FULL_PRECISION, OVERFLOW, Trial, is_bit_identical
from jakiro.models.stored import StoredModel
from jakiro.models.weights import TargetWeights, describe_device_map

# Float64 copies of the keys and values of so many tokens may take this share of a GPU's memory
WIDE_TOKENS, WIDE_SHARE = 2048, 0.125


class TargetModel(TargetPasses):
    """A causal language model with its tokenizer.

    Args:
        model: A transformers `AutoModelForCausalLM` on its device and in its dtype, which is changed in place, see
            `TargetWeights.take_over`. Or a model in the bits of its GGUF file.
        tokenizer: The model's tokenizer.
        name: Name in traces.
        sha256: Hash of the weights, or a function that returns it or None while it is unknown.
        numerics: "exact" makes plain and tree passes round in the same way; "fast" uses stock attention and single
            rows. If exact attention gives other results than the family's, "fast" is used and `notices` report it.
            Compiled passes are always exact, because that costs nothing there.
        makers: Recommended sampling settings, used if generation_config has none.

    Attributes:
        stop_ids: Ids of the tokens that end a completion.
        makers_settings: Recommended sampling settings by the names of `SamplingParams`.
        weight_itemsize: Bytes of a weight as passes read it.
        file_bits: Mean bits of a weight in its file if passes read a file's own bits; None otherwise.

    Raises:
        ValueError: Unknown numerics, a model that is not a decoder with attention in every layer, or a model without a
            tree pass that gives its results for each separate path.
    """

    def __init__(
        self,
        model: nn.Module | StoredModel,
        tokenizer,
        name: str = "",
        sha256: str | Callable[[], str | None] | None = None,
        numerics: str = "exact",
        makers: Mapping[str, float] | None = None,
    ) -> None:
        _require_known(numerics)
        refuse_what_cannot_work(model.config, type(model))
        # Compiled passes are tried once per build, so a model in a file's bits needs no trial
        trial = None if isinstance(model, StoredModel) else Trial(model)
        weights = TargetWeights.take_over(model)
        modes = AttentionModes(wide=torch.float64) if trial is None else _find_modes(weights, trial)
        is_gpu = weights.device.type == "cuda"
        super().__init__(weights, _choose_settings(weights, PassSettings(modes, numerics, numerics, bucketed=is_gpu)))
        self.tokenizer, self.name, self._sha256 = tokenizer, name, sha256
        self.stop_ids = stop_ids(model, tokenizer)
        self.makers_settings = makers_settings(getattr(model, "generation_config", None)) or dict(makers or {})
        self.weight_itemsize, self.file_bits = weights.itemsize, getattr(model, "file_bits", None)

    def with_settings(self, **changes) -> "TargetModel":
        """Return a target with the same weights and other values of some fields of `PassSettings`."""
        target = copy.copy(self)
        TargetPasses.__init__(target, self.weights, replace(self.settings, **changes))
        return target

    def with_numerics(self, numerics: str) -> "TargetModel":
        """Return a target with the same weights and other numerics; nothing is loaded again."""
        _require_known(numerics)
        target = copy.copy(self)
        settings = replace(self.settings, requested_numerics=numerics)
        TargetPasses.__init__(target, self.weights, _choose_settings(self.weights, settings))
        return target

    def with_feature_layers(self, feature_layers: Sequence[int]) -> "TargetModel":
        """Return a target with the same weights for a head that reads these layers besides the last hidden state.

        Raises:
            ValueError: The target has no such layer below its last.
        """
        check_feature_layers(feature_layers, self.config.num_hidden_layers)
        return self.with_settings(feature_layers=tuple(feature_layers))

    @property
    def sha256(self) -> str | None:
        """Hash of the weights; None if it is unknown, or not computed yet."""
        return self._sha256() if callable(self._sha256) else self._sha256

    @property
    def notices(self) -> list[str]:
        """Sentences about this target to show to users."""
        family, settings = self.config.model_type, self.settings
        positions_notice = readable_positions(self.config)[1]
        notices = [positions_notice] if positions_notice else []
        if self.chains_only:
            notices.append(
                f"{family} counts positions inside its own attention, so only chains can be drafted, no trees."
            )
        if self.weights.is_quantized:
            notices.append(
                "The weights were quantized while loading: a row may be rounded differently next to other rows, so "
                "drafted text can differ from plain decoding's in near ties."
            )
        if self.weights.is_spread:
            notices.append(
                f"The target is spread over devices: {describe_device_map(self.model.hf_device_map)}. Layers outside "
                "the main device are moved for each pass, so passes use no CUDA graphs and no packed weights, and "
                "trees are larger."
            )
        if settings.requested_numerics == "exact" and settings.numerics != "exact":
            notices.append(
                f"Exact numerics does not support the attention of {family}; fast numerics is used, so plain and "
                "drafted passes may round differently."
            )
        return notices


def _choose_settings(weights: TargetWeights, settings: PassSettings) -> PassSettings:
    """Return the settings for `requested_numerics`, with rounding measured by trial passes."""
    requested = "exact" if weights.is_compiled else settings.requested_numerics
    numerics = requested if settings.modes.exact else "fast"
    settings = replace(settings, requested_numerics=requested, numerics=numerics)
    # A single row often runs another kernel; two cost little more and may be rounded as many are. In half precision
    # most differences of a single row are rounded away, so the few passes of a probe may not show them.
    candidates = (1, 2) if weights.dtype in FULL_PRECISION or weights.device.type != "cpu" else (2,)
    if weights.is_spread:
        # A second row costs nothing there, and trial passes are slow
        candidates = (2,)
    if numerics != "exact":
        return replace(settings, min_rows=candidates[0], bit_identical=False)
    for min_rows in candidates:
        candidate = replace(settings, min_rows=min_rows)
        if not weights.is_quantized and is_bit_identical(TargetPasses(weights, candidate)):
            return replace(candidate, bit_identical=True)
    return replace(settings, min_rows=candidates[-1], bit_identical=False)


def _find_modes(weights: TargetWeights, trial: Trial) -> AttentionModes:
    """Return the attention implementations that give the stock model's logits.

    Raises:
        ValueError: No implementation does.
    """

    def failure(modes: AttentionModes, numerics: str) -> str | None:
        weights.config._attn_implementation = modes.fast.implementation
        settings = PassSettings(modes, numerics, numerics, bucketed=weights.device.type == "cuda")
        return trial.failure(TargetPasses(weights, settings))

    wide = torch.float64 if _has_room_for_float64(weights) else None
    # A model that applies a window inside its own attention counts cache rows, which are no positions in a tree
    has_own_window = getattr(weights.config, "window_size", None)
    for fast in (STOCK, OWN) if has_own_window else (STOCK, EAGER, OWN):
        reason = failure(AttentionModes(fast, False, wide), "fast")
        if reason is None:
            break
    else:
        raise ValueError(_refusal(weights, reason))
    # Families that project cached rows cannot read wider numbers from the cache
    for width in dict.fromkeys((wide, None)) if fast is STOCK else ():
        modes = AttentionModes(fast, True, width)
        if failure(modes, "exact") is None:
            return modes
    return AttentionModes(fast, False, wide)


def _refusal(weights: TargetWeights, reason: str) -> str:
    family = weights.config.model_type
    if reason == OVERFLOW and weights.dtype == torch.float16:
        return f"{family} computes numbers that float16 cannot hold; choose dtype bfloat16 or float32."
    return (
        f"{family} cannot be a target: a pass over a tree does not give the results of each separate path "
        f"({reason}); choose another model."
    )


def _has_room_for_float64(weights: TargetWeights) -> bool:
    """Return whether caches may keep float64 copies: always on a CPU, on a GPU if they take little of its memory."""
    if weights.device.type != "cuda" or weights.fused is None:
        return weights.device.type == "cpu"
    layers, kv_heads, head_dim = weights.fused.cache_shape
    needed = 2 * layers * kv_heads * head_dim * torch.float64.itemsize * WIDE_TOKENS
    return needed <= WIDE_SHARE * torch.cuda.mem_get_info(weights.device)[1]


def _require_known(numerics: str) -> None:
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}; got {numerics!r}.")
