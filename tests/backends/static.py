"""Tiny generators with static buffers, in small column steps so that short texts cross several."""

from unittest import mock

from jakiro.backends.cuda_graphs.backend import CudaGraphBackend
from jakiro.backends.cuda_graphs.pool import GraphPool
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, Methods
from jakiro.generator import JakiroGenerator
from tests.support import DEVICE, ScriptedDrafter, tiny_model, tiny_resources, tiny_target

SMALL_COLUMNS = 64
COSTS = DeviceProfile(((1, 10.0), (64, 12.0)), ((1, 0.1), (8, 0.4)))


def bucketed_target(numerics: str = "exact", vocab_size: int = 260):
    """Return a target that runs its passes as on a GPU."""
    with mock.patch("jakiro.models.weights.packing_works", lambda *_: False):
        target = tiny_target(numerics=numerics, vocab_size=vocab_size)
    return target.with_settings(bucketed=True)


def static_generator(
    head: str | None = "summed",
    numerics: str = "exact",
    graphs: bool = DEVICE.type == "cuda",
    measured: bool = False,
    tokens: int = 257,
    fewest_steps: int = 0,
    methods: Methods = METHODS,
) -> JakiroGenerator:
    """Return a generator like `tiny_generator`, with static buffers; `measured` enables automatic tree sizes."""
    resources = tiny_resources(bucketed_target(numerics), head, methods)
    if resources.head is not None:
        resources.head.fuse()
    return in_slots(resources, None, graphs, measured, tokens, fewest_steps, methods)


def static_scripted_generator(error_rate: float = 0.3, numerics: str = "exact", vocab_size: int = 260):
    """Return a generator like `scripted_generator`, with static buffers."""
    drafter = ScriptedDrafter(tiny_model(vocab_size=vocab_size), error_rate)
    resources = Resources(bucketed_target(numerics, vocab_size))
    return in_slots(resources, {DEFAULT.name: drafter}, DEVICE.type == "cuda")


def in_slots(
    resources: Resources,
    drafters: dict | None = None,
    graphs: bool = False,
    measured: bool = False,
    tokens: int = 257,
    fewest_steps: int = 0,
    methods: Methods = METHODS,
) -> JakiroGenerator:
    pool = GraphPool(resources.target, graphs, SMALL_COLUMNS, tokens, fewest_steps=fewest_steps)
    generator = JakiroGenerator(resources, drafters, backend=CudaGraphBackend(pool), methods=methods)
    if measured:
        generator.profile = COSTS
    return generator


def usual_drafters(generator: JakiroGenerator) -> list:
    """Return the drafters for which loading prepares buffers."""
    return [generator.drafter(method) for method in (PLAIN, DEFAULT)]


def shape_of(trace):
    """Return the parts of a trace in which two runs must agree: all nodes, accepted paths, the text and its end."""
    steps = [
        ([(node.token_id, node.parent, node.depth, node.proposer) for node in step.nodes], step.accepted_path)
        for step in trace.steps
    ]
    return steps, trace.token_ids, trace.text, trace.end_reason
