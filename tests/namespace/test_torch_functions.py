"""torch's functions and methods on traced tensors, compared with torch and its own autograd."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest
from derivatives import parts_of

import mixad
from mixad import pytree
from mixad.errors import MixadError, TracerError
from mixad.namespace.torch_elementwise import TORCH_ELEMENTWISE
from mixad.namespace.torch_neural import TORCH_NEURAL
from mixad.namespace.torch_products import TORCH_PRODUCTS
from mixad.namespace.torch_reductions import TORCH_REDUCTIONS
from mixad.namespace.torch_reshape import TORCH_MOVES
from mixad.namespace.torch_spellings import TORCH

HAS_TORCH = importlib.util.find_spec("torch") is not None
pytestmark = [pytest.mark.torch,
              pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")]  # fmt: skip

if HAS_TORCH:
    import torch
    import torch as t
    import torch.nn.functional as F  # noqa: N812

    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    X, Y, V, W = normal(3, 4), normal(3, 4), normal(4), normal(4, 4)  # matrices and a vector
    P, Q = X.sigmoid(), Y.sigmoid()  # between 0 and 1
    B, C = normal(2, 3, 4), normal(2, 4, 3)  # stacks of matrices
    SQUARES, S = 4 * torch.eye(3, dtype=torch.float64) + 0.3 * normal(3, 3, 3), normal(3, 3)
    U = torch.eye(4, dtype=torch.float64) * 4 + 0.3 * W  # a matrix of positive determinant
    I = torch.tensor([[0, 2, 1, 0], [2, 0, 0, 1]])  # noqa: E741  # places along the first axis
    J = torch.tensor([2, 0, 2])
    MASK = X > 0.1
    K = torch.tensor([3, 0, 2])  # classes
    SHARES = torch.tensor([0.1, 0.5], dtype=torch.float64)


def weighted_mse(x: Any, y: Any) -> list[Any]:
    return [F.mse_loss(x, y, reduction=r, weight=x * x + P) for r in ("none", "sum", "mean")]


def without_axis(function: Any, x: Any) -> list[Any]:
    """Return results for tensors of 0 to 4 axes: which axis torch takes depends on their number."""
    shapes = ((3, 4), (12,), (3, 2, 2), (1, 3, 2, 2))
    return [function(x[0, 0]), *(function(x.reshape(shape)) for shape in shapes)]


REDUCTIONS: dict[str, Any] = {
    "max": lambda x, y: [t.max(x) * x.max(), *t.max(x, 1)[:1], x.max(dim=0, keepdim=True).values,
                         t.max(x, y), x.max(y), t.max(x, other=y)],
    "min": lambda x, y: [t.min(x) * x.min(), *t.min(x, 1)[:1], x.min(dim=0, keepdim=True).values,
                         t.min(x, y), x.min(y)],
    "sort": lambda x, y: [t.sort(x).values ** 2, x.sort(0, descending=True)[0] * y,
                          t.sort(x, dim=0, stable=True)[0] * y],
    "topk": lambda x, y: [t.topk(x, 2).values ** 2, x.topk(2, 0, largest=False)[0] ** 2],
    "var": lambda x, y: [t.var(x), x.var(0), t.var(x, dim=1, correction=0, keepdim=True) * y,
                         t.var(x, 0, False), t.var(x, False), x.var(unbiased=False)],
    "std": lambda x, y: [t.std(x), x.std((0, 1)), t.std(x, dim=1, correction=0, keepdim=True) * y,
                         x.std(-1, True, True)],
    "var_mean": lambda x, y: [a * a for a in t.var_mean(x, 0)],
    "std_mean": lambda x, y: [a * a for a in t.std_mean(x, dim=1, correction=0, keepdim=True)],
    "softmax": lambda x, y: [t.softmax(x, 0), t.softmax(x[0, 0], -1), x.softmax(dim=-1),
                             t.softmax(x, 1, t.float64)],
    "log_softmax": lambda x, y: [t.log_softmax(x, 0) * y, 80 * x.log_softmax(-1) * x],
    "logsumexp": lambda x, y: [t.logsumexp(x, 0), x.logsumexp((0, 1), True),
                               t.logsumexp(99 * x, 1)],
    "special_softmax": lambda x, y: t.special.softmax(x, 1),
    "special_log_softmax": lambda x, y: t.special.log_softmax(x, 1) * y,
    "special_logsumexp": lambda x, y: t.special.logsumexp(x, 1),
    "nansum": lambda x, y: [t.nansum(x * y), t.nansum(t.where(MASK, math.nan, x) ** 2, 0)],
    "nanmean": lambda x, y: [t.nanmean(x * y), t.nanmean(t.where(MASK, math.nan, x) ** 2, 0, True),
                             t.where(MASK, math.nan, x).nanmean((0, 1), dtype=t.float64)],
    "median": lambda x, y: [t.median(x) ** 2, x.median(0)[0] ** 2, t.median(x, 1, True).values,
                            t.median(t.where(MASK, 0.25, x * y)), x[0, 0].median()],
    "nanmedian": lambda x, y: [t.nanmedian(t.where(MASK, math.nan, x)) ** 2,
                               t.where(MASK, math.nan, x).nanmedian(0).values],
    "kthvalue": lambda x, y: [t.kthvalue(x, 2).values ** 2, x.kthvalue(3, 0, True)[0] * y],
    "quantile": lambda x, y: [t.quantile(x, 0.3) ** 2, x.quantile(0.8, 0), x.quantile(1.0, 1, True),
                              t.quantile(x, SHARES, dim=-1) ** 2,
                              x.quantile(SHARES[0], interpolation="lower"),
                              x.quantile(0.35, 0, interpolation="higher"),
                              x.quantile(0.35, interpolation="midpoint", keepdim=True)],
    "norm": lambda x, y: [t.norm(x), x.norm(1), x.norm(3, 0, True), t.norm(x, dim=1),
                          x.norm(math.inf, 1), t.norm(x, "nuc")],
    "linalg_norm": lambda x, y: [t.linalg.norm(x), t.linalg.norm(x, 3, 0), t.linalg.norm(x, "nuc"),
                                 t.linalg.norm(x, dim=1, keepdim=True)],
    "linalg_vector_norm": lambda x, y: [t.linalg.vector_norm(x), t.linalg.vector_norm(x, 3, 0),
                                        t.linalg.vector_norm(x, ord=1, dim=1, keepdim=True)],
    "linalg_matrix_norm": lambda x, y: [t.linalg.matrix_norm(x), t.linalg.matrix_norm(x, 1),
                                        t.linalg.matrix_norm(x[None] * y, "nuc", (0, 2), True)],
    "dist": lambda x, y: [t.dist(x, y), x.dist(y, 3)],
    "cdist": lambda x, y: [t.cdist(x, y), t.cdist(x, y[:2], p=3.0)],
}  # fmt: skip

PRODUCTS: dict[str, Any] = {
    "einsum": (lambda x, y: [t.einsum("ij,kj->ik", x, y), t.einsum("ij,ij", [x, x])],),
    "mm": (lambda x, w: [t.mm(x, w), x.mm(w @ w)], "X", "W"),
    "bmm": (lambda b, c: [t.bmm(b, c), b.bmm(mat2=c)], "B", "C"),
    "mv": (lambda x, v: [t.mv(x, v), x.mv(vec=v)], "X", "V"),
    "vdot": (lambda v, w: [t.vdot(v, v), t.vdot(w[0], v)], "V", "W"),
    "inner": (lambda x, v: [t.inner(x, v), x.inner(x), t.inner(v[0], x)], "X", "V"),
    "outer": (lambda v: [t.outer(v, v), v.outer(vec2=v)], "V"),
    "ger": (lambda v: t.ger(v, v), "V"),
    "addmm": (lambda x, y, w: [t.addmm(y, x, w), y.addmm(x, w, beta=0.5, alpha=2.0),
                               t.addmm(y, x, w, beta=0)], "X", "Y", "W"),
    "baddbmm": (lambda b, c: t.baddbmm(c[:, :3] ** 2, b, c, alpha=3), "B", "C"),
    "addmv": (lambda x, v: t.addmv(x[:, 0], x, v, beta=2), "X", "V"),
    "addr": (lambda w, v: t.addr(w, v, v), "W", "V"),
    "addcmul": (lambda x, y: [t.addcmul(x, x, y), x.addcmul(y, y, value=0.3)],),
    "addcdiv": (lambda x, y: [t.addcdiv(x, x, y), x.addcdiv(y, x, value=0.3)],),
    "lerp": (lambda x, y: [t.lerp(x, y, 0.3), x.lerp(y, 0.7), t.lerp(x, y, x * y)],),
    "tensordot": (lambda x, w: [t.tensordot(x, w, 1), t.tensordot(x, w[:3], dims=([0], [1])) ** 2]
                  if w.shape[1] == 3 else t.tensordot(x, w, dims=1), "X", "W"),
    "kron": (lambda x, w: t.kron(x, w[:2, :2]), "X", "W"),
    "cross": (lambda x, y: [t.cross(x, y, dim=0), x.T[:, :3].cross(y.T[:, :3], -1)],),
    "linalg_cross": (lambda x, y: t.linalg.cross(x, y, dim=0),),
    "linalg_vecdot": (lambda x, y: [t.linalg.vecdot(x, y), t.linalg.vecdot(x, y, dim=0),
                                    t.linalg.vecdot(x, y[:1], dim=0),
                                    t.linalg.vecdot(x[:, :3], y[0, :3], dim=1)],),
    "linalg_matmul": (lambda x, w: t.linalg.matmul(x, w), "X", "W"),
    "linalg_solve_triangular": (
        lambda w, x: [t.linalg.solve_triangular(w, x.T, upper=True),
                      t.linalg.solve_triangular(w, x, upper=False, left=False),
                      t.linalg.solve_triangular(w * B[:, :1], x.T, upper=False, unitriangular=True),
                      t.linalg.solve_triangular(w, x, upper=True, left=False, unitriangular=True)],
        "U", "X"),
    "trace": (lambda w: [t.trace(w) ** 2, w.trace()], "W"),
    "diagonal": (lambda w, b: [t.diagonal(w) ** 2, w.diagonal(1), b.diagonal(0, 1, 2) ** 2],
                 "W", "B"),
    "linalg_diagonal": (lambda b: t.linalg.diagonal(b) ** 2, "B"),
    "matrix_power": (lambda w: [t.matrix_power(w, 3), w.matrix_power(2)], "W"),
    "linalg_matrix_power": (lambda w: t.linalg.matrix_power(w, 2), "W"),
    "inverse": (lambda u: [t.inverse(u), u.inverse()], "U"),
    "linalg_solve": (lambda a, b, u: [t.linalg.solve(a, b), t.linalg.solve(a, b[0]) ** 2,
                                      t.linalg.solve(a[0], b[0]), t.linalg.solve(a, a @ a),
                                      t.linalg.solve(A=u, B=u @ u), t.linalg.solve(a[:2], b[:2]),
                                      t.linalg.solve(a, a[:, :2], left=False)],
                     "SQUARES", "S", "U"),
    "linalg_pinv": (lambda x: t.linalg.pinv(x), "X"),
    "det": (lambda u: [t.det(u), u.det()], "U"),
    "slogdet": (lambda u: [t.slogdet(u)[1], u.slogdet()[1] ** 2], "U"),
    "logdet": (lambda u: [t.logdet(u), u.logdet() ** 2], "U"),
}  # fmt: skip

MOVES: dict[str, Any] = {
    "gather": lambda x, y: [t.gather(x, 0, I) * x[:2], (x * y).gather(1, I) ** 2],
    "scatter": lambda x, y: [t.scatter(x, 0, I, y[:2]) ** 2, x.scatter(0, I, 2.0) ** 2,
                             x.scatter(dim=0, index=I, src=y.detach()) * y],
    "scatter_add": lambda x, y: [t.scatter_add(x, 0, I, y[:2]) ** 2, x.scatter_add(0, I, Y) * y],
    "index_add": lambda x, y: [t.index_add(x, 0, J, y) ** 2, x.index_add(1, J, y[:, :3], alpha=2)],
    "index_copy": lambda x, y: t.index_copy(x, 1, K, y[:, :3] ** 2) * y,
    "index_select": lambda x, y: [t.index_select(x, 1, K) * x[:, :3], x.index_select(0, J) ** 2],
    "cat": lambda x, y: [t.cat([x, y * x]) ** 2, t.cat((x, x[0, :0], y), dim=1) ** 2],
    "concat": lambda x, y: t.concat([x, y[:, :1] * x], -1),
    "concatenate": lambda x, y: t.concatenate([y[:, :0], x * x], dim=1),
    "index_fill": lambda x, y: [t.index_fill(x, 1, K, 2.0) * y, x.index_fill(0, J, y[0, 0]) * x],
    "masked_fill": lambda x, y: [t.masked_fill(x, MASK, 0.0) * y, x.masked_fill(MASK, x[0, 0]) * y],
    "masked_scatter": lambda x, y: t.masked_scatter(x, MASK, y) * y,
    "masked_select": lambda x, y: [t.masked_select(x, MASK) ** 2, x.masked_select(MASK[0]) ** 2],
    "take": lambda x, y: [t.take(x, I) ** 2, x.take(J) ** 2],
    "take_along_dim": lambda x, y: [t.take_along_dim(x, I) ** 2, t.take_along_dim(x, I[:1], 1) ** 2,
                                    x.take_along_dim(I[:, :1], dim=0) ** 2],
    "narrow": lambda x, y: [t.narrow(x, 1, 1, 2) ** 2, x.narrow(0, 1, 2) ** 2,
                            t.narrow(x, 1, -3, 2) * y[:, :2], x.narrow(0, -2, 2) * y[1:],
                            t.narrow(x, 0, J[0] - 3, 1) ** 2, x.narrow(0, 3, 0)],
    "select": lambda x, y: [t.select(x, 1, -1) ** 2, x.select(0, 1) ** 2],
    "squeeze": lambda x, y: [t.squeeze(x[None] * y), x[:, None].squeeze(1) ** 2,
                             x[:, :1].squeeze(0) ** 2, x[:1, :1].squeeze((0, 1)) ** 2],
    "flatten": lambda x, y: [t.flatten(x) ** 2, (x[None] * y).flatten(1), x[0, 0].flatten() ** 2,
                             (x[None] * y).flatten(0, 1)],
    "unflatten": lambda x, y: [t.unflatten(x, 1, (2, 2)) ** 2, x.unflatten(-1, (2, -1)) ** 2],
    "ravel": lambda x, y: [t.ravel(x) ** 2, x.ravel() ** 2],
    "t": lambda x, y: [t.t(x) @ y, x.t() ** 2, x[0].t() ** 2],
    "transpose": lambda x, y: [t.transpose(x, 0, 1) @ y, x.transpose(0, -1) ** 2],
    "swapaxes": lambda x, y: t.swapaxes(x, 0, 1) @ y,
    "swapdims": lambda x, y: x.swapdims(0, 1) @ y,
    "moveaxis": lambda x, y: t.moveaxis(x, 0, 1) @ y,
    "chunk": lambda x, y: [p * p for p in (*t.chunk(x, 2), *x.chunk(3, dim=1), *x.chunk(9, 1))],
    "split": lambda x, y: [p * p for p in (*t.split(x, 2), *x.split(3, dim=1),
                                           *x.split([1, 3], 1))],
    "tensor_split": lambda x, y: [p * p for p in (*t.tensor_split(x, 2),
                                                  *x.tensor_split((1, 2), dim=1))],
    "hstack": lambda x, y: t.hstack([x, y, x * y]),
    "vstack": lambda x, y: t.vstack((x, y * x)),
    "row_stack": lambda x, y: t.row_stack((x, y[0] * x[0])),
    "dstack": lambda x, y: t.dstack([x, x * y]),
    "column_stack": lambda x, y: t.column_stack([x, y[:, 0] ** 2]),
    "fliplr": lambda x, y: [t.fliplr(x) * y, x.fliplr() * y],
    "flipud": lambda x, y: [t.flipud(x) * y, x.flipud() * y],
    "rot90": lambda x, y: [t.rot90(x) @ y, x.rot90(-1, (0, 1)) @ y],
    "diag_embed": lambda x, y: [t.diag_embed(x) ** 2, (x * y).diag_embed(1, 0, 2),
                                x[0].diag_embed(-2) ** 2],
    "diag": lambda x, y: [t.diag(x) ** 2, x[0].diag(1) ** 2, x.diag(diagonal=-1) ** 2],
    "meshgrid": lambda x, y: [a * a for a in (*t.meshgrid(x[0], y[1], indexing="ij"),
                                              *t.meshgrid([x[0], y[0]], indexing="xy"))],
    "broadcast_tensors": lambda x, y: [a * a for a in t.broadcast_tensors(x[0], y[:, :1])],
    "atleast_1d": lambda x, y: [t.atleast_1d(x[0, 0]) ** 2, *t.atleast_1d([x * y, y[0, 0]])],
    "atleast_2d": lambda x, y: t.atleast_2d(x[0]) ** 2,
    "atleast_3d": lambda x, y: t.atleast_3d(x) ** 2,
}  # fmt: skip

ELEMENTWISE: dict[str, Any] = {
    "add": lambda p, q: [t.add(p, q, alpha=2), p.add(q), t.add(p, 3, alpha=0.5), P.add(q, alpha=3)],
    "sub": lambda p, q: [t.sub(p, q, alpha=2), p.sub(1.0, alpha=0.5), p.sub(q) ** 2],
    "subtract": lambda p, q: t.subtract(p, other=q, alpha=-1.0) ** 2,
    "div": lambda p, q: [t.div(p, q), t.div(9 * p, q, rounding_mode="floor") * p,
                         (-9 * p).div(q, rounding_mode="trunc") * q, t.div(1.0, q)],
    "divide": lambda p, q: t.divide(p, q, rounding_mode=None),
    "true_divide": lambda p, q: p.true_divide(q) ** 2,
    "complex": lambda p, q: [(z * z * t.complex(q, p[:1])).real for z in (t.complex(p, q),)]
                            + [t.complex(p, q).imag ** 2],
    "rsqrt": lambda p, q: [t.rsqrt(p), p.rsqrt(), t.rsqrt(input=q)],
    "sinc": lambda p, q: [t.sinc(p), t.sinc(0 * q)],
    "special_sinc": lambda p, q: t.special.sinc(p),
    "special_expit": lambda p, q: t.special.expit(p),
    "special_gammaln": lambda p, q: t.special.gammaln(p),
    "special_digamma": lambda p, q: t.special.digamma(p),
    "special_psi": lambda p, q: t.special.psi(p),
    "erfinv": lambda p, q: t.erfinv(0.3 * p),
    "special_erf": lambda p, q: t.special.erf(p),
    "special_erfcx": lambda p, q: t.special.erfcx(p),
    "special_erfinv": lambda p, q: t.special.erfinv(0.3 * p),
    "special_erfc": lambda p, q: t.special.erfc(p),
    "special_exp2": lambda p, q: t.special.exp2(p),
    "special_expm1": lambda p, q: t.special.expm1(p),
    "special_log1p": lambda p, q: t.special.log1p(p),
    "special_entr": lambda p, q: t.special.entr(p),
    "special_ndtr": lambda p, q: t.special.ndtr(p),
    "special_ndtri": lambda p, q: t.special.ndtri(0.3 * p),
    "i0": lambda p, q: [t.i0(p), (20 * q).i0()],
    "special_i0": lambda p, q: [t.special.i0(p), t.special.i0(20 * q)],
    "special_i0e": lambda p, q: [t.special.i0e(p), t.special.i0e(-20 * q)],
    "special_i1": lambda p, q: [t.special.i1(p), t.special.i1(20 * q)],
    "special_i1e": lambda p, q: [t.special.i1e(p), t.special.i1e(-20 * q)],
    "sgn": lambda p, q: t.sgn(p - 0.5) * p,
    "fix": lambda p, q: t.fix(9 * p) * p,
    "deg2rad": lambda p, q: t.deg2rad(p) ** 2,
    "sign": lambda p, q: [t.sign(p - q) * p, (p - q).sign() * q],
    "angle": lambda p, q: [t.angle(p - q) * p, t.angle(t.complex(p - 0.5, q)) ** 2],
    "rad2deg": lambda p, q: t.rad2deg(p) ** 2,
    "where": lambda p, q: t.where(p > 0.5, p * q, q),
    "heaviside": lambda p, q: t.heaviside((p - 0.5).detach(), q.detach()) * p,
    "logaddexp2": lambda p, q: t.logaddexp2(p, q),
    "fmax": lambda p, q: t.fmax(p, q) * p,
    "fmin": lambda p, q: p.fmin(other=q) * p,
    "xlogy": lambda p, q: [t.xlogy(p, q), p.xlogy(2.0), t.xlogy(2.0, q)],
    "special_xlogy": lambda p, q: t.special.xlogy(p, q),
    "special_xlog1py": lambda p, q: t.special.xlog1py(p, q),
    "logit": lambda p, q: [t.logit(p), p.logit(0.3), t.logit(p, eps=0.4)],
    "special_logit": lambda p, q: t.special.logit(p),
    "polygamma": lambda p, q: [t.polygamma(1, p), t.polygamma(2, q)],
    "special_polygamma": lambda p, q: t.special.polygamma(1, p),
    "float_power": lambda p, q: [t.float_power(p, q), p.float_power(3), t.float_power(2, q)],
    "nan_to_num": lambda p, q: [t.nan_to_num(t.where(MASK, math.nan, p)) * q,
                                t.nan_to_num(t.where(MASK, -math.inf, p), neginf=2.0) * q,
                                p.nan_to_num(posinf=1.0) * q],
    "round": lambda p, q: [t.round(99 * p, decimals=-1) * q, p.round(decimals=2) * q,
                           p.round() * q],
    "special_round": lambda p, q: t.special.round(p) * q,
    "clamp": lambda p, q: [t.clamp(p, 0.3, 0.6) ** 2, p.clamp(max=q) ** 2,
                           t.clamp(q, p, p + 0.1) ** 2,
                           p.clamp(0, 1) ** 2, t.clamp(p, min=q.float() - 0.1) * q,
                           t.clamp(p.float(), q[0, 0]).double() * q, p.clamp(q, q * q)],
    "clip": lambda p, q: [t.clip(p, 0.3) ** 2, p.clip(max=0.4) ** 2, t.clip(MASK, q) * p],
    "clamp_min": lambda p, q: [t.clamp_min(p, 0.5) ** 2, p.clamp_min(q) ** 2],
    "clamp_max": lambda p, q: [t.clamp_max(p, 0.5) ** 2, p.clamp_max(max=0.4) ** 2],
    "reciprocal": lambda p, q: [t.reciprocal(p), q.reciprocal()],
}  # fmt: skip

WITHOUT: dict[str, Any] = {
    "bessel_j0": (t.special.bessel_j0, lambda x: -t.special.bessel_j1(x)),
    "bessel_j1": (t.special.bessel_j1, lambda x: t.special.bessel_j0(x)
                  - t.special.bessel_j1(x) / x),
    "bessel_y0": (t.special.bessel_y0, lambda x: -t.special.bessel_y1(x)),
    "bessel_y1": (t.special.bessel_y1, lambda x: t.special.bessel_y0(x)
                  - t.special.bessel_y1(x) / x),
    "modified_bessel_i0": (t.special.modified_bessel_i0, t.special.modified_bessel_i1),
    "modified_bessel_i1": (t.special.modified_bessel_i1, lambda x: t.special.modified_bessel_i0(x)
                           - t.special.modified_bessel_i1(x) / x),
    "gammainc": (lambda x: t.special.gammainc(1.4 + 0 * P, x),
                 lambda x: x**0.4 * t.exp(-x) / math.gamma(1.4)),
    "gammaincc": (lambda x: t.special.gammaincc(1.4 + 0 * P, x),
                  lambda x: -(x**0.4) * t.exp(-x) / math.gamma(1.4)),
    "zeta": (lambda x: t.special.zeta(2.4, x), lambda x: -2.4 * t.special.zeta(3.4, x)),
} if HAS_TORCH else {}  # fmt: skip
"""Functions that torch does not differentiate, of one number, and their derivatives."""

NEURAL: dict[str, Any] = {
    "nn.functional.relu": lambda x, y: F.relu(x) * y,
    "nn.functional.relu6": lambda x, y: F.relu6(4 * x + 3) * y,
    "nn.functional.leaky_relu": lambda x, y: [F.leaky_relu(x) * y, F.leaky_relu(x, 0.3) * y],
    "nn.functional.elu": lambda x, y: [F.elu(x), F.elu(x, alpha=0.5)],
    "nn.functional.celu": lambda x, y: F.celu(x, 0.7),
    "nn.functional.selu": lambda x, y: F.selu(x),
    "nn.functional.gelu": lambda x, y: [F.gelu(x), F.gelu(x, approximate="tanh")],
    "nn.functional.silu": lambda x, y: F.silu(x),
    "nn.functional.mish": lambda x, y: F.mish(x),
    "nn.functional.softplus": lambda x, y: [F.softplus(x), F.softplus(x, 2.0),
                                            F.softplus(9 * x, beta=3, threshold=5)],
    "nn.functional.softsign": lambda x, y: F.softsign(x),
    "nn.functional.tanhshrink": lambda x, y: F.tanhshrink(x),
    "nn.functional.hardtanh": lambda x, y: [F.hardtanh(x) * y, F.hardtanh(x, -0.2, 0.4) * y],
    "nn.functional.hardsigmoid": lambda x, y: F.hardsigmoid(3 * x) * y,
    "nn.functional.hardswish": lambda x, y: F.hardswish(3 * x),
    "nn.functional.softshrink": lambda x, y: [F.softshrink(x) * y, F.softshrink(x, 0.2) * y],
    "nn.functional._threshold": lambda x, y: F.threshold(x, 0.1, 20.0) * y,
    "nn.functional.log_sigmoid": lambda x, y: F.logsigmoid(9 * x),
    "nn.functional.softmax": lambda x, y: [F.softmax(x, dim=0), *without_axis(F.softmax, x)],
    "nn.functional.softmin": lambda x, y: [F.softmin(x, 1), *without_axis(F.softmin, x)],
    "nn.functional.log_softmax": lambda x, y: [
        F.log_softmax(x, dim=-1) * y, *without_axis(F.log_softmax, x)],
    "nn.functional.glu": lambda x, y: [F.glu(x), F.glu(x[:2], 0)],
    "nn.functional.mse_loss": lambda x, y: [F.mse_loss(x, y), F.mse_loss(x, y, reduction="sum"),
                                            F.mse_loss(y, x, reduction="none"),
                                            *weighted_mse(x, y)],
    "nn.functional.l1_loss": lambda x, y: F.l1_loss(x, y) ** 2,
    "nn.functional.smooth_l1_loss": lambda x, y: [F.smooth_l1_loss(x, y), F.smooth_l1_loss(
        x, y, beta=0.4, reduction="none"), F.smooth_l1_loss(x, y, beta=0.0) ** 2],
    "nn.functional.huber_loss": lambda x, y: [F.huber_loss(x, y), F.huber_loss(x, y, delta=0.6,
                                                                             reduction="sum")],
    "nn.functional.binary_cross_entropy": lambda x, y: [
        F.binary_cross_entropy(x.sigmoid(), MASK.double()),
        F.binary_cross_entropy(x.sigmoid(), Q, weight=P, reduction="none")],
    "nn.functional.binary_cross_entropy_with_logits": lambda x, y: [
        F.binary_cross_entropy_with_logits(x, y), F.binary_cross_entropy_with_logits(
            x, Q, weight=P, pos_weight=P[0], reduction="sum")],
    "nn.functional.kl_div": lambda x, y: [
        F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), F.kl_div(x, y.sigmoid(),
        reduction="none"), F.kl_div(x, y, log_target=True, reduction="sum")],
    "nn.functional.nll_loss": lambda x, y: [
        F.nll_loss(x.log_softmax(1), K), F.nll_loss(x * x, K, weight=P[0], reduction="none"),
        F.nll_loss(x * y, K, P[0]), F.nll_loss(x * y, K, ignore_index=0),
        F.nll_loss(x[0] ** 2, K[0]), F.nll_loss((x * y)[..., None], K[:, None], reduction="sum")],
    "nn.functional.cross_entropy": lambda x, y: [
        F.cross_entropy(x, K), F.cross_entropy(x, K, P[0], reduction="sum"),
        F.cross_entropy(x, y.softmax(1)), F.cross_entropy(x, P, label_smoothing=0.1)],
    "nn.functional.linear": lambda x, y: [F.linear(x, y), F.linear(x, y, y[:, 0]),
                                          F.linear(x, y[0])],
    "nn.functional.normalize": lambda x, y: [F.normalize(x), F.normalize(x, p=3.0, dim=0)],
    "nn.functional.layer_norm": lambda x, y: [F.layer_norm(x, (4,)), F.layer_norm(
        x, (3, 4), y, x * y, eps=1e-3)],
    "nn.functional.rms_norm": lambda x, y: [F.rms_norm(x, (4,)), F.rms_norm(x, (4,), y[0], 1e-3)],
    "nn.functional.embedding": lambda x, y: F.embedding(I, x) ** 2,
    "nn.functional.dropout": lambda x, y: F.dropout(x, training=False) ** 2,
    "nn.functional.pad": lambda x, y: [F.pad(x, (1, 2)) ** 2,
                                       F.pad(x, (0, 1, -1, 2), value=3.0) ** 2],
    "celu": lambda x, y: t.celu(x, 0.7),
    "selu": lambda x, y: t.selu(x),
    "hardshrink": lambda x, y: [F.hardshrink(x) * y, t.hardshrink(x, 0.2) * y, x.hardshrink() * y],
    "cosine_similarity": lambda x, y: [F.cosine_similarity(x, y), t.cosine_similarity(x, y, 0),
                                       t.cosine_similarity(B[:, :, :3] * x[:, :3], y[:, 1:], 1),
                                       F.cosine_similarity(x[0], y[:, :1] * y, dim=-1),
                                       F.cosine_similarity(B, x[:, :1] * x, dim=-2)],
    "pairwise_distance": lambda x, y: [F.pairwise_distance(x, y), F.pairwise_distance(
        x, y, 3.0, keepdim=True)],
}  # fmt: skip

METHODS: dict[str, Any] = {
    "expand": lambda x, y: [x[:, :1].expand(3, 4) * y, x[0].expand(2, -1) ** 2,
                            x[:1].expand((3, 4)) * y],
    "expand_as": lambda x, y: [x[:1].expand_as(y) * y, Y[:1].expand_as(x) * x],
    "view": lambda x, y: [x.view(4, 3) @ y, x.view(-1) ** 2, x.view((2, -1)) ** 2],
    "view_as": lambda x, y: [x.view_as(y.T) ** 2, Y.view_as(x.reshape(4, 3)) @ x],
    "reshape_as": lambda x, y: x.reshape_as(y.T) ** 2,
    "repeat": lambda x, y: [x.repeat(2, 1) ** 2, x.repeat(2, 1, 3) ** 2, x[0].repeat(2) ** 2],
    "clone": lambda x, y: [x.clone() * y, t.clone(x) ** 2],
    "contiguous": lambda x, y: x.T.contiguous() @ y,
    "detach": lambda x, y: [x.detach() * x, t.detach(y) * x],
    "to": lambda x, y: [x.to(t.float64) ** 2, x.to("cpu") ** 2, x.to(Y) ** 2,
                        x.to("cpu", t.float64), x.to(dtype=t.float64, copy=True) * y],
    "type": lambda x, y: (x.type(torch.float32) * 2).type(dtype=y.dtype) * y,
    "type_as": lambda x, y: [x.type_as(y) * y, Y.type_as(x) * y],
    "double": lambda x, y: x.double() * y,
    "float": lambda x, y: (x.float() * 2).double() * y,
    "half": lambda x, y: (x.half() * 2).double() * y,
    "bfloat16": lambda x, y: (x.bfloat16() * 2).double() * y,
    "long": lambda x, y: (9 * x).long() * y,
    "int": lambda x, y: (9 * x).int() * y,
    "bool": lambda x, y: x.bool() * y,
    "where": lambda x, y: [x.where(MASK, y) * y, Y.where(MASK, x) ** 2, x.where(MASK, 2.0) ** 2],
    "sum_to_size": lambda x, y: [x.sum_to_size(3, 1) * y, x.sum_to_size((4,)) ** 2],
    "adjoint": lambda x, y: x.adjoint() @ y,
    "dim": lambda x, y: x.dim() * x * y,
    "ndimension": lambda x, y: x.ndimension() * x * y,
    "nelement": lambda x, y: x.nelement() * x * y,
    "polygamma": lambda x, y: [(2 + x * x).polygamma(1) * y, (2 + y * y).polygamma(n=0)],
    "unfold": lambda x, y: [x.unfold(1, 2, 1) ** 2, (x * y).unfold(0, 2, 3), x[0].unfold(0, 4, 1)],
    "new_zeros": lambda x, y: [filled(x.new_zeros(3, 4), x), x.new_zeros((2,), dtype=t.float32)],
    "new_ones": lambda x, y: [filled(x.new_ones((3, 4)), y), x.new_ones(2) * x[:2, 0]],
    "new_empty": lambda x, y: x.new_empty(3, 4).copy_(x * y),
    "new_tensor": lambda x, y: x.new_tensor([1.0, 2.0, 3.0, 4.0]) * y,
    "new_full": lambda x, y: [x.new_full((2,), 3.0) * y[:2, 0], y.new_full((3, 4), 2.0) * x],
    "to_device": lambda x, y: x * y,
}  # fmt: skip


def filled(new: Any, x: Any) -> Any:
    """Return a tensor that is written to in several ways."""
    new[0] = x[0]
    new += x
    return new.mul_(x)


def cases() -> dict[str, tuple[Any, ...]]:
    found = {name: (f, "X", "Y") for name, f in (REDUCTIONS | MOVES | NEURAL).items()}
    found |= {f"method {name}": (f, "X", "Y") for name, f in METHODS.items()}
    found |= {name: (f, "P", "Q") for name, f in ELEMENTWISE.items()}
    return found | {n: (f, *(names or ("X", "Y"))) for n, (f, *names) in PRODUCTS.items()}


CASES = cases()


def test_every_function_and_method_has_a_case() -> None:
    tables = (TORCH_ELEMENTWISE, TORCH_REDUCTIONS, TORCH_PRODUCTS, TORCH_MOVES, TORCH_NEURAL)
    functions = {name for table in tables for name in table}
    functions -= {f"special_{name}" for name in WITHOUT}
    assert functions | {f"method {name}" for name in TORCH.methods} == CASES.keys()


@pytest.mark.rows("name", WITHOUT)
def test_what_torch_does_not_differentiate_has_the_known_derivative(name: str) -> None:
    if f"special_{name}" not in TORCH_ELEMENTWISE:
        pytest.skip(f"mixad.special has no function for {name}")
    function, derivative = WITHOUT[name]
    # Beyond 5, torch's J and Y have some nine digits.
    for x, tolerance in ((P, 1e-12), (9 + P, 1e-8)):
        value, pull = mixad.vjp(function, x)
        torch.testing.assert_close(value, function(x), rtol=tolerance, atol=tolerance)
        (found,) = pull(torch.ones_like(x))
        torch.testing.assert_close(found, derivative(x), rtol=tolerance, atol=tolerance)


def test_solving_from_the_right_takes_no_vectors_as_in_torch() -> None:
    for b in (S, S[0]):
        with pytest.raises(RuntimeError, match="Incompatible shapes"):
            t.linalg.solve(SQUARES, b, left=False)
        with pytest.raises(RuntimeError, match="Incompatible shapes"):
            mixad.grad(lambda a, b=b: t.linalg.solve(a, b, left=False).sum())(SQUARES)


def weighted(function: Any, *tensors: Any) -> Any:
    """Return a sum of all that a function returns, each element with a weight of its own."""
    found = sum((0.0 * x).sum() for x in tensors)
    for number, part in enumerate(parts_of(function(*tensors))):
        if part.dtype.is_floating_point:
            size = math.prod(part.shape)
            weights = t.cos(number + 0.7 * t.arange(size, dtype=t.float64)).reshape(part.shape)
            found = found + (part * weights).sum()
    return found


def along(tensors: Any, phase: float) -> list[Any]:
    return [t.cos(phase + t.arange(x.numel(), dtype=t.float64)).reshape(x.shape) for x in tensors]


def theirs(function: Any, tensors: Any, *, second: bool) -> tuple[Any, ...]:
    """Return torch's value, gradients, and gradients of the slope along a direction."""
    tensors = [x.clone().requires_grad_() for x in tensors]
    value = weighted(function, *tensors)
    gradients = t.autograd.grad(value, tensors, create_graph=second)
    if not second:
        return value.detach(), gradients, None
    slope = sum((g * v).sum() for g, v in zip(gradients, along(tensors, 1.0), strict=True))
    slope = slope + sum((0.0 * x).sum() for x in tensors)
    return value.detach(), [g.detach() for g in gradients], t.autograd.grad(slope, tensors)


