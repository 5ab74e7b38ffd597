"""A drafting method that repeats the last eight tokens."""

from jakiro.drafters.base import Drafter, Method, Needs, Proposer
from jakiro.drafters.merged import ChainSession


class EchoDrafter(Drafter):
    proposers = (Proposer("echo", "Echo", "The tokens of the last eight positions."),)
    chains = True

    def start(self, prompt, sampling, noise):
        return EchoSession(prompt)


class EchoSession(ChainSession):
    def __init__(self, prompt):
        super().__init__(prompt.ids[-1:])
        self.token_ids = list(prompt.token_ids)

    def chain(self):
        token_ids = self.token_ids[-8:]
        return token_ids, [-1.0] * len(token_ids)  # estimated log probability of each token

    def observe(self, committed):
        super().observe(committed)
        self.token_ids += committed.token_ids

    def rewind(self, length):
        del self.token_ids[length:]


ECHO = Method(
    name="echo",
    title="Echo",
    sentence="Repeats the last eight tokens.",
    paper=None,
    proposers=EchoDrafter.proposers,
    needs=Needs(),
    load=lambda resources: EchoDrafter(),
    drafts=False,
)
METHODS = [ECHO]
