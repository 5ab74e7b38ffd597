"""A file of the Hub, fetched from a stand-in that cuts and lies: resumed, checked, cancelled, in a sentence."""

import os

import pytest

from jakiro.starting import FETCH, Cancelled, reporting_to
from jakiro.zoo import table as zoo
from tests.stand_in_hub import BYTES, COMMIT, FILE, stand_in_hub


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    with stand_in_hub(monkeypatch, tmp_path) as server:
        yield server


def test_a_file_is_fetched_once_from_its_commit_and_its_bytes_are_told(stand_in):
    told = []
    assert FILE.here is None
    with reporting_to(lambda *said: told.append(said)):
        found = FILE.fetched()
    assert found.read_bytes() == BYTES and found == FILE.place == FILE.here
    assert stand_in.asked == [(f"/somebody/models/resolve/{COMMIT}/model.gguf", "bytes=0-")]
    counted = [share for step, share, total in told if step == FETCH and total == len(BYTES)]
    assert len(counted) == 16 and counted == sorted(counted) and counted[-1] == 1
    assert FILE.fetched() == found and len(stand_in.asked) == 1


def test_a_cut_download_says_so_and_the_next_start_goes_on_where_it_ended(stand_in):
    stand_in.ends = [5000]
    with pytest.raises(ValueError, match=r"the connection broke; start again.*put model\.gguf \(16,384 bytes\) into"):
        FILE.fetched()
    assert FILE.here is None
    assert FILE.fetched().read_bytes() == BYTES
    first = int(stand_in.asked[1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < first <= 5000


def test_a_server_that_knows_no_ranges_sends_it_whole(stand_in):
    stand_in.ends, stand_in.ranges = [5000], False
    with pytest.raises(ValueError):
        FILE.fetched()
    assert FILE.fetched().read_bytes() == BYTES


@pytest.mark.parametrize("sends", [BYTES[:-1] + b"x", BYTES + b"x", b"x" + BYTES])
def test_other_bytes_than_expected_are_refused_and_not_kept(stand_in, sends):
    stand_in.sends = sends
    with pytest.raises(ValueError, match="is not the expected file"):
        FILE.fetched()
    assert FILE.here is None
    stand_in.sends = BYTES
    assert FILE.fetched().read_bytes() == BYTES


def test_a_damaged_file_of_the_right_size_is_fetched_again(stand_in):
    FILE.place.parent.mkdir(parents=True)
    FILE.place.write_bytes(b"x" * len(BYTES))
    assert FILE.fetched().read_bytes() == BYTES


def test_a_listener_that_gives_up_ends_the_download_and_what_came_stays(stand_in):
    def give_up(step, share, total):
        if total and share > 0.5:
            raise Cancelled

    with pytest.raises(Cancelled), reporting_to(give_up):
        FILE.fetched()
    assert FILE.here is None
    assert FILE.fetched().read_bytes() == BYTES
    assert stand_in.asked[1][1] != "bytes=0-"


def test_no_network_is_one_sentence_that_says_where_the_file_belongs(stand_in):
    stand_in.shutdown()
    stand_in.server_close()
    with pytest.raises(ValueError, match=r"Hub can't be reached.*put model\.gguf .* into .*models\."):
        FILE.fetched()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_sentence(stand_in):
    FILE.place.parent.mkdir(parents=True)
    FILE.place.with_name("model.gguf.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="free space there, or name another folder for the cache in JAKIRO_CACHE"):
        FILE.fetched()


def test_the_known_file_is_a_target_by_its_name_wherever_it_lies(stand_in):
    entry = zoo.ENTRIES["qwen2.5-coder-0.5b-instruct"]
    pair = zoo.resolve("qwen2.5-coder-0.5b-instruct", zoo.NO_HEAD)
    assert pair.target_path_or_hub_id == str(entry.file.place)
    assert zoo.file_of("qwen2.5-coder-0.5b-instruct") is entry.file and zoo.file_of(zoo.DEFAULT_TARGET) is None
