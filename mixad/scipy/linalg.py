"""Linear algebra: counterparts of functions of `scipy.linalg`, whose derivatives are NumPy's."""

from __future__ import annotations

import math
from typing import Any

from mixad.backends.arrays import library_of
from mixad.scipy.arguments import as_floats, is_complex, of_arrays
from mixad.tape.tracer import primal_value

__all__ = ["cho_solve", "cholesky", "det", "eigh", "expm", "inv", "lstsq", "solve",
           "solve_triangular", "svd"]  # fmt: skip


@of_arrays("a")
def cholesky(a: Any, lower: bool = False) -> Any:
    """Return the Cholesky factors of positive definite matrices.

    Parameters
    ----------
    a : array
        Symmetric or Hermitian matrices, of which one triangle is read; what is differentiated has
        to be so, and so is the gradient.
    lower : bool
        Whether factors, and what is read, are the lower triangular ones; SciPy's default is the
        upper ones.

    Returns
    -------
    array
        The factors.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]])
    array([[2., 1.],
           [0., 2.]])
    """
    (a,) = as_floats(a)
    of_read = a if lower else _transpose(a, "C")  # of which the lower triangle is read
    return a.__array_namespace__().linalg.cholesky(of_read, upper=not lower)


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Any:
    """Solve linear systems, given Cholesky factors.

    Parameters
    ----------
    c_and_lower : pair of array and bool
        Factors, of which one triangle is read, and whether that is the lower one.
    b : array
        Right-hand sides: a vector if it has one axis, else the columns of matrices.

    Returns
    -------
    array
        Of the shape of ``b``.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.cho_solve(([[2.0, 1.0], [0.0, 2.0]], False), [6.0, 7.0])
    array([1., 1.])
    """
    c, lower = c_and_lower
    return _solved_by_factors(c, b, lower)


@of_arrays("c b")
def _solved_by_factors(c: Any, b: Any, lower: bool) -> Any:
    is_vector = b.ndim == 1  # beside stacks of matrices, too
    columns = b[:, None] if is_vector else b
    half: Any = solve_triangular(c, columns, trans="N" if lower else "C", lower=lower)
    found: Any = solve_triangular(c, half, trans="C" if lower else "N", lower=lower)
    return found[..., 0] if is_vector else found


@of_arrays("a b")
def solve(
    a: Any, b: Any, lower: bool = False, *, assume_a: str | None = None, transposed: bool = False
) -> Any:
    """Solve linear systems.

    Parameters
    ----------
    a : array
        Square matrices.
    b : array
        Right-hand sides: a vector if it has one axis, else the columns of matrices.
    lower : bool
        Which triangle is read of matrices that are symmetric, Hermitian or positive definite: they
        are made of it, and so the gradient is 0 in the other one.
    assume_a : str, optional
        What matrices are: ``"general"``, ``"symmetric"``, ``"hermitian"``,
        ``"positive definite"``, ``"upper triangular"``, ``"lower triangular"``, or SciPy's short
        names.  General by default: which methods SciPy chooses does not change the result.
    transposed : bool
        Whether the systems are those of the transposed matrices.

    Returns
    -------
    array
        Of the shape of ``b``.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.solve([[2.0, 1.0], [0.0, 4.0]], [4.0, 8.0])
    array([1., 2.])
    """
    kind = _KINDS.get(assume_a or "gen", assume_a)
    if kind not in _KINDS.values():
        raise ValueError(
            f"solve(assume_a={assume_a!r}): pass one of {', '.join(map(repr, _KINDS.values()))}, "
            "or leave it out, with the whole matrix"
        )
    a, b = as_floats(a, b)
    xp = a.__array_namespace__()
    if kind == "upper triangular":
        a = xp.triu(a)
    elif kind == "lower triangular":
        a = xp.tril(a)
    elif kind != "general":
        own, rest = (xp.tril(a), xp.tril(a, k=-1)) if lower else (xp.triu(a), xp.triu(a, k=1))
        middle = own - rest if kind == "symmetric" else xp.real(own - rest)
        a = middle + rest + _transpose(rest, "T" if kind == "symmetric" else "C")
    return xp.linalg.solve(xp.matrix_transpose(a) if transposed else a, b)


_KINDS = {"gen": "general", "sym": "symmetric", "her": "hermitian", "pos": "positive definite",
          "upper": "upper triangular", "lower": "lower triangular"}  # fmt: skip
