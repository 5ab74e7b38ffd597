"""A faulty drafter stops the answer with an error about itself; it never changes the text or ends the process."""

import inspect
import re
import sys
from dataclasses import replace

import pytest
import torch

from jakiro.cli.errors import _message_and_code
from jakiro.config import SamplingParams
from jakiro.drafters.base import Drafter, Method, Needs, Proposal, Proposer
from jakiro.drafters.candidates import Chain
from jakiro.drafters.checking import DEBUG_VARIABLE, DrafterError
from jakiro.drafters.head import HeadSession
from jakiro.drafters.merged import ChainSession, MergedDrafter
from jakiro.drafters.registry import METHODS, PLAIN, methods_from
from jakiro.ops import kernels
from tests.support import REPETITIVE, TREE, tiny_generator, tree_of

SAMPLING = SamplingParams(max_new_tokens=12)


class FaultySession(ChainSession):
    """A session that applies `change` to a correct tree: a root with the tokens 5 and 6 below it and 7 below 5."""

    def __init__(self, prompt, change):
        super().__init__(prompt.ids[-1:])
        self.change = change

    def chain(self):
        return [5], [-1.0]

    def propose(self, limits):
        return self.change(Proposal(tree_of([int(self.root), 5, 6, 7], [-1, 0, 0, 1])))

    def rewind(self, length):
        pass


class DeafSession(FaultySession):
    def observe(self, committed):
        """Skip `super().observe()`, so that the root does not advance."""


def generator_with(change, session=FaultySession):
    class FaultyDrafter(Drafter):
        proposers = (Proposer("faulty", "Faulty", "Proposes a wrong tree."),)

        def start(self, prompt, sampling, noise):
            return session(prompt, change)

    method = Method("faulty", "Faulty", "Wrong.", None, FaultyDrafter.proposers, Needs(), lambda _: FaultyDrafter())
    return tiny_generator(methods=METHODS.with_further([method]))


def tree_with(**columns):
    """Return a change that sets values of columns, each given as {node: value}."""

    def change(proposal):
        tree = proposal.tree
        for name, values in columns.items():
            column = getattr(tree, name).clone()
            for node, value in values.items():
                column[node] = value
            tree = replace(tree, **{name: column})
        return Proposal(tree)

    return change


def tree_as(**fields):
    return lambda proposal: Proposal(replace(proposal.tree, **fields))


def unchanged(proposal):
    return proposal


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (tree_with(token_ids={3: 10**6}), "node 3 is token 1000000; the model has tokens 0 to 259"),
        (tree_with(token_ids={1: 10**9}), "node 1 is token 1000000000; the model has tokens 0 to 259"),
        (tree_with(token_ids={2: -1}), "node 2 is token -1; the model has tokens 0 to 259"),
        (tree_with(token_ids={0: 4}), "its root is token 4, but the last committed token is "),
        (tree_with(parents={0: 0}), "its root has parent 0 and depth 0; expected -1 and 0"),
        (tree_with(depths={0: 1}), "its root has parent -1 and depth 1; expected -1 and 0"),
        (tree_with(parents={1: 2}), "node 1 has parent 2; a parent must come before its children"),
        (tree_with(parents={2: -1}), "node 2 has parent -1; a parent must come before its children"),
        (tree_with(parents={3: 3}), "node 3 has parent 3; a parent must come before its children"),
        (tree_with(depths={3: 1}), "node 3 has depth 1; its parent has depth 1"),
        (tree_with(proposers={1: 1}), "node 1 names proposer 1; the drafter has 1 proposers"),
        (tree_with(token_ids={2: 5}), "node 2 repeats token 5 below node 0; siblings must differ"),
        (tree_as(max_depth=1), "its max_depth is 1, but a node has depth 2"),
        (tree_as(depths=torch.arange(3)), "its depths are (3,) torch.int64; expected (4,) torch.int64"),
        (tree_as(token_ids=torch.zeros(4)), "its token_ids are (4,) torch.float32; expected (4,) torch.int64"),
        (tree_as(evidence={"a": torch.zeros(2, 1)}), "its evidence a has the shape (2, 1); expected 4 rows"),
        (
            lambda proposal: Proposal(tree_of([int(proposal.tree.token_ids[0]), *range(90)], [-1, *[0] * 90])),
            "it has 91 nodes; expected 1 to 20",
        ),
    ],
)  # fmt: skip
def test_an_invalid_tree_is_refused_with_the_drafter_its_file_and_line(change, problem):
    generator = generator_with(change)
    with pytest.raises(DrafterError) as caught:
        generator.run("Why?", SAMPLING, "faulty", TREE)
    line = FaultySession.propose.__code__.co_firstlineno
    message, drafter = str(caught.value), f"The drafter FaultySession ({__file__}, line {line})"
    assert message.startswith(f"{drafter} proposed an invalid tree: {problem}")
    assert message.endswith("; correct the drafter.") and "\n" not in message
    plain = generator.run("Why?", SAMPLING, PLAIN.name).token_ids
    assert generator.run("Why?", SAMPLING, "jakiro", TREE).token_ids == plain, "the next answer is a correct one"


