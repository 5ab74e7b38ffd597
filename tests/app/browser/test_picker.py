"""The model picker: offered pairs and reasons, loading between answers, and the state after a failure."""

import json
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
from transformers import LlamaForCausalLM

from app.page.picker import Picker
from app.serving.pairs import FETCH, HERE, UNFIT, known_pairs
from app.serving.worker import ModelService
from app.words import page as words
from jakiro import progress
from jakiro.loading import registry
from jakiro.loading.progress import counted
from tests.app.answers import asking, events_of, start_answer
from tests.app.conftest import ask_to_end, ready_service, served, settled_service
from tests.app.fake import FakeGenerator, default_answer
from tests.server.served import PATIENCE, wait_until
from tests.stand_in_hub import BYTES, FILE, stand_in_hub
from tests.support import save_pair

DEFAULT = registry.DEFAULT_TARGET


Another = partial(FakeGenerator, target="Another-1B")


def settled(service: ModelService) -> dict:
    """Wait until loading has ended and return the chip."""
    wait_until(lambda: service.stage is None)
    return service.chip()


def write_model(folder, config: dict, *files: str) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).write_bytes(b"x")


@pytest.fixture
def models(tmp_path):
    """Return a folder with two targets, heads that fit one of them, and a head without weights."""
    write_model(tmp_path / "small", {"hidden_size": 64, "vocab_size": 100}, "model.safetensors", "tokenizer.json")
    write_model(tmp_path / "large", {"hidden_size": 128, "vocab_size": 100}, "model.safetensors", "tokenizer.json")
    sizes = {"hidden_size": 64, "vocab_size": 100, "fusion": "decoupled"}
    write_model(tmp_path / "fits", sizes | {"target_name": "small"}, "head.safetensors")
    write_model(tmp_path / "anyone", sizes, "head.safetensors")
    write_model(tmp_path / "empty", sizes | {"target_name": "small"})
    write_model(tmp_path / "retrained", {"target_name": DEFAULT, "target_sha256": "f" * 64}, "head.safetensors")
    (tmp_path / "notes").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "packed.Q4_1.gguf").write_bytes(b"x")
    return tmp_path


def test_pairs_of_a_folder_say_whether_they_fit_and_why_not(models):
    pairs = {pair.name: pair for pair in known_pairs(models)}
    assert pairs["small + fits"].state == HERE and pairs["small + fits"].fusion == "decoupled"
    assert pairs["small + anyone"].state == HERE
    assert pairs["large + anyone"].state == UNFIT
    assert pairs["large + anyone"].reason == "Does not fit: the head has hidden size 64, the target 128."
    assert pairs["packed + anyone"].state == HERE
    assert pairs["small + empty"].reason == words.PAIR_NO_WEIGHTS.format(folder="empty")
    assert pairs[f"{DEFAULT} + retrained"].reason.startswith("Does not fit: the head was trained for weights ffffffff")


def test_pairs_of_one_name_in_two_folders_can_be_told_apart(models):
    elsewhere = models / "notes"
    write_model(elsewhere / "small", {"hidden_size": 64, "vocab_size": 100}, "model.safetensors", "tokenizer.json")
    write_model(elsewhere / "fits", {"hidden_size": 64, "vocab_size": 100}, "head.safetensors")
    pairs = {pair.name: pair for pair in known_pairs(models, (str(elsewhere / "small"), str(elsewhere / "fits")))}
    assert pairs["small + fits"].target == str(elsewhere / "small")
    assert pairs["small + fits (2)"].target == str(models / "small")


def test_every_pair_of_the_table_is_offered_with_its_reason_and_local_ones_come_first():
    pairs = known_pairs()
    assert {pair.target for pair in pairs} >= set(registry.ENTRIES)
    assert all(pair.reason for pair in pairs) and len({pair.name for pair in pairs}) == len(pairs)
    order = [(HERE, FETCH, UNFIT).index(pair.state) for pair in pairs]
    assert order == sorted(order)