def ours(function: Any, tensors: Any) -> tuple[Any, ...]:
    places = tuple(range(len(tensors)))
    directions = along(tensors, 1.0)

    def slope(*tensors: Any) -> Any:
        gradients = mixad.grad(lambda *x: weighted(function, *x), places)(*tensors)
        pairs = zip(gradients, directions, tensors, strict=True)
        return sum((g * v).sum() + (0.0 * x).sum() for g, v, x in pairs)

    value, gradients = mixad.value_and_grad(lambda *x: weighted(function, *x), places)(*tensors)
    return value, gradients, mixad.grad(slope, places)(*tensors)


def agree(found: Any, wanted: Any, tolerance: float) -> None:
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        torch.testing.assert_close(f, w, rtol=tolerance, atol=tolerance)


ONCE = {"cdist", "nn.functional.hardsigmoid", "sinc"}
"""Functions that torch does not differentiate twice, or not at 0."""

LOOSE = {"special_gammaln": 1e-7, "special_digamma": 1e-7, "special_psi": 1e-7, "polygamma": 1e-7,
         "special_polygamma": 1e-7, "method polygamma": 1e-7, "celu": 1e-7,
         "nn.functional.celu": 1e-7,
         "nn.functional.hardsigmoid": 1e-7, "method float": 1e-6, "clamp": 1e-6,
         "method type": 1e-6, "method half": 1e-2,
         "method bfloat16": 1e-1}  # fmt: skip
