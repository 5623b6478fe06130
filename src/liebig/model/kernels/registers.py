"""Vectors of sixteen numbers, and tiles of matrix products, for kernels that numba compiles for a CPU.

LLVM turns plain loops into vector instructions, but not well where a loop is short, a sum is kept over a product, or a
number has other bits to show; nor does it keep the sums of a product in registers. Here a kernel says itself what is in
a register. A vector is one of AVX-512; on other processors LLVM makes it of several smaller ones, on aarch64 of four.

`tile` makes a part of a matrix product, so small that its sums stay in registers. The numbers of its rows and those of
its columns are of these kinds:

- "u8" and "i8": bytes without and with a sign, four in an int32, added up in int32, exactly.
- "i16": two in an int32, likewise.
- "f32": float32.

What one instruction does depends on the processor (WAY): with AVX-512 VNNI 64 products of "u8" and "i8" or 32 of "i16",
with AVX-VNNI half as many, on aarch64 with `asimddp` 16 of "i8" and "i8". Elsewhere they are plain products of
integers, right and slow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

from liebig.base.compiled import products_of
from liebig.base.machine import AVX_VNNI, DOT, VNNI

LANES = 16  # numbers of a vector
NARROW = 4  # numbers of a register of aarch64, and of what other processors are given
REGISTERS = {VNNI: LANES, AVX_VNNI: 8}  # numbers of a register of the others
WAY = products_of(numba.config)
Number = Literal["u8", "i8", "i16", "f32"]

# A tile of a product in int8: its rows, its columns, and the words of its rows that are loaded together. Its sums take
# 24 registers of 32 with AVX-512, 12 of 16 with AVX-VNNI (two more hold columns and one a word), else 16 of 32.
ROWS, PANEL, STEPS = {VNNI: (6, 64, 2), AVX_VNNI: (6, 16, 2)}.get(WAY, (4, 16, 4))
# x86-64 multiplies bytes with a sign by bytes without one: ZERO is added to the codes of one side, the SHIFTED ones.
ZERO: int = 128 if WAY in REGISTERS else 0
SHIFTED: Number = "u8" if WAY in REGISTERS else "i8"

Function = Callable[..., Any]


def kernel(function: Function) -> Any:
    """Compile a function for use without Python's lock, and keep it for the next process.

    numba compiles it again where the function's own file has changed; what is in this file is a part of it, too.
    There is no `fastmath`, which would be that of the instructions below as well: (a + b) - b is not a here.
    """
    made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    stored = getattr(getattr(made, "_cache", None), "_cache_file", None)  # none with NUMBA_DISABLE_JIT
    if stored is not None:
        here = Path(__file__).stat()
        stored._source_stamp = (stored._source_stamp, here.st_mtime, here.st_size)
    return made


def is_compiled(function: Any) -> bool:
    """Whether a kernel need not be compiled: this process has done it, or an earlier one on such a processor."""
    stored = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if stored is None:
        return False
    processor = function.targetctx.codegen().magic_tuple()
    return bool(function.signatures) or any(key[1] == processor for key in stored._load_index())


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
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(I32, vector.count), None))


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
    # 1.5 * 2 ** 23 has an ulp of 1, so the addition rounds to a whole number and its mantissa ends with that number in
    # two's complement: one addition in place of a conversion.
    return builder.bitcast(builder.fadd(vector, constant(MOVE), flags=FUSED), INTS)


@operation(types.void, None, None, VECTOR)
def store_bytes(builder: Any, array: Any, place: Any, vector: Any) -> None:
    """Write the nearest whole numbers into an array of bytes."""
    codes = builder.trunc(moved(builder, vector), BYTES)
    builder.store(codes, address(builder, array, place, BYTES), align=1)


@operation(VECTOR, VECTOR, VECTOR)
def pack_pairs(builder: Any, low: Any, high: Any) -> Any:
    """The nearest whole numbers of two vectors in the lower and the upper half of each number's bits."""
    first = builder.and_(moved(builder, low), whole(0xFFFF))
    return builder.bitcast(builder.or_(first, builder.shl(moved(builder, high), whole(16))), FLOATS)


