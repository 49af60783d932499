"""Calls that are refused: of kernels, with their options, vectors and structures."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
from refused import refused
from subjects import STRICT, X, inside, product

import mixad
from mixad import special


@refused("""
KernelTypeError: product: argument 'y' is a str
  Instead: read it from outside of the function, or from a static field of a dataclass
""")
def refuse_argument():
    product(X, "text")


@refused("""
KernelTypeError: product: argument 'y': kernels do not compute in dtype datetime64[s]
  Instead: convert it to one of bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, \
float32, float64, float16, bfloat16
""")
def refuse_dates():
    product(X, np.zeros(3, "M8[s]"))


@refused("""
KernelTypeError: <lambda>: a value from outside: kernels do not compute in dtype complex256
  Instead: convert it to complex128
""")
def refuse_captured_array_of_long_complex():
    z = (X + 1j).astype("clongdouble")
    mixad.broadcast(lambda x: x * z)(X)


@refused("""
KernelTypeError: product: argument 'y': kernels do not compute in dtype >f8
  Instead: convert it to the byte order of this machine: x.astype('float64')
""")
def refuse_byte_order():
    product(X, X.astype(">f8"))


@refused("""
KernelTypeError: product: argument 'y': refuse_subclass_of_array.<locals>.Masked is not supported: \
it is more than an array, and results would be plain arrays
  Instead: convert it: numpy.asarray(x)
""")
def refuse_subclass_of_array():
    class Masked(np.ndarray):
        pass

    product(X, X.view(Masked))


@refused("""
KernelShapeError: product: the shapes of the arguments do not broadcast: x (3,), y (2,)
  Instead: add axes of extent 1, or reshape, so that axes agree from the last one on
""")
def refuse_shapes():
    product(X, np.ones(2))


@refused("""
KernelTypeError: arguments of one call are arrays of numpy on cpu and array_api_strict on cpu: \
convert them to one library and device
""")
def refuse_libraries():
    product(X, STRICT)


@refused("""
KernelTypeError: f64 and i32 do not mix here
  File "...", line 2 of product, column 12
    return x * y
           ^^^^^
  Instead: convert one of them, for instance with float(...)
""")
def refuse_mixture_of_kinds():
    product(STRICT, array_api_strict.ones(3, dtype=array_api_strict.int32))


@refused("""
KernelTypeError: product: argument 'y' is 1180591620717411303424, which int64 does not hold
  Instead: pass a float
""")
def refuse_large_integer():
    product(X, 2**70)


HUGE = 2**70


@refused("""
KernelOverflowError: Python integer 1180591620717411303424, the value of 'HUGE', out of bounds for \
int64
  File "...", line 2, column 35
    mixad.broadcast(lambda x: x * HUGE)(X)
                                  ^^^^
  Instead: a float, 1.1805916207174113e+21, for a result of floats
""")
def refuse_large_integer_from_outside():
    mixad.broadcast(lambda x: x * HUGE)(X)


@refused("""
KernelGradientError: product: the gradient of the array 'table' is not available where a loop \
reads it and does more with what was read than adding it up
  File "...", line 7, column 33
    total = total * table[k]
                    ^^^^^^^^
  Instead: a sum, s += ..., that the loop only adds to, a loop over a tuple, for k in (0, 1), \
which is written out, or mixad.stop_gradient of table before the call if no derivative is meant
""")
def refuse_gradient_of_array_in_a_loop():
    def loss(table):
        @mixad.broadcast
        def product(n):
            total = 1.0
            for k in range(n):
                total = total * table[k]
            return total

        return product(np.asarray([1, 2])).sum()

    mixad.grad(loss)(X)


@refused("""
KernelGradientError: <lambda>: the gradient of the array 'table', which is read by index, is not \
available with stored partials
  File "...", line 3, column 42
    return mixad.broadcast(lambda i: table[i], placement="forward")(np.asarray([0, 1])).sum()
                                     ^^^^^^^^
  Instead: leave out placement="forward"
""")
def refuse_stored_partials_of_array():
    def loss(table):
        return mixad.broadcast(lambda i: table[i], placement="forward")(np.asarray([0, 1])).sum()

    mixad.grad(loss)(X)


@refused("""
KernelGradientError: read: there are no partials with respect to 'table', an array that is read by \
index: each element reads others of it
  Instead: take its gradient with mixad.grad, vjp or jvp, or pass what is read of it
