"""Calls that are refused: options, backends, lazy arrays."""

import os
from types import SimpleNamespace

import numpy as np
from refused import refused
from subjects import X, product, squares

import mixad
from mixad import config, special
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.backends.registry import PluginSource, Registry
from mixad.errors import BackendError


@refused("""
KernelTypeError: mixad.special.sin does not take complex64
  Instead: convert it, such as by float(x)
""")
def refuse_dtype_for_special_function():
    special.sin(np.complex64(1.0))


@refused("""
ConfigurationError: strategy must be one of 'auto', 'forward', 'reverse', not 'fast'
""")
def refuse_strategy():
    mixad.broadcast(strategy="fast")


@refused("""
KernelGradientError: the derivative of power cannot be computed in reverse: this loop has partials
  File "...", line 5, column 9
    for _ in range(n):
    ^^^^^^^^^^^^^^^^^^
  Instead: strategy="forward", or "auto", which takes dual numbers through loops
""")
def refuse_reverse_through_a_loop():
    @mixad.broadcast(strategy="reverse")
    def power(x, n):
        result = 1.0
        for _ in range(n):
            result *= x
        return result

    mixad.grad(lambda x: power(x, np.asarray([1, 2, 3])).sum())(X.copy())


@refused("""
ConfigurationError: placement must be one of 'auto', 'forward', 'reverse', not 'backward'
""")
def refuse_placement():
    product.with_options(placement="backward")


@refused("""
ConfigurationError: placement='forward' with strategy='reverse': partials are computed with the \
values by dual numbers alone; leave one of both at 'auto'
""")
def refuse_placement_with_strategy():
    product.with_options(strategy="reverse").with_options(placement="forward")


@refused("""
ConfigurationError: chunk must be None or an int from 1 to 10, not 11
""")
def refuse_chunk():
    product.with_options(chunk=11)


@refused("""
ConfigurationError: backend must be None or the name of a backend, such as 'cpu', not ''
""")
def refuse_empty_backend():
    product.with_options(backend="")


@refused("""
ConfigurationError: environment variable MIXAD_NUM_THREADS='many': expected a whole number from 1 \
to 4096; unset it to get the default
""")
def refuse_variable():
    os.environ["MIXAD_NUM_THREADS"] = "many"
    try:
        config.NUM_THREADS.read()
    finally:
        del os.environ["MIXAD_NUM_THREADS"]


def _registry(load, **options):
    """Return a registry of one backend, for float64 arrays of NumPy on the CPU."""
    capability = Capability(("numpy",), ("cpu",), frozenset({"float64"}), native=True)
    spec = BackendSpec("abacus", API_VERSION, capability, load, "install abacus-beads")
    plugin = SimpleNamespace(mixad_backends=hookimpl(lambda: [spec]))
    return Registry([PluginSource("abacus", "dist-abacus 1.0", lambda: plugin)], **options)


def _without_beads():
    raise BackendError("no beads on this machine")


@refused("""
BackendError: no backend is named 'bead': use one of abacus, or install its plugin
""")
def refuse_backend_that_is_not_there():
    _registry(_without_beads).backend("bead")


