"""The recipe of encoding, and of exporting to ONNX."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from liebig.config import Config, InputPath
from liebig.records import Title


class EncodeConfig(Config):
    """`liebig encode`: texts to shards of vectors."""

    source: InputPath | None = Field(
        None,
        description="A collection, a token store, or any file that liebig init reads; standard input if not given.",
    )
    model: InputPath = Field(description="The model's folder (or its ONNX export).")
    what: Literal["passages", "queries", "documents"] = Field(
        "passages", description="What of the source is encoded."
    )
    split: str | None = Field(None, description="The split whose queries are encoded; all if not given.")
    prompt: str | None = Field(
        None, description="Name of the model's prompt; by `what` if not given, '' for none."
    )
    title: Title | None = Field(
        None,
        description="Put the title before the text: with a space, with the separator token, or not at all "
        "[default: as the model was trained, else space].",
    )
    type: Literal["fp32", "fp16", "int8", "binary"] = Field("fp16", description="How vectors are stored.")
    unit: bool | None = Field(
        None, description="Scale vectors to length 1; as the model's similarity asks, if not given."
    )
    long: Literal["first", "max", "mean"] = Field(
        "first",
        description="Of texts longer than the model takes: the beginning, a vector a piece, the pieces' mean.",
    )
    overlap: int = Field(32, ge=0, description="Tokens that a piece shares with the one before.")
    most_pieces: int | None = Field(None, ge=1, description="The most pieces of a text.")
    max_length: int | None = Field(
        None,
        ge=8,
        description="Tokens of a text or piece, up to the model's positions [default: the model's length of use].",
    )
    shard: int = Field(65_536, ge=1, description="Texts of a shard.")
    window: int = Field(8192, ge=1, description="Texts tokenised and sorted by length together.")
    budget: int | None = Field(None, ge=1, description="Tokens of a row; by device if not given.")
    workers: int | None = Field(None, ge=0, description="Processes that tokenise; by device if not given.")
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads on a CPU [default: OMP_NUM_THREADS, else by how busy the machine is].",
    )
    device: str | None = Field(None, description="cpu or cuda; the GPU if there is one.")
    half: bool | None = Field(None, description="Compute in bfloat16; on a GPU if not given.")
    compile: bool | None = Field(None, description="Compile the model; on a GPU if not given.")


class OnnxConfig(Config):
    """`liebig onnx`: a model for ONNX Runtime, in fp32 or int8."""

    model: InputPath = Field(description="The model's folder.")
    int8: bool = Field(True, description="Round weights to int8.")
    opset: int = Field(18, ge=17, description="Version of the ONNX operators.")
