"""Vectors of sixteen numbers, and tiles of matrix products, for kernels that numba compiles for a CPU.

LLVM turns plain loops into vector instructions, but not well where a loop is short, a sum is kept over a product, or a
number has other bits to show; nor does it keep the sums of a product in registers. Here a kernel says itself what is in
a register. A vector is one of AVX-512; on other processors LLVM makes it of several smaller ones.

`tile` makes a part of a matrix product, so small that its sums stay in registers. Its numbers stand beside each other
in an int32 and are added up in int32, exactly. Three kinds:

- "bytes": four numbers of 8 bits, without a sign in the rows and with a sign in the columns.
- "signed bytes": with a sign in the rows, without one in the columns.
- "pairs": two numbers of 16 bits with signs.

With AVX-512 VNNI that is one instruction for 64 products of bytes or 32 of pairs, elsewhere plain products of integers,
which are right and slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

from liebig.base.machine import VNNI, instructions

LANES = 16  # numbers of a vector

Function = Callable[..., Any]
# without `fastmath`, which would be that of the instructions below as well: (a + b) - b is not a here
kernel: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
inline: Any = numba.njit(inline="always", error_model="numpy")
FUSED = ("contract",)  # a product and a sum may be rounded once
ANY_ORDER = ("reassoc", "nsz")
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, INTS, BYTES = (ir.VectorType(number, LANES) for number in (F32, I32, I8))


class Vector(types.Type):
    """Sixteen float32 in a register."""

    def __init__(self) -> None:
        super().__init__("Vector")


@register_default(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector as LLVM has it."""

    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, FLOATS)


VECTOR = Vector()


def operation(result: Any, *arguments: Any) -> Callable[[Function], Any]:
    """A function that kernels call, from one that writes its instructions.

    Where an argument's type is None it is an array, given to `write` as LLVM has it, or a place in one: a number, or
    row and column.
    """

    def made(write: Function) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            parts = [
                context.make_array(type_)(context, builder, value)
                if isinstance(type_, types.Array)
                else value
                for type_, value in zip(signature.args, values)
            ]
            written = write(builder, *parts)
            return context.get_dummy_value() if result is types.void else written

        def typed(*given: Any) -> Any:
            return result(*(one or _as_given(type_) for one, type_ in zip(arguments, given))), generate

        # numba wants to see as many names as there are arguments
        functions: dict[int, Function] = {
            1: lambda typing, a: typed(a),
            2: lambda typing, a, b: typed(a, b),
            3: lambda typing, a, b, c: typed(a, b, c),
        }
        one = functions[len(arguments)]
        one.__name__ = one.__qualname__ = write.__name__
        one.__doc__ = write.__doc__
        return intrinsic(one)

    return made


def _as_given(type_: Any) -> Any:
    if isinstance(type_, types.BaseTuple):
        return types.UniTuple(types.int64, len(type_))
    return type_ if isinstance(type_, types.Array) else types.int64


def splat(builder: Any, value: Any, vector: Any = FLOATS) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(INTS, None))


def constant(number: float) -> Any:
    return ir.Constant(FLOATS, [number] * LANES)


def whole(number: int) -> Any:
    return ir.Constant(INTS, [number] * LANES)


def called(builder: Any, name: str, result: Any, *values: Any, flags: tuple[str, ...] = ()) -> Any:
    """What a function of LLVM gives."""
    kind = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, values, fastmath=flags)


def address(builder: Any, array: Any, place: Any, vector: Any) -> Any:
    """Where the vector begins that stands at a place of an array."""
    data = array.data
    if isinstance(place.type, ir.ArrayType):
        row, place = (builder.extract_value(place, axis) for axis in range(2))
        skipped = builder.mul(row, builder.extract_value(array.strides, 0))
        data = builder.bitcast(builder.gep(builder.bitcast(data, I8.as_pointer()), [skipped]), data.type)
    return builder.bitcast(builder.gep(data, [place]), vector.as_pointer())


@operation(VECTOR, None, None)
def load(builder: Any, array: Any, place: Any) -> Any:
    """The vector of a float32 array that begins at a place."""
    return builder.load(address(builder, array, place, FLOATS), align=4)


@operation(VECTOR, None, None)
def load_ints(builder: Any, array: Any, place: Any) -> Any:
    """The vector of an int32 array that begins at a place, as float32."""
    return builder.sitofp(builder.load(address(builder, array, place, INTS), align=4), FLOATS)


@operation(types.void, None, None, VECTOR)
def store(builder: Any, array: Any, place: Any, vector: Any) -> None:
    """Write a vector into an array of float32, or its bits into one of int32."""
    builder.store(vector, address(builder, array, place, FLOATS), align=4)


