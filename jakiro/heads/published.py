"""Conversion of published draft heads, recognized by their tensors or by the format of speculators."""

from collections.abc import Iterable

from torch import Tensor

from jakiro.heads.config import DraftConfig
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS

# Known kinds that are not supported: description, and the missing feature
_OTHERS = {
    "dflash2": ("a DFlash2 head", "convolutions inside its layers and a selector that scores neighbouring candidates"),
    "dspark": ("a DSpark head", "a Markov head that scores a block's rows by the tokens before them"),
    "eagle": ("an EAGLE head in speculators' format", "a reader of that format's names and norms"),
    "gumiho": ("a Gumiho head", "--methods-from lab.published in a checkout"),
    "hydra": ("a Hydra head", "MLPs that read the tokens of the levels above"),
    "jetspec": ("a JetSpec head", "a causal block that is passed again with the tokens of a tree's paths"),
    "mtp": ("an MTP head", "the target family's own layers as a draft"),
    "peagle": ("a P-EAGLE head", "mask rows with a hidden state of their own in EAGLE-3's layers"),
    "xpress": ("an XPress head", "a refiner that mixes a block's rows again"),
}
_FORMAT = "speculators_model_type"
# Unsupported kinds that `architectures` in config.json names, and prefixes of the tensors of other kinds
_ARCHITECTURES = ("dflash2", "dspark", "jetspec", "peagle")
_STARTS = {
    "candidate_selector.": "dflash2",
    "hydra_": "hydra",
    "markov_": "dspark",
    "mask_hidden": "peagle",
    "mlp.": "gumiho",
    "mtp.": "mtp",
    "mtp_layers.": "mtp",
}


def from_published(values: dict, tensors: dict[str, Tensor], kinds: Kinds = KINDS) -> tuple[DraftConfig, dict]:
    """Return config and tensors of a published checkpoint in the format of this package.

    Args:
        values: Parsed config.json.
        tensors: State dict.

    Raises:
        ValueError: the kind is unknown, a feature is not supported, or the config is incomplete.
    """
    refuse_other_kinds(values, kinds, tensors)
    format_name = values.get(_FORMAT)
    if format_name is not None:
        return next(kind for kind in kinds.values() if kind.speculators == format_name).convert(values, tensors)
    for kind in kinds.values():
        if kind.recognise is not None and kind.recognise(values, tensors):
            return kind.convert(values, tensors)
    names = ", ".join(sorted(tensors)[:4]) or "none"
    raise ValueError(
        f"The kind of this draft head is unknown (tensors: {names}, …); expected {_published_kinds(kinds)} head."
    )


def refuse_other_kinds(values: dict, kinds: Kinds = KINDS, tensors: Iterable[str] = ()) -> None:
    """Raise ValueError if a published config.json or a tensor's name identifies an unsupported kind."""
    format_name, ours = values.get(_FORMAT), [kind.speculators for kind in kinds.values() if kind.speculators]
    name = _other_kind(values, tensors, kinds) if format_name is None else format_name
    if name in (None, *ours):
        return
    if name not in _OTHERS:
        raise ValueError(
            f"These weights are a head of the unknown kind {name!r} in speculators' format; choose a head of a kind "
            f"that Jakiro supports: {', '.join(ours)}."
        )
    description, missing = _OTHERS[name]
    raise ValueError(
        f"These weights are {description}, which Jakiro does not run: it would need {missing}; "
        f"choose {_published_kinds(kinds)} head."
    )


def _other_kind(values: dict, tensors: Iterable[str], kinds: Kinds) -> str | None:
    """Return the key in `_OTHERS` of a published head without a format field; None if it is of another kind."""
    about = values.get("dflash_config")
    if values.get("causal_head") or (isinstance(about, dict) and about.get("causal_head")):
        return "jetspec"
    named = " ".join(map(str, values.get("architectures") or ())).lower()
    candidates = [kind for kind in _ARCHITECTURES if kind in named]
    candidates += [kind for start, kind in _STARTS.items() if any(name.startswith(start) for name in tensors)]
    return next((kind for kind in candidates if kind not in kinds), None)


def _published_kinds(kinds: Kinds) -> str:
    """Return "a NAME, NAME or NAME" with the kinds of published heads."""
    *names, last = (kind.name for kind in kinds.values() if kind.recognise is not None)
    return f"a {', '.join(names)} or {last}"