"""Assumed kinds of matrices, by SciPy's short names."""


@of_arrays("a b")
def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """Solve linear systems of triangular matrices.

    Parameters
    ----------
    a : array
        Square matrices, of which one triangle is read.
    b : array
        Right-hand sides: a vector if it has one axis, else the columns of matrices.
    trans : int or str
        0 or ``"N"``; 1 or ``"T"``, the systems of the transposed matrices; 2 or ``"C"``, of their
        conjugates.
    lower : bool
        Whether the lower triangle is read.
    unit_diagonal : bool
        Whether the diagonal is 1, and not read.

    Returns
    -------
    array
        Of the shape of ``b``.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.solve_triangular([[2.0, 1.0], [9.0, 4.0]], [4.0, 8.0])
    array([1., 2.])
    """
    if trans not in _TURNS:
        raise ValueError(f"solve_triangular(trans={trans!r}): trans is 0, 1, 2, 'N', 'T' or 'C'")
    a, b = as_floats(a, b)
    xp = a.__array_namespace__()
    off = int(unit_diagonal)
    a = xp.tril(a, k=-off) if lower else xp.triu(a, k=off)
    if unit_diagonal:
        a = a + xp.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return xp.linalg.solve(_transpose(a, _TURNS[trans]), b)


_TURNS: dict[int | str, str] = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}


def _transpose(a: Any, trans: str) -> Any:
    """Return matrices, their transposes or their adjoints."""
    xp = a.__array_namespace__()
    if trans == "N":
        return a
    turned = xp.matrix_transpose(a)
    return xp.conj(turned) if trans == "C" and is_complex(a) else turned


@of_arrays("a")
def inv(a: Any) -> Any:
    """Return the inverses of square matrices.

    Parameters
    ----------
    a : array
        Square matrices.

    Returns
    -------
    array
        Their inverses.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.inv([[2.0, 0.0], [0.0, 4.0]])
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    (a,) = as_floats(a)
    return a.__array_namespace__().linalg.inv(a)


@of_arrays("a")
def det(a: Any) -> Any:
    """Return the determinants of square matrices.

    Parameters
    ----------
    a : array
        Square matrices.

    Returns
    -------
    array
        Their determinants.

    Examples
    --------
    >>> import mixad.scipy
    >>> float(mixad.scipy.linalg.det([[2.0, 1.0], [0.0, 2.0]]))
    4.0
    """
    (a,) = as_floats(a)
    return a.__array_namespace__().linalg.det(a)


@of_arrays("a")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return the singular value decomposition of matrices.

    Parameters
    ----------
    a : array
        Matrices.
    full_matrices : bool
        Whether there are as many vectors as rows and columns: of matrices that are differentiated
        and not square say False, for they do not determine the further ones.
    compute_uv : bool
        Whether vectors are returned.

    Returns
    -------
    array, or tuple of array
        Left vectors in columns, singular values, the largest first, and right vectors in rows; or
        the singular values.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.svd([[3.0, 0.0], [0.0, 4.0]], compute_uv=False)
    array([4., 3.])
    """
    (a,) = as_floats(a)
    linalg = a.__array_namespace__().linalg
    return tuple(linalg.svd(a, full_matrices=full_matrices)) if compute_uv else linalg.svdvals(a)


@of_arrays("a b")
def eigh(a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False) -> Any:
    """Return eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Parameters
    ----------
    a : array
        Symmetric or Hermitian matrices; what is differentiated has to be so, and so is the
        gradient.
    b : array, optional
        Positive definite matrices, of which vectors are orthogonal: ``a v = w b v``.
    lower : bool
        Which triangles are read.
    eigvals_only : bool
        Whether eigenvalues alone are returned.

    Returns
    -------
    array, or pair of array
        Eigenvalues, the smallest first, and eigenvectors in columns.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.eigh([[2.0, 1.0], [1.0, 2.0]], eigvals_only=True)
    array([1., 3.])
    """
    a, *others = as_floats(a, *([] if b is None else [b]))
    xp = a.__array_namespace__()
    a = a if lower else _transpose(a, "C")
    if not others:
        return xp.linalg.eigvalsh(a) if eigvals_only else tuple(xp.linalg.eigh(a))
    (b,) = others
    factor = xp.linalg.cholesky(b if lower else _transpose(b, "C"))
    if not lower or not _is_traced(a):
        a = xp.tril(a) + _transpose(xp.tril(a, k=-1), "C")  # of what LAPACK reads
    half = xp.linalg.solve(factor, a)
    inner = xp.linalg.solve(factor, _transpose(half, "C"))
    values, vectors = xp.linalg.eigh((inner + _transpose(inner, "C")) / 2)
    return values if eigvals_only else (values, xp.linalg.solve(_transpose(factor, "C"), vectors))


