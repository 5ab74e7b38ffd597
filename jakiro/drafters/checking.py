"""Checks of the results of drafters, so that a faulty drafter stops the answer instead of changing its text."""

import inspect
import os
from collections.abc import Sequence

from torch import Tensor

from jakiro.core.tree import DraftTree
from jakiro.core.validation import find_node_error, find_tree_error
from jakiro.core.verify import Outcome
from jakiro.drafters.base import Drafter, DraftSession, Proposal

# Also check every tree on a device where reading it costs time
DEBUG_VARIABLE = "JAKIRO_CHECK_TREES"


class DrafterError(ValueError):
    """A drafter returned an invalid proposal; the message names its class, file and line."""


def check_chain(
    session: DraftSession, token_ids: Sequence[int], log_estimates: Sequence[float], vocab_size: int | None
) -> None:
    """Check the chain of a session. Its values are on the host, so checking every chain costs little.

    Args:
        vocab_size: number of the target's tokens; None for no check of the ids.

    Raises:
        DrafterError: an id is outside the vocabulary, or the numbers of ids and estimates differ.
    """
    problem = None
    if len(token_ids) != len(log_estimates):
        problem = f"{len(token_ids)} tokens with {len(log_estimates)} log probabilities"
    for token_id in token_ids if vocab_size is not None else ():
        if not 0 <= token_id < vocab_size:
            problem = f"token {token_id}; the model has tokens 0 to {vocab_size - 1}"
    if problem is not None:
        location = _location(type(session), "chain")
        raise DrafterError(f"The drafter {location} proposed an invalid chain: {problem}; correct the drafter.")


class ProposalChecker:
    """Checks the proposals of one session.

    If tensors are on the host, every tree is checked before the target scores it. On a GPU that check blocks the host,
    so only the first tree of a drafter from outside the package is checked then, unless `DEBUG_VARIABLE` is set.
    `check_outcome` checks the other trees before their tokens are committed.

    Args:
        max_nodes: nodes that fit into the target's cache, root included.
        reads_are_free: tensors are on the host.
    """

    def __init__(
        self, drafter: Drafter, session: DraftSession, vocab_size: int, max_nodes: int, reads_are_free: bool
    ) -> None:
        self._vocab_size, self._max_nodes = vocab_size, max_nodes
        self._num_proposers = len(drafter.proposers)
        self._drafting_class, self._is_external = _drafting_class(session)
        self._checks_all = reads_are_free or bool(os.environ.get(DEBUG_VARIABLE))
        self._checks_next = self._checks_all or self._is_external

    def check(
        self, proposal: Proposal, root: Tensor, num_observed: int | None = None, num_committed: int | None = None
    ) -> None:
        """Check a proposal.

        Args:
            root: (1,) int64, the last committed token.
            num_observed: `DraftSession.num_tokens` after the proposal; None for no check.
            num_committed: tokens of prompt and completion.

        Raises:
            DrafterError: the proposal is not a `Proposal`, its tree is invalid, or the session lacks tokens.
        """
        if not isinstance(proposal, Proposal) or not isinstance(proposal.tree, DraftTree | None):
            self._fail(f"returned {type(proposal).__name__} instead of a Proposal with a DraftTree or None")
        # Both counts are on the host
        if num_observed not in (None, num_committed):
            self._fail(f"has observed {num_observed} tokens, but {num_committed} are committed")
        if proposal.tree is None or not self._checks_next:
            return
        self._checks_next = self._checks_all
        error = find_tree_error(proposal.tree, root, self._vocab_size, self._max_nodes, self._num_proposers)
        if error is not None:
            self._fail(f"proposed an invalid tree: {error}")

    def check_outcome(self, outcome: Outcome, root_id: int) -> None:
        """Check a scored tree that `check` did not check, with the columns that the step copied to the host.

        For the package's own drafters only the root is checked.

        Args:
            root_id: the last committed token.

        Raises:
            DrafterError: the tree is invalid.
        """
        if self._checks_all:
            return
        num_nodes = len(outcome.token_ids) if self._is_external else 1
        columns = outcome.token_ids, outcome.parents, outcome.depths, outcome.proposers
        columns = (column[:num_nodes] for column in columns)
        error = find_node_error(*columns, root_id, self._vocab_size, self._num_proposers)
        if error is not None:
            self._fail(f"proposed an invalid tree: {error}")

    def _fail(self, problem: str) -> None:
        raise DrafterError(f"The drafter {_location(self._drafting_class)} {problem}; correct the drafter.")


def _drafting_class(session: DraftSession) -> tuple[type, bool]:
    """Return the class that drafts and whether it is defined outside this package.

    A session may wrap another session or use a grower of its own; the first class from outside is named.
    """
    parts = [session, *getattr(session, "__dict__", {}).values()]
    classes = [part if isinstance(part, type) else type(part) for part in parts]
    is_drafting = [session is part or isinstance(part, DraftSession | type) for part in parts]
    for drafting_class, counts in zip(classes, is_drafting, strict=True):
        if counts and not drafting_class.__module__.startswith("jakiro."):
            return drafting_class, True
    return type(session), False


def _location(drafting_class: type, method: str = "propose") -> str:
    """Return a class's name with the file and line of its method, or of the class if it inherits that method."""
    definition = vars(drafting_class).get(method, drafting_class)
    try:
        path, line = inspect.getsourcefile(definition), inspect.getsourcelines(definition)[1]
    except (OSError, TypeError):
        return f"{drafting_class.__module__}.{drafting_class.__qualname__}"
    return f"{drafting_class.__qualname__} ({path}, line {line})"
