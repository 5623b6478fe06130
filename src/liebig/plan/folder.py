"""What `liebig build` takes for documents that are not built yet: a sample is read, the rest counted in bytes.

The first records are read by the readers that the build uses and cut into passages by its cutter. Where they are not
everything, the sample is scaled by the size of the files; the file the sample ended in counts with what was read of
it. Sources without files of their own (`stdlib:`, archives) are read to their end.
"""

from __future__ import annotations

from dataclasses import dataclass

from liebig.data.formats import find
from liebig.data.items import Options
from liebig.data.sources import DiskSource
from liebig.errors import DataError
from liebig.plan.estimates import (
    TOKENISER_MEMORY,
    Corpus,
    Estimate,
    Shape,
    encoding,
    lexical,
    training_memory,
)
from liebig.plan.machines import Machine
from liebig.plan.run import lines
from liebig.records import Document, Passage
from liebig.retriever.build import Wish, cutting
from liebig.retriever.config import QuestionsConfig
from liebig.retriever.passages import cut
from liebig.retriever.training import LONGEST, batch_size
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer

SAMPLE = 1_000  # records read before the rest is estimated


@dataclass(frozen=True)
class Documents:
    """What is in the sources: bytes of text and its passages, with a word on how that is known."""

    text: float
    corpus: Corpus
    basis: str


def plan_build(wish: Wish, machine: Machine) -> list[str]:
    """What each part of `liebig build` takes, and all of them."""
    documents, shape = measure(wish), Shape.of(wish.start)
    corpus, basis = documents.corpus, documents.basis
    most = QuestionsConfig.model_fields["pool"].default
    pool = Corpus(min(most, corpus.passages), corpus.tokens)
    tokens = corpus.passages * corpus.tokens
    seconds = documents.text / machine.read + tokens / machine.tokenise
    read = Estimate("read and cut", seconds, machine.cores * TOKENISER_MEMORY, 3 * documents.text, basis)
    estimates = [read, lexical("BM25", corpus, machine, basis)]
    if wish.minutes > 0:
        batch = batch_size(machine.kind == "cuda")
        memory = training_memory(shape, 2.0 * batch * min(corpus.tokens, LONGEST))
        estimates.append(
            Estimate(
                "training", 60 * wish.minutes, memory, 32 * shape.parameters, "as long as --minutes says"
            )
        )
    models = 2 if wish.minutes > 0 else 1
    check = Corpus(models * pool.passages, pool.tokens)
    estimates.append(
        encoding("check", shape, check, "fp16", machine, f"{pool.passages:,} passages by each encoder")
    )
    estimates.append(encoding("vectors", shape, corpus, "fp16", machine, basis))
    return lines(estimates, machine)


def measure(wish: Wish) -> Documents:
    """Read and cut the first records of the sources, and scale them to all of their bytes."""
    fields = cutting(wish, wish.start)
    tokenizer = Tokenizer.from_folder(wish.start)
    cutter = by_tokens(tokenizer, fields["length"], language=fields["language"])
    found = [one for source in wish.sources for one in find(source)]
    sizes = {
        file.label: file.path.stat().st_size
        for one in found
        for file in one.source.files()
        if isinstance(file, DiskSource) and file.path.is_file()
    }
    passages: list[str] = []
    text, read, records, last = 0.0, 0.0, 0, ""
    of_last, whole = 0.0, True
    for item in (item for one in found for item in one.items(Options())):
        record = item.record
        if not isinstance(record, Document | Passage):
            continue
        if records >= SAMPLE and sizes:
            whole = False
            break
        if item.where.file != last:
            read, last, of_last = read + sizes.get(last, 0), item.where.file, 0.0
        size = len(record.text.encode())
        text, of_last, records = text + size, of_last + size, records + 1
        kept = [record] if isinstance(record, Passage) else [piece.passage for piece in cut(record, cutter)]
        passages += [f"{passage.title} {passage.text}" for passage in kept]
    if not passages:
        raise DataError("there is no text to read in it", file=", ".join(wish.sources))
    mean = sum(map(len, tokenizer.encode_batch(passages))) / len(passages)
    if whole:
        basis = f"{len(passages):,} passages of about {mean:.0f} tokens"
        return Documents(text, Corpus(len(passages), mean), basis)
    read += min(sizes.get(last, 0), of_last)
    times = max(1.0, sum(sizes.values()) / max(1.0, read))
    count = round(len(passages) * times)
    basis = f"about {count:,} passages of {mean:.0f} tokens, from the first {records:,} records"
    return Documents(text * times, Corpus(count, mean), basis)
