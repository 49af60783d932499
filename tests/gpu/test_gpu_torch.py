"""Streams, graphs and autograd of torch on a CUDA device."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mixad
from mixad.backends import integrations
from mixad.errors import TracerError

pytestmark = pytest.mark.gpu


@mixad.broadcast
def gated(x, gate):
    if x > 0.0:
        return x * gate * gate
    return 0.1 * x


def test_kernels_run_on_the_current_stream(torch):
    """A kernel on a side stream sees what that stream wrote before, without anyone waiting."""
    x, gate = torch.zeros(1 << 22, device="cuda"), torch.ones(1 << 22, device="cuda")
    gated(x, gate)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        y = gated(x, gate)
        z = y + 1.0
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(z, torch.full_like(z, 3.0))


def pulled_back(x, gate):
    value, gradients = mixad.value_and_vjp(gated, (x, gate), x)
    return [value, *gradients]


def of_a_sum(x, gate):
    value, gradients = mixad.value_and_grad(lambda x, g: (2.0 * gated(x, g)).sum(), (0, 1))(x, gate)
    return [value, *gradients]


def along(x, gate):
    return [mixad.hvp(lambda x: (gated(x, gate) * x).mean(), (x,), (gate,))]


CALLS = [pulled_back, of_a_sum, along]


@pytest.mark.filterwarnings("ignore:.*[sS]ynchronization.debug.mode")
@pytest.mark.parametrize("call", CALLS)
def test_nothing_waits_for_the_device(torch, call):
    x, gate = (torch.randn(64, 64, device="cuda") for _ in range(2))
    call(x, gate)
    try:
        torch.cuda.set_sync_debug_mode("error")
        call(x, gate)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_captured_in_a_graph_and_replayed_on_other_values(torch, call):
    x, gate = (torch.randn(300, 64, device="cuda") for _ in range(2))
    call(x, gate)  # compiled before
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call(x, gate)
    x.copy_(torch.randn_like(x))
    graph.replay()
    for a, b in zip(captured, call(x, gate), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:.*The CUDA Graph is empty")
def test_a_kernel_that_indexes_is_refused_in_a_graph(torch):
    table, k = torch.arange(5.0, device="cuda"), torch.tensor([0, 4], device="cuda")
    looked_up = mixad.broadcast(lambda k: table[k])
    looked_up(k)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(TracerError, match="cannot be captured"), torch.cuda.graph(graph):
        looked_up(k)
    torch.cuda.synchronize()
    assert looked_up(k).tolist() == [0.0, 4.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_have_the_bits_of_the_cpu(torch, dtype):
    x, gate = (torch.randn(50, 64).to(getattr(torch, dtype)) for _ in range(2))
    assert torch.equal(gated(x.cuda(), gate.cuda()).cpu(), gated(x, gate))


@pytest.fixture
def _in_torchs_autograd(torch):
    from mixad_torch.autograd import TorchIntegration

    integrations.LOADED.append(made := TorchIntegration())
    integrations.adopt("torch", made.kinds)
    yield
    integrations.LOADED.remove(made)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")
@pytest.mark.usefixtures("_in_torchs_autograd")
def test_gradients_flow_through_torchs_autograd_and_compiler(torch):
    leaves = [torch.randn(40, 64, device="cuda", requires_grad=True) for _ in range(2)]
    on_host = [t.detach().cpu().requires_grad_() for t in leaves]
    h, g = on_host
    torch.where(h > 0, h * g * g, 0.1 * h).sum().backward()
    for call in (gated, torch.compile(lambda x, gate: gated(x, gate), fullgraph=True)):
        gradients = torch.autograd.grad(call(*leaves).sum(), leaves)
        for a, b in zip(gradients, on_host, strict=True):
            torch.testing.assert_close(a.cpu(), b.grad)


def test_a_thread_that_has_asked_nothing_of_cuda_launches_a_kernel(torch):
    x = torch.randn(100, device="cuda")
    wanted, found = gated(x, x), []
    thread = threading.Thread(target=lambda: found.append(gated(x, x)))
    thread.start()
    thread.join()
    assert torch.equal(found[0], wanted)


def test_threads_share_a_kernel(torch):
    from concurrent.futures import ThreadPoolExecutor

    def run(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            generator = torch.Generator("cuda").manual_seed(seed)
            x = torch.rand(1000, device="cuda", generator=generator)
            for _ in range(20):
                y = gated(x, x)
            torch.cuda.current_stream().synchronize()
            return np.array_equal(y.cpu(), (x * x * x).cpu())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))