"""Functions of which torch has fewer digits: its polygamma, and what takes numbers as float32."""


@pytest.mark.filterwarnings("ignore:.*Casting complex:UserWarning")
@pytest.mark.filterwarnings("ignore:Implicit dimension choice:UserWarning")
@pytest.mark.rows("name", CASES)
def test_values_and_derivatives_are_those_of_torch(name: str) -> None:
    function, *names = CASES[name]
    tensors = [globals()[each] for each in names]
    value, _ = mixad.vjp(function, *tensors)
    for found, wanted in zip(parts_of(value), parts_of(function(*tensors)), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        tolerance = LOOSE.get(name, 1e-12)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    value, gradients, second = theirs(function, tensors, second=name not in ONCE)
    own_value, own_gradients, own_second = ours(function, tensors)
    tolerance = LOOSE.get(name, 1e-10)
    agree([own_value], [value], tolerance)
    agree(own_gradients, gradients, tolerance)
    if second is not None:
        agree(own_second, second, tolerance)
    directions = along(tensors, 2.0)
    _, tangent = mixad.jvp(lambda *x: weighted(function, *x), tensors, directions)
    slope = sum((g * v).sum() for g, v in zip(gradients, directions, strict=True))
    agree([tangent], [slope], tolerance)


REFUSED: dict[str, Any] = {
    "bce, target": lambda x: F.binary_cross_entropy(x.sigmoid(), Q[0]),
    "bce, input above 1": lambda x: F.binary_cross_entropy(x.exp(), Q),
    "bce, input nan": lambda x: F.binary_cross_entropy(x.sigmoid() * math.nan, Q),
    "bce, target below 0": lambda x: F.binary_cross_entropy(x.sigmoid(), -Q),
    "bce, weight": lambda x: F.binary_cross_entropy(x.sigmoid(), Q, weight=B.sigmoid()),
    "logits, target": lambda x: F.binary_cross_entropy_with_logits(x, Q[0]),
    "logits, pos_weight": lambda x: F.binary_cross_entropy_with_logits(
        x, Q, pos_weight=B.sigmoid()
    ),
    "logits, weight": lambda x: F.binary_cross_entropy_with_logits(x, Q, B.sigmoid()),
    "cross_entropy, probabilities": lambda x: F.cross_entropy(x, Q[0]),
    "layer_norm, shape": lambda x: F.layer_norm(x, (5,)),
    "layer_norm, no shape": lambda x: F.layer_norm(x, ()),
    "layer_norm, weight": lambda x: F.layer_norm(x, (4,), x),
    "layer_norm, bias": lambda x: F.layer_norm(x, (4,), None, x[:, :1]),
    "rms_norm, shape": lambda x: F.rms_norm(x, (3, 5)),
    "rms_norm, weight": lambda x: F.rms_norm(x, (4,), x[0, :1]),
    "embedding of -1": lambda x: F.embedding(t.tensor([0, -1]), x),
    "embedding behind the end": lambda x: F.embedding(t.tensor([3]), x),
    "embedding in numbers": lambda x: F.embedding(t.tensor([0]), x[0]),
    "nll_loss of class -1": lambda x: F.nll_loss(x, t.tensor([0, -1, 2])),
    "gelu, approximate": lambda x: F.gelu(x, approximate="typo"),
    **{
        f"{name}, batchmean": lambda x, name=name: getattr(F, name)(
            x.sigmoid(), K if name == "nll_loss" else Q, reduction="batchmean"
        )
        for name in "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
        "binary_cross_entropy_with_logits nll_loss cross_entropy".split()
    },
    "clamp to nothing": lambda x: x.clamp(),
    "logsumexp over no axes": lambda x: t.logsumexp(x, ()),
    "linalg.norm over no axes": lambda x: t.linalg.norm(x, dim=()),
    "matrix_norm over no axes": lambda x: t.linalg.matrix_norm(x, dim=()),
    "glu of an odd length": lambda x: F.glu(x, 0),
    "glu of length 1": lambda x: F.glu(x[:, :1]),
    "narrow behind the end": lambda x: t.narrow(x, 1, 3, 5),
    "narrow behind the end, from the end": lambda x: x.narrow(0, -1, 2),
    "narrow from before the start": lambda x: x.narrow(0, -4, 1),
    "narrow from behind the end": lambda x: x.narrow(0, 4, 0),
    "narrow to a negative length": lambda x: x.narrow(0, 1, -1),
    "flatten of an axis that is not there": lambda x: t.flatten(x, 3),
    "flatten backwards": lambda x: x.flatten(1, 0),
    "split into parts of no elements": lambda x: t.split(x, 0)[0],
    "split into parts of negative lengths": lambda x: x.split([-1, 4])[1],
    "split into no parts": lambda x: [x.sum(), *x.split([])],
    "softmax of all axes": lambda x: t.softmax(x, None),
    "softmax of two axes": lambda x: x.log_softmax((0, 1)),
    "softmax of a number along a second axis": lambda x: t.softmax(x[0, 0], 1),
    "mse_loss, weights": lambda x: F.mse_loss(x, Y, weight=P[0]),
    "mse_loss, weights of a broadcast": lambda x: F.mse_loss(x[0], Y, weight=P),
}
"""What torch refuses, and so do we, where another shape or value would give a number."""


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.rows("name", REFUSED)
def test_what_torch_refuses_is_refused(name: str) -> None:
    refused = (ValueError, IndexError, RuntimeError, TypeError)
    with pytest.raises(refused):
        REFUSED[name](X)
    with pytest.raises(refused):
        mixad.vjp(REFUSED[name], X)


KINKS: dict[str, Any] = {
    "relu": lambda x: F.relu(x),
    "relu6": lambda x: F.relu6(x),
    "leaky_relu": lambda x: F.leaky_relu(x),
    "elu": lambda x: F.elu(x, 0.5),
    "celu": lambda x: F.celu(x, 0.5),
    "selu": lambda x: F.selu(x),
    "softplus": lambda x: F.softplus(x, threshold=3),
    "hardtanh": lambda x: F.hardtanh(x),
    "hardsigmoid": lambda x: F.hardsigmoid(x),
    "hardshrink": lambda x: F.hardshrink(x),
    "softshrink": lambda x: F.softshrink(x),
    "threshold": lambda x: F.threshold(x, 1.0, 2.0),
    "l1_loss": lambda x: F.l1_loss(x, t.zeros_like(x), reduction="none"),
    "huber_loss": lambda x: F.huber_loss(x, t.zeros_like(x), reduction="none"),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, t.zeros_like(x), reduction="none"),
    "fmax": lambda x: t.fmax(x, t.ones_like(x)),
    "fmax of nan": lambda x: t.fmax(x, t.ones_like(x) * math.nan),
    "fmax, other": lambda x: t.fmax(t.ones_like(x), x),
    "fmin": lambda x: t.fmin(x, t.ones_like(x)),
    "fmin of nan": lambda x: t.fmin(t.ones_like(x) * math.nan, x),
    "fmin, other": lambda x: t.fmin(t.ones_like(x), x),
    "maximum": lambda x: t.maximum(x, t.ones_like(x)),
    "maximum of nan": lambda x: t.maximum(t.ones_like(x), x * 0 + math.nan),
    "minimum": lambda x: t.minimum(t.ones_like(x), x),
    "max of two": lambda x: t.max(x, t.ones_like(x)),
    "clamp": lambda x: t.clamp(x, -1.0, 3.0),
    "clamp to tensors": lambda x: x.clamp(t.zeros_like(x), t.ones_like(x)),
    "clamp, the bounds": lambda x: t.clamp(t.ones_like(x), -x, x),
    "clamp, one bound": lambda x: x.clamp(max=1),
    "clamp to nan": lambda x: x.clamp(math.nan, 1.0),
    "clamp from nan": lambda x: t.clamp(x, max=t.ones_like(x) * math.nan),
    "clip": lambda x: t.clip(x, min=0.5),
    "clamp_min": lambda x: t.clamp_min(x, 1.0),
    "clamp_min, the bound": lambda x: t.clamp_min(t.ones_like(x), x),
    "clamp_max": lambda x: x.clamp_max(t.ones_like(x)),
    "amax": lambda x: t.amax(t.stack([x, t.ones_like(x)]), 0),
    "hardswish": lambda x: F.hardswish(x),
    "abs": lambda x: t.abs(x),
    "max": lambda x: t.max(t.stack([x, x]), 0).values,
    "norm": lambda x: t.linalg.vector_norm(x[:, None], dim=1),
}


