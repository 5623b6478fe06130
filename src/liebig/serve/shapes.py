"""The requests, typed and checked: what may be sent to each route, and what it means.

Unknown fields are ignored where a public API has more of them than this server (TEI, OpenAI) and refused elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

System = Literal["hybrid", "dense", "bm25"]
Filters = dict[str, str | list[str]]


class Own(BaseModel):
    """A request of our own: an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Own):
    """A question."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    k: int | None = Field(None, ge=1, description="How many passages; 10 if not given.")
    system: System | None = Field(None, description="Which system is asked; the folder's own if not given.")
    filters: Filters | None = Field(
        None, description="Fields of the metadata, each with the value or the values it must have."
    )
    snippets: bool = Field(False, description="Add the part of each passage that has the question's words.")


class CompareRequest(Own):
    """A question for two systems."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    systems: Annotated[list[System], Field(min_length=1, max_length=2)] = Field(
        description="The systems asked.", examples=[["bm25", "dense"]]
    )
    k: int | None = Field(None, ge=1, le=100, description="How many passages of each; 10 if not given.")
    filters: Filters | None = Field(None, description="As in /search.")


class ExplainRequest(Own):
    """A question and a passage it found."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    id: str = Field(description="The passage's id.")
    system: Literal["dense", "bm25"] = Field("dense", description="Whose score is explained.")


class EmbedRequest(BaseModel):
    """As text-embeddings-inference takes it."""

    inputs: str | list[str] = Field(description="A text, or several.", examples=[["the first", "the second"]])
    normalize: bool | None = Field(
        None, description="Scale vectors to length 1; as those of the index are, if not given."
    )
    truncate: bool = Field(
        True, description="Cut texts that are longer than the model takes, else refuse them."
    )
    prompt_name: Literal["query", "passage", "document"] | None = Field(
        None, description="What the texts are: questions have a prompt of their own in some models."
    )


class EmbeddingsRequest(BaseModel):
    """As OpenAI's API takes it."""

    input: str | list[str] | list[int] | list[list[int]] = Field(
        description="A text, or several.", examples=[["the first", "the second"]]
    )
    model: str = Field("", description="Any name: there is one model.")
    encoding_format: Literal["float", "base64"] = Field("float", description="Numbers, or their bytes.")
    dimensions: int | None = Field(None, description="The model's own width, or nothing.")
    input_type: Literal["query", "passage", "document"] = Field(
        "passage", description="What the texts are: questions have a prompt of their own in some models."
    )


class RerankRequest(BaseModel):
    """As text-embeddings-inference takes it."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    texts: list[str] = Field(description="What is put in order.", examples=[["heapq.merge", "list.sort"]])
    raw_scores: bool = Field(False, description="A cross-encoder's own scores, not brought between 0 and 1.")
    return_text: bool = Field(False, description="Send the texts back.")
    truncate: bool = Field(True, description="Long texts are cut.")
