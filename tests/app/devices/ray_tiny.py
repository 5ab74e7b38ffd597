"""Deploy two replicas of the tiny pair in a running Ray cluster; the test runs this module as a separate process.

Steps are slow, so that a test can act in the middle of an answer, and the device name in each header is the process
id of the replica.
"""

import os
import sys
import time

STEP_SECONDS = 0.1


def load():
    from tests.support import tiny_generator

    class Named(type(tiny_generator())):
        device_name = str(os.getpid())

    generator = tiny_generator()
    generator.__class__ = Named
    score = generator.target.score

    def slow_score(tree, cache):
        time.sleep(STEP_SECONDS)
        return score(tree, cache)

    generator.target.score = slow_score
    return generator


def main(address: str) -> None:
    import ray
    from ray import serve

    from app.devices.ray_workers import APPLICATION, application
    from tests.app.devices.ray_tiny import load as load_there

    ray.init(address)
    serve.start(proxy_location="Disabled")
    serve.run(application(load_there, 2, 2, {"num_cpus": 0.5}), name=APPLICATION, route_prefix=None)


if __name__ == "__main__":
    main(sys.argv[1])