@pytest.mark.rows("name", KINKS)
def test_derivatives_at_kinks_are_those_of_torch(name: str) -> None:
    function = KINKS[name]
    x = t.tensor([0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, math.nan], dtype=t.float64)
    own = x.clone().requires_grad_()
    value = function(own)
    (gradient,) = t.autograd.grad(value.sum(), own)
    found = mixad.vjp(function, x)
    torch.testing.assert_close(found[0], value.detach(), equal_nan=True)
    (slopes,) = found[1](t.ones_like(x))
    compared = ~x.isnan()
    if torch.__version__ >= "2.14" and name.startswith(("clamp", "clip", "fmax", "fmin")):
        own = torch.stack([x - 1e-6, x + 1e-6]).requires_grad_()
        (beside,) = t.autograd.grad(function(own).sum(), own)
        compared &= (beside[0] == beside[1]) & ~value.isnan()  # torch splits ties, or has 0 there
    torch.testing.assert_close(slopes[compared], gradient[compared], rtol=1e-7, atol=0.0)


TIES: dict[str, Any] = {
    "clamp": (lambda x, at: x.clamp(-1.0, 2.0), 1.0),
    "clamp to tensors": (lambda x, at: t.clamp(x, at, at), 1.0),
    "clamp, the bound": (lambda x, at: at.clamp(max=x), 0.0),
    "clamp_min": (lambda x, at: x.clamp_min(at), 1.0),
    "clip": (lambda x, at: t.clip(x, max=2.0), 1.0),
    "fmax": (lambda x, at: t.fmax(x, at), 1.0),
    "fmax, other": (lambda x, at: t.fmax(at, x), 0.0),
    "fmin": (lambda x, at: t.fmin(x, at), 1.0),
}


