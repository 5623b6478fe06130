"""Text to vectors: backbone, pooling, what follows it, prompts and maximum length, as one value.

`forward` is the vectors of a packed row, for training; `encode_texts` sorts texts by length, packs them up to a
budget of tokens and returns numpy. What it loads from a sentence-transformers folder gives that library's own vectors.
`TorchModel` runs an encoder on packed rows, for `Encoder.encode` and for the engine in `search/embed.py`. On a CPU
every core works on its own rows, so none waits for another, and a BERT-like model goes through a lean forward
(`kernels/lean_forward.py`, or `kernels/int8.py`). On a GPU rows are copied while the row before is computed, and
vectors come back while the next rows are under way.
Cost: the backbone's on real tokens, and the tokens of all texts in memory; `search/embed.py` streams any number of
texts.

T packed tokens, B sequences, P pieces of text, D width of the vectors, N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import ModelError
from liebig.base.hub import model_folder
from liebig.model.backbone import Backbone
from liebig.model.folder import (
    HEADS,
    model_card,
    read_tail,
    save_heads,
    write_backbone,
    write_json,
    write_tail,
    written_beside,
)
from liebig.model.packed import Packed
from liebig.model.pooling import POOLINGS, pool, through, width_after
from liebig.model.settings import (
    POOLING_KEYS,
    TOKENS_CPU,
    Floats,
    Longs,
    ModelSettings,
    PackedRow,
    Precision,
    Similarity,
    TextReader,
    TokenSpans,
    nothing,
)
from liebig.ragged import Ragged, offsets_of, split_by_budget
from liebig.text.layout import Layout, Record, RoleLayout
from liebig.text.tokenizer import Tokenizer

TOKENS, TOKENS_CUDA = 4_096, 32_768  # in one packed row: of pairs of texts on a CPU, of anything on a GPU


class Encoder(TextReader, nn.Module):
    """Backbone, tokenizer, pooling and what follows: text in, vectors out."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        *,
        pooling: str = "cls",
        tail: Sequence[nn.Module] = (),
        max_length: int | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        similarity: Similarity = "dot",
        lowercase: bool = False,
        pool_prompt: bool = True,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ModelError(f"unknown pooling {pooling!r}", fix=f"use one of {', '.join(POOLINGS)}")
        if tokenizer.vocab_size > backbone.vocab_size:
            raise ModelError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only {backbone.vocab_size}"
            )
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.tail = nn.ModuleList(tail)
        self.max_length = min(max_length or backbone.max_positions, backbone.max_positions)
        self.prompts = dict(prompts or {})
        self.default_prompt = default_prompt
        self.similarity: Similarity = similarity
        self.lowercase = lowercase
        self.pool_prompt = pool_prompt
        self.layout = layout or Layout()

    @classmethod
    def load(cls, source: str | Path, *, pooling: str | None = None) -> Encoder:
        """From a folder of Liebig, sentence-transformers or transformers (the last with CLS pooling), or a hub name.

        `liebig:NAME` is an encoder that comes with the package.
        """
        settings = ModelSettings.read(model_folder(source))
        return cls(
            Backbone.load(settings.transformer),
            settings.tokenizer,
            pooling=pooling or settings.pooling,
            tail=[read_tail(name, path) for name, path in settings.tail],
            max_length=settings.max_length,
            prompts=settings.prompts,
            default_prompt=settings.default_prompt,
            similarity=settings.similarity,
            lowercase=settings.lowercase,
            pool_prompt=settings.pool_prompt,
            layout=settings.layout,
        )

    def save(self, folder: str | Path, *, heads: Mapping[str, nn.Module] | None = None) -> None:
        """A folder that `AutoModel`, `AutoModelForMaskedLM` and `SentenceTransformer` load; heads are separate.

        Files of the same names are replaced, others stay.
        """
        with written_beside(Path(folder)) as beside:
            write_backbone(self.backbone, beside)
            self.tokenizer.save(beside)
            write_modules(self, beside)
            self.layout.save(beside)
            card = model_card(
                "A dense retriever", "sentence-similarity", "feature-extraction", self.describe(), usage(self)
            )
            (beside / "README.md").write_text(card, encoding="utf-8")
            if heads:
                save_heads(beside / HEADS, heads)
            else:
                (Path(folder) / HEADS).unlink(missing_ok=True)

    @property
    def max_positions(self) -> int:
        return self.backbone.max_positions

    @property
    def width(self) -> int:
        """D, the length of a vector."""
        return width_after(self.tail, self.backbone.width)

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    def forward(self, packed: Packed) -> Tensor:
        """The vectors of a packed row, B x D."""
        return self.vectors(self.backbone(packed).last, packed)

    def vectors(self, states_TD: Tensor, packed: Packed, skip: int = 0) -> Tensor:
        """Vectors from states that were computed before, B x D."""
        return through(self.tail, pool(states_TD, packed, self.pooling, skip))

    def describe(self) -> str:
        said = f"{self.pooling} pooling, {self.width} numbers per vector, compared by {self.similarity}"
        return f"{self.backbone.describe()[:-1]}; {said}, at most {self.max_length} tokens per text."

    def encode(
        self, texts: str | Sequence[str], *, prompt: str | None = None, unit: bool = False
    ) -> NDArray[np.float32]:
        """The vector of a text, D, or the vectors of several, N x D; `prompt` is a role, "query" or "passage".

        `Encoder.load("liebig:mini-v3").encode(["one text", "another"])`
        """
        if isinstance(texts, str):
            return self.encode_texts([texts], prompt=prompt, unit=unit)[0]
        return self.encode_texts(texts, prompt=prompt, unit=unit)

    def encode_query(self, texts: str | Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
        """Vectors of questions, with the model's prompt for them; the name is sentence-transformers'."""
        return self.encode(texts, prompt="query", unit=unit)

    def encode_document(self, texts: str | Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
        """Vectors of passages, with the model's prompt for them; the name is sentence-transformers'."""
        return self.encode(texts, prompt="passage", unit=unit)

    def encode_texts(
        self,
        texts: Sequence[Record],
        *,
        prompt: str | None = None,
        layout: RoleLayout | None = None,
        token_budget: int | None = None,
        unit: bool = False,
        half: bool | None = None,
    ) -> NDArray[np.float32]:
        """Vectors of the texts, N x D. `unit` scales them to length 1 (then dot product is cosine).

        Texts are strings or records: a passage brings its title. `prompt` names a role (query, passage) or a prompt;
        `layout` is given instead where another one than the model's is wanted. `half` computes in bfloat16; None means
        on CUDA only.
        """
        how = self._named(prompt) if layout is None else layout
        return self.encode_rows(
            how.ids(texts), token_budget=token_budget, unit=unit, half=half, skip=self.skip(how)
        )

    def encode_rows(
        self,
        rows: Ragged,
        *,
        token_budget: int | None = None,
        unit: bool = False,
        half: bool | None = None,
        skip: int = 0,
    ) -> NDArray[np.float32]:
        """Vectors of tokenised texts (special tokens included), N x D; the mode of training is left as it was."""
        was_training = self.training
        budget = token_budget or (TOKENS_CUDA if self.device.type == "cuda" else TOKENS_CPU)
        packed = ((rows.take(numbers), numbers) for numbers in split_by_budget(rows.lengths, budget))
        several = len(rows.values) > 2 * budget
        # anew for each call, because training changes the weights
        model = TorchModel(self, half=half, unit=unit, skip=skip, lean=several)
        vectors = model.start(packed, len(rows))()
        self.train(was_training)
        return vectors

    def row_vectors(
        self,
        packed: Packed,
        states: Callable[[Packed], Tensor],
        *,
        unit: bool = False,
        half: bool = False,
        skip: int = 0,
    ) -> Tensor:
        """The vectors of a packed row as they are kept, B x D: float32, of length 1 if `unit`.

        `states` is the forward: the backbone's, or another that computes the same.
        """
        with torch.autocast(packed.device.type, torch.bfloat16, enabled=half):
            vectors_BD = self.vectors(states(packed), packed, skip).float()
        return F.normalize(vectors_BD, dim=-1) if unit else vectors_BD

    def in_half(self, half: bool | None) -> bool:
        """Whether to compute in bfloat16: as given, else on CUDA; never a model that is not in float32."""
        full = self.backbone.dtype == torch.float32
        return full and (self.device.type == "cuda" if half is None else half)


def write_modules(encoder: Encoder, folder: Path) -> None:
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [(f"{i}_{type(part).__name__}", type(part).__name__) for i, part in enumerate(encoder.tail, 2)]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    settings = {"max_seq_length": encoder.max_length, "do_lower_case": encoder.lowercase}
    write_json(folder / "sentence_bert_config.json", settings)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "prompts": encoder.prompts,
            "default_prompt_name": encoder.default_prompt,
            "similarity_fn_name": encoder.similarity,
        },
    )
    pooling: dict[str, Any] = {"word_embedding_dimension": encoder.backbone.width}
    pooling |= {key: kind == encoder.pooling for key, kind in POOLING_KEYS.items()}
    write_json(folder / "1_Pooling" / "config.json", pooling | {"include_prompt": encoder.pool_prompt})
    for (path, _), part in zip(modules[2:], encoder.tail, strict=True):
        write_tail(part, folder / path)


