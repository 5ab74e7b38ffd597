"""Choice of another pair while the page runs: permission, available pairs, and loading."""

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from app.serving.pairs import HERE, UNFIT, KnownPair, known_pairs, name_of, target_of
from app.serving.worker import ModelService
from app.words import page as words

# Makes the function that loads a generator, from the names of a target and of a head ("none" for no head)
LoaderOf = Callable[[str, str | None], Callable[[], object]]

# Better answers than the target in the package; selected at the start once its file was downloaded
PREFERRED_TARGET = "qwen2.5-coder-0.5b-instruct"
LOOK_SECONDS = 5.0


class Picker:
    """The pairs that a page offers.

    Args:
        service: its device runs another pair.
        loader_of: loads a pair; None if the host fixed the model.
        folder: has more targets and heads.
        pair: target and head of the command line; None means the default.
    """

    def __init__(
        self,
        service: ModelService,
        loader_of: LoaderOf | None = None,
        folder: Path | None = None,
        pair: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self._service, self._loader_of, self._folder, self._pair = service, loader_of, folder, pair
        self._lock, self._sizes = threading.Lock(), {}
        self._chosen = threading.Event()

    def makers_settings(self) -> dict:
        """Return the recommended sampling settings of the loaded model; empty while it is being loaded."""
        return self._service.device.status.get("makers_settings", {}) if self._service.ready else {}

    def listing(self) -> dict:
        """Return the pairs for the browser, and why none may be chosen (empty if allowed)."""
        pairs = [asdict(pair) | {"fits": pair.state != UNFIT} for pair in self._pairs()]
        for pair in pairs:
            del pair["target"], pair["head"]
        return {"pairs": pairs, "locked": "" if self._loader_of else words.PICKER_FIXED}

    def choose(self, name: str) -> str:
        """Start to load a pair for everybody; return the reason if this is refused, else an empty text."""
        if self._loader_of is None:
            return words.PICKER_FIXED
        pair = next((pair for pair in self._pairs() if pair.name == name), None)
        if pair is None:
            return words.PICKER_UNKNOWN
        if pair.state == UNFIT:
            return pair.reason
        with self._lock:
            started = self._service.swap(self._loader_of(pair.target, pair.head or "none"), pair.name)
        if not started:
            return words.PICKER_BUSY
        self._chosen.set()
        return ""

    def prefer(self, target: str) -> None:
        """Choose a target's pair, with its head, as soon as its files are local, unless a visitor has chosen before."""
        while not self._service.closing and not self._chosen.wait(LOOK_SECONDS):
            pair = next((pair for pair in self._pairs() if pair.target == target), None)
            if pair is not None and pair.head and pair.state == HERE and self._service.settled:
                self.choose(pair.name)

    def cancel(self) -> bool:
        """End the download of a pair for everybody; return False without a download or permission to choose."""
        return self._loader_of is not None and self._service.cancel()

    def size_of(self, name: str) -> str:
        """Return parameters and bytes of a pair in words; empty if unknown."""
        if name not in self._sizes:
            self._sizes = {name: ""} | {pair.name: pair.size for pair in self._pairs()}
        return self._sizes[name]

    def _pairs(self) -> list[KnownPair]:
        return known_pairs(self._folder, self._pair if any(self._pair) else None)

    @property
    def first_name(self) -> str:
        """Return the name of the pair that the page was started with."""
        from jakiro.loading import registry

        target, head = self._pair
        return name_of(
            target or target_of(head) or words.PAIR_UNKNOWN_TARGET,
            head or (registry.DEFAULT_HEAD if target is None else None),
        )