@pytest.mark.rows("name", TIES)
def test_what_is_clamped_is_the_first_operand_where_it_ties(name: str) -> None:
    function, slope = TIES[name]
    x = t.tensor([-1.0, 2.0], dtype=t.float64)
    found = mixad.grad(lambda x, at: function(x, at).sum())(x, x.clone())
    torch.testing.assert_close(found, t.full_like(x, slope))


OVER_NONE = ("sum mean amax amin nansum var std var_mean std_mean norm "
             "linalg.vector_norm").split()  # fmt: skip


@pytest.mark.rows("axes", [(), []])
@pytest.mark.rows("name", OVER_NONE)
def test_reductions_over_no_axes_are_those_of_torch(name: str, axes: Any) -> None:
    module, _, last = name.rpartition(".")
    function = getattr(t.linalg if module else t, last)

    def reduced(x: Any, axes: Any = axes) -> list[Any]:
        found = [function(x, dim=axes), function(x, dim=axes, keepdim=True)]
        if hasattr(t.Tensor, last):
            found.append(getattr(x, last)(dim=axes))
        return [part for each in found for part in parts_of(each)]

    agree(mixad.vjp(reduced, X)[0], reduced(X), 1e-12)
    # torch's own gradient of the variance over no axes is nan: that over both is what it has to be
    value, gradients, _ = theirs(lambda x: reduced(x, (0, 1)), [X], second=False)
    own_value, own_gradients = mixad.value_and_grad(lambda x: weighted(reduced, x))(X)
    agree([own_value, own_gradients], [value, *gradients], 1e-12)