""")
def refuse_partials_of_array():
    def read(table: mixad.Array, i):
        return table[i]

    mixad.broadcast(read).duals(X, np.asarray([0, 1]), wrt="table")


@refused("""
KernelTypeError: read: argument 'table' is annotated as mixad.Array, and is a float
  Instead: pass an array with axes, or leave out the annotation
""")
def refuse_number_as_whole_array():
    def read(table: mixad.Array, i):
        return table[i]

    mixad.broadcast(read)(2.0, np.asarray([0, 1]))


@refused("""
KernelGradientError: the derivative of polygamma with respect to its argument 1 is not available
  File "...", line 3, column 63
    return mixad.grad(lambda n: mixad.broadcast(lambda n: special.polygamma(n, 2))(n).sum())(x)
                                                          ^^^^^^^^^^^^^^^^^^^^^^^
  Instead: a number for it, or mixad.stop_gradient of it if no derivative is meant
""")
def refuse_missing_derivative():
    def slope(x):
        return mixad.grad(lambda n: mixad.broadcast(lambda n: special.polygamma(n, 2))(n).sum())(x)

    slope(X)


@refused("""
KernelIndexError: <lambda>, element (1,): index 5 is outside 'table' of shape (2,)
  File "...", line 3, column 35
    mixad.broadcast(lambda i: 1 + table[i] * 2)(np.asarray([0, 5]))
                                  ^^^^^^^^
  Instead: read it under an `if`, or clip the index
""")
def refuse_index_in_a_lambda():
    table = np.asarray([1.0, 2.0])
    mixad.broadcast(lambda i: 1 + table[i] * 2)(np.asarray([0, 5]))


@refused("""
KernelGradientError: product: wrt names 'z', not among the floats of this call
  Instead: name some of 'x', 'y'
""")
def refuse_unknown_wrt():
    product.duals(X, X, wrt="z")


@refused("""
KernelGradientError: product: wrt names 'y', not among the floats of this call
  Instead: name some of 'x'
""")
def refuse_wrt_of_integers():
    product.duals(X, np.arange(3), wrt="y")


@refused("""
KernelGradientError: <lambda>: duals with respect to 11 inputs; a dual chunk carries at most 10 \
partials
  Instead: call jacobian, which takes any number, or duals with fewer names in wrt
""")
def refuse_too_many_duals():
    many = mixad.broadcast(lambda a, b, c, d, e, f, g, h, i, j, k: a * b * c * d * e * f * g)
    many.duals(*(X,) * 11)


@refused("""
KernelTypeError: mixad.special.sin takes numbers, got ndarray
  Instead: call it in a function decorated with @mixad.broadcast
""")
def refuse_array_for_special_function():
    special.sin(X)


@refused("""
KernelTypeError: mixad.special.sin takes 1 arguments, got 2
  Instead: write sin(x)
""")
def refuse_number_of_arguments_for_special_function():
    special.sin(1.0, 2.0)


@refused("""
KernelGradientError: product: partials with respect to 'x', which is complex, are no numbers
  Instead: name its parts, 'x.real' and 'x.imag'; mixad.grad, vjp and jvp take complex numbers
""")
def refuse_duals_of_a_complex_argument():
    product.duals(X + 1j, X, wrt="x")


@refused("""
KernelSyntaxError: <ufunc 'sin'> is not a Python function, so it has no source to compile
  Instead: wrap the call in a function of your own
""")
def refuse_kernel_of_a_ufunc():
    mixad.broadcast(np.sin)


@refused("""
KernelSyntaxError: sigmoid has no source to compile, it is one op
  Instead: write mixad.broadcast(lambda x: sigmoid(x))
