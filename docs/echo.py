"""Proposes what stood eight tokens before."""

from jakiro.drafters.base import Drafter, Method, Needs, Proposer
from jakiro.drafters.merged import ChainSession


class EchoDrafter(Drafter):
    proposers = (Proposer("echo", "Echo", "What stood eight tokens before."),)
    chains = True

    def start(self, prompt, sampling, noise):
        return EchoSession(prompt)


class EchoSession(ChainSession):
    def __init__(self, prompt):
        super().__init__(prompt.ids[-1:])
        self.token_ids = list(prompt.token_ids)

    def chain(self):
        found = self.token_ids[-8:]
        return found, [-1.0] * len(found)  # the log of each one's chance

    def observe(self, committed):
        super().observe(committed)
        self.token_ids += committed.token_ids

    def rewind(self, length):
        del self.token_ids[length:]


ECHO = Method(
    name="echo",
    title="Echo",
    sentence="Repeats what stood eight tokens before.",
    paper=None,
    proposers=EchoDrafter.proposers,
    needs=Needs(),
    load=lambda resources: EchoDrafter(),
    drafts=False,
)
METHODS = [ECHO]