def test_weights_that_are_larger_than_the_free_memory_are_refused_with_both_numbers(models, monkeypatch):
    monkeypatch.setattr("jakiro.loading.placement.free_memory", lambda device: 0)
    pair = next(pair for pair in known_pairs(models) if pair.name == "small + fits")
    assert pair.state == UNFIT and pair.reason == "Too large: its weights have 0.0 GB, and 0.0 GB of memory are free."


def test_another_pair_is_loaded_after_the_answer_that_runs_and_before_the_next():
    generator = FakeGenerator()
    generator.gate.clear()
    service = ready_service(generator)
    first = start_answer(service, asking())
    wait_until(lambda: first.traces)
    may_load = threading.Event()

    def load():
        assert not generator.active
        may_load.wait(PATIENCE)
        return Another()

    assert service.swap(load, "another")
    assert service.chip()["text"] == words.CHIP_WAITING
    assert not service.swap(load, "a third")
    second = start_answer(service, asking())
    assert second.events.get(timeout=PATIENCE) == ("wait", None, words.WAITING_FOR_MODEL)
    generator.gate.set()
    wait_until(lambda: service.chip()["text"] == words.CHIP_LOADING)
    assert first.finished.wait(PATIENCE)
    may_load.set()
    kinds = [kind for kind, *_ in events_of(second)]
    assert kinds[-1] == "done" and "step" in kinds
    assert service.chip()["text"].startswith("Another-1B")
    assert service.chip()["pair"] == "another"


def cannot_load():
    raise ValueError("The draft head has hidden size 64, the target 128.")


def test_a_pair_that_cannot_be_loaded_leaves_the_old_one_and_says_why():
    service = ready_service(FakeGenerator())
    assert service.swap(cannot_load, "another")
    chip = settled(service)
    assert (chip["state"], chip["text"]) == ("ready", "Fake-135M · CPU · exact")
    assert chip["trouble"] == words.SWAP_FAILED.format(
        pair="another", reason="The draft head has hidden size 64, the target 128."
    )
    assert events_of(start_answer(service, asking()))[-1][0] == "done"


def test_after_a_failed_start_another_pair_can_be_loaded():
    service = settled_service(cannot_load)
    assert service.chip()["state"] == "failed"
    assert service.swap(Another, "another")
    assert settled(service)["text"].startswith("Another-1B")


def test_a_download_tells_bytes_and_time_left_and_can_be_cancelled(monkeypatch):
    """The previous pair stays loaded, and the next download is not cancelled."""
    clock, chips = [100.0], []
    monkeypatch.setattr("app.serving.worker.time.monotonic", lambda: clock[0])
    service = ready_service(FakeGenerator())
    picker = Picker(service, lambda *_: Another)
    assert not picker.cancel() and not Picker(service, None).cancel()

    def fetch():
        for share in (0.25, 0.5, 0.75):
            progress.tell(progress.FETCH, share, 491_400_064)
            chips.append(service.chip())
            clock[0] += 10
            assert share != 0.5 or picker.cancel()
        raise AssertionError

    assert service.swap(fetch, "another")
    chip = settled(service)
    assert [chip["text"] for chip in chips] == [
        "Downloading the model: 123 of 491 MB",
        "Downloading the model: 246 of 491 MB, about 20 s left",
    ]
    assert all(chip["cancellable"] for chip in chips)
    assert chip["text"].startswith("Fake-135M") and chip["trouble"].endswith(words.FETCH_CANCELLED)
    assert not picker.cancel() and service.swap(Another, "another")
    assert settled(service)["text"].startswith("Another-1B")


@pytest.fixture
def hub(monkeypatch, tmp_path, models):
    """Yield a local server that replaces the Hub and has the target of the pair "better"."""
    pair = registry.Entry(source=FILE.repository, head=str(models / "fits"), file=FILE)
    monkeypatch.setitem(registry.ENTRIES, "better", pair)
    with stand_in_hub(monkeypatch, tmp_path) as server:
        yield server


def fetched(target, head):
    def load():
        assert registry.file_of(target).fetch().read_bytes() == BYTES
        return Another(default_answer())

    return load