""")
def refuse_kernel_of_an_op():
    mixad.broadcast(special.sigmoid)


@refused("""
TracerError: scaled reads 'scale' from outside, and a compiled graph would not see other values \
later: pass 'scale' as arguments
""")
def refuse_captures_in_a_compiled_graph():
    scale = 2.0

    @mixad.broadcast
    def scaled(x):
        return x * scale

    from mixad.broadcast.graph_calls import call_in_graph

    call_in_graph(scaled._number, (X,), {})


@refused("""
BackendError: a graph calls the kernel 'squares.1', which was recorded in another process: record \
the graph again
""")
def refuse_a_graph_of_another_process():
    from mixad.tape.named_call import named_call

    named_call("squares.1")


@refused("""
AuditError: product, element (0): the backend 'abacus' computed 2.0 where the interpreter computes \
1.0, as output 0 for x = 1.0, y = 1.0
  File "...", line 2 of product, column 5
    return x * y
    ^^^^^^^^^^^^
  Instead: report it; backend="reference" computes it without that backend
""")
def refuse_what_a_backend_computes_wrongly():
    from mixad.backends.audit import Audit
    from mixad.kernel.spec import OutputRequest

    program = product._parse((X, X), {})[0].program
    stored = (OutputRequest(0, 0),)
    audit = Audit((program,), stored, X.shape, "abacus", 1.0, lambda _, arguments: arguments[:1])
    audit([X, X], [X + X])


@refused("""
KernelGradientError: <lambda>: a Jacobian of results of float64, bool; one array takes floats of \
one type
  Instead: call duals, which returns arrays of their own, or convert results in the function
""")
def refuse_jacobian_of_several_types():
    mixad.broadcast(lambda x: (x, x > 0.0)).jacobian(X)


@refused("""
KernelGradientError: <lambda>: a Jacobian with respect to no inputs
  Instead: pass floats, or name some in wrt
""")
def refuse_jacobian_by_nothing():
    mixad.broadcast(lambda n: n * 1.5).jacobian(np.arange(3))


@refused("""
KernelGradientError: product: partials of complex values are no numbers
  Instead: return their parts, z.real and z.imag; mixad.vjp and jvp take complex values
""")
def refuse_duals_of_complex_values():
    product.duals(X + 1j, X, wrt="y")


@mixad.broadcast(signature="(n),(n)->()")
def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@refused("""
ConfigurationError: signature='n,n->1' is none: write one such as "(3),(n),()->(n)": a core in \
parentheses for each argument and result
""")
def refuse_signature_that_is_none():
    dot.with_options(signature="n,n->1")


@refused("""
ConfigurationError: signature must be None or text, such as '(3),()->(3)', not 3
""")
def refuse_signature_of_another_type():
    dot.with_options(signature=3)


@refused("""
ConfigurationError: signature='(0),(n)->()': '0' is no length: write a number from 1 or a name, \
such as "(3),(n),()->(n)": a core in parentheses for each argument and result
""")
def refuse_signature_with_no_length():
    dot.with_options(signature="(0),(n)->()")


@refused("""
ConfigurationError: signature='(3),(n)->(m)': no argument has the length 'm' of a result: write a \
number for it
""")
def refuse_signature_of_an_unknown_length():
    dot.with_options(signature="(3),(n)->(m)")


@refused("""
ConfigurationError: signature='(3)->()' has 1 arguments, dot has 2 parameters: write one core for \
each, () for a number
""")
def refuse_signature_of_other_parameters():
    dot.with_options(signature="(3)->()")(X, X)


@refused("""
KernelTypeError: dot: argument 'b' has shape (2,), the signature takes its last axis as (n), where \
n is 3
  Instead: pass an array whose last axes fit
""")
def refuse_vector_of_another_length():
    dot(X, X[:2])


@refused("""
KernelTypeError: dot: argument 'b' has shape (), the signature takes its last axis as (n)
  Instead: pass an array with these axes, or a sequence of numbers
""")
def refuse_vector_without_its_axis():
    dot(X, 2.0)


@refused("""
KernelTypeError: dot: argument 'a': a sequence stands for an array of the core (n)
  Instead: pass an array, or one sequence in another for each of its axes
""")
def refuse_vector_of_rows():
    dot([[1.0, 2.0], [3.0, 4.0]], X)


@refused("""
KernelTypeError: dot: argument 'a': rows of several lengths
  Instead: pass rows of one length