def test_a_session_that_omits_super_observe_is_refused_at_its_second_tree():
    generator = generator_with(unchanged, DeafSession)
    stream = generator.stream("Why?", SAMPLING, "faulty", TREE)
    next(stream)
    with pytest.raises(
        DrafterError, match=r"The drafter DeafSession \(.*, line \d+\) proposed an invalid tree: its root"
    ):
        list(stream)


@pytest.mark.parametrize(
    ("change", "session", "problem"),
    [
        (unchanged, DeafSession, "its root is token "),
        (unchanged, FaultySession, None),
        (tree_with(depths={3: 1}), FaultySession, "node 3 has depth 1; its parent has depth 1"),
    ],
)
def test_a_wrong_tree_stops_the_answer_before_its_tokens_if_reads_block(change, session, problem, monkeypatch):
    """On a GPU only the first tree is checked before the target scores it; the others are checked before the commit."""
    monkeypatch.setattr("jakiro.decode.loop.reads_are_free", lambda device: False)
    monkeypatch.setattr(FaultySession, "propose", _right_first_tree(FaultySession.propose))
    generator = generator_with(change, session)
    plain = generator.run("Why?", SAMPLING, PLAIN.name).token_ids
    stream = generator.stream("Why?", SAMPLING, "faulty", TREE)
    if problem is None:
        list(stream)
    else:
        with pytest.raises(DrafterError, match=f"{session.__name__} .* proposed an invalid tree: {problem}"):
            list(stream)
    token_ids = stream.trace.token_ids
    assert token_ids == plain[: len(token_ids)]


def _right_first_tree(propose):
    """Return a `propose` method with a correct first tree; `change` applies to the later trees."""

    def propose_right_first(self, limits):
        if not hasattr(self, "has_proposed"):
            self.has_proposed = True
            return Proposal(tree_of([int(self.root), 5, 6, 7], [-1, 0, 0, 1]))
        return propose(self, limits)

    return propose_right_first


