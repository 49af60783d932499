"""Calls of SciPy's solvers that take derivatives, given those of mixad, and their solutions.

`PROBLEMS` is on the page, and what the calls of `CALLS` name.  The solution of each group is known
in closed form.
"""

from __future__ import annotations

from typing import Any

PROBLEMS = """\
import mixad
import numpy as np
from scipy import integrate, odr, optimize
from scipy.sparse.linalg import LinearOperator
from scipy.stats import sampling

c = np.asarray([1.0, 2.0, 4.0])
x0, solution = np.zeros(3), np.log(c)  # of a minimum and of a root


def f(x):
    return (np.exp(x) - c * x).sum() + (x - solution).sum() ** 2


def residuals(x):
    return np.exp(x) - c + (x - solution).sum()


df, d2f, jac = mixad.grad(f), mixad.hessian(f), mixad.jacobian(residuals)
hvp = lambda x, v: mixad.hvp(f, (x,), (v,))


box, near = [(-1, 2)] * 3, x0 + 0.5


def sphere(x):  # which holds the solution, with the multiplier's Hessian for trust-constr
    return (x * x).sum() - (solution**2).sum()


def sphere_hess(x, v):
    return mixad.hessian(lambda x: v[0] * sphere(x))(x)


normal = mixad.grad(sphere)
equality = {"type": "eq", "fun": sphere, "jac": normal}
on_sphere = optimize.NonlinearConstraint(sphere, 0, 0, normal, sphere_hess)
to_sphere = optimize.NonlinearConstraint(sphere, 0, 0, normal)
within = optimize.NonlinearConstraint(sphere, -9, 0.1, normal, sphere_hess)

t, a, b = np.linspace(0.0, 2.0, 20), 1.5, 0.7
data = a * np.exp(-b * t)


def model(t, a, b):
    return a * np.exp(-b * t)


def model_jac(t, a, b):
    return mixad.jacobian(lambda p: model(t, p[0], p[1]))(np.asarray([a, b]))


def misfit(p):
    return model(t, p[0], p[1]) - data


def operator(p):
    _, push = mixad.linearize(misfit, p)
    _, pull = mixad.vjp(misfit, p)
    return LinearOperator((20, 2), lambda v: push(v.ravel()), lambda w: pull(w.ravel())[0])


def equation(x):  # its root is log(2)
    return np.exp(x) - 2.0


slope = mixad.grad(equation)
curvature = mixad.grad(slope)


def rate(t, y):  # y = exp(-t), (1 + t) exp(-2t)
    return np.stack([-y[0], y[0] * y[0] - 2.0 * y[1]])


rate_jac = mixad.jacobian(rate, argnums=1)
rate_jac_t = lambda t, y: rate_jac(t, y).T
start, times = np.ones(2), np.linspace(0.0, 1.0, 5)
tight = {"rtol": 1e-9, "atol": 1e-9}


def bend(x, y):  # y = 4 / (1 + x)**2
    return np.stack([y[1], 1.5 * y[0] * y[0]])


def bend_jac(x, y):
    return np.stack([mixad.jacobian(bend, argnums=1)(x, column) for column in y.T], axis=-1)


def ends(left, right):
    return np.stack([left[0] - 4.0, right[0] - 1.0])


ends_jac = mixad.jacobian(ends, argnums=(0, 1))
mesh, guess = np.linspace(0.0, 1.0, 30), np.ones((2, 30))


class Logistic:
    @staticmethod
    def cdf(x):
        return 1.0 / (1.0 + np.exp(-x))

    def pdf(self, x):
        return mixad.grad(self.cdf)(float(x))

    def dpdf(self, x):
        return mixad.grad(mixad.grad(self.cdf))(float(x))


def decay(p, t):
    return p[0] * np.exp(-p[1] * t)


def decay_slope(p, t):
    return mixad.grad(lambda t: decay(p, t).sum())(t)


curve = odr.Model(decay, fjacb=lambda p, t: mixad.jacobian(decay)(p, t).T, fjacd=decay_slope)


def step(kind, **options):
    solver = integrate.ode(rate, rate_jac).set_integrator(kind, **tight, **options)
    return solver.set_initial_value(np.ones(2), 0.0).integrate(1.0)
"""