def test_places_are_plain_tensors() -> None:
    def loss(x: Any) -> Any:
        for found in (t.max(x, 0), x.min(1), t.sort(x), x.topk(2)):
            assert type(found.indices) is torch.Tensor
        largest = x.max(dim=1)
        torch.testing.assert_close(largest.indices, X.max(dim=1).indices)
        return largest.values.sum()

    wanted = t.zeros_like(X).scatter(1, X.max(1).indices[:, None], 1.0)
    torch.testing.assert_close(mixad.grad(loss)(X), wanted)


def test_methods_of_plain_tensors_take_traced_ones() -> None:
    calls: list[Any] = [
        lambda x: Y.max(x), lambda x: Y.where(MASK, x), lambda x: Y.addmm(x, W),
        lambda x: Y.lerp(x, x),
        lambda x: Y[:1].expand_as(x) * x, lambda x: Y.scatter_add(0, I, x[:2]), lambda x: Y.dist(x),
        lambda x: Y.index_copy(0, J[:2], x[:2]), lambda x: Y.masked_fill(MASK, x[0, 0]),
    ]  # fmt: skip
    for call in calls:
        _, gradients, _ = theirs(call, [X], second=False)
        found = mixad.grad(lambda x, call=call: weighted(call, x))(X)
        agree([found], gradients, 1e-12)