""")
def refuse_matrix_of_uneven_rows():
    dot.with_options(signature="(2,n),(n)->()")([[1.0, 2.0], [3.0]], X)


@refused("""
KernelTypeError: dot: argument 'a' is a sequence that is too long: the cores of all arguments have \
more than 64 elements
  Instead: pass an array: a long one is read by index
""")
def refuse_vectors_that_are_too_long():
    dot([1.0] * 65, np.ones(65))


@refused("""
KernelTypeError: `for` runs over range(...) or a constant tuple, not over an array of f64 that is \
read by index, as its core is too long to be variables
  File "...", line 4, column 18
    for v in a:
             ^
  Instead: for i in range(n), and a[i] in the loop, with n an argument
""")
def refuse_loop_over_long_vector():
    def total(a):
        s = 0.0
        for v in a:
            s += v
        return s

    mixad.broadcast(signature="(n)->()")(total)(np.ones(65))


@refused("""
KernelTypeError: `sum` takes a tuple here, got array of f64 that is read by index, as its core is \
too long to be variables
  File "...", line 2, column 52
    mixad.broadcast(signature="(n)->()")(lambda a: sum(a))(np.ones(65))
                                                   ^^^^^^
  Instead: a loop over range(n), and a[i] in the loop, with n an argument
""")
def refuse_sum_of_long_vector():
    mixad.broadcast(signature="(n)->()")(lambda a: sum(a))(np.ones(65))


@refused("""
KernelTypeError: `len` takes a tuple here, got array of f64 that is read by index, as its core is \
too long to be variables
  File "...", line 2, column 59
    mixad.broadcast(signature="(n)->()")(lambda a: a[0] / len(a))(np.ones(65))
                                                          ^^^^^^
  Instead: pass the length of a as an argument
""")
def refuse_length_of_long_vector():
    mixad.broadcast(signature="(n)->()")(lambda a: a[0] / len(a))(np.ones(65))


@refused("""
KernelTypeError: 'a' is an array of f64 that is read by index, as its core is too long to be \
variables here: it has no attribute 'shape'
  File "...", line 2, column 59
    mixad.broadcast(signature="(n)->()")(lambda a: a[0] / a.shape[0])(np.ones(65))
                                                          ^^^^^^^
  Instead: pass its lengths as arguments
""")
def refuse_shape_of_long_vector():
    mixad.broadcast(signature="(n)->()")(lambda a: a[0] / a.shape[0])(np.ones(65))


@refused("""
KernelTypeError: `a` is an array of f64 that is read by index, as its core is too long to be \
variables, a number is needed here
  File "...", line 2, column 52
    mixad.broadcast(signature="(n)->()")(lambda a: a * 2.0)(np.ones(65))
                                                   ^
  Instead: read an element of it, a[i]
""")
def refuse_arithmetic_of_long_vector():
    mixad.broadcast(signature="(n)->()")(lambda a: a * 2.0)(np.ones(65))


@refused("""
ConfigurationError: signature='(n)->()': 'a' of first is annotated as mixad.Array, which is passed \
whole, and has a core: leave out the annotation, or write () for it
""")
def refuse_whole_array_with_a_core():
    def first(a: mixad.Array):
        return a[0]

    mixad.broadcast(signature="(n)->()")(first)(X)


@refused("""
KernelTypeError: the signature has a result of shape (2,), the function returns a f64 where 2 are \
needed
  File "...", line 5 of dot, column 5
    return total
    ^^^^^^^^^^^^
  Instead: return so many, or change the signature
""")
def refuse_result_without_its_core():
    dot.with_options(signature="(n),(n)->(2)")(X, X)


@refused("""
KernelTypeError: the signature has 2 results, the function returns a f64
  File "...", line 5 of dot, column 5
    return total
    ^^^^^^^^^^^^
  Instead: return a tuple of so many, or change the signature
""")
def refuse_results_of_another_number():
    dot.with_options(signature="(n),(n)->(),()")(X, X)


class Motion(NamedTuple):
    x: Any
    v: Any


@refused("""
KernelTypeError: <lambda>: argument 's' holds a list, s.x: a kernel takes tuples, named tuples and \
dataclasses of arrays and numbers
  Instead: a named tuple or a dataclass in its place