def prefer(picker: Picker) -> threading.Thread:
    looking = threading.Thread(target=picker.prefer, args=("better",), daemon=True)
    looking.start()
    return looking


def lay_down() -> None:
    FILE.download_path.parent.mkdir(parents=True, exist_ok=True)
    FILE.download_path.write_bytes(BYTES)


def test_the_preferred_pair_is_taken_as_soon_as_its_file_lies_here_and_others_can_be_chosen_after_it(hub, monkeypatch):
    monkeypatch.setattr("app.page.picker.LOOK_SECONDS", 0.05)
    service = ready_service(FakeGenerator())
    picker = Picker(service, lambda target, head: fetched(target, head) if target == "better" else FakeGenerator)
    looking = prefer(picker)
    time.sleep(0.2)
    assert service.chip()["text"].startswith("Fake-135M") and looking.is_alive()
    lay_down()
    looking.join(PATIENCE)
    assert settled(service)["text"].startswith("Another-1B") and not hub.asked
    assert picker.choose(registry.DEFAULT_HEAD) == ""
    assert settled(service)["text"].startswith("Fake-135M")


@pytest.mark.parametrize("why", ["no head", "chosen", "fails"])
def test_the_preferred_pair_requires_a_head_and_does_not_replace_a_choice(hub, monkeypatch, why):
    """The page keeps its drafting pair if the preferred one has no head or fails to load."""
    monkeypatch.setattr("app.page.picker.LOOK_SECONDS", 0.05)
    if why == "no head":
        monkeypatch.setitem(registry.ENTRIES, "better", replace(registry.ENTRIES["better"], head=None))
    loads, service = [], ready_service(FakeGenerator())

    def loader_of(target, head):
        loads.append(target)
        return cannot_load if target == "better" else FakeGenerator

    picker = Picker(service, loader_of)
    lay_down()
    if why == "chosen":
        assert picker.choose(registry.DEFAULT_HEAD) == ""
    looking = prefer(picker)
    looking.join(1 if why == "no head" else PATIENCE)
    assert settled(service)["text"].startswith("Fake-135M")
    assert loads == {"no head": [], "chosen": [DEFAULT], "fails": ["better"]}[why]
    assert looking.is_alive() == (why == "no head")
    service.closing = True


@pytest.mark.parametrize("name", ["../../etc", "", "None"])
def test_only_listed_pairs_can_be_chosen_and_only_where_the_host_allows_it(name, models):
    service = ready_service(FakeGenerator())
    assert Picker(service, lambda *_: FakeGenerator, models).choose(name) == words.PICKER_UNKNOWN
    assert Picker(service, None, models).choose("small + fits") == words.PICKER_FIXED
    assert Picker(service, None, models).listing()["locked"] == words.PICKER_FIXED
    assert Picker(service, lambda *_: FakeGenerator, models).choose("large + anyone").startswith("Does not fit")


def test_reading_weights_tells_its_share_in_ascending_order(tmp_path):
    target, reports = save_pair(tmp_path) / "target", []
    with progress.reporting_to(lambda step, share, _: reports.append((step, share))), counted():
        LlamaForCausalLM.from_pretrained(target)
    shares = [share for _, share in reports]
    assert {step for step, _ in reports} == {progress.READ}
    assert len(shares) > 5 and shares == sorted(shares) and shares[0] > 0 and shares[-1] < 1
    LlamaForCausalLM.from_pretrained(target)
    assert len(reports) == len(shares)