CALLS: dict[str, tuple[str, str]] = {
    "minima": (
        "solution",
        """
        optimize.minimize(f, x0, jac=df, method="CG").x
        optimize.minimize(f, x0, jac=df, method="BFGS").x
        optimize.minimize(f, x0, jac=df, method="L-BFGS-B").x
        optimize.minimize(f, x0, jac=df, method="TNC").x
        optimize.minimize(f, x0, jac=df, method="SLSQP", tol=1e-9).x
        optimize.minimize(f, x0, jac=df, method="trust-constr").x
        optimize.minimize(f, x0, jac=df, method="Newton-CG").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="Newton-CG").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="dogleg").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="trust-ncg").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="trust-krylov").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="trust-exact").x
        optimize.minimize(f, x0, jac=df, hess=d2f, method="trust-constr").x
        optimize.minimize(f, x0, jac=df, hessp=hvp, method="Newton-CG").x
        optimize.minimize(f, x0, jac=df, hessp=hvp, method="trust-ncg").x
        optimize.minimize(f, x0, jac=df, hessp=hvp, method="trust-krylov").x
        optimize.minimize(f, x0, jac=df, hessp=hvp, method="trust-constr").x
        optimize.minimize(mixad.value_and_grad(f), x0, jac=True).x
        optimize.fmin_bfgs(f, x0, df, disp=False)
        optimize.fmin_cg(f, x0, df, disp=False)
        optimize.fmin_ncg(f, x0, df, fhess=d2f, disp=False)
        optimize.fmin_ncg(f, x0, df, fhess_p=hvp, disp=False)
        optimize.fmin_l_bfgs_b(f, x0, df)[0]
        optimize.fmin_tnc(f, x0, df, disp=0)[0]
        optimize.fmin_slsqp(f, x0, fprime=df, acc=1e-9, disp=False)
        optimize.basinhopping(f, x0, niter=2, minimizer_kwargs={"jac": df}).x
        optimize.dual_annealing(f, box, maxiter=3, minimizer_kwargs={"jac": df}).x
        optimize.shgo(f, box, options={"jac": df}).x
        optimize.shgo(f, box, minimizer_kwargs={"method": "L-BFGS-B", "jac": df}).x
        optimize.brute(f, box, Ns=4, finish=lambda f, x, **_: optimize.fmin_l_bfgs_b(f, x, df))
        """,
    ),
    "constraints": (
        "solution",
        """
        optimize.minimize(f, near, jac=df, constraints=equality).x
        optimize.minimize(f, near, jac=df, method="SLSQP", constraints=to_sphere).x
        optimize.minimize(f, near, (), "trust-constr", df, d2f, constraints=on_sphere).x
        optimize.fmin_slsqp(f, near, [sphere], fprime=df, fprime_eqcons=normal, disp=False)
        optimize.differential_evolution(f, box, maxiter=20, rng=0, constraints=within).x
        """,
    ),
    "roots of systems": (
        "solution",
        """
        optimize.root(residuals, x0, jac=jac, method="hybr").x
        optimize.root(residuals, x0, jac=jac, method="lm").x
        optimize.root(lambda x: (residuals(x), jac(x)), x0, jac=True).x
        optimize.fsolve(residuals, x0, fprime=jac)
        optimize.fsolve(residuals, x0, fprime=lambda x: jac(x).T, col_deriv=True)
        optimize.leastsq(residuals, x0, Dfun=jac)[0]
        optimize.least_squares(residuals, x0, jac, method="lm").x
        optimize.least_squares(residuals, x0, jac, method="trf").x
        optimize.least_squares(residuals, x0, jac, method="dogbox").x
        optimize.least_squares(residuals, x0, jac, method="trf", loss="soft_l1").x
        """,
    ),
    "roots of one equation": (
        "np.log(2.0)",
        """
        optimize.newton(equation, 1.0, fprime=slope)
        optimize.newton(equation, 1.0, slope, fprime2=curvature)
        optimize.newton(equation, np.ones(4), lambda x: mixad.vjp(equation, x)[1](np.ones(4))[0])
        optimize.root_scalar(equation, x0=1.0, fprime=slope, method="newton").root
        optimize.root_scalar(equation, x0=1.0, fprime=slope, fprime2=curvature).root
        optimize.root_scalar(mixad.value_and_grad(equation), x0=1.0, fprime=True).root
        """,
    ),
    "fits": (
        "np.asarray([a, b])",
        """
        optimize.curve_fit(model, t, data, (1.0, 1.0), jac=model_jac)[0]
        optimize.curve_fit(model, t, data, (1.0, 1.0), jac=model_jac, method="trf")[0]
        optimize.curve_fit(model, t, data, (1.0, 1.0), jac=model_jac, method="dogbox")[0]
        optimize.curve_fit(model, t, data, (1.0, 1.0), jac=model_jac, sigma=0.1 + t)[0]
        optimize.leastsq(misfit, np.ones(2), Dfun=mixad.jacobian(misfit))[0]
        optimize.least_squares(misfit, np.ones(2), operator, method="trf").x
        odr.ODR(odr.Data(t, data), curve, [1.0, 1.0]).run().beta
        """,
    ),
    "differential equations": (
        "np.exp(-1.0) * np.asarray([1.0, 2.0 * np.exp(-1.0)])",
        """
        integrate.solve_ivp(rate, (0.0, 1.0), start, "Radau", jac=rate_jac, **tight).y[:, -1]
        integrate.solve_ivp(rate, (0.0, 1.0), start, "BDF", jac=rate_jac, **tight).y[:, -1]
        integrate.solve_ivp(rate, (0.0, 1.0), start, "LSODA", jac=rate_jac, **tight).y[:, -1]
        integrate.odeint(rate, start, times, Dfun=rate_jac, tfirst=True, **tight)[-1]
        integrate.odeint(rate, start, times, Dfun=rate_jac_t, tfirst=True, col_deriv=True)[-1]
        step("vode", method="bdf", with_jacobian=True)
        step("vode", method="adams", with_jacobian=True)
        step("lsoda", with_jacobian=True)
        """,
    ),
    "boundary values": (
        "4.0 / 1.5**2",
        """
        integrate.solve_bvp(bend, ends, mesh, guess, None, None, bend_jac, ends_jac).sol(0.5)[0]
        """,
    ),
    "random numbers by inversion of the logistic distribution": (
        "np.log(0.3 / 0.7)",
        """
        sampling.NumericalInverseHermite(Logistic(), domain=(-30, 30)).ppf(0.3)
        """,
    ),
    "checks": (
        "0.0",
        """
        optimize.check_grad(f, df, x0)
        optimize.approx_fprime(x0, f, 1e-7) - df(x0)
        """,
    ),
}


def errors() -> dict[str, float | str]:
    """Return how far the result of each call is from its solution, or what went wrong."""
    names: dict[str, Any] = {}
    exec(PROBLEMS, names)
    return {
        call: _error(call, eval(solution, names), names)
        for solution, calls in CALLS.values()
        for call in map(str.strip, calls.strip().splitlines())
    }


def _error(call: str, wanted: Any, names: dict[str, Any]) -> float | str:
    try:
        return float(abs(eval(call, names) - wanted).max())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
