"""Options of loading, as plain data. Importing this module loads nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jakiro.config import NUMERICS, About, require, setting

AUTO = "auto"

if TYPE_CHECKING:
    from jakiro.drafters.registry import Methods


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Models to load and their formats; None means an automatic choice.

    Attributes:
        draft_precision: see `DraftHead.pack`.
        side_by_side: number of answers that run at once, as in a race; a GPU prepares buffers for them.
        capture_at_load: capture the usual passes at load. If False, answers with enough steps capture them, which suits
            processes that have a GPU for seconds.
        methods: drafting methods (`Method`) in addition to those of the package.
    """

    target: str | None = setting(About.TARGET, None)
    head: str | None = setting("Draft head: a known name, a folder, a Hub id, or “none”.", None)
    device: str | None = setting(
        "cpu, cuda, or auto: spread a large target over GPUs, memory and disk; default: a GPU if there is one.", None
    )
    dtype: str | None = setting("float32, bfloat16, float16, 8bit or 4bit; default: the device's.", None)
    numerics: str | None = setting(
        "exact (plain and drafted passes are batch-invariant) or fast; compiled passes on a CPU are always exact.", None
    )
    draft_precision: str | None = setting("On a CPU: int8 (head in 8 bits: faster, same text) or full.", None)
    graphs: bool = setting("On a GPU: replay captured passes, or run them kernel by kernel.", True)
    side_by_side: int = 1
    capture_at_load: bool = True
    methods: tuple = ()
    template_arguments: str | None = setting(About.TEMPLATE_ARGUMENTS, None)
    draft_model: str | None = setting(
        "A small model of the target's family that drafts: a known name, a folder, a GGUF file or a Hub id.", None
    )
    max_memory: str | None = setting(
        "With --device auto, bytes of weights per device, such as 0:20GiB,cpu:60GiB; the rest goes to disk.", None
    )
    offload_folder: str | None = setting("With --device auto, folder for weights on disk; else in the cache.", None)

    def __post_init__(self) -> None:
        is_known = self.numerics is None or self.numerics in NUMERICS
        require(is_known, f"Numerics must be one of {', '.join(NUMERICS)}; got {self.numerics!r}.")
        for option, value in (("--max-memory", self.max_memory), ("--offload-folder", self.offload_folder)):
            require(value is None or self.device == AUTO, f"{option} has no effect without --device auto; add it.")

    @property
    def known_methods(self) -> "Methods":
        """The package's methods and the additional ones."""
        from jakiro.drafters.registry import METHODS

        return METHODS.with_further(self.methods) if self.methods else METHODS