@operation(VECTOR, types.float32)
def broadcast(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    return splat(builder, number)


@operation(VECTOR, VECTOR, VECTOR)
def add(builder: Any, a: Any, b: Any) -> Any:
    """a + b"""
    return builder.fadd(a, b)


@operation(VECTOR, VECTOR, VECTOR)
def sub(builder: Any, a: Any, b: Any) -> Any:
    """a - b"""
    return builder.fsub(a, b)


@operation(VECTOR, VECTOR, VECTOR)
def mul(builder: Any, a: Any, b: Any) -> Any:
    """a * b"""
    return builder.fmul(a, b, flags=FUSED)


@operation(VECTOR, VECTOR, VECTOR, VECTOR)
def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once where the processor has such an instruction."""
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


@operation(VECTOR, VECTOR, VECTOR)
def maximum(builder: Any, a: Any, b: Any) -> Any:
    """The larger number of each two; b where one is not a number."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation(VECTOR, VECTOR, VECTOR)
def minimum(builder: Any, a: Any, b: Any) -> Any:
    """The smaller number of each two; b where one is not a number."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@operation(VECTOR, VECTOR)
def absolute(builder: Any, a: Any) -> Any:
    """Numbers without their signs."""
    return called(builder, "llvm.fabs.v16f32", FLOATS, a)


@operation(VECTOR, VECTOR, VECTOR)
def max_by_bits(builder: Any, a: Any, b: Any) -> Any:
    """The larger of each two by their bits: NaN is larger than all numbers, which `maximum` would lose.

    A negative number is smaller than others, but negative ones have no order.
    """
    c, d = builder.bitcast(a, INTS), builder.bitcast(b, INTS)
    return builder.bitcast(builder.select(builder.icmp_signed(">", c, d), c, d), FLOATS)


@operation(types.float32, VECTOR)
def reduce_max(builder: Any, a: Any) -> Any:
    """The largest of a vector by their bits."""
    largest = called(builder, "llvm.vector.reduce.smax.v16i32", I32, builder.bitcast(a, INTS))
    return builder.bitcast(largest, F32)


@operation(types.int32, VECTOR)
def reduce_max_int(builder: Any, a: Any) -> Any:
    """The largest of a vector of int32."""
    return called(builder, "llvm.vector.reduce.smax.v16i32", I32, builder.bitcast(a, INTS))


@operation(types.int64, VECTOR, types.float32)
def mask_at_least(builder: Any, a: Any, number: Any) -> Any:
    """A bit for each of a vector that is no less than a number, the first one lowest."""
    there = builder.fcmp_ordered(">=", a, splat(builder, number))
    if WAY == VNNI:  # whose comparisons give bits
        return builder.zext(builder.bitcast(there, ir.IntType(LANES)), I64)
    bits = builder.and_(builder.sext(there, INTS), ir.Constant(INTS, [1 << place for place in range(LANES)]))
    return builder.zext(called(builder, "llvm.vector.reduce.add.v16i32", I32, bits), I64)


@operation(types.int64, types.int64)
def trailing_zeros(builder: Any, bits: Any) -> Any:
    """The place of the lowest bit of some."""
    return called(builder, "llvm.cttz.i64", I64, bits, ir.Constant(ir.IntType(1), 0))


@operation(types.float32, VECTOR)
def reduce_add(builder: Any, a: Any) -> Any:
    """The sum of a vector."""
    return called(builder, "llvm.vector.reduce.fadd.v16f32", F32, ir.Constant(F32, 0.0), a, flags=ANY_ORDER)


# 2 ** x between -1/2 and 1/2, by the polynomial with the smallest relative error (7.5e-5)
POWER = (0.99992807, 0.69326099, 0.24261113, 0.05517167)


@operation(VECTOR, VECTOR)
def round_nearest(builder: Any, a: Any) -> Any:
    """The nearest whole numbers, for numbers up to 2 ** 22."""
    return builder.fsub(builder.fadd(a, constant(MOVE)), constant(MOVE))


@operation(VECTOR, VECTOR)
def exp2(builder: Any, a: Any) -> Any:
    """2 ** a for a <= 0, and no less than 2 ** -100; the relative error is below 8e-5."""
    # a = n + r with n whole and |r| <= 1/2. The polynomial gives 2 ** r; n, which stands in the last bits of `nearest`,
    # is shifted into the exponent's place and added to it as an integer. The clamp keeps that exponent in range.
    a = builder.select(builder.fcmp_ordered(">", a, constant(-100)), a, constant(-100))
    nearest = builder.fadd(a, constant(MOVE))
    rest = builder.fsub(a, builder.fsub(nearest, constant(MOVE)))
    result = constant(POWER[-1])
    for number in POWER[-2::-1]:
        result = builder.fadd(builder.fmul(result, rest, flags=FUSED), constant(number), flags=FUSED)
    exponent = builder.shl(builder.bitcast(nearest, INTS), whole(23))
    return builder.bitcast(builder.add(builder.bitcast(result, INTS), exponent), FLOATS)


BITS = {"u8": 8, "i8": 8, "i16": 16}
OF_X86 = {("u8", "i8"): "vpdpbusd", ("i8", "u8"): "vpdpbusd", ("i16", "i16"): "vpdpwssd"}


def add_products(builder: Any, sums: Any, a: Any, b: Any, kinds: tuple[Number, Number], way: str) -> Any:
    """sums + a * b, number by number of each word; `kinds` are those of a and b."""
    if kinds == ("f32", "f32"):
        return builder.fadd(builder.fmul(a, b, flags=FUSED), sums, flags=FUSED)
    if way in REGISTERS and kinds in OF_X86:
        # newer versions of LLVM take vectors of bytes, and these too; AVX-VNNI's have the names of AVX-512, too
        name = f"llvm.x86.avx512.{OF_X86[kinds]}.{32 * sums.type.count}"
        return called(builder, name, sums.type, sums, *((b, a) if kinds[1] == "u8" else (a, b)))
    if way == DOT and kinds == ("i8", "i8"):
        codes = (builder.bitcast(words, ir.VectorType(I8, 4 * NARROW)) for words in (b, a))
        return called(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", sums.type, sums, *codes)
    # No instruction for it: unpack the numbers of each int32 lane one after the other. Right everywhere, and slow.
    for place in range(0, 32, BITS[kinds[0]]):
        left, right = (part(builder, words, kind, place) for words, kind in zip((a, b), kinds))
        sums = builder.add(sums, builder.mul(left, right))
    return sums


def part(builder: Any, words: Any, kind: Number, place: int) -> Any:
    """The number of each word that begins at a bit."""
    # Shift the number to the top, then down again, with its sign unless it has none.
    up, down = (ir.Constant(words.type, [n - BITS[kind]] * words.type.count) for n in (32 - place, 32))
    return (builder.lshr if kind == "u8" else builder.ashr)(builder.shl(words, up), down)


def tile(left: Number, right: Number, rows: int, vectors: int, steps: int = 1, way: str = WAY) -> Function:
    """out[o + r, p + c] = start[s + c] + the sum over k < depth of a[i + r, h + k] * b[j + k, q + c], for all c.

    Called as tile(a, i, h, b, j, q, start, s, out, o, p, depth), with arrays of int32, of float32 for "f32", whose last
    axis has no gaps. `steps` of k are taken at once, so that fewer instructions go into counting; `depth` is a multiple
    of them. `way` is another one than the processor's in tests only.
    """
    lanes = REGISTERS.get(way, NARROW)
    number = F32 if left == "f32" else I32
    vector, columns = ir.VectorType(number, lanes), vectors * LANES // lanes

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

            def words_of(line: Any, k: Any) -> list[Any]:
                """A row's words of all steps from k on, each in a whole vector."""
                if steps % lanes:
                    places = (at(line, further(k, step), number) for step in range(steps))
                    return [splat(builder, builder.load(place, align=4), vector) for place in places]
                # one load for several words, which instructions of aarch64 take from there one by one
                places = (at(line, further(k, step), vector) for step in range(0, steps, lanes))
                loaded = [builder.load(place, align=4) for place in places]
                indices = [ir.Constant(ir.VectorType(I32, lanes), [lane] * lanes) for lane in range(lanes)]
                return [builder.shuffle_vector(one, one, index) for one in loaded for index in indices]

            _, first, begin, _, above, skipped, _, begun, _, target, column, depth = values
            lefts = [at(row(0, further(first, r)), begin, I8) for r in range(rows)]
            # Each of rows x columns sums is a variable of its own, which LLVM promotes to a register: it is only loaded
            # and stored whole, and all loops over r and v are unrolled here. There must be fewer than registers.
            sums = [[cgutils.alloca_once(builder, vector) for _ in range(columns)] for _ in range(rows)]
            for v in range(columns):
                one = builder.load(at(row(6, None), further(begun, v * lanes), vector), align=4)
                for r in range(rows):
                    builder.store(one, sums[r][v])
            with cgutils.for_range_slice(
                builder, ir.Constant(I64, 0), depth, ir.Constant(I64, steps), inc=True
            ) as (start, _):
                # The outer product of a column of the left tile (words, broadcast to all lanes) and a row of the right
                # one (whole vectors): every loaded register is used rows or columns times.
                words = [words_of(line, start) for line in lefts]
                for step in range(steps):
                    below = row(3, builder.add(above, further(start, step)))
                    rights = [
                        builder.load(at(below, further(skipped, v * lanes), vector), align=4)
                        for v in range(columns)
                    ]
                    for r in range(rows):
                        for v in range(columns):
                            before = builder.load(sums[r][v])
                            added = add_products(
                                builder, before, words[r][step], rights[v], (left, right), way
                            )
                            builder.store(added, sums[r][v])
            for r in range(rows):
                line = row(8, further(target, r))
                for v in range(columns):
                    place = at(line, further(column, v * lanes), vector)
                    builder.store(builder.load(sums[r][v]), place, align=4)
            return context.get_dummy_value()

        n = types.int64
        return types.void(a, n, n, b, n, n, start, n, out, n, n, n), generate

    return made  # type: ignore[no-any-return]


bytes_tile = tile(SHIFTED, "i8", ROWS, PANEL // LANES, STEPS)