def test_a_tensor_is_copied_where_the_second_flag_says_so() -> None:
    def loss(x: Any, *args: Any) -> Any:
        x = x * 1.0
        copied = x.to(*args)
        copied[0] = 7.0
        return (x * x).sum()

    for args in ((t.float64, False, True), ("cpu", t.float64, False, True), (X, False, True)):
        torch.testing.assert_close(mixad.grad(lambda x, a=args: loss(x, *a))(X), 2 * X)
    for args in ((t.float64,), (t.float64, True, False)):  # then it is written to under both names
        with pytest.raises(MixadError):
            mixad.grad(lambda x, a=args: loss(x, *a))(X)


@pytest.mark.filterwarnings("ignore:.*Casting complex:UserWarning")
@pytest.mark.filterwarnings("ignore:Implicit dimension choice:UserWarning")
@pytest.mark.rows("name", CASES)
def test_results_are_on_the_device_of_their_arguments(name: str) -> None:
    """What is made beside tensors is where they are, not where torch makes tensors by itself."""
    function, *names = CASES[name]
    tensors = [globals()[each] for each in names]
    wanted, wanted_pullback = mixad.vjp(function, *tensors)
    cotangents = pytree.tree_map(t.ones_like, wanted)
    with torch.device("meta"):
        found, pullback = mixad.vjp(function, *tensors)
        slopes = pullback(cotangents)
    torch.testing.assert_close(parts_of(found), parts_of(wanted), equal_nan=True)
    torch.testing.assert_close(slopes, wanted_pullback(cotangents))


