"""Plain decoding: a drafter that proposes only the root. All other methods are compared with it."""

from jakiro.config import SamplingParams
from jakiro.core.noise import NoiseSource
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest, DraftSession, Method, Needs, Proposal


class PlainDrafter(Drafter):
    """A drafter without proposals."""

    def start(self, prompt: Context, sampling: SamplingParams, noise: NoiseSource) -> "PlainSession":
        return PlainSession()


class PlainSession(DraftSession):
    """A session without state."""

    def propose(self, request: DraftRequest) -> Proposal:
        return Proposal()

    def observe(self, committed: Committed) -> None:
        pass

    def rewind(self, length: int) -> None:
        pass


METHOD = Method(
    name="autoregressive",
    title="Plain decoding",
    sentence="One token at a time, each with a pass of the target.",
    paper=None,
    proposers=(),
    needs=Needs(),
    load=lambda resources: PlainDrafter(),
    aliases=("plain",),
    drafts=False,
)
