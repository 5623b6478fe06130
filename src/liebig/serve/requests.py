"""The requests that a server takes, as pydantic models, and a route that does not parse a body again.

Our own routes refuse unknown fields; those that are compatible with other servers ignore them, because those APIs have
more fields.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from liebig.search.answer import Sort
from liebig.search.query_language import HELP
from liebig.search.retriever_folder import SystemName
from liebig.serve.middleware import PARSED


class ParsedRequest(Request):
    """A request whose body the middleware has parsed."""

    async def json(self) -> Any:
        return self.scope[PARSED]


class ParsedRoute(APIRoute):
    """A route that does not parse the body again."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            return await handle(ParsedRequest(request.scope, request.receive))

        return handle_parsed


Texts = Annotated[list[str], Field(fail_fast=True)]  # one error is reported, so the first one suffices

TokenIds = Annotated[list[int | list[int]], Field(fail_fast=True)]  # to be refused with advice

Range = dict[str, int | float | str]

Filters = dict[str, str | Texts | Range]


class Own(BaseModel):
    """Base of our own requests: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class SearchRequest(Own):
    """A search."""

    query: str = Field(
        description=f"The question, or words; it may have {HELP}.", examples=["merge two sorted lists"]
    )
    k: int | None = Field(None, ge=1, description="Number of passages (default 10).")
    system: SystemName | None = Field(
        None, description="The system to use (default: the one the build chose)."
    )
    filters: Filters | None = Field(
        None,
        description="Metadata fields, each with its required value, a list of accepted values, or a range: "
        '`{"gte": 5, "lt": 9}` for numbers, `{"gte": "2024-05"}` for dates.',
    )
    sort: Sort = Field("best", description="`newest` puts the 100 best passages in the order of their dates.")
    facets: Annotated[list[str], Field(max_length=16)] = Field(
        [],
        description="Fields, such as folder, type and language: `facets` of the answer has the number of matching "
        "documents by value.",
    )
    floor: bool = Field(True, description="Answer with nothing where nothing seems to fit the question.")
    snippets: bool = Field(
        False,
        description="Add a snippet of each passage with the question's words marked, the address of its original file, "
        "what is known of the question's words, and why nothing was found.",
    )
    group: bool = Field(
        False, description="Answer with `documents`, each with its passages, instead of flat `results`."
    )


class CompareRequest(Own):
    """A search with two systems side by side."""

    query: str = Field(description="The question, or words.", examples=["merge two sorted lists"])
    systems: Annotated[list[SystemName], Field(min_length=1, max_length=2, fail_fast=True)] = Field(
        description="One or two systems.", examples=[["bm25", "dense"]]
    )
    k: int | None = Field(None, ge=1, le=100, description="Number of passages per system (default 10).")
    filters: Filters | None = Field(None, description="As in /search.")


class ContextRequest(Own):
    """A question whose best passages are to go into a prompt."""

    query: str = Field(description="As in /search.", examples=["merge two sorted lists"])
    tokens: int = Field(2000, ge=1, le=100_000, description="Budget of tokens, which are estimated.")
    system: SystemName | None = Field(
        None, description="The system to use (default: the one the build chose)."
    )
    filters: Filters | None = Field(None, description="As in /search.")


class ExplainRequest(Own):
    """A question and a passage to explain."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    id: str = Field(description="The passage's id.")
    system: Literal["dense", "bm25"] = Field("dense", description="The system whose score to explain.")


class EmbedRequest(BaseModel):
    """A request of text-embeddings-inference for embeddings."""

    inputs: str | Texts = Field(
        description="One text or a list of texts.", examples=[["the first", "the second"]]
    )
    normalize: bool | None = Field(None, description="Scale vectors to length 1 (default: as in the index).")
    truncate: bool = Field(
        True, description="Cut texts that are too long for the model; otherwise they are refused."
    )
    prompt_name: Literal["query", "passage", "document"] | None = Field(
        None, description="What the texts are; some models use another prompt for queries."
    )


class EmbeddingsRequest(BaseModel):
    """A request of OpenAI's API for embeddings."""

    input: str | Texts | TokenIds = Field(
        description="One text or a list of texts.", examples=[["the first", "the second"]]
    )
    model: str = Field("", description="Ignored: the server has one model.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="A list of numbers, or their bytes in base64."
    )
    dimensions: int | None = Field(None, description="Must be the model's own width if given.")
    input_type: Literal["query", "passage", "document"] = Field(
        "passage", description="What the texts are; some models use another prompt for queries."
    )


class RerankRequest(BaseModel):
    """A request of text-embeddings-inference for reranking."""

    query: str = Field(description="The question.", examples=["merge two sorted lists"])
    texts: Texts = Field(description="The texts to rank.", examples=[["heapq.merge", "list.sort"]])
    raw_scores: bool = Field(
        False, description="Return the cross-encoder's raw scores instead of scores from 0 to 1."
    )
    return_text: bool = Field(False, description="Return the texts too.")
    truncate: bool = Field(True, description="Accepted for compatibility; long texts are always cut.")
