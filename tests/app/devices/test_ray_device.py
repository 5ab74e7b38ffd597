"""Two Ray Serve replicas answer the page's questions; a killed replica ends its own answer only."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.asking import Asking
from app.words import page as words
from jakiro.config import SamplingParams, TreeConfig
from jakiro.loading.options import LoadOptions
from jakiro.trace import Trace
from tests.app.answers import asking
from tests.app.devices.ray_tiny import STEP_SECONDS
from tests.faults import ROOT
from tests.server.served import PATIENCE, any_port, wait_until
from tests.support import tiny_generator

ray = pytest.importorskip("ray", reason="Ray is not installed; it is the optional extra [serve]")

pytestmark = pytest.mark.rare
STORE_BYTES = 100_000_000
START_SECONDS = 600


@pytest.fixture(scope="module")
def cluster():
    """Yield the address of a local cluster with two replicas of the tiny pair."""
    port = any_port()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Ray lowers the priority of its processes, which would start too slowly on a busy machine
    environment |= {"RAY_worker_niceness": "0"}
    # Without this, Ray drains the node for half a minute at shutdown
    environment |= {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    start = (
        f"start --head --block --port {port} --ray-client-server-port {any_port()} --num-cpus 2 "
        f"--object-store-memory {STORE_BYTES} --include-dashboard=false"
    )
    command = [sys.executable, "-m", "ray.scripts.scripts", *start.split()]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        deploy = [sys.executable, "-m", "tests.app.devices.ray_tiny", f"127.0.0.1:{port}"]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(deploy, cwd=ROOT, env=environment, capture_output=True).returncode:
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def device(cluster):
    """Yield the device of a page that uses the cluster."""
    from app.devices.ray_device import RayDevice

    device = RayDevice(cluster)
    device.load(lambda *_: None)
    yield device
    device.close()


class Reading:
    """An answer that is read to its end at construction, and its outcome.

    Args:
        on_step: called with this object after every step.

    Attributes:
        trace: the trace so far; None before the header.
        failure: the error message, or None.
        halt: set it to stop the answer.
    """

    def __init__(self, device, request: Asking, on_step=None) -> None:
        self.trace = self.failure = None
        self.halt = threading.Event()
        try:
            for kind, _, payload in device.answer(request, self.halt):
                if kind == "header":
                    self.trace = Trace(payload)
                elif kind == "end":
                    self.trace.end_reason = payload
                else:
                    self.trace.steps.append(payload)
                    if on_step:
                        on_step(self)
        except ValueError as error:
            self.failure = str(error)

    @property
    def process_id(self) -> int:
        """Process id of the replica, which `ray_tiny` names as its device."""
        return int(self.trace.header.device_profile["device"])


def read_side_by_side(device, questions, length: int = 24) -> list[Reading]:
    """Return the readings of questions, read two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda question: Reading(device, asking(question, length)), questions))


@pytest.fixture
def both(device):
    """Return the device once both replicas answer, including one that an earlier test has killed."""
    wait_until(lambda: len({reading.process_id for reading in read_side_by_side(device, "ab", 8)}) == 2, START_SECONDS)
    return device


def test_both_replicas_answer_and_the_text_is_that_of_a_local_generator(both):
    assert both.places == 2
    assert both.status["target"] == "tiny"
    questions = [f"Question {number}?" for number in range(6)]
    readings = read_side_by_side(both, questions)
    generator = tiny_generator()
    for question, reading in zip(questions, readings, strict=True):
        expected = generator.run(question, SamplingParams(max_new_tokens=24), tree=TreeConfig())
        assert reading.trace.header.messages[-1]["content"] == question
        assert reading.trace.token_ids == expected.token_ids


@pytest.mark.parametrize("failures", [1, 10])
def test_a_cluster_that_starts_no_process_for_the_page_is_asked_again_and_then_named(failures, monkeypatch):
    from app.devices.ray_device import TRIES, RayDevice

    addresses = []

    def init(address: str, **_) -> None:
        addresses.append(address)
        if len(addresses) <= failures:
            raise ConnectionAbortedError("Initialization failure from server")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(RayDevice, "_new_relay", lambda self: None)
    device = RayDevice("ray://here:1")
    if failures < TRIES:
        device.load(lambda *_: None)
        assert len(addresses) == failures + 1
    else:
        with pytest.raises(ConnectionError, match="answers, but starts no process"):
            device.load(lambda *_: None)
        assert len(addresses) == TRIES


def test_stop_frees_the_replica(device):
    stopped = Reading(device, asking("Stop", 200), lambda reading: reading.halt.set())
    assert stopped.trace.end_reason == "stopped" and len(stopped.trace.steps) == 1
    assert all(reading.trace.end_reason == "length" for reading in read_side_by_side(device, "ab", 8))


def test_a_killed_replica_is_reported_to_its_reader_and_the_other_one_continues(both):
    started = threading.Barrier(2)

    def read(name):
        def meet(reading):
            if len(reading.trace.steps) == 2:
                started.wait(PATIENCE)
                if name == "killed":
                    os.kill(reading.process_id, signal.SIGKILL)

        return Reading(both, asking(name, 60), meet)

    with ThreadPoolExecutor(2) as pool:
        killed, survivor = pool.map(read, ("killed", "other"))
    assert killed.process_id != survivor.process_id
    assert killed.failure == words.RAY_WORKER_LOST
    assert len(killed.trace.steps) >= 2
    assert survivor.failure is None and survivor.trace.end_reason == "length"
    expected = tiny_generator().run("other", SamplingParams(max_new_tokens=60), tree=TreeConfig())
    assert survivor.trace.token_ids == expected.token_ids
    assert len(survivor.trace.steps) * STEP_SECONDS > 0.5
    after = Reading(both, asking("after", 8))
    assert after.failure is None and after.trace.end_reason == "length"


def test_a_relay_that_died_is_made_again_for_the_next_answer(device):
    ray.kill(device._relay)
    after = Reading(device, asking("after", 8))
    assert after.failure is None and after.trace.end_reason == "length"
    assert device.environment["device"] == "cpu"


def test_workers_pass_template_arguments_to_the_model(monkeypatch):
    from app.devices import ray_workers
    from app.devices.choose import device_for
    from jakiro import JakiroGenerator

    loads, options_of_loads = [], []
    monkeypatch.setattr(ray_workers, "application", lambda load, *_: loads.append(load))
    monkeypatch.setattr(JakiroGenerator, "from_pretrained", lambda **options: options_of_loads.append(options))
    ray_workers.build({"template_arguments": '{"enable_thinking": false}'})
    loads[0]()
    assert options_of_loads[0]["template_arguments"] == {"enable_thinking": False}
    with pytest.raises(ValueError, match="JSON object"):
        ray_workers.build({"template_arguments": "thinking"})
    load_options = LoadOptions(template_arguments='{"enable_thinking": false}')
    with pytest.raises(ValueError, match="pass template_arguments to the workers"):
        device_for("auto", load_options, object)
