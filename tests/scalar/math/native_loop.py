"""A small compiler of programs for tests: one scalar loop in LLVM IR, run over NumPy arrays.

It is written apart from `mixad.emit`, knows instruction-level ops only, and makes no choices: each
equation becomes the LLVM instruction of the same meaning, without any fast-math flag.
"""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from mixad.scalar.ir import Atom, Block, Const, Equation, If, Program, Statement, Var, While
from mixad.scalar.types import ScalarType

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "neg": "fneg"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "neg": "neg", "and": "and_", "or": "or_",
            "xor": "xor", "not": "not_"}  # fmt: skip
_INTRINSICS = {"abs": "fabs", "sqrt": "sqrt", "fma": "fma", "copysign": "copysign",
               "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "nearbyint"}  # fmt: skip


def run(program: Program, *arrays: np.ndarray) -> np.ndarray:
    """Run a program with one output over arrays of equal length."""
    engine, address = _compiled(program.token, program)
    out = np.empty(len(arrays[0]), program.outputs[0].type.dtype)
    arguments = [*(np.ascontiguousarray(a) for a in arrays), out]
    pointers = [a.ctypes.data for a in arguments]
    assert len(arrays) == len(program.params), "the compiled loop would read what is not there"
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)(address)
    kernel(*pointers, len(out))
    del engine
    return out


_PROGRAMS: dict[str, tuple[llvm.ExecutionEngine, int]] = {}


def _compiled(token: str, program: Program) -> tuple[llvm.ExecutionEngine, int]:
    if token not in _PROGRAMS:
        module = llvm.parse_assembly(str(_Emitter(program).module))
        machine = _machine()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        _PROGRAMS[token] = engine, engine.get_function_address("kernel")
    return _PROGRAMS[token]


def _machine() -> llvm.TargetMachine:
    _initialise()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _llvm_type(type: ScalarType) -> ir.Type:
    if type.is_float:
        return ir.FloatType() if type.bits == 32 else ir.DoubleType()
    return ir.IntType(1 if type.is_bool else type.bits)