class FaultyChain(FaultySession):
    """Proposes a chain that `change` makes."""

    def chain(self):
        return self.change()

    def propose(self, limits):
        return ChainSession.propose(self, limits)


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        (([5, 10**9], [-1.0, -1.0]), "token 1000000000; the model has tokens 0 to 259"),
        (([5, 260], [-1.0, -1.0]), "token 260; the model has tokens 0 to 259"),
        (([-1], [-1.0]), "token -1; the model has tokens 0 to 259"),
        (([5, 6], [-1.0]), "2 tokens with 1 log probabilities"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("merged", [False, True])
def test_an_invalid_chain_is_refused_before_it_is_merged(chain, problem, merged, monkeypatch):
    generator = generator_with(lambda: chain, FaultyChain)
    if merged:
        method, jakiro = generator.known_methods.named("faulty"), generator.drafter(METHODS["jakiro"])
        generator._drafters["faulty"] = MergedDrafter(jakiro, method.load(None))
        monkeypatch.setattr(Chain, "of", lambda *arguments: pytest.fail("the chain was merged"))
    with pytest.raises(DrafterError) as caught:
        generator.run("Why?", SAMPLING, "faulty", TREE)
    line = FaultyChain.chain.__code__.co_firstlineno
    assert str(caught.value) == (
        f"The drafter FaultyChain ({__file__}, line {line}) proposed an invalid chain: {problem}; correct the drafter."
    )


class ForgetfulSession(HeadSession):
    """Observes the last committed token only, so that its cache lacks the others; its root is right."""

    def observe(self, committed):
        super().observe(replace(committed, ids=committed.ids[-1:], features=committed.features[-1:]))


@pytest.mark.parametrize("native", [True, False])
def test_a_session_whose_cache_lacks_committed_tokens_is_refused(native, monkeypatch):
    if not native:
        monkeypatch.setattr(kernels.current(), "tree_growth", lambda *arguments: None, raising=False)
    generator = tiny_generator()
    drafter = generator.drafter(METHODS["jakiro"])
    begin = drafter._begin

    def begin_forgetful(*arguments):
        session = begin(*arguments)
        session.__class__ = ForgetfulSession
        return session

    monkeypatch.setattr(drafter, "_begin", begin_forgetful)
    with pytest.raises(DrafterError) as caught:
        list(generator.stream(REPETITIVE, SamplingParams(max_new_tokens=64), "jakiro", TREE))
    line = inspect.getsourcelines(ForgetfulSession)[1]
    start = f"The drafter ForgetfulSession ({__file__}, line {line}) has observed "
    assert re.fullmatch(
        re.escape(start) + r"(\d+) tokens, but \d+ are committed; correct the drafter\.", str(caught.value)
    )


@pytest.mark.parametrize("value", [None, 3, Proposal(tree=3)])
def test_result_that_is_no_proposal_is_refused(value):
    with pytest.raises(DrafterError, match=r"returned .* instead of a Proposal with a DraftTree or None; correct"):
        generator_with(lambda proposal: value).run("Why?", SAMPLING, "faulty", TREE)


def test_a_correct_tree_of_the_same_session_is_accepted():
    generator = generator_with(unchanged)
    plain = generator.run("Why?", SAMPLING, PLAIN.name).token_ids
    assert generator.run("Why?", SAMPLING, "faulty", TREE).token_ids == plain


@pytest.mark.parametrize(("variable", "count"), [(None, 1), ("1", 3)])
def test_only_the_first_tree_is_checked_if_reads_block_except_in_debug_mode(variable, count, monkeypatch):
    from jakiro.drafters import checking

    if variable is not None:
        monkeypatch.setenv(DEBUG_VARIABLE, variable)
    checked = []
    monkeypatch.setattr(checking, "find_tree_error", lambda *arguments: checked.append(arguments))
    drafter = generator_with(unchanged).drafter(METHODS["autoregressive"])
    root = torch.tensor([1])
    session = FaultySession(type("Prompt", (), {"ids": root}), unchanged)
    checker = checking.ProposalChecker(drafter, session, 260, 20, reads_are_free=False)
    for _ in range(3):
        checker.check(session.propose(None), root)
    assert len(checked) == count


MODULE = """
from jakiro.drafters.base import Drafter, Method, Needs, Proposer
from jakiro.drafters.merged import ChainSession

class BrokenDrafter(Drafter):
    proposers = (Proposer("broken", "Broken", "Fails."),)
    def start(self, prompt, sampling, noise):
        return BrokenSession(prompt.ids[-1:])

class BrokenSession(ChainSession):
    def chain(self):
        return {}["nothing"]  # line 12
    def rewind(self, length):
        pass

METHODS = [Method("broken", "Broken", "Fails.", None, BrokenDrafter.proposers, Needs(), lambda _: BrokenDrafter())]
"""


def test_error_in_an_external_method_names_its_file_and_line(tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        generator = tiny_generator(methods=METHODS.with_further(methods_from(["broken_module"])))
        with pytest.raises(KeyError) as caught:
            generator.run("Why?", SAMPLING, "broken", TREE)
    finally:
        sys.modules.pop("broken_module")
    assert _message_and_code(caught.value) == (
        f"The drafting method in {tmp_path / 'broken_module.py'}, line 12, failed (KeyError: 'nothing'). "
        "Correct it, or leave out its module in --methods-from.",
        2,
    )
    assert _message_and_code(KeyError("x"))[0].startswith("This is a fault of Jakiro")