def test_methods_that_tensors_lack_are_refused() -> None:
    for name in ("fill", "flat", "astype_", "compress", "ptp", "std_mean", "cat"):
        with pytest.raises((AttributeError, TracerError)):
            mixad.grad(lambda x, name=name: getattr(x, name)().sum())(X)


def test_a_detached_tensor_has_no_derivative_in_nested_transforms() -> None:
    def inner(x: Any) -> Any:
        return mixad.grad(lambda y: (y.detach() * y * x.detach() * x).sum())(x).sum()

    torch.testing.assert_close(mixad.grad(inner)(V), V * V)


def test_a_view_of_a_tensor_is_not_used_after_a_write() -> None:
    for view in (lambda x: x.view(-1), lambda x: x.expand(3, 4), lambda x: x.narrow(0, 0, 1),
                 lambda x: x.split(1)[0], lambda x: t.squeeze(x), lambda x: x.t()):  # fmt: skip

        def loss(x: Any, view: Any = view) -> Any:
            x = x * 1.0
            part = view(x)
            x[0, 0] = 2.0
            return part.sum() + x.sum()

        assert view(X).data_ptr() == X.data_ptr()
        with pytest.raises(MixadError):
            mixad.grad(loss)(X)


@pytest.mark.rows("function", ["softmax", "log_softmax"])
@pytest.mark.rows("dtype", ["float16", "bfloat16"])
@pytest.mark.rows("count", [300, 70_000])
def test_many_16_bit_floats_are_added_up_in_32_bits(function: str, dtype: str, count: int) -> None:
    """70,000 are more than the largest float16, and a bfloat16 counts to 256."""
    x = (torch.arange(count) % 3).to(getattr(torch, dtype))
    g = (torch.arange(count) % 2).to(x.dtype)
    value, pullback = mixad.vjp(lambda x: getattr(F, function)(x, 0), x)
    exact = x.double().requires_grad_()
    want = getattr(F, function)(exact, 0)
    (slope,) = torch.autograd.grad(want, exact, g.double())
    eps = float(torch.finfo(x.dtype).eps)
    for found, number in ((value, want.detach()), (pullback(g)[0], slope)):
        assert found.dtype == x.dtype
        torch.testing.assert_close(found.double(), number, rtol=eps, atol=1e-7)
