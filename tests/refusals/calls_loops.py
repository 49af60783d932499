"""Calls that are refused: loops of steps, and choices in their bodies."""

import numpy as np
from refused import refused
from subjects import X

import mixad


@refused("""
TracerError: bool() of a value that each step of the loop computes anew, while its function is \
called once: write mixad.cond(predicate, f, g, x), numpy.where, or a function decorated with \
@mixad.broadcast; mixad.while_loop runs for as long as a predicate holds
""")
def refuse_if_in_a_loop():
    mixad.scan(lambda c, x: (c if x > 0.0 else -c, None), 1.0, X)


@refused("""
IndexedArrayError: a whole number of a value that each step of the loop computes anew, while its \
function is called once: pass an array that is indexed in xs or in the carry, or write a function \
decorated with @mixad.broadcast; mixad.while_loop runs for as long as a predicate holds
""")
def refuse_a_whole_number_in_a_loop():
    mixad.fori_loop(0, 3, lambda i, c: c * len(range(i)), 1.0)


@refused("""
TracerError: mixad.scan: the carry contains a str: pass arrays and numbers, and let the function \
capture what else it reads
""")
def refuse_text_as_carry():
    mixad.scan(lambda c, x: (c, x), "text", X)


@refused("""
TracerError: mixad.scan: arrays of 3 and 1 steps: pass xs and length of one number of steps
""")
def refuse_lengths_that_differ():
    mixad.scan(lambda c, x: (c, x), 1.0, (X, X[:1]))


@refused("""
TracerError: mixad.scan: xs contains a number: pass arrays with an axis of steps
""")
def refuse_numbers_as_parts():
    mixad.scan(lambda c, x: (c, x), 1.0, np.ones(()))


@refused("""
TracerError: mixad.scan: how many steps there are is not known: pass xs or length
""")
def refuse_a_loop_without_length():
    mixad.scan(lambda c, x: (c, x), 1.0)


@refused("""
TracerError: mixad.scan: length is -1: pass 0 or more
""")
def refuse_a_length_below_zero():
    mixad.scan(lambda c, x: (c, x), 1.0, length=-1)


@refused("""
TracerError: mixad.fori_loop: upper is 2.5: pass a whole number
""")
def refuse_a_length_that_is_no_whole_number():
    mixad.fori_loop(0, 2.5, lambda i, c: c, 1.0)


@refused("""
TracerError: mixad.fori_loop: upper is a traced value: pass a number that is known, or use \
mixad.while_loop, which runs for as long as a predicate holds
""")
def refuse_a_length_that_is_traced():
    mixad.grad(lambda x: mixad.fori_loop(0, x, lambda i, c: c, 1.0))(2.0)


@refused("""
TracerError: mixad.scan: the function must return a pair (carry, y), it returned *: write None for \
y if there is none
""")
def refuse_what_is_no_pair():
    mixad.scan(lambda c, x: c, 1.0, X)


@refused("""
TracerError: mixad.scan: the carry has the structure *, the function returns one of tuple(*, *): \
return a carry like the one that it is given
""")
def refuse_a_carry_of_another_structure():
    mixad.scan(lambda c, x: ((c, c), x), 1.0, X)


@refused("""
TracerError: mixad.scan: a carry of shape (2,) and dtype float64 becomes one of shape (1, 2) and \
dtype float64: give the loop an array like the latter, or convert what the function returns
""")
def refuse_a_carry_of_another_shape():
    mixad.scan(lambda c, x: (c[None], x), np.ones(2), X)


@refused("""
TracerError: mixad.scan: the function does something else when it is called again: give it what \
changes (random numbers, a counter) as xs or in the carry, since what it does is recorded and run \
in all steps
""")
def refuse_a_body_that_changes():
    mixad.scan(lambda c, x: (c * np.random.default_rng().random(2), x), np.ones(2), X)


@refused("""
TracerError: mixad.scan: there is no room for two carries, from which the derivative is computed: \
pass memory=48 or more, or set MIXAD_LOOP_MEMORY
""")
def refuse_too_little_memory():
    mixad.grad(lambda x: mixad.scan(lambda c, _: (c * x, None), X, length=9, memory=8)[0].sum())(
        2.0
    )


@refused("""
TracerError: mixad.scan: no step tells what they give: pass one step or more
""")
def refuse_no_steps_of_what_runs_in_python():
    mixad.scan(lambda c, x: (c, np.unique(x)), 1.0, length=0, xs=X[:0])


@refused("""
TracerError: mixad.while_loop: cond_fun gives float64 of shape (): return one bool, such as x > 0 \
or numpy.any(x > 0)
""")
def refuse_a_predicate_that_is_no_bool():
    mixad.while_loop(lambda c: c, lambda c: c, 1.0)


@refused("""
TracerError: mixad.while_loop: what cond_fun gives does not depend on the value that is handed on, \
so the loop would never end, or never begin: make it of the value
""")
def refuse_a_predicate_that_is_always_the_same():
    mixad.while_loop(lambda c: np.True_, lambda c: c, 1.0)


@refused("""
TracerError: mixad.while_loop: there is no carry: pass what changes as init_val
""")
def refuse_a_loop_without_a_carry():
    mixad.while_loop(lambda c: True, lambda c: c, ())


@refused("""
TracerError: mixad.switch: there are no branches: pass at least one function
""")
def refuse_a_choice_without_branches():
    mixad.switch(0, [])


@refused("""
TracerError: mixad.cond: what is chosen by has the shape (2,): pass one number; numpy.where \
chooses element by element
""")
def refuse_a_choice_by_an_array():
    mixad.cond(np.asarray([True, False]), lambda: 1.0, lambda: 2.0)
