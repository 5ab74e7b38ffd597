"""Other people's draft heads in our own form: recognised by their tensors, or by speculators' format."""

from torch import Tensor

from jakiro.heads.config import DraftConfig
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS

# First tensor names of heads that are known and not supported, and of speculators' kinds those that are
_OTHER_HEADS = {
    "hydra_": "a Hydra head",
    "markov_": "a DSpark head",
}
_OTHER_SPECULATORS = ("dflash", "dspark", "eagle", "mtp", "peagle")


def from_published(values: dict, tensors: dict[str, Tensor], kinds: Kinds = KINDS) -> tuple[DraftConfig, dict]:
    """Config and tensors of a published checkpoint in our own form.

    Args:
        values: its parsed config.json.
        tensors: its state dict.

    Raises:
        ValueError: a head of an unknown kind, a feature that is not supported, or a config that is incomplete.
    """
    given = speculators_kind(values)
    if given is not None:
        refuse_other_kinds(values, kinds)
        return next(kind for kind in kinds.values() if kind.speculators == given).convert(values, tensors)
    for start, what in _OTHER_HEADS.items():
        if any(name.startswith(start) for name in tensors):
            raise ValueError(f"These weights are {what}, which Jakiro does not run; choose {_known(kinds)} head.")
    for kind in kinds.values():
        if kind.recognise is not None and kind.recognise(values, tensors):
            return kind.convert(values, tensors)
    shown = ", ".join(sorted(tensors)[:4]) or "none"
    raise ValueError(
        f"These weights are no draft head that Jakiro knows (tensors: {shown}, …); expected {_known(kinds)} head."
    )


def speculators_kind(values: dict) -> str | None:
    """What a config.json in speculators' format says the head is; None for other formats."""
    return values.get("speculators_model_type")


def refuse_other_kinds(values: dict, kinds: Kinds = KINDS) -> None:
    """Raises ValueError where a config.json in speculators' format is of a kind that nobody here converts."""
    given, ours = speculators_kind(values), [kind.speculators for kind in kinds.values() if kind.speculators]
    if given is None or given in ours:
        return
    known = f"a {given} head" if given in _OTHER_SPECULATORS else f"a head of the unknown kind {given!r}"
    raise ValueError(
        f"These weights are {known} in speculators' format, of which Jakiro runs {', '.join(ours)}; choose one."
    )


def _known(kinds: Kinds) -> str:
    """A, B or C, of the kinds that are published."""
    *names, last = (kind.name for kind in kinds.values() if kind.recognise is not None)
    return f"a {', '.join(names)} or {last}"