def _is_traced(a: Any) -> bool:
    return bool(a.levels)


@of_arrays("A")
def expm(A: Any) -> Any:  # SciPy's name
    """Return the exponentials of square matrices.

    Parameters
    ----------
    A : array
        Square matrices.

    Returns
    -------
    array
        Their exponentials.

    References
    ----------
    Higham: "The scaling and squaring method for the matrix exponential revisited" (2005).

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.linalg.expm([[0.0, 1.0], [0.0, 0.0]])
    array([[1., 1.],
           [0., 1.]])
    """
    (a,) = as_floats(A)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expm of an array of shape {tuple(a.shape)}: pass square matrices")
    if not math.prod(a.shape):
        return a
    xp = a.__array_namespace__()
    norm = _largest_norm(primal_value(a))
    degree = next((m for m, most in _MOST.items() if norm <= most), 13)
    halvings = max(math.ceil(math.log2(norm / _MOST[13])), 0) if 0 < norm < math.inf else 0
    a = a / 2.0**halvings
    even, odd = _pade(xp, a, degree)
    found = xp.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        found = found @ found
    return found


_MOST = {3: 1.495585217958292e-2, 5: 2.53939833006323e-1, 7: 9.504178996162932e-1,
         9: 2.097847961257068, 13: 5.371920351148152}  # fmt: skip
"""Norms up to which approximants of a degree are exact to rounding of float64: table 2.3."""


def _largest_norm(a: Any) -> float:
    """Return the largest column sum of sizes."""
    xp = library_of(a).xp
    return float(xp.max(xp.sum(xp.abs(a), axis=-2)))


def _pade(xp: Any, a: Any, degree: int) -> tuple[Any, Any]:
    """Return the even and the odd part of the numerator of Padé's approximant."""
    square = a @ a
    power = xp.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    coefficient, even, odd = 1.0, 0.0, 0.0
    for j in range(degree + 1):
        if j % 2:
            odd = odd + coefficient * power
            power = square if j == 1 else power @ square
        else:
            even = even + coefficient * power
        coefficient *= (degree - j) / ((2 * degree - j) * (j + 1))
    return even, a @ odd


@of_arrays("a b")
def lstsq(a: Any, b: Any, cond: float | None = None) -> tuple[Any, Any, Any, Any]:
    """Return what solves a linear system with the least sum of squares, and the least norm.

    Parameters
    ----------
    a : array
        A matrix; of full rank where it is differentiated.
    b : array
        A vector or a matrix.
    cond : float, optional
        Singular values up to this share of the largest one are taken for 0; by default what is
        lost by rounding.

    Returns
    -------
    x : array
        What ``a`` has to be multiplied with.
    residues : array
        Sums of squares of ``b - a x``; none where there are as many unknowns as equations, or the
        rank is less than the number of unknowns.
    rank : int
        The rank.
    s : array
        Singular values.

    Examples
    --------
    >>> import mixad.scipy
    >>> x, residues, rank, s = mixad.scipy.linalg.lstsq([[1.0], [1.0]], [1.0, 3.0])
    >>> x, float(residues)
    (array([2.]), 2.0)
    """
    a, b = as_floats(a, b)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ValueError(
            f"lstsq of shapes {tuple(a.shape)} and {tuple(b.shape)}: pass a matrix, and a vector "
            "or a matrix of as many rows"
        )
    xp = a.__array_namespace__()
    s = xp.linalg.svdvals(a)
    share = float(xp.finfo(a.dtype).eps) if cond is None else cond
    rank = sum(bool(each > share * primal_value(s)[0]) for each in primal_value(s))
    x = xp.linalg.pinv(a, rtol=share) @ b
    if a.shape[0] > a.shape[1] and rank == a.shape[1]:
        residues = xp.sum(xp.abs(b - a @ x) ** 2, axis=0)
    else:
        residues = xp.zeros((0,), dtype=s.dtype, device=s.device)
    return x, residues, rank, s