""")
def refuse_list_in_a_structure():
    mixad.broadcast(lambda s: s.v)(Motion([1.0, 2.0], X))


@refused("""
KernelTypeError: <lambda>: argument 's.x' is a str
  Instead: read it from outside of the function, or from a static field of a dataclass
""")
def refuse_text_in_a_structure():
    mixad.broadcast(lambda s: s.v)(Motion("fast", X))


@dataclass
class Named:
    x: Any
    names: Any = field(default=(), metadata={"static": True})


@refused("""
KernelTypeError: <lambda>: argument 's': a static field belongs to the compiled function: \
unhashable type: 'list'
  Instead: a number, text or a tuple in its place
""")
def refuse_static_field_that_may_change():
    mixad.broadcast(lambda s: s.x)(Named(X, ["a"]))


@refused("""
KernelGradientError: <lambda>: wrt names 's.mass', not among the floats of this call
  Instead: name some of 's.x', 's.v'
""")
def refuse_unknown_field_in_wrt():
    mixad.broadcast(lambda s: s.x * s.v).duals(Motion(X, X), wrt="s.mass")


@refused("""
TypeError: wrt must be the name of a parameter or a sequence of names, not 1: pass names
""")
def refuse_wrt_that_is_no_name():
    product.duals(X, X, wrt=1)


@refused("""
TypeError: with_options takes strategy, placement, chunk, backend, loops, signature, not 'chunks': \
leave it out
""")
def refuse_option_that_there_is_not():
    product.with_options(chunks=2)


@refused("""
ValueError: stage must be one of 'program', 'pushforward', 'pullback', 'llvm', 'asm', 'cuda', \
'ptx', 'sass', not 'tree'
""")
def refuse_stage_that_there_is_not():
    product.source(X, X, stage="tree")


@refused("""
ValueError: the backend 'reference' has no stage 'asm': use stage='llvm', or another backend
""")
def refuse_stage_of_another_backend():
    product.with_options(backend="reference").source(X, X, stage="asm")


@refused("""
TypeError: namespace_of takes an array library, 3.0 is none: pass the module, such as numpy
""")
def refuse_namespace_of_a_number():
    mixad.namespace_of(3.0)


@refused("""
ValueError: version '2019.01' of the array API standard is unknown: use one of ('2021.12', \
'2022.12', '2023.12', '2024.12', '2025.12')
""")
def refuse_version_of_the_standard():
    inside(lambda x: x.__array_namespace__(api_version="2019.01").sum(x))


@refused("""
KernelIndexError: above, element (0,): an index is outside 'heights' (read on line 7 or 9)
  File "...", line 7, column 15
    while heights[i] < limit:
          ^^^^^^^^^^
  Instead: read it under an `if`, or clip the index
""")
def refuse_index_outside_after_very_many_turns():
    heights = np.zeros(150_000)

    @mixad.broadcast
    def above(limit):
        i = 0
        while heights[i] < limit:
            i += 1
        return heights[i] - limit

    above(X)


@refused("""
KernelTypeError: `Motion` has no field 'mass'
  File "...", line 2, column 31
    mixad.broadcast(lambda m: m._replace(mass=1.0))(Motion(X, X))
                              ^^^^^^^^^^^^^^^^^^^^
  Instead: its fields are x, v
""")
def refuse_field_that_is_not_there_to_be_replaced():
    mixad.broadcast(lambda m: m._replace(mass=1.0))(Motion(X, X))


@refused("""
KernelTypeError: `dataclasses.replace` takes a dataclass that is an argument or made here, and \
fields by name
  File "...", line 2, column 31
    mixad.broadcast(lambda m: dataclasses.replace(m, x=1.0))(Motion(X, X))
                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: dataclasses.replace(state, x=...)
""")
def refuse_replacing_fields_of_what_is_no_dataclass():
    mixad.broadcast(lambda m: dataclasses.replace(m, x=1.0))(Motion(X, X))


class Moved(Motion):
    def _replace(self, **changes):
        return Moved(2 * self[0], **changes)


@refused("""
KernelSyntaxError: `m._replace` is no replacement of fields by their names
  File "...", line 2, column 31
    mixad.broadcast(lambda m: m._replace(x=1.0))(Moved(X, X))
                              ^^^^^^^^^^^^^^^^^
  Instead: Moved(...)
