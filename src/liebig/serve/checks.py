"""Checks of what is asked against the server's limits, each refusal one sentence with the limit in it."""

from __future__ import annotations

from collections.abc import Sequence

from liebig.serve.limits import Limits
from liebig.serve.refusals import Refusal

USUAL = 10  # passages of an answer


def check_query(query: str, limits: Limits) -> str:
    """A question that can be asked."""
    if not query.strip():
        raise Refusal(422, "The query is empty.")
    if len(query) > limits.query:
        raise Refusal(413, f"The query has {len(query)} characters; at most {limits.query} are taken.")
    return query


def check_k(k: int | None, limits: Limits) -> int:
    """A depth that is served; the usual one, as far as it is, where none was asked for."""
    if k is None:
        return min(USUAL, limits.k)
    if k > limits.k:
        raise Refusal(422, f"k = {k} is more than the {limits.k} passages this server gives at once.")
    return k


def check_texts(texts: Sequence[str], name: str, limits: Limits) -> Sequence[str]:
    """Texts that can be embedded."""
    if not texts:
        raise Refusal(422, f"There is nothing in {name}.")
    if len(texts) > limits.texts:
        raise Refusal(
            413, f"There are {len(texts)} texts in {name}; at most {limits.texts} are taken at once."
        )
    for place, text in enumerate(texts):
        if not text.strip():
            raise Refusal(422, f"Text {place} of {name} is empty.")
        if len(text) > limits.characters:
            sentence = (
                f"Text {place} of {name} has {len(text)} characters; at most {limits.characters} are taken."
            )
            raise Refusal(413, sentence)
    return texts
