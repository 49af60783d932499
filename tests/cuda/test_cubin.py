"""What functions use, read from machine code, beside what ptxas says that they use."""

from __future__ import annotations

import re

import pytest
from cuda_emulator import needs_nvrtc

from mixad.backends.cuda import compile_text, usage_in
from mixad.errors import BackendError

TEXT = """
extern "C" __global__ void __launch_bounds__(256) shares(float *x, int n) {
  __shared__ float s[300];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[n];
}
extern "C" __global__ void __launch_bounds__(1024) spills(float *x, int n) {
  float v[200];
#pragma unroll
  for (int k = 0; k < 200; k++) v[k] = x[k * n + threadIdx.x];
  __syncthreads();
  float t = 0;
#pragma unroll
  for (int k = 0; k < 200; k++) { t += v[k] * v[199 - k] * t; x[k] = t; }
}
extern "C" __global__ void copies(float *x, const float *y) { x[threadIdx.x] = y[threadIdx.x]; }
"""


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_usage_is_what_ptxas_reports(architecture):
    code = compile_text(TEXT, architecture, ["--ptxas-options=-v"])
    found = usage_in(code.cubin)
    reports = re.findall(
        r"entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers([^\n]*)",
        code.log,
        re.DOTALL,
    )
    assert sorted(found) == sorted(name for name, *_ in reports) == ["copies", "shares", "spills"]
    for name, frame, registers, rest in reports:
        shared = re.search(r"(\d+) bytes smem", rest)
        assert found[name].local == int(frame)
        assert found[name].registers == int(registers)
        assert found[name].shared == (int(shared[1]) if shared else 0)
    assert found["spills"].local > 100
    assert found["shares"].shared == 1200


@needs_nvrtc
def test_a_text_that_is_not_c_is_refused_with_the_log():
    with pytest.raises(BackendError, match=r"(?s)NVRTC does not compile a kernel:.*error"):
        compile_text("not C++", "sm_80")


def test_other_files_are_refused():
    with pytest.raises(BackendError, match="no machine code of CUDA: it begins with b'MZ'"):
        usage_in(b"MZ")