""")
def refuse_replacing_fields_by_a_method_of_the_class():
    mixad.broadcast(lambda m: m._replace(x=1.0))(Moved(X, X))


class Spring(NamedTuple):
    stiffness: Any

    def force(self, x):
        return -self.stiffness * x


@refused("""
KernelTypeError: 'spring' is a Spring here: only its fields are read, not 'force'
  File "...", line 2, column 39
    mixad.broadcast(lambda spring, x: spring.force(x))(Spring(X), X)
                                      ^^^^^^^^^^^^
  Instead: call it by its class, Spring.force(spring, ...)
""")
def refuse_method_of_a_structure():
    mixad.broadcast(lambda spring, x: spring.force(x))(Spring(X), X)


@refused("""
KernelTypeError: `(x, y)` is a tuple of 2, a number is needed here
  File "...", line 2, column 39
    mixad.broadcast(lambda x, y: x if (x, y) == (1.0, 2.0) else y)(X, X)
                                      ^^^^^^
  Instead: unpack it, or index it with a constant
""")
def refuse_comparison_of_tuples():
    mixad.broadcast(lambda x, y: x if (x, y) == (1.0, 2.0) else y)(X, X)


@refused("""
KernelTypeError: the signature has a number as a result, the function returns an array of 3
  File "...", line 2, column 31
    mixad.broadcast(lambda v: v, signature="(n)->()")(X)
                              ^
  Instead: return a number, or give the result a core: (n)->(n)
""")
def refuse_array_where_the_signature_has_a_number():
    mixad.broadcast(lambda v: v, signature="(n)->()")(X)


@refused("""
KernelSyntaxError: `x.sum` is of a whole array
  File "...", line 2, column 52
    inside(lambda x: mixad.broadcast(lambda v: v / x.sum())(x).sum())
                                                   ^^^^^^^
  Instead: compute it before the kernel, result = x.sum(), and read the result in the kernel
""")
def refuse_sum_of_a_traced_array():
    inside(lambda x: mixad.broadcast(lambda v: v / x.sum())(x).sum())


@refused("""
KernelSyntaxError: `x.prod` is of a whole array
  File "...", line 2, column 52
    inside(lambda x: mixad.broadcast(lambda v: v / x.prod(axis=0))(x).sum())
                                                   ^^^^^^^^^^^^^^
  Instead: compute it before the kernel, result = x.prod(axis=0), and read the result in the kernel
""")
def refuse_product_of_a_traced_array():
    inside(lambda x: mixad.broadcast(lambda v: v / x.prod(axis=0))(x).sum())


@refused("""
KernelIndexError: product: at=() is no element of the broadcast shape (3,)
  Instead: pass at=(2,) for the last element
""")
def refuse_trace_without_an_element():
    product.trace(X, X)


@refused("""
KernelIndexError: product: at=(0, 0) is no element of the broadcast shape (3, 0)
  Instead: pass arrays with elements
""")
def refuse_trace_of_nothing():
    product.trace(np.zeros((3, 0)), 1.0, at=(0, 0))


@refused("""
KernelGradientError: <lambda>: a trace with respect to 11 inputs shows at most 10 partials
  Instead: name fewer in wrt
""")
def refuse_trace_with_many_inputs():
    mixad.broadcast(lambda v: sum(v), signature="(n)->()").trace(np.ones((2, 11)), at=0)


@refused("""
KernelTypeError: product: argument 'x' is a list that holds a ndarray; one of numbers stands for \
an array
  Instead: stack what it holds, as np.stack and torch.stack do, and pass that
""")
def refuse_list_of_arrays():
    product([X, X], X)


@refused("""
KernelTypeError: product: argument 'x' is a list that holds a traced value; one of numbers stands \
for an array
  Instead: stack what it holds, as np.stack and torch.stack do, and pass that
""")
def refuse_list_of_traced_values():
    mixad.grad(lambda x: product([x, x], 1.0).sum())(2.0)


@refused("""
KernelTypeError: product: argument 'x' is a list with rows of several lengths
  Instead: pass rows of one length
""")
def refuse_list_of_rows_of_several_lengths():
    product([[1.0, 2.0], [3.0]], X)
