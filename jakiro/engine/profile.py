"""What passes cost on this device, measured in pieces (`measuring.py`) and kept as plain numbers in the user's cache.

What a target's passes cost is measured once for all methods; only drafts are timed for each.
"""

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch

from jakiro import starting
from jakiro.drafting.base import Drafter, Method
from jakiro.engine.costs import ROUNDS, DeviceProfile
from jakiro.engine.measuring import CONTEXT_TOKENS, FAR_TOKENS, NODES_A_LEVEL, PROFILED_NODES, Measuring
from jakiro.engine.runner import RunnerPool
from jakiro.kernels.compiled.library import build_name
from jakiro.system import num_cores, one_process_at_a_time, processor_name, write_atomically
from jakiro.target.model import TargetModel

log = logging.getLogger("jakiro")


def device_name(device: torch.device) -> str:
    """The device in words a person reads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{num_cores()}-core CPU" if device.type == "cpu" else str(device)


class Profiler:
    """The costs of a target's passes and of the drafts of its methods, kept in a folder.

    A first piece is measured when costs are asked for; further ones make them better (`go_on`). How many rounds were
    measured is kept too, so that another process goes on where this one ended. Each number of threads has costs of its
    own.

    Args:
        slots: where passes run at fixed addresses, these are timed, see `Measuring`.
    """

    def __init__(self, target: TargetModel, folder: Path, slots: RunnerPool | None = None) -> None:
        self.target, self.folder, self.slots = target, folder, slots
        # By number of threads, drafts by method too
        self._passes: dict[int, _CostFile] = {}
        self._drafts: dict[tuple[int, str], _CostFile] = {}

    def profile(self, method: Method, drafter: Drafter) -> DeviceProfile:
        """This device's costs under a method with torch's present number of threads, as far as they are measured."""
        threads = torch.get_num_threads()
        key = self._key(threads)
        if threads not in self._passes:
            self._passes[threads] = self._kept(key, drafter, False)
        passes = self._passes[threads].costs()
        if not method.drafts:
            return passes
        info = drafter.info or {}
        key = key | {"method": method.name, "head": info.get("sha256"), "draft_precision": info.get("precision")}
        key |= {"nodes_a_level": NODES_A_LEVEL} if self.slots is None else {}
        wanted = threads, method.name
        if wanted not in self._drafts:
            self._drafts[wanted] = self._kept(key, drafter, True)
        drafts = self._drafts[wanted].costs()
        return replace(
            passes,
            draft_ms=drafts.draft_ms,
            draft_slopes=drafts.draft_slopes,
            width=drafts.width,
            key=key,
            rounds=min(passes.rounds, drafts.rounds),
        )

    def go_on(self) -> bool:
        """Measures one more piece of what was asked for so far, the least known first; False if nothing was left.

        What was asked for with another number of threads waits for it.
        """
        threads = torch.get_num_threads()
        drafts = [part for (of_threads, _), part in self._drafts.items() if of_threads == threads]
        parts = [part for part in (*filter(None, [self._passes.get(threads)]), *drafts) if not part.is_done]
        if not parts:
            return False
        min(parts, key=lambda part: part.rounds).advance()
        return True

    def _kept(self, key: dict, drafter: Drafter, drafts: bool) -> "_CostFile":
        def begin(known: DeviceProfile | None) -> Measuring:
            return Measuring(self.target, drafter, drafts, self.slots, known)

        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return _CostFile(self.folder / f"{name}.json", key, begin)

    def _key(self, threads: int) -> dict:
        """What the costs of a target's passes depend on."""
        target, slots = self.target, self.slots
        cuda = target.device.type == "cuda"
        device = torch.cuda.get_device_name(target.device) if cuda else f"{processor_name()} ({platform.machine()})"
        return {
            "target": target.sha256 or target.name,
            "device": device,
            "threads": threads,
            "dtype": str(target.dtype).removeprefix("torch."),
            "numerics": target.numerics,
            "compiled": build_name() if target.compiled else None,
            "torch": str(torch.__version__),
            "contexts": [CONTEXT_TOKENS, FAR_TOKENS],
            "nodes": [*PROFILED_NODES],
        } | ({} if slots is None else {"graphs": slots.captures})


@contextmanager
def _alone_where_possible() -> Iterator[None]:
    """Nobody else measures meanwhile; in a cache that can't be written nobody can tell."""
    with ExitStack() as stack:
        try:
            stack.enter_context(one_process_at_a_time("profile"))
        except OSError as error:
            log.info("Other processes may measure at the same time (%s)", error)
        yield


class _CostFile:
    """The costs of passes or of one method's drafts: a file, and what measures them further.

    Args:
        begin: makes the `Measuring` that goes on from what is known.
    """

    def __init__(self, path: Path, key: dict, begin: Callable[[DeviceProfile | None], Measuring]) -> None:
        self._path, self._key, self._begin = path, key, begin
        self._costs = self._read()
        self._measuring: Measuring | None = None

    @property
    def rounds(self) -> int:
        return -1 if self._costs is None else self._costs.rounds

    @property
    def is_done(self) -> bool:
        return self.rounds >= ROUNDS

    def costs(self) -> DeviceProfile:
        """What is known; where that is nothing, the first piece is measured."""
        if self._costs is None:
            self.advance()
        return self._costs

    def advance(self) -> None:
        """Measures a piece, while no other process does, and keeps what is known then."""
        with starting.step(starting.MEASURE), _alone_where_possible():
            if self._measuring is None:
                # Another process may have measured since this one looked
                self._costs = self._read() or self._costs
                if self.is_done:
                    return
                self._measuring = self._begin(self._costs)
            self._costs = self._measuring.advance(self._key)
            self._write()
        if self._measuring.is_done:
            # With it go the caches of its texts
            self._measuring = None

    def _write(self) -> None:
        """Keeps what is known for other processes; where nothing can be written, this one goes on with it alone."""
        try:
            write_atomically(self._path, json.dumps(self._costs.to_dict(), indent=1))
        except OSError as error:
            log.warning("Measured costs could not be saved (%s); every process measures again.", error)

    def _read(self) -> DeviceProfile | None:
        """What the file keeps; None where there is none, or no whole one."""
        try:
            return DeviceProfile.from_dict(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("Measured costs could not be read (%s); measuring again.", error)
            return None
        except (ValueError, KeyError, TypeError):
            log.warning("Measured costs in %s are damaged or incomplete; measuring again.", self._path)
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return None