@pytest.mark.browser
@pytest.mark.rare
def test_a_visitor_loads_another_pair_for_everybody(open_tab, models):
    loads = []

    def loader_of(target, head):
        return lambda: loads.append((target, head)) or Another(default_answer())

    with served(FakeGenerator, loader_of=loader_of, pairs_folder=models) as (_, address):
        tab, second_tab = open_tab(address), open_tab(address, clock=True)
        ask_to_end(tab, "Why?")
        tab.click("#jk-settings")
        tab.click(".jk-pairs summary")
        tab.wait_for_selector(
            f'[data-pair="{registry.DEFAULT_HEAD}"]:disabled:text-is("{words.BROWSER["pair_loaded"]}")'
        )
        assert tab.is_disabled('[data-pair="large + anyone"]')
        assert "hidden size 64, the target 128" in tab.inner_text('li:has([data-pair="large + anyone"])')
        tab.click('[data-pair="small + fits"]')
        sure = tab.inner_text(".pair-sure p")
        assert "for everybody on this page" in sure and registry.DEFAULT_HEAD in sure
        assert not loads, "nothing is loaded before it is confirmed"
        tab.click('[data-confirm="small + fits"]')
        tab.wait_for_selector('#jk-chip:text-matches("Another-1B")')
        tab.wait_for_selector('[data-pair="small + fits"]:disabled:text-is("Loaded")')
        assert loads == [(str(models / "small"), str(models / "fits"))]
        second_tab.wait_for_selector("#jk-chip.ready")
        second_tab.clock.fast_forward(20_000)
        second_tab.wait_for_selector('#jk-chip:text-matches("Another-1B")')


@pytest.mark.browser
@pytest.mark.rare
def test_a_download_is_seen_and_cancelled_in_the_list_and_goes_on_when_it_is_chosen_again(open_tab, hub):
    hub.gate.clear()
    with served(FakeGenerator, loader_of=fetched) as (_, address):
        tab = open_tab(address)
        tab.click(f'#jk-chat button:text-is("{words.BROWSER["other_model"]}")')
        for cancelled in (True, False):
            tab.click('[data-pair="better + fits"]:enabled')
            tab.click('[data-confirm="better + fits"]')
            tab.wait_for_selector('li:has([data-pair="better + fits"]):has-text("Downloading the model")')
            if cancelled:
                with tab.expect_response(lambda answer: '"cancel"' in (answer.request.post_data or "")):
                    tab.click('[data-action="cancel_fetch"]')
            hub.gate.set()
            if cancelled:
                tab.wait_for_selector(f'#jk-notice:has-text("{words.FETCH_CANCELLED}")')
                assert tab.inner_text("#jk-chip").startswith("Fake-135M")
                hub.gate.clear()
        tab.wait_for_selector('#jk-chip:text-matches("Another-1B")')
        first = [int(byte_range.removeprefix("bytes=").removesuffix("-")) for _, byte_range in hub.asked]
        assert first[0] == 0 and first[1] >= len(BYTES) // 2
        tab.wait_for_selector('[data-pair="better + fits"]:disabled:text-is("Loaded")')


@pytest.mark.rare
@pytest.mark.browser
@pytest.mark.parametrize(("loaded", "chosen"), [("fast", "exact"), ("exact", "fast")])
def test_the_form_opens_with_the_numerics_that_suit_the_device_and_another_choice_stays(open_tab, loaded, chosen):
    with served(lambda: FakeGenerator(numerics=loaded)) as (_, address):
        tab = open_tab(address)
        tab.wait_for_selector(f'#jk-chip.ready:text-is("Fake-135M · CPU · {loaded}")')
        tab.wait_for_selector("#jk-chat:has-text('Fake-135M')")
        assert words.BROWSER["other_model"] not in tab.inner_text("#jk-chat"), "the host keeps its model"
        tab.wait_for_function(f"() => document.querySelector('#numerics input:checked')?.value === '{loaded}'")
        tab.click("#jk-settings")
        tab.click(".jk-pairs summary")
        tab.wait_for_selector('.jk-pairs .small:text-is("' + words.PICKER_FIXED + '")')
        assert tab.locator(".jk-pairs button:enabled").count() == 0
        tab.get_by_label(chosen.title(), exact=True).check()
        tab.wait_for_selector('#jk-chip:text-is("Fake-135M · CPU · fast")')
        tab.evaluate("Jakiro.chip.look()")
        ask_to_end(tab, "Why?")
        assert tab.evaluate("Jakiro.moves.state.run.main.header.numerics") == chosen