def titles(encoder: Encoder) -> str:
    """How titles are joined to texts, if that is not a plain space."""
    if encoder.layout.title == "separator":
        sep = encoder.tokenizer.tokens([encoder.tokenizer.sep])[0]
        return f'- passages with a title are read as `f"{{title}} {sep} {{text}}"`\n'
    return "- passages are read without their titles\n" if encoder.layout.title == "no" else ""


def usage(encoder: Encoder) -> str:
    """How the folder's vectors are made and compared, for its card."""
    prompts = "".join(f"- prompt `{name}`: `{text!r}`\n" for name, text in encoder.prompts.items())
    return f"""- pooling: {encoder.pooling}
- similarity: {encoder.similarity}
- maximum length: {encoder.max_length} tokens, special tokens included
{titles(encoder)}{prompts}
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder")
vectors = model.encode(["a text"])
```
"""


class TorchModel:
    """An encoder run by torch, on its device; on a CPU every core works on its own rows."""

    pools_spans = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        half: bool | None = None,
        unit: bool = False,
        skip: int = 0,
        lean: bool = True,
        precision: Precision = "fp32",
    ) -> None:
        """`lean` allows the lean forward, which copies weights first: for a row or two that would cost more.

        `precision` is that of a CPU; `choose` in `kernels/int8.py` says what `auto` is.
        """
        self.encoder, self.width = encoder.eval(), encoder.width
        self._unit, self._skip = unit, skip
        self._device = encoder.device
        self._cuda = self._device.type == "cuda"
        self._half = encoder.in_half(half)
        self._threads = 1 if self._cuda else torch.get_num_threads()
        self._states = self._forward(lean, precision)

    def _forward(self, lean: bool, precision: Precision) -> Callable[[Packed], Tensor]:
        """What gives the last states of a packed row."""
        backbone = self.encoder.backbone
        if self._half:
            return lambda row: backbone(row).last
        from liebig.model.kernels import int8  # compiled code, which training and GPUs do without
        from liebig.model.kernels.lean_forward import LeanForward, body_of, supports

        if precision != "fp32" and int8.choose(precision, body := body_of(backbone)) == "int8":
            assert body is not None, "`choose` refuses what has none"
            forward = int8.Int8Forward(body, self.encoder.tokenizer.wrap)
            return lambda row: torch.from_numpy(forward(row.tokens.numpy(), row.bounds))
        return LeanForward(backbone) if lean and supports(backbone) else lambda row: backbone(row).last

    def start(
        self,
        packed: Iterable[PackedRow],
        count: int,
        done: Callable[[int], None] = nothing,
        spans: TokenSpans | None = None,
    ) -> Callable[[], Floats]:
        """As every model; the vectors of `spans`, pooled from the states of their pieces, stand behind the others."""
        out_PD = torch.empty(count + (0 if spans is None else len(spans)), self.width, device=self._device)

        def run(row: PackedRow) -> int:
            return self._row(*row, out_PD, count, spans)

        if self._threads == 1:
            for row in packed:
                done(run(row))
        else:
            with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                for size in pool.map(run, packed):
                    done(size)
        return self._fetch(out_PD)

    @torch.inference_mode()
    def _row(
        self, tokens: Ragged, numbers: Longs, out_PD: Tensor, count: int, spans: TokenSpans | None
    ) -> int:
        row = self._moved(Packed.from_ragged(tokens))
        states = self._states  # computed once, for the pieces and for the spans in them
        if spans is not None:
            with torch.autocast(row.device.type, torch.bfloat16, enabled=self._half):
                states_TD = self._states(row)
            states = lambda _: states_TD  # noqa: E731
            inner, sizes, places = spans.within(tokens, numbers)
            if len(inner):
                within = self._moved(Packed.from_ragged(Ragged(tokens.values[places], offsets_of(sizes))))
                chosen_TD = states_TD[torch.from_numpy(places).to(self._device)]
                vectors = self.encoder.row_vectors(
                    within, lambda _: chosen_TD, unit=self._unit, half=self._half
                )
                out_PD[torch.from_numpy(count + inner).to(self._device, non_blocking=True)] = vectors
        vectors = self.encoder.row_vectors(row, states, unit=self._unit, half=self._half, skip=self._skip)
        out_PD[torch.from_numpy(numbers).to(self._device, non_blocking=True)] = vectors
        return len(tokens.values)

    def _moved(self, row: Packed) -> Packed:
        return row.pin().to(self._device, non_blocking=True) if self._cuda else row

    def _fetch(self, out_PD: Tensor) -> Callable[[], Floats]:
        """Copy back as soon as these vectors are there, not when all that follows is."""
        if not self._cuda:
            return out_PD.numpy
        host = torch.empty(out_PD.shape, pin_memory=True)
        host.copy_(out_PD, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(self._device))

        def wait() -> Floats:
            done.synchronize()
            return np.array(host.numpy())

        return wait