MOVE = 1.5 * 2.0**23  # a number that is added to this is rounded, and stands in the last bits


def moved(builder: Any, vector: Any) -> Any:
    """Bits that end with the nearest whole numbers, for numbers up to 2 ** 22."""
    return builder.bitcast(builder.fadd(vector, constant(MOVE), flags=FUSED), INTS)


@operation(types.void, None, None, VECTOR)
def store_bytes(builder: Any, array: Any, place: Any, vector: Any) -> None:
    """Write the nearest whole numbers into an array of bytes."""
    codes = builder.trunc(moved(builder, vector), BYTES)
    builder.store(codes, address(builder, array, place, BYTES), align=1)


@operation(VECTOR, VECTOR, VECTOR)
def paired(builder: Any, low: Any, high: Any) -> Any:
    """The nearest whole numbers of two vectors in the lower and the upper half of each number's bits."""
    first = builder.and_(moved(builder, low), whole(0xFFFF))
    return builder.bitcast(builder.or_(first, builder.shl(moved(builder, high), whole(16))), FLOATS)


@operation(VECTOR, types.float32)
def spread(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    return splat(builder, number)


@operation(VECTOR, VECTOR, VECTOR)
def plus(builder: Any, a: Any, b: Any) -> Any:
    """a + b"""
    return builder.fadd(a, b)


@operation(VECTOR, VECTOR, VECTOR)
def minus(builder: Any, a: Any, b: Any) -> Any:
    """a - b"""
    return builder.fsub(a, b)


@operation(VECTOR, VECTOR, VECTOR)
def times(builder: Any, a: Any, b: Any) -> Any:
    """a * b"""
    return builder.fmul(a, b, flags=FUSED)


@operation(VECTOR, VECTOR, VECTOR, VECTOR)
def times_plus(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c"""
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


@operation(VECTOR, VECTOR, VECTOR)
def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger number of each two; b where one is not a number."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation(VECTOR, VECTOR, VECTOR)
def smaller(builder: Any, a: Any, b: Any) -> Any:
    """The smaller number of each two; b where one is not a number."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@operation(VECTOR, VECTOR)
def size(builder: Any, a: Any) -> Any:
    """Numbers without their signs."""
    return called(builder, "llvm.fabs.v16f32", FLOATS, a)


@operation(VECTOR, VECTOR, VECTOR)
def larger_size(builder: Any, a: Any, b: Any) -> Any:
    """The larger of each two by their bits: NaN is larger than all numbers, which `larger` would lose.

    A negative number is smaller than others, but negative ones have no order.
    """
    c, d = builder.bitcast(a, INTS), builder.bitcast(b, INTS)
    return builder.bitcast(builder.select(builder.icmp_signed(">", c, d), c, d), FLOATS)


@operation(types.float32, VECTOR)
def largest_size(builder: Any, a: Any) -> Any:
    """The largest of a vector by their bits."""
    found = called(builder, "llvm.vector.reduce.smax.v16i32", I32, builder.bitcast(a, INTS))
    return builder.bitcast(found, F32)


@operation(types.int32, VECTOR)
def largest_bits(builder: Any, a: Any) -> Any:
    """The largest of a vector of int32."""
    return called(builder, "llvm.vector.reduce.smax.v16i32", I32, builder.bitcast(a, INTS))


@operation(types.int64, VECTOR, types.float32)
def reaching(builder: Any, a: Any, number: Any) -> Any:
    """A bit for each of a vector that is no less than a number, the first one lowest."""
    bits = builder.bitcast(builder.fcmp_ordered(">=", a, splat(builder, number)), ir.IntType(LANES))
    return builder.zext(bits, I64)


@operation(types.int64, types.int64)
def lowest_bit(builder: Any, bits: Any) -> Any:
    """The place of the lowest bit of some."""
    return called(builder, "llvm.cttz.i64", I64, bits, ir.Constant(ir.IntType(1), 0))


@operation(types.float32, VECTOR)
def total(builder: Any, a: Any) -> Any:
    """The sum of a vector."""
    return called(builder, "llvm.vector.reduce.fadd.v16f32", F32, ir.Constant(F32, 0.0), a, flags=ANY_ORDER)


# 2 ** x between -1/2 and 1/2, by the polynomial with the smallest relative error (7.5e-5)
POWER = (0.99992807, 0.69326099, 0.24261113, 0.05517167)


@operation(VECTOR, VECTOR)
def rounded(builder: Any, a: Any) -> Any:
    """The nearest whole numbers, for numbers up to 2 ** 22."""
    return builder.fsub(builder.fadd(a, constant(MOVE)), constant(MOVE))


@operation(VECTOR, VECTOR)
def power(builder: Any, a: Any) -> Any:
    """2 ** a for a <= 0, and no less than 2 ** -100; the relative error is below 8e-5."""
    a = builder.select(builder.fcmp_ordered(">", a, constant(-100)), a, constant(-100))
    nearest = builder.fadd(a, constant(MOVE))
    rest = builder.fsub(a, builder.fsub(nearest, constant(MOVE)))
    result = constant(POWER[-1])
    for number in POWER[-2::-1]:
        result = builder.fadd(builder.fmul(result, rest, flags=FUSED), constant(number), flags=FUSED)
    exponent = builder.shl(builder.bitcast(nearest, INTS), whole(23))
    return builder.bitcast(builder.add(builder.bitcast(result, INTS), exponent), FLOATS)


Kind = Literal["bytes", "signed bytes", "pairs"]


def tile(kind: Kind, rows: int, vectors: int, steps: int = 1, vnni: bool | None = None) -> Function:
    """out[o + r, p + c] = start[s + c] + the sum over k < depth of a[i + r, h + k] * b[j + k, q + c], for all c.

    Called as tile(a, i, h, b, j, q, start, s, out, o, p, depth), with arrays of int32 whose last axis has no gaps.
    `steps` of k are taken at once, so that fewer instructions go into counting; `depth` is a multiple of them.
    `vnni` is for tests; otherwise the processor decides.
    """
    fast = VNNI in instructions() if vnni is None else vnni
    bits = 16 if kind == "pairs" else 8

    def multiply(builder: Any, sums: Any, a: Any, b: Any) -> Any:
        if kind == "signed bytes":
            a, b = b, a
        if fast:  # newer versions of LLVM take vectors of bytes, and these as well
            name = "vpdpwssd" if kind == "pairs" else "vpdpbusd"
            return called(builder, f"llvm.x86.avx512.{name}.512", INTS, sums, a, b)
        first = builder.ashr if kind == "pairs" else builder.lshr
        for end in range(bits, 33, bits):
            up, down = whole(32 - end), whole(32 - bits)
            left, right = first(builder.shl(a, up), down), builder.ashr(builder.shl(b, up), down)
            sums = builder.add(sums, builder.mul(left, right))
        return sums

    @intrinsic
    def made(
        typing: Any, a: Any, i: Any, h: Any, b: Any, j: Any, q: Any, start: Any, s: Any, out: Any, o: Any, p: Any,
        depth: Any,
    ) -> tuple[Any, Function]:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            def further(place: Any, more: int) -> Any:
                return builder.add(place, ir.Constant(I64, more))

            def row(place: int, number: Any) -> Any:
                """The address of a row of an array, in bytes."""
                array = context.make_array(signature.args[place])(context, builder, values[place])
                data = builder.bitcast(array.data, I8.as_pointer())
                if signature.args[place].ndim == 1:
                    return data
                return builder.gep(data, [builder.mul(number, builder.extract_value(array.strides, 0))])

            def at(start: Any, column: Any, type_: Any) -> Any:
                place = builder.gep(start, [builder.mul(column, ir.Constant(I64, 4))])
                return builder.bitcast(place, type_.as_pointer())

            _, first, before, _, above, skipped, _, begun, _, target, column, depth = values
            left = [at(row(0, further(first, r)), before, I8) for r in range(rows)]
            sums = [[cgutils.alloca_once(builder, INTS) for _ in range(vectors)] for _ in range(rows)]
            for v in range(vectors):
                begin = builder.load(at(row(6, None), further(begun, v * LANES), INTS), align=4)
                for r in range(rows):
                    builder.store(begin, sums[r][v])
            with cgutils.for_range_slice(
                builder, ir.Constant(I64, 0), depth, ir.Constant(I64, steps), inc=True
            ) as (start, _):
                for step in range(steps):
                    k = further(start, step)
                    below = row(3, builder.add(above, k))
                    right = [
                        builder.load(at(below, further(skipped, v * LANES), INTS), align=4)
                        for v in range(vectors)
                    ]
                    for r in range(rows):
                        one = splat(builder, builder.load(at(left[r], k, I32), align=4), INTS)
                        for v in range(vectors):
                            added = multiply(builder, builder.load(sums[r][v]), one, right[v])
                            builder.store(added, sums[r][v])
            for r in range(rows):
                line = row(8, further(target, r))
                for v in range(vectors):
                    place = at(line, further(column, v * LANES), INTS)
                    builder.store(builder.load(sums[r][v]), place, align=4)
            return context.get_dummy_value()

        n = types.int64
        return types.void(a, n, n, b, n, n, start, n, out, n, n, n), generate

    return made  # type: ignore[no-any-return]