@refused("""
BackendError: backend 'abacus' (plugin 'abacus' (dist-abacus 1.0)) cannot serve: no beads on this \
machine; install abacus-beads; leave it out: MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_backend_that_fails():
    _registry(_without_beads).backend("abacus")


@refused("""
BackendError: backend 'abacus' is blocked: take it out of MIXAD_BACKEND_BLOCK
""")
def refuse_blocked_backend():
    _registry(_without_beads, block=frozenset({"abacus"})).backend("abacus")


@refused("""
BackendError: backend 'abacus' is not allowed: add it to MIXAD_BACKEND_ALLOW
""")
def refuse_backend_that_is_not_allowed():
    _registry(_without_beads, allow=frozenset({"cpu"})).backend("abacus")


@refused("""
BackendError: no backend serves float64 arrays of numpy on cpu
  backend 'abacus' (plugin 'abacus' (dist-abacus 1.0)) cannot serve: no beads on this machine; \
install abacus-beads; leave it out: MIXAD_BACKEND_BLOCK=abacus
  run `python -m mixad doctor` for what is installed
""")
def refuse_where_none_serves():
    _registry(_without_beads).resolve("numpy", "cpu", frozenset({"float64"}))


@refused("""
BackendError: no backend serves float64 and int8 arrays of numpy on cpu
  run `python -m mixad doctor` for what is installed
""")
def refuse_dtype_that_none_serves():
    _registry(_without_beads).resolve("numpy", "cpu", frozenset({"float64", "int8"}))


@refused("""
BackendError: backend 'abacus' does not compute in float32: convert the arrays, or name no backend
""")
def refuse_dtypes_of_a_backend():
    _registry(_without_beads).backend("abacus", frozenset({"float32"}))


def dask_array():
    import dask.array

    return dask.array.ones(3)


@refused("""
TracerError: bool() of a lazy dask array would compute all that it depends on: write numpy.where() \
for a choice between arrays, a function decorated with @mixad.broadcast for one at every element, \
or compute the value before the function that is differentiated
""")
def refuse_dask_elements():
    mixad.grad(lambda x: x.sum() if x[0] > 0 else -x.sum())(dask_array())


@refused("""
KernelTypeError: mixad.grad: argument 0: a Dask array whose shape is not known before it is \
computed is not supported
  Instead: write numpy.where() in place of x[mask]; call x.compute_chunk_sizes() before
""")
def refuse_dask_arrays_of_unknown_shape():
    x = dask_array()
    mixad.grad(squares)(x[x > 0])


@refused("""
TracerError: a loop of steps mixes arrays of numpy and of dask: convert one of them before the \
function that is differentiated, such as by dask.array.asarray
""")
def refuse_a_loop_over_numpys_arrays_beside_dasks():
    x = dask_array()
    mixad.grad(lambda w: (x * mixad.map(lambda a: a * a, w)).sum())(np.ones(3))


@refused("""
TracerError: assignment mixes arrays of numpy and of dask: convert one of them before the function \
that is differentiated, such as by dask.array.asarray
""")
def refuse_to_write_a_lazy_number_into_an_array_of_numpy():
    x = dask_array()

    def loss(w):
        w[0] = x.sum()
        return w.sum()

    mixad.grad(loss)(np.ones(3))


@refused("""
TracerError: this needs the elements of a lazy array, which nothing here computes behind your \
back: call .compute() on the array before the function that is differentiated
""")
def refuse_dask_arrays_on_another_backend():
    product.with_options(backend="cpu")(dask_array(), 2.0)


@refused("""
KernelTypeError: product: kinks are counted among elements, and the array 'x' has none before it \
is computed
  Instead: pass x.compute()
""")
def refuse_kinks_of_dask_arrays():
    import dask.array

    lazy = dask.array.ones(3)
    product.kinks(lazy, lazy)


@refused("""
BackendError: backend 'abacus' (plugin 'abacus' (dist-abacus 1.0)) cannot serve: its factory \
returned None, which lacks emit, compile, bind, launch of a backend; install abacus-beads; leave \
it out: MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_factory_that_returns_nothing():
    _registry(lambda: None).backend("abacus")


class Beads:
    """A backend that cannot do anything yet."""

    name = "abacus"

    def emit(self, spec):
        raise NotImplementedError("there are no beads")

    compile = bind = launch = emit


@refused("""
BackendError: backend 'abacus' (plugin 'abacus' (dist-abacus 1.0)) cannot serve: its factory \
returned a backend with the name 'beads'; install abacus-beads; leave it out: \
MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_backend_of_another_name():
    _registry(type("Other", (Beads,), {"name": "beads"})).backend("abacus")


@refused("""
BackendError: backend 'abacus' (plugin 'abacus' (dist-abacus 1.0)) cannot serve: its factory \
returned a backend with describe = {}: see `Backend`; install abacus-beads; leave it out: \
MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_backend_whose_method_is_none():
    _registry(type("Described", (Beads,), {"describe": {}})).backend("abacus")


def _dask_array_of(blocks, **options):
    import dask.array as da

    return da.ones(4, chunks=2).map_blocks(blocks, dtype="f8", **options)


@refused("""
KernelTypeError: product: argument 'x': a Dask array of blocks that are numpy.ma.MaskedArray is \
not supported: kernels compute on blocks that are NumPy arrays, and results would be such
  Instead: pass values and mask as two arrays: x.map_blocks(lambda x: numpy.ma.filled(x)) and \
x.map_blocks(lambda x: numpy.ma.getmaskarray(x))
""")
def refuse_dask_array_of_masked_blocks():
    product(_dask_array_of(np.ma.asarray), 2.0)


@refused("""
KernelTypeError: product: argument 'x': a block of a lazy array is a numpy.ma.MaskedArray: kernels \
compute on blocks that are NumPy arrays, and results would be such
  Instead: pass values and mask as two arrays: x.map_blocks(lambda x: numpy.ma.filled(x)) and \
x.map_blocks(lambda x: numpy.ma.getmaskarray(x))
""")
def refuse_dask_array_whose_block_is_masked():
    product(_dask_array_of(np.ma.asarray, meta=np.empty(0)), 2.0).compute(scheduler="sync")
