"""The names of the array API standard 2025.12, by its sections."""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "FUNCTIONS", "SECTIONS", "VERSIONS"]

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

_SECTIONS = {
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid "
    "ones ones_like tril triu zeros zeros_like",
    "data type": "astype broadcast_shapes can_cast finfo iinfo isdtype result_type",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert "
    "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos "
    "cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite "
    "isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not "
    "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow "
    "real reciprocal remainder round sign signbit sin sinh sqrt square subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims "
    "repeat reshape roll squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "set": "isin unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistical": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility": "all any diff",
    "linalg": "linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eig linalg.eigh "
    "linalg.eigvals linalg.eigvalsh linalg.inv linalg.matmul linalg.matrix_norm "
    "linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose linalg.outer linalg.pinv "
    "linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot "
    "linalg.trace linalg.vecdot linalg.vector_norm",
    "fft": "fft.fft fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifftn fft.ifftshift "
    "fft.ihfft fft.irfft fft.irfftn fft.rfft fft.rfftfreq fft.rfftn",
}

SECTIONS = {section: tuple(names.split()) for section, names in _SECTIONS.items()}
"""The names of functions; those of the extensions with the extension in front."""

FUNCTIONS = frozenset(name for names in SECTIONS.values() for name in names)

ATTRIBUTES = frozenset(
    "e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 "
    "complex64 complex128".split()
)
"""Constants and dtypes, which are those of the library."""
