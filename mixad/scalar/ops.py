"""The one table of scalar ops.

One entry per op: what it takes, its derivative, how it is lowered.  The dual transform, the
verifier, the interpreter's and the emitters' coverage checks, the array namespace, the docs page
and the derivative tests all iterate `TABLE`; adding an op is adding an entry.

Derivatives are scalar expressions over the arguments ``x, y, z``, the op's own result ``out`` and
other ops of the table.  Entries choose forms that keep their digits: ``cos`` of a large angle is
left to ``cos``, the tails of ``tanh`` and ``sigmoid`` are products of small factors instead of
differences of nearly equal ones, and quotients are divided before they are squared.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from mixad.scalar.ir import Program

__all__ = ["BY_NAME", "TABLE", "Lowering", "Op", "ScalarRule", "add_op"]

Domain = Literal["float", "integer", "number", "bool", "bits", "any"]
Result = Literal["same", "bool", "stated"]
Lowering = Literal["instruction", "program", "libm"]


@dataclass(frozen=True, eq=False)
class ScalarRule:
    """The derivative that a user gives of a function, for arguments of some types."""

    function: str  # what the user calls it
    parameters: tuple[str, ...]  # its parameters: what the op takes after the value
    # Takes the parameters, the value, and what the op takes after the parameters; its outputs are
    # the partials, of the type of the value.
    program: Program

    def refusal(self, argument: int) -> tuple[str, str]:
        """Return the message and the hint where there is no derivative in an argument of the op."""
        of, missing = f"the derivative of {self.function} with respect to", "is not available"
        if argument == 0:
            return (
                f"{of} what it reads from outside {missing}: its rule is about its parameters",
                "one parameter more, or mixad.stop_gradient of what it reads",
            )
        return (
            f"{of} its parameter {self.parameters[argument - 1]!r} {missing}: its rule has None",
            "a partial derivative in the rule, or mixad.stop_gradient of the argument",
        )


@dataclass(frozen=True)
class Op:
    """One scalar op."""

    name: str  # in programs, and in mixad.special where users call it
    arity: int  # number of arguments
    # Of the arguments, which have one type unless `mixad.scalar.verify` says otherwise (``where``);
    # number: float or integer; bits: integer or bool.
    domain: Domain
    # ∂out/∂argument as expressions, "0" and "1" static; None: not implemented, and a gradient that
    # needs it is refused. One that names its argument's tangent (``dx``) is the whole term ∂out/∂x
    # · dx. Empty for ops that have no derivative at all.
    partials: tuple[str | None, ...] = ()
    # The whole tangent as an expression over ``x, dx, …`` for ops that select, so that a partial
    # that is not taken never multiplies.
    tangent: str | None = None
    result: Result = "same"  # as the last argument; or stated by the variable
    # instruction: every emitter spells it; program: `mixad.scalar.math` has its definition by other
    # ops; libm: the host's maths library.
    lowering: Lowering = "instruction"
    safe: tuple[float, ...] = ()  # arguments that are harmless for lanes that are switched off
    # Its array-API expression (namespace functions over ``x, y, z``); None where the standard has
    # none and the op's program is used.
    array: str | None = None
    c: str | None = None  # C name without the ``f`` of float32, for libm and CUDA
    singular: bool = False  # partials can be infinite at a point: a zero tangent then gives zero
    doc: str = ""  # one sentence for the docs page
    rule: ScalarRule | None = None  # of a user's function: what its partials are


def _arithmetic() -> tuple[Op, ...]:
    two = (1.0, 1.0)
    return (
        Op("add", 2, "number", ("1", "1"), array="x + y", doc="Sum; integers wrap."),
        Op("sub", 2, "number", ("1", "-1"), array="x - y", doc="Difference; integers wrap."),
        Op("mul", 2, "number", ("y", "x"), array="x * y", doc="Product; integers wrap."),
        Op("mul_zero", 2, "float", ("mul_zero(dx, y)", "mul_zero(x, dy)"), lowering="program",
           array="where(x != 0, x * y, 0)",
           doc="Product in which a zero x gives zero whatever y is."),
        Op("mul_zeros", 2, "float", ("mul_zeros(dx, y)", "mul_zeros(x, dy)"), lowering="program",
           array="where((x != 0) & (y != 0), x * y, 0)",
           doc="Product in which a zero gives zero whatever the other factor is: contraction of a "
               "partial with a cotangent."),
        Op("div_zero", 2, "float", ("1 / y", "-div_zero(out, y)"), lowering="program", safe=two,
           singular=True, array="where(x != 0, x / y, 0)",
           doc="Quotient in which a zero x gives zero whatever y is."),
        Op("div", 2, "float", ("1 / y", "-(out / y)"), safe=two, singular=True, array="x / y",
           doc="IEEE quotient."),
        Op("bounded_reciprocal", 1, "float", safe=(1.0,), array="1 / x",
           doc="1 / x for x from 1 to 2, where CUDA needs no division of special values."),
        Op("floordiv", 2, "number", ("0", "0"), safe=two, array="floor_divide(x, y)",
           doc="Quotient rounded down, as Python's //; an integer divided by zero gives 0."),
        Op("mod", 2, "number", ("1", "-floordiv(x, y)"), safe=two, array="remainder(x, y)",
           doc="Remainder with the divisor's sign, as Python's %; an integer modulo zero gives 0."),
        Op("fmod", 2, "float", ("1", "-rint((x - out) / y)"), lowering="libm", safe=two, c="fmod",
           doc="Remainder with the dividend's sign, as C's fmod."),
        Op("neg", 1, "number", ("-1",), array="-x", doc="Negative."),
        Op("abs", 1, "number", ("sign(x)",), array="abs(x)", c="fabs",
           doc="Magnitude; derivative 0 at 0."),
        Op("sign", 1, "number", ("0",), lowering="program", array="sign(x)",
           doc="-1, 0, 1, or nan."),
        Op("fma", 3, "float", ("y", "x", "1"), c="fma", doc="Sum x·y + z rounded once."),
        Op("sqrt", 1, "float", ("0.5 / out",), safe=(1.0,), singular=True, array="sqrt(x)",
           c="sqrt", doc="Square root."),
        Op("minimum", 2, "number", lowering="program",
           tangent="where(x < y, dx, where(y < x, dy, 0.5 * (dx + dy)))",
           array="where((y < x) | (y != y), y, x)",
           doc="Smaller argument; nan spreads; ties give half each."),
        Op("maximum", 2, "number", lowering="program",
           tangent="where(x > y, dx, where(y > x, dy, 0.5 * (dx + dy)))",
           array="where((y > x) | (y != y), y, x)",
           doc="Larger argument; nan spreads; ties give half each."),
        Op("copysign", 2, "float", ("where((x < 0) == signbit(y), 1, -1)", "0"),
           array="copysign(x, y)", c="copysign", doc="Magnitude of x with the sign of y."),
        Op("nextafter", 2, "float", ("1", "0"), lowering="program", array="nextafter(x, y)",
           c="nextafter", doc="Next representable number after x towards y."),
    )  # fmt: skip


def _rounding() -> tuple[Op, ...]:
    def rounding(name: str, doc: str, array: str | None = None) -> Op:
        return Op(name, 1, "float", ("0",), array=f"{array or name}(x)", c=name, doc=doc)

    return (
        rounding("floor", "Largest whole number not above x; derivative 0."),
        rounding("ceil", "Smallest whole number not below x; derivative 0."),
        rounding("trunc", "Argument without its fraction; derivative 0."),
        rounding("rint", "Nearest whole number, halves to even; derivative 0.", array="round"),
    )


def _comparisons() -> tuple[Op, ...]:
    def comparison(name: str, sign: str, domain: Domain = "number") -> Op:
        return Op(name, 2, domain, result="bool", array=f"x {sign} y", doc=f"x {sign} y.")

    def classification(name: str, doc: str) -> Op:
        return Op(name, 1, "float", result="bool", lowering="program", array=f"{name}(x)", doc=doc)

    return (
        comparison("lt", "<"),
        comparison("le", "<="),
        comparison("gt", ">"),
        comparison("ge", ">="),
        comparison("eq", "==", "any"),
        comparison("ne", "!=", "any"),
        classification("isnan", "Whether x is nan."),
        classification("isinf", "Whether x is ±inf."),
        classification("isfinite", "Neither inf nor nan."),
        Op("signbit", 1, "float", result="bool", array="signbit(x)",
           doc="Whether the sign bit is set."),
    )  # fmt: skip


def _logic() -> tuple[Op, ...]:
    return (
        Op("and", 2, "bits", array="x & y", doc="Bitwise and; logical and of booleans."),
        Op("or", 2, "bits", array="x | y", doc="Bitwise or; logical or of booleans."),
        Op("xor", 2, "bits", array="x ^ y", doc="Bitwise exclusive or."),
        Op("not", 1, "bits", array="~x", doc="Bitwise complement; logical not of a boolean."),
        Op("shl", 2, "integer", safe=(0, 0), array="x << y", doc="Shift left; 0 beyond the width."),
        Op("shr", 2, "integer", safe=(0, 0), array="x >> y",
           doc="Shift right; beyond the width 0, or -1 where x is negative."),
        Op("where", 3, "any", tangent="where(x, dy, dz)", array="where(x, y, z)",
           doc="The second argument where the first, a bool, holds, else the third; selects values "
               "and tangents, never multiplies."),
        Op("convert", 1, "any", ("convert(1)",), result="stated", array="astype(x)",
           doc="To another type: floats to integers towards zero, anything to bool by x != 0."),
        Op("bitcast", 1, "number", result="stated",
           doc="The same bits as another type of equal width."),
    )  # fmt: skip


def _exponentials() -> tuple[Op, ...]:
    def program(name: str, partial: str, doc: str, array: str | None = None, **rest: Any) -> Op:
        array = array or f"{name}(x)"
        return Op(name, 1, "float", (partial,), lowering="program", array=array, c=name, doc=doc,
                  **rest)  # fmt: skip

    def logarithm(name: str, partial: str, doc: str, safe: float = 1.0) -> Op:
        return program(name, partial, doc, safe=(safe,), singular=True)

    flat = "(x == 0) & (y > 1) | isinf(x) & (y < 1)"
    # NumPy takes a square root for z = 0.5, which is nan of -inf.
    power = "pow(where((z == 0.5) & ((y == 0) | isinf(y)), abs(y), y), z)"
    # The larger of x and out has more digits.
    by_out = "(abs(out) >= abs(x)) | isinf(x * log(y))"
    logs = f"where({by_out}, mul_zero(out, log(y)), mul_pow(x * log(y), y, z))"
    root = "pow(abs(y), where((y == 0) | isinf(y), z, 0.5 * z))"
    return (
        program("exp", "out", "Exponential function, e to the x."),
        program("exp2", "out * LN2", "2 to the x.", array="pow(2, x)"),
        program("expm1", "exp(x)", "Exponential function less 1, without cancellation."),
        logarithm("log", "1 / x", "Natural logarithm."),
        logarithm("log2", "LOG2E / x", "Logarithm to base 2."),
        logarithm("log10", "LOG10E / x", "Logarithm to base 10."),
        logarithm("log1p", "1 / (1 + x)", "Logarithm of 1 + x, without cancellation.", safe=0.0),
        program("sigmoid", "logistic_density(x)", "Logistic function 1/(1 + exp(-x)).",
                array="where(x >= 0, 1 / (1 + exp(-abs(x))), exp(-abs(x)) / (1 + exp(-abs(x))))"),
        Op("logistic_density", 1, "float", ("-(out * tanh(0.5 * x))",),
           lowering="program", array="exp(-abs(x)) / (1 + exp(-abs(x))) / (1 + exp(-abs(x)))",
           doc="Derivative of sigmoid: sigmoid(x)·sigmoid(-x)."),
        Op("relu", 1, "float", tangent="where(x > 0, dx, 0)", lowering="program",
           array="where(x <= 0, 0, x)", doc="Positive part, max(x, 0); derivative 0 at 0."),
        Op("logaddexp", 2, "float",
           ("where((x == y) & isinf(x), 0.5, sigmoid(x - y))",
            "where((x == y) & isinf(x), 0.5, sigmoid(y - x))"),
           lowering="program", array="logaddexp(x, y)",
           doc="Logarithm of exp(x) + exp(y), without overflow."),
        Op("pow", 2, "float",
           ("mul_pow(y, x, y - 1)", "pow_log(x, y)"),
           lowering="program", safe=(1.0, 1.0), singular=True, array="pow(x, y)", c="pow",
           doc="Power, x to the y; 0⁰ is 1 with derivative 0."),
        Op("pow_log", 2, "float",
           (f"where({flat}, 0, mul_pow(fma(y, log(x), 1), x, y - 1))",
            "where((x == 0) | isinf(x), mul_zero(out, log(x)), mul_pow(log(x) * log(x), x, y))"),
           lowering="program", safe=(1.0, 1.0), singular=True,
           array="where(((pow(x, y) != 0) | ((x < 0) & isfinite(y))) & ((x != 0) | (y != 0)), "
                 "where(abs(pow(x, y)) < 1e-30, (pow(x, 0.5 * y) * log(x)) * pow(x, 0.5 * y), "
                 "pow(x, y) * log(x)), where(x > 0, copysign(0, x - 1), 0))",
           doc="Product of x to the y and log(x), the derivative of the power in y, which may be a "
               "number where the power rounds to 0; 0 at (0, 0), nan for negative x and finite y."),
        Op("mul_pow", 3, "float",
           ("mul_pow(dx, y, z)", "mul_pow(x * z, y, z - 1)",
            f"where((y == 0) & (z == 0), 0, {logs})"),
           lowering="program", safe=(1.0, 1.0, 1.0), singular=True,
           array=f"where(x != 0, where((abs({power}) < 1e-30) | isinf({power}), "
                 f"copysign(1, {power}) * ((x * {root}) * {root}), x * {power}), 0)",
           doc="Product of x and y to the z, which may leave the range where the product does not; "
               "0 where x is zero."),
        Op("ldexp", 2, "float", ("ldexp(dx, y)", None), lowering="program", safe=(1.0, 0.0),
           doc="Product x · 2ⁿ for a whole number n, rounded once; without a derivative in n."),
        Op("powi", 2, "integer", lowering="program", array="pow(x, y)",
           doc="Integer power, wrapping; a negative exponent gives 0 (±1 for base ±1)."),
    )  # fmt: skip


def _trigonometric() -> tuple[Op, ...]:
    def program(name: str, partial: str, doc: str) -> Op:
        return Op(name, 1, "float", (partial,), lowering="program", array=f"{name}(x)", c=name,
                  doc=doc)  # fmt: skip

    def libm(name: str, partial: str, doc: str, *, safe: float = 0.5, singular: bool = False) -> Op:
        return Op(name, 1, "float", (partial,), lowering="libm", safe=(safe,), singular=singular,
                  array=f"{name}(x)", c=name, doc=doc)  # fmt: skip

    larger = "maximum(abs(x), abs(y))"
    inverse = "circle_inversion(y, x)"
    # Of two products that are equal, that of the larger cosine and the smaller inversion.
    bend = (f"where(abs(x) < abs(y), direction_cosine(y, x) * circle_inversion(x, y), "
            f"out * {inverse})")  # fmt: skip
    off_plane = "((x == 0) & (y == 0)) | isinf(x) | isinf(y)"
    return (
        program("sin", "cos(x)", "Sine of radians."),
        program("cos", "-sin(x)", "Cosine of radians."),
        program("tanh", "4 * logistic_density(2 * x)", "Hyperbolic tangent."),
        libm("tan", "1 + out * out", "Tangent of radians."),
        libm("asin", "1 / sqrt(fma(-x, x, 1))", "Arc sine.", singular=True),
        libm("acos", "-1 / sqrt(fma(-x, x, 1))", "Arc cosine.", singular=True),
        libm("atan", "where(abs(x) < 1, 1 / (1 + x * x), (1 / x) / (x + 1 / x))", "Arc tangent."),
        libm("sinh", "cosh(x)", "Hyperbolic sine."),
        libm("cosh", "sinh(x)", "Hyperbolic cosine."),
        libm("asinh", "1 / hypot(1, x)", "Inverse hyperbolic sine."),
        libm("acosh", "where(isinf(out), 0, 1 / (sqrt(x - 1) * sqrt(x + 1)))",
             "Inverse hyperbolic cosine.", safe=1.5, singular=True),
        libm("atanh", "1 / fma(-x, x, 1)", "Inverse hyperbolic tangent.", singular=True),
        Op("atan2", 2, "float", (inverse, "-circle_inversion(x, y)"), lowering="libm",
           safe=(1.0, 1.0), array="atan2(x, y)", c="atan2",
           doc="Angle of the point (y, x), that is of x over y; derivatives 0 at the origin."),
        Op("hypot", 2, "float", ("direction_cosine(x, y)", "direction_cosine(y, x)"),
           lowering="libm", safe=(1.0, 1.0), array="hypot(x, y)", c="hypot",
           doc="√(x² + y²) without overflow; derivatives 0 at the origin."),
        Op("direction_cosine", 2, "float",
           (f"direction_cosine(y, x) * {inverse}", f"-({bend})"),
           lowering="program", safe=(1.0, 1.0),
           array=f"where((x == 0) & (y == 0), 0, where(isinf(x) & isfinite(y), copysign(1, x), "
                 f"where(isfinite(x) & isinf(y), x / abs(y), "
                 f"(x / {larger}) / sqrt((x / {larger}) * (x / {larger}) "
                 f"+ (y / {larger}) * (y / {larger})))))",
           doc="Quotient of x and hypot(x, y), of numbers below the normal range too; 0 at the "
               "origin."),
        Op("circle_inversion", 2, "float",
           (f"({inverse} - out) * ({inverse} + out)", f"-2 * (out * {inverse})"),
           lowering="program", safe=(1.0, 1.0),
           array=f"where({off_plane}, 0, where(hypot(x, y) > 1e15, "
                 f"0.25 * x / hypot(0.5 * x, 0.5 * y) / hypot(0.5 * x, 0.5 * y), "
                 f"where(hypot(x, y) > 1e-15, x / (hypot(x, y) * hypot(x, y)), "
                 f"x / hypot(x, y) / hypot(x, y))))",
           doc="Quotient of x and x² + y², whose derivatives are its products; 0 at the origin and "
               "at infinity."),
    )  # fmt: skip


def _special() -> tuple[Op, ...]:
    def special(name: str, partial: str | None, doc: str, c: str | None = None, *,
                lowering: Lowering = "libm", singular: bool = False) -> Op:  # fmt: skip
        return Op(name, 1, "float", (partial,), lowering=lowering, safe=(1.5,), singular=singular,
                  c=c, doc=doc)  # fmt: skip

    # exp(out²), whose logarithm has lost digits where the distance to ±1 has all of them.
    inverse = ("where(abs(out) < 0.5, exp(out * out), "
               "where(isinf(out), 1 / {rest}, erfcx(abs(out)) / {rest}))")  # fmt: skip
    # exp(-x²) with what rounding x² lost; where x² may overflow that would be nan, and exp is 0.
    bell = "where(x * x > 1000, 0, exp(-(x * x)) * (1 - fma(x, x, -(x * x))))"
    return (
        special("cbrt", "where(isinf(out), 0, 1 / (3 * (out * out)))", "Real cube root.", "cbrt",
                singular=True),
        special("erf", f"TWO_OVER_SQRT_PI * ({bell})", "Error function.", "erf",
                lowering="program"),
        special("erfc", f"-TWO_OVER_SQRT_PI * ({bell})", "1 - erf(x) without cancellation.",
                "erfc"),
        special("erfcx", "-2 * ierfcx(1, x)", "Product exp(x²)·erfc(x), without underflow.",
                lowering="program"),
        Op("ierfcx", 2, "float", (None, "-2 * (x + 1) * ierfcx(x + 1, y)"), lowering="program",
           safe=(1.0, 1.5),
           doc="Repeated integral of erfc, of order n, times exp(x²); n is a whole number from 0 "
               "to 100 (nan for others), and has no derivative."),
        special("erfinv", f"HALF_SQRT_PI * ({inverse.format(rest='(1 - abs(x))')})",
                "Inverse of erf.", lowering="program", singular=True),
        special("erfcinv", f"-HALF_SQRT_PI * ({inverse.format(rest='minimum(x, 2 - x)')})",
                "Inverse of erfc.", lowering="program", singular=True),
        special("gamma", "mul_zero(digamma(x), out)", "Gamma function.", "tgamma", singular=True),
        special("lgamma", "digamma(x)", "Logarithm of the magnitude of gamma.", "lgamma",
                singular=True),
        special("digamma", "trigamma(x)", "Derivative of lgamma.", lowering="program",
                singular=True),
        special("trigamma", "polygamma(2, x)", "Derivative of digamma.", lowering="program",
                singular=True),
        Op("polygamma", 2, "float", (None, "polygamma(x + 1, y)"), lowering="program",
           safe=(1.0, 1.5), singular=True,
           doc="Derivative of digamma of order n, a whole number from 0 to 100 (nan for others); "
               "it has none with respect to n."),
    )  # fmt: skip


TABLE: tuple[Op, ...] = (
    *_arithmetic(),
    *_rounding(),
    *_comparisons(),
    *_logic(),
    *_exponentials(),
    *_trigonometric(),
    *_special(),
)
_KNOWN = {op.name: op for op in TABLE}
BY_NAME = MappingProxyType(_KNOWN)
"""The ops of the table, and those of users' functions with rules."""


def add_op(op: Op) -> None:
    """Add an op that is not in the table: a user's function with a rule."""
    _KNOWN[op.name] = op