class _Emitter:
    """Builds the module of one program."""

    def __init__(self, program: Program) -> None:
        self.module = ir.Module(name="test")
        pointer, index = ir.IntType(8).as_pointer(), ir.IntType(64)
        count = len(program.params) + 1
        type = ir.FunctionType(ir.VoidType(), [pointer] * count + [index])
        function = ir.Function(self.module, type, "kernel")
        entry, head, body, done = (
            function.append_basic_block(n) for n in ("entry", "head", "body", "done")
        )
        self.b = ir.IRBuilder(entry)
        counter = self.b.alloca(index)
        self.b.store(index(0), counter)
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.load(counter)
        self.b.cbranch(self.b.icmp_signed("<", i, function.args[-1]), body, done)
        self.b.position_at_end(body)
        self.values: dict[int, ir.Value] = {}
        for param, arg in zip(program.params, function.args[:-2], strict=True):
            self.values[param.var.id] = self.b.load(self.element(arg, i, param.var.type))
        (result,) = self.block(program.body)
        out = program.outputs[0].type
        if out.is_bool:
            result = self.b.zext(result, ir.IntType(8))
        self.b.store(result, self.element(function.args[-2], i, out))
        self.b.store(self.b.add(i, index(1)), counter)
        self.b.branch(head)
        self.b.position_at_end(done)
        self.b.ret_void()

    def element(self, base: ir.Value, i: ir.Value, type: ScalarType) -> ir.Value:
        stored = ir.IntType(8) if type.is_bool else _llvm_type(type)
        return self.b.gep(self.b.bitcast(base, stored.as_pointer()), [i])

    def block(self, block: Block) -> list[ir.Value]:
        for statement in block.statements:
            self.statement(statement)
        return [self.value(a) for a in block.results]

    def value(self, atom: Atom) -> ir.Value:
        if isinstance(atom, Const):
            return ir.Constant(_llvm_type(atom.type), atom.value)
        return self.values[atom.id]

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                self.values[s.out.id] = self.equation(s, [self.value(a) for a in s.args])
            case If():
                self.branch(s)
            case While():
                self.loop(s)
            case _:
                raise NotImplementedError(type(s).__name__)

    def branch(self, s: If) -> None:
        slots = self.slots(s.outs)
        with self.b.if_else(self.value(s.cond)) as (then, orelse):
            for entered, block in ((then, s.then), (orelse, s.orelse)):
                with entered:
                    self.stored(slots, self.block(block))
        self.values.update((v.id, self.b.load(p)) for v, p in zip(s.outs, slots, strict=True))

    def loop(self, s: While) -> None:
        slots = self.slots(s.carries)
        self.stored(slots, [self.value(a) for a in s.inits])
        head, body, done = (self.b.append_basic_block(n) for n in ("test", "turn", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        carried = [self.b.load(p) for p in slots]
        self.values.update((v.id, c) for v, c in zip(s.carries, carried, strict=True))
        (test,) = self.block(s.cond)
        self.b.cbranch(test, body, done)
        self.b.position_at_end(body)
        self.stored(slots, self.block(s.body))
        self.b.branch(head)
        self.b.position_at_end(done)
        self.values.update((v.id, c) for v, c in zip(s.outs, carried, strict=True))

    def slots(self, variables: tuple[Var, ...]) -> list[ir.Value]:
        """Reserve memory in the entry block: once, not in every turn of the loop over elements."""
        with self.b.goto_entry_block():
            return [self.b.alloca(_llvm_type(v.type)) for v in variables]

    def stored(self, slots: list[ir.Value], values: list[ir.Value]) -> None:
        for slot, value in zip(slots, values, strict=True):
            self.b.store(value, slot)

    def equation(self, s: Equation, args: list[ir.Value]) -> ir.Value:
        type = s.args[-1].type
        if s.op in _COMPARISONS:
            return self.comparison(s.op, args, type)
        if s.op == "where":
            return self.b.select(*args)
        if s.op == "bounded_reciprocal":
            return self.b.fdiv(ir.Constant(_llvm_type(type), 1.0), args[0])
        if s.op == "bitcast":
            return self.b.bitcast(args[0], _llvm_type(s.out.type))
        if s.op == "convert":
            return self.conversion(args[0], type, s.out.type)
        if s.op in ("shl", "shr"):
            return self.shift(s.op, args, type)
        if type.is_float and s.op in _INTRINSICS:
            name, llvm_type = _INTRINSICS[s.op], _llvm_type(type)
            return self.intrinsic(f"llvm.{name}.f{type.bits}", llvm_type, args)
        return getattr(self.b, (_FLOAT if type.is_float else _INTEGER)[s.op])(*args)

    def comparison(self, op: str, args: list[ir.Value], type: ScalarType) -> ir.Value:
        sign = _COMPARISONS[op]
        if not type.is_float:
            unsigned = type.kind != "int"
            return (self.b.icmp_unsigned if unsigned else self.b.icmp_signed)(sign, *args)
        return (self.b.fcmp_unordered if op == "ne" else self.b.fcmp_ordered)(sign, *args)

    def shift(self, op: str, args: list[ir.Value], type: ScalarType) -> ir.Value:
        value, amount = args
        last = ir.Constant(value.type, type.bits - 1)
        inside = self.b.icmp_unsigned("<=", amount, last)
        clamped = self.b.select(inside, amount, last)
        if op == "shr" and type.kind == "int":
            return self.b.ashr(value, clamped)
        shifted = (self.b.shl if op == "shl" else self.b.lshr)(value, clamped)
        return self.b.select(inside, shifted, ir.Constant(value.type, 0))

    def conversion(self, x: ir.Value, old: ScalarType, new: ScalarType) -> ir.Value:
        target = _llvm_type(new)
        if old.is_float and new.is_float:
            return (self.b.fpext if new.bits > old.bits else self.b.fptrunc)(x, target)
        if old.is_float:
            kind = "si" if new.kind == "int" else "ui"
            name = f"llvm.fpto{kind}.sat.i{new.bits}.f{old.bits}"
            return self.intrinsic(name, target, [x])
        if new.is_float:
            return (self.b.sitofp if old.kind == "int" else self.b.uitofp)(x, target)
        if new.bits <= old.bits:
            return self.b.trunc(x, target)
        return (self.b.sext if old.kind == "int" else self.b.zext)(x, target)

    def intrinsic(self, name: str, result: ir.Type, args: list[ir.Value]) -> ir.Value:
        type = ir.FunctionType(result, [a.type for a in args])
        known = self.module.globals.get(name)
        return self.b.call(known or ir.Function(self.module, type, name), args)
