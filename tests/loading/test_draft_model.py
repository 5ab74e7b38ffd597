"""A small model as drafter: folders, GGUF files, and models with another tokenizer."""

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.heads.model_head import refuse_other_tokens
from jakiro.models.target import TargetModel
from tests.gguf_files import write_gguf
from tests.support import TREE, byte_tokenizer, tiny_head, tiny_model, tiny_target, word_tokenizer

QUESTION = "the cat sat on the mat; the cat sat"
CHAIN = TreeConfig(width=1, depth=4, nodes=5)
SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=24),
    "nucleus": SamplingParams(0.7, top_p=0.9, seed=5, max_new_tokens=24),
    "sampled": SamplingParams(1.0, seed=5, max_new_tokens=24),
}
# Other widths and depths, with more and with fewer embedding rows than the target
SMALL = {"wider": {"vocab_size": 264}, "narrower": {"vocab_size": 258}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a folder with a target, small models with its tokenizer, and a model with another tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    models = {"target": (tiny_model(layers=4), byte_tokenizer()), "other": (tiny_model(), word_tokenizer())}
    models |= {
        name: (tiny_model(3, hidden_size=32, layers=1, **sizes), byte_tokenizer()) for name, sizes in SMALL.items()
    }
    for name, (model, tokenizer) in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def load(folders, draft: str, **options) -> JakiroGenerator:
    target = str(folders / "target")
    return JakiroGenerator.from_pretrained(target, device="cpu", draft_model=str(folders / draft), **options)


@pytest.fixture(scope="module")
def drafting(folders):
    return {draft: load(folders, draft) for draft in SMALL}


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("draft", SMALL)
def test_trees_and_chains_of_a_small_model_keep_the_text_of_plain_decoding(draft, sampling, drafting):
    generator = drafting[draft]
    expected = generator.run(QUESTION, SAMPLINGS[sampling], PLAIN.name).token_ids
    assert generator.usual.name == "small_model" and generator.status["head"].endswith(draft)
    for tree in (TREE, CHAIN):
        trace = generator.run(QUESTION, SAMPLINGS[sampling], "small_model", tree)
        assert trace.token_ids == expected
        assert any(len(step.nodes) > 1 for step in trace.steps)


def test_a_draft_head_and_a_small_model_can_both_draft(folders, tmp_path):
    target = TargetModel(tiny_model(layers=4), byte_tokenizer(), "target", "0" * 64, "exact")
    save_head(tiny_head(target), tmp_path)
    generator = load(folders, "wider", head=str(tmp_path))
    expected = generator.run(QUESTION, SAMPLINGS["sampled"], PLAIN.name).token_ids
    for method in (generator.usual.name, "small_model"):
        trace = generator.run(QUESTION, SAMPLINGS["sampled"], method, TREE)
        assert trace.header.method == method and trace.token_ids == expected
        assert any(len(step.nodes) > 1 for step in trace.steps)
    assert generator.usual.name == "jakiro"


@pytest.mark.parametrize("sampling", ["greedy", "sampled"])
def test_gguf_file_drafts_for_another_gguf_file(sampling, tmp_path):
    """Both models are files, because the byte tokenizer in the folders has other tokens."""
    target = write_gguf(tmp_path / "target.gguf", tiny_model(layers=4))
    small = write_gguf(tmp_path / "small.gguf", tiny_model(3, hidden_size=32, layers=1))
    generator = JakiroGenerator.from_pretrained(str(target), device="cpu", draft_model=str(small))
    assert generator.usual.name == "small_model" and "small.gguf" in generator.status["head"]
    expected = generator.run(QUESTION, SAMPLINGS[sampling], PLAIN.name).token_ids
    for tree in (TREE, CHAIN):
        trace = generator.run(QUESTION, SAMPLINGS[sampling], "small_model", tree)
        assert trace.token_ids == expected
        assert any(len(step.nodes) > 1 for step in trace.steps)


@pytest.mark.parametrize("head", [None, "summed"])
def test_method_without_a_draft_model_names_its_option(head):
    target = tiny_target()
    resources = Resources(target, None if head is None else tiny_head(target, head))
    generator = JakiroGenerator(resources)
    with pytest.raises(ValueError, match=r"^small_model needs a small model .* with --draft-model; choose one"):
        generator.run(QUESTION, SAMPLINGS["greedy"], "small_model")


def test_other_tokenizer_is_refused_in_one_sentence(folders):
    with pytest.raises(
        ValueError, match=r"The draft model .*other has another tokenizer than .*target \(token 0 is"
    ) as e:
        load(folders, "other")
    assert "\n" not in str(e.value) and str(e.value).endswith("choose a smaller model of the target's family.")


def test_tokenizers_may_differ_only_in_a_few_added_tokens():
    ours = {str(number): number for number in range(1000)}
    refuse_other_tokens(ours, ours | {"[PAD]": 1000}, "draft", "target")
    with pytest.raises(ValueError, match="token 7 is 'seven' there and '7' here"):
        refuse_other_tokens(
            ours, {("seven" if number == 7 else str(number)): number for number in range(1000)}, "d", "t"
        )
    with pytest.raises(ValueError, match="they share 500 of 1,000 tokens"):
        refuse_other_tokens(ours, {str(number): number for number in range(500)}, "d", "t")
