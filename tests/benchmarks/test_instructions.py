"""Instructions on the longest way through machine code, counted by hand beside it."""

from __future__ import annotations

import pytest

from benchmarks.instructions import longest_ways
from mixad.backends.cuda import compile_text, disassemble
from mixad.errors import BackendError

SHOWN = """
.text.branches:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   ISETP.GE.AND P0, PT, R0, RZ, PT ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
        /*0030*/                   FADD R0, R0, 1 ;
        /*0040*/                   FADD R0, R0, 1 ;
        /*0050*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*0060*/                   FMUL R0, R0, R0 ;
.L_x_3:
        /*0070*/              @!P1 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
        /*00a0*/                   NOP;
.text.leaves:
        /*0000*/               @P0 EXIT ;
        /*0010*/              @UP0 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0020*/                   EXIT ;
"""


def test_the_longer_side_counts_and_each_loop_once():
    """LDC, ISETP, BRA, two FADD, BRA, BRA back, EXIT; and what follows a leave that may not be."""
    assert longest_ways(SHOWN) == {"branches": 8, "leaves": 3}


def test_more_work_is_more_instructions():
    def text(expression):
        return f"""
extern "C" __global__ void k(float *x) {{
  const float a = x[threadIdx.x];
  if (a > 0.0f) x[threadIdx.x] = {expression};
}}"""

    def way(expression):
        (found,) = longest_ways(disassemble(compile_text(text(expression), "sm_90").cubin)).values()
        return found

    try:
        little = way("a * a")
    except BackendError as error:
        pytest.skip(str(error))
    assert 8 < little < 25
    assert way("(a * a + a) * a * a") == little + 3
