"""What a launch is told of its arrays, against what NumPy says of them."""

import numpy as np
import pytest

import mixad
from mixad.backends.array_memory import address_of
from mixad.backends.cpu import launch

X = np.arange(24.0).reshape(2, 3, 4)
FROZEN = X.copy()
FROZEN.flags.writeable = False


class Subclass(np.ndarray):
    """An array with a dictionary."""


ARRAYS = {
    "contiguous": X,
    "a part": X[1:, ::2],
    "transposed": X.T,
    "reversed": X[..., ::-1],
    "0-d": np.asarray(2.0),
    "not writeable": FROZEN,
    "broadcast": np.broadcast_to(X[0], X.shape),
    "of a subclass": X[1:].view(Subclass),
    "empty": X[2:],
    "of bytes": np.frombuffer(b"abc", np.uint8)[1:],
}


@pytest.mark.rows("name", ARRAYS)
def test_address_is_that_of_the_first_element(name):
    x = ARRAYS[name]
    assert address_of(x) == x.__array_interface__["data"][0]


def test_short_launches_run_in_the_thread_that_calls(monkeypatch):
    told = []
    run = launch.workers.run

    def counted(*arguments):
        told.append(arguments)
        run(*arguments)

    monkeypatch.setattr(launch.workers, "run", counted)
    twice = mixad.broadcast(lambda x: x + x)
    for size, is_told in ((20_000, False), (500_000, True), (20_000, False)):
        told.clear()
        x = np.linspace(0.0, 1.0, size)
        np.testing.assert_array_equal(twice(x), 2.0 * x)
        assert bool(told) == is_told
