"""The recipe of a vector index."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath


class ExactConfig(Config):
    """Every vector is scored: right up to a few million passages, and always exact."""

    kind: Literal["exact"] = "exact"
    type: Literal["fp32", "fp16", "int8", "binary"] | None = Field(
        default=None, description="How vectors are stored; as they come, if not given."
    )


class FaissConfig(Config):
    """FAISS proposes, exact scores decide; recall is measured and recorded."""

    kind: Literal["faiss"] = "faiss"
    factory: str = Field(
        "auto", description='FAISS factory string ("IVF4096,PQ48", "HNSW32"), or auto by size.'
    )
    recall: float = Field(
        0.95, gt=0, le=1, description="Recall@k wanted; nprobe or ef is raised until it is reached."
    )
    recall_at: int = Field(100, ge=1, description="The k of the recall.")
    sample: int = Field(1000, ge=1, description="Queries that recall is measured with.")
    rescore: int | None = Field(
        None, ge=1, description="Proposals scored for each hit wanted; by structure if not given."
    )
    effort: int | None = Field(None, ge=1, description="nprobe or efSearch, instead of finding it.")


class MilvusConfig(Config):
    """A Milvus collection: embedded in the index folder, or a server by its address."""

    kind: Literal["milvus"] = "milvus"
    uri: str | None = Field(
        None, description="Address of a Milvus server; embedded (milvus-lite) if not given."
    )
    collection: str = Field("passages", description="Name of the Milvus collection.")
    index: str = Field("FLAT", description="Milvus index type: FLAT (exact), HNSW, IVF_FLAT, AUTOINDEX, ...")
    parameters: dict[str, int] = Field(
        {}, description="Build parameters of the index type, such as M or nlist."
    )
    search: dict[str, int] = Field(
        {}, description="Search parameters, such as ef or nprobe, instead of finding them."
    )
    recall: float = Field(0.95, gt=0, le=1, description="Recall@k wanted of an approximate type.")
    recall_at: int = Field(100, ge=1, description="The k of the recall.")
    sample: int = Field(1000, ge=1, description="Queries that recall is measured with.")


class IndexConfig(Config):
    """`liebig index`: vectors to an index, or more of them to one there is."""

    vectors: InputPath | None = Field(
        None, description="A folder of vectors (liebig encode); none only deletes."
    )
    base: InputPath | None = Field(None, description="An index to add to; its kind is kept.")
    delete: InputPath | None = Field(None, description="A file of ids to take out of `base`, one a line.")
    queries: InputPath | None = Field(None, description="Vectors of queries to measure recall with.")
    index: Annotated[ExactConfig | FaissConfig | MilvusConfig, Field(discriminator="kind")] = Field(
        ExactConfig(), description="exact, faiss or milvus."
    )
    seed: int = Field(0, description="Draws the training and recall samples.")
    rebuild: bool = Field(
        False, description="Build from the vectors alone: `base` is neither opened nor checked."
    )

    @model_validator(mode="before")
    @classmethod
    def _forget_base(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("rebuild") is True:
            return {**values, "base": None, "delete": None}
        return values

    @model_validator(mode="after")
    def _has_something_to_do(self) -> IndexConfig:
        if self.vectors is None and (self.base is None or self.rebuild):
            raise ValueError("there is nothing to index: give vectors, or a base to change")
        if self.delete is not None and self.base is None:
            raise ValueError("delete names vectors of base, and there is no base")
        return self
