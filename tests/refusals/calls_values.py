"""Calls that are refused: what is done with values that are being differentiated."""

import math
import os
from types import SimpleNamespace

import array_api_strict
import numpy as np
from refused import refused
from subjects import STRICT, X, inside, product

import mixad
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.backends.registry import PluginSource, Registry


@refused("""
TracerError: a value from inside mixad.grad is used after that call has ended: return it from the \
function (with has_aux=True if it is not the result)
""")
def refuse_use_after_the_end():
    kept = []
    mixad.grad(lambda x: kept.append(x) or x.sum())(X)
    kept[0] + 1


@refused("""
TracerError: float() of a value that is being differentiated would lose its derivative: keep it as \
an array, use np.exp(x) for math.exp(x), and write it (out[i] = x) into an array made with \
np.zeros_like(x) or np.zeros(n, like=x), or say mixad.stop_gradient(x) if that is meant
""")
def refuse_float():
    mixad.grad(lambda x: math.exp(x))(1.0)


@refused("""
TracerError: complex() of a value that is being differentiated would lose its derivative: keep it \
as an array, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_complex_number():
    mixad.grad(lambda x: complex(x))(1.0)


@refused("""
TracerError: item() of a value that is being differentiated would lose its derivative: keep it as \
an array, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_item():
    mixad.grad(lambda x: x.item())(1.0)


@refused("""
TracerError: tolist() of a value that is being differentiated would lose its derivative: keep it \
as an array, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_list():
    inside(lambda x: x.tolist())


@refused("""
TracerError: numbers cannot be written to (x[key] = value): make the new array from its parts, \
with where(), concat() or stack()
""")
def refuse_assignment_to_a_number():
    def operation(x):
        x[()] = 1.0

    mixad.grad(operation)(2.0)


@refused("""
TracerError: an array that shares memory with another one is used after that was written to: \
traced views do not follow writes; write to the array itself (x[0, 1] = y, not x[0][1] = y), take \
views after the last write, or copy the part first (x[1:] * 1)
""")
def refuse_view_of_what_was_written():
    def operation(x):
        x[0:][0] = 1.0
        return x.sum()

    inside(operation)


@refused("""
KernelShapeError: x += y with x of shape (3,) would have shape (2, 3)
  Instead: write x = x + y
""")
def refuse_change_in_place_to_another_shape():
    def operation(x):
        x += np.ones((2, 3))
        return x.sum()

    inside(operation)


@refused("""
KernelTypeError: x += y with x of dtype array_api_strict.float32 would have dtype \
array_api_strict.float64
  Instead: write x = x + y
""")
def refuse_change_in_place_to_another_dtype():
    def operation(x):
        x += mixad.stop_gradient(STRICT)
        return x.sum()

    mixad.grad(operation)(array_api_strict.ones(3, dtype=array_api_strict.float32))


@refused("""
TracerError: writing a value that is being differentiated into an array (+=, out=, a[i] = x, \
np.add.at, methods that end in _) would lose its derivative: make the array with zeros_like(x), \
which takes such values, or a new one, total = total + x instead of total += x
""")
def refuse_adding_into_an_array():
    def operation(x):
        total = np.zeros(3)
        total += x
        return total.sum()

    inside(operation)


@refused("""
TracerError: numpy.subtract.accumulate() of a value that is being differentiated is not available \
yet: write it with operators, indexing, sum, mean, reshape, matmul, functions of one element such \
as exp, or a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative \
is meant
""")
def refuse_method_of_ufunc():
    inside(lambda x: np.subtract.accumulate(x).sum())


@refused("""
NoRuleError: numpy.polyfit() of a value that is being differentiated is not available yet: write \
it with operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or \
a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative is meant
""")
def refuse_function():
    inside(lambda x: np.polyfit(x, x, 1))


@refused("""
AttributeError: 'byteswap' of a value that is being differentiated is not available yet: write it \
with operators, indexing, sum, mean and functions decorated with @mixad.broadcast, or say \
mixad.stop_gradient(x).byteswap if no derivative is meant
""")
def refuse_method():
    inside(lambda x: x.byteswap().sum())


@refused("""
TracerError: conversion to a NumPy array of a value that is being differentiated would lose its \
derivative: use its own operators and methods, np.stack([x, y]) in place of the list [x, y], and \
np.concatenate in place of np.r_ and np.c_, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_function_that_makes_an_array():
    inside(lambda x: np.asarray(x).sum())


@refused("""
NoRuleError: numpy.var() of a value that is being differentiated has no argument 'mean': it takes \
axis, dtype, ddof, keepdims, where, correction; write what it does with other functions, or say \
mixad.stop_gradient(x) if no derivative is meant
""")
def refuse_option():
    inside(lambda x: np.var(x, mean=0.5))


@refused("""
NoRuleError: mean() takes at most 5 positional arguments here, 9 were given: write what it does \
with other functions, or say mixad.stop_gradient(x) if no derivative is meant
""")
def refuse_too_many_arguments():
    inside(lambda x: x.mean(0, None, None, False, 1, 2, 3, 4))


@refused("""
TracerError: a str beside a value that is being differentiated: convert it to an array first
""")
def refuse_operand():
    inside(lambda x: np.add(x, "text").sum())


@refused("""
TracerError: an array that is being differentiated cannot be indexed by a str: use whole numbers, \
slices, ..., None, and arrays of whole numbers or booleans
""")
def refuse_index():
    inside(lambda x: x["rows"].sum())


@refused("""
TracerError: reshape() of a value that is being differentiated takes no order='A', since its order \
in memory is not known: use 'C' or 'F'
""")
def refuse_order_of_reshape():
    inside(lambda x: x.reshape((3, 1), order="A").sum())


@refused("""
TracerError: mean(dtype=<class 'numpy.int64'>): a mean is computed in a float dtype: pass one, or \
leave dtype out
""")
def refuse_dtype_of_mean():
    inside(lambda x: np.mean(x, dtype=np.int64))


@refused("""
AttributeError: 'flat' of a value that is being differentiated is not available: use x.reshape(-1)
""")
def refuse_attribute():
    inside(lambda x: x.flat)


@refused("""
TracerError: assignment destination is read-only: an array is changed in place that mixad.grad has \
yet to read, since what is computed with it is recorded and carried out later: change a copy of \
it, or make a new array each time
""")
def refuse_change_of_what_is_needed():
    x = X.copy()

    def loss(w):
        found = (w * x * w).sum()
        x[0] = 9.0
        return found

    os.environ["MIXAD_CHECK"] = "full"
    try:
        mixad.grad(loss)(X)
    finally:
        del os.environ["MIXAD_CHECK"]


@refused("""
TracerError: matmul mixes arrays of numpy and of array_api_strict: convert one of them before the \
function that is differentiated, such as by array_api_strict.asarray
""")
def refuse_libraries_in_an_operation():
    inside(lambda x: (x @ STRICT).sum())


@refused("""
KernelTypeError: add of f64 and i32 is refused by array_api_strict
  Instead: convert one of them: x.astype(dtype)
""")
def refuse_mixture_by_the_library():
    mixad.grad(lambda x: (x + array_api_strict.ones(3, dtype=array_api_strict.int32)).sum())(STRICT)


@refused("""
KernelTypeError: astype(float64) of an array of dtype complex128 would lose its imaginary part
  Instead: take a part first: x.real, x.imag, abs(x)
""")
def refuse_complex_to_real():
    mixad.grad(lambda x: x.astype(float).sum())(X + 1j)


@refused("""
KernelTypeError: x[key] = y with x of dtype float64 and y of dtype complex128 would lose the \
imaginary part
  Instead: take a part first: y.real, y.imag, abs(y)
""")
def refuse_complex_into_real():
    def loss(x):
        x = x * 1
        x[0] = x[1] * 1j
        return x.sum()

    mixad.grad(loss)(X)


@refused("""
TracerError: an array that is being differentiated cannot be indexed by another one: use whole \
numbers, slices, ..., None, and arrays of whole numbers or booleans
""")
def refuse_an_index_that_is_traced():
    inside(lambda x: x[x[0]])


@refused("""
TracerError: complex() of a value that is being differentiated would lose its derivative: keep it \
as an array, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_conversion_to_complex():
    inside(lambda x: complex(x[0]))


@refused("""
TracerError: round() to digits of a value that is being differentiated would lose its derivative: \
scale it and use np.round(x), or say mixad.stop_gradient(x) if that is meant
""")
def refuse_rounding_to_digits():
    inside(lambda x: round(x[0], 2))


@refused("""
TracerError: tolist() of a value that is being differentiated would lose its derivative: keep it \
as an array, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_lists_of_numbers():
    inside(lambda x: sum(x.tolist()))


@refused("""
TracerError: DLPack export of a value that is being differentiated would lose its derivative: use \
its own operators and methods, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_export():
    inside(np.from_dlpack)


@refused("""
TracerError: pickling of a value that is being differentiated would lose its derivative: return it \
from the function that is differentiated, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_pickling():
    import pickle

    inside(pickle.dumps)


@refused("""
TracerError: an array that a transform was given, of shape (20000,) and dtype float64, was changed \
in place while a derivative still needed the elements it had: change a copy of it, or change it \
when the last gradient that uses it is there
""")
def refuse_change_between_passes():
    x = np.ones(20_000)  # pullbacks of small arrays hold copies
    _, pullback = mixad.vjp(lambda x: (x * x).sum(), x)
    x[:] = 5.0
    pullback(1.0)


@refused("""
TracerError: choose() of a value that is being differentiated is not available yet: write it with \
operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or a \
function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative is meant
""")
def refuse_method_of_a_constant():
    inside(lambda x: np.ones(3, like=x).choose([x, x]).sum())


@refused("""
KernelTypeError: <lambda> cannot be pickled: 'lock', a value from outside, is a lock (cannot \
pickle '_thread.lock' object)
  Instead: pass it as an argument, or define the function in a module that can be imported
""")
def refuse_pickle_of_a_lock():
    import pickle
    import threading

    lock = threading.Lock()
    pickle.dumps(mixad.broadcast(lambda x: x * lock.factor))


@refused("""
TracerError: <lambda>: 'x', a value from outside: pickling of a value that is being differentiated \
would lose its derivative: return it from the function that is differentiated, or say \
mixad.stop_gradient(x) if that is meant
""")
def refuse_pickle_of_a_traced_value():
    import pickle

    inside(lambda x: pickle.dumps(mixad.broadcast(lambda y: x * y)))


@refused("""
TracerError: std() got 'correction' twice, by place or by another name: leave out one
""")
def refuse_argument_under_two_names():
    inside(lambda x: x.std(ddof=1, correction=1).sum())


@refused("""
TracerError: linalg.qr(mode='raw') of a value that is being differentiated is not available, since \
it returns how the factors are stored: use mode='reduced', or mode='r'
""")
def refuse_factors_as_they_are_stored():
    mixad.grad(lambda x: np.linalg.qr(x, mode="raw")[1].sum())(np.ones((2, 2)))


def _registry(load, **options):
    """Return a registry of one backend, for float64 arrays of NumPy on the CPU."""
    capability = Capability(("numpy",), ("cpu",), frozenset({"float64"}), native=True)
    spec = BackendSpec("abacus", API_VERSION, capability, load, "install abacus-beads")
    plugin = SimpleNamespace(mixad_backends=hookimpl(lambda: [spec]))
    return Registry([PluginSource("abacus", "dist-abacus 1.0", lambda: plugin)], **options)


class Beads:
    """A backend that cannot do anything yet."""

    name = "abacus"

    def emit(self, spec):
        raise NotImplementedError("there are no beads")

    compile = bind = launch = emit


def _with_beads(**methods):
    """Let a plugin be all that is installed."""
    from unittest import mock

    own = _registry(type("Own", (Beads,), methods))
    return mock.patch("mixad.backends.registry.default_registry", return_value=own)


@refused("""
BackendError: 'abacus' of the plugin 'abacus' (dist-abacus 1.0) raised NotImplementedError at the \
compilation of <lambda>: there are no beads; leave it out: MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_backend_that_does_not_compile():
    with _with_beads():
        mixad.broadcast(lambda x: 2.0 * x).with_options(backend="abacus")(X)


@refused("""
BackendError: 'abacus' of the plugin 'abacus' (dist-abacus 1.0) returned 0 results from a launch \
of <lambda>, expected 1; leave it out: MIXAD_BACKEND_BLOCK=abacus
""")
def refuse_backend_that_returns_too_little():
    nothing = dict.fromkeys(("compile", "bind", "launch"), lambda *_: ())
    with _with_beads(**nothing):
        mixad.broadcast(lambda x: 2.0 * x).with_options(backend="abacus")(X)


@refused("""
BackendError: no backend serves float64 arrays of numpy on cpu
  'abacus' of the plugin 'abacus' (dist-abacus 1.0) raised NotImplementedError at the compilation \
of <lambda>: there are no beads; leave it out: MIXAD_BACKEND_BLOCK=abacus
  run `python -m mixad doctor` for what is installed
""")
def refuse_where_the_only_backend_fails():
    with _with_beads():
        mixad.broadcast(lambda x: 2.0 * x)(X)


class Coordinates:
    """What has a namespace as the standard has it, and no memory."""

    shape, ndim, size, dtype, device = (2,), 1, 2, np.dtype("f8"), "cpu"

    def __array_namespace__(self, api_version=None):
        return array_api_strict

    def todense(self):
        return STRICT


@refused("""
KernelTypeError: product: argument 'x': Coordinates is not supported: it has no memory with an \
element for each index
  Instead: convert it: x.todense()
""")
def refuse_array_without_memory():
    product(Coordinates(), 2.0)


class Later(Coordinates):
    """A lazy array of a library that nobody knows."""

    def compute(self):
        return STRICT


@refused("""
KernelTypeError: product: argument 'x': Later is not supported: its elements are not there yet, \
and of lazy arrays kernels take Dask's and Cubed's
  Instead: let calls_values call the kernel on blocks: map_blocks(f, x, dtype=x.dtype)
""")
def refuse_lazy_array_of_another_library():
    product(Later(), 2.0)
