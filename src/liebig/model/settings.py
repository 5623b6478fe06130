"""What a model's folder says about texts and vectors, read without loading the model, and without torch.

The sentence-transformers files, `layout.json` and the tokenizer say how texts become tokens (`TextReader`), and how
their vectors are made and compared (`ModelSettings`). `Encoder` and `OnnxEncoder` are readers with a forward each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from liebig.base import workspace
from liebig.base.errors import ModelError
from liebig.base.hub import model_folder
from liebig.base.json_file import FileModel, Nonnegative, read_json
from liebig.base.records import Title
from liebig.ragged import Ragged
from liebig.text.layout import FILE as LAYOUT, Layout, Record, Role, RoleLayout, checked_length
from liebig.text.tokenizer import Tokenizer

Similarity = Literal["dot", "cosine"]
Precision = Literal["auto", "fp32", "int8"]
ROLES = {"query": ("query",), "passage": ("passage", "document", "corpus")}

POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
LTR_HEAD = "ltr.safetensors"  # beside a model that ranks pairs by a head; its vectors alone rank nothing
# What `Encoder.save` writes beside weights and tokenizer; other libraries do without some of them.
OWN_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
SMALL = 4 << 20  # bytes of a file whose hash is checked whenever a model is loaded; larger ones by their size
MODULES = ("Transformer", "Pooling", "Dense", "Normalize", "LayerNorm")
OTHER_MODULES = {  # what a model with one of these is
    "Router": "it has an encoder for questions and another for documents",
    "Asym": "it has an encoder for questions and another for documents",
    "StaticEmbedding": "it is a table of token vectors without a transformer",
    "SpladePooling": "it is a sparse encoder, whose vectors are weights of words",
    "SparseAutoEncoder": "it is a sparse encoder, whose vectors are weights of words",
    "SparseStaticEmbedding": "it is a sparse encoder, whose vectors are weights of words",
    "CLIPModel": "it encodes pictures beside texts",
    "MultiVectorMask": "it makes a vector of every token (late interaction)",
}
SCORES = "scores"  # what the last module of a cross-encoder of modules gives
Layers = Annotated[int, Field(ge=1, le=1 << 10)]
Width = Annotated[int, Field(ge=1, le=1 << 17)]
Heads = Annotated[int, Field(ge=1, le=1 << 12)]
Rate = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class ModelSettings:
    """How a folder's texts are read and its vectors made; the defaults are those of a plain transformers folder."""

    tokenizer: Tokenizer
    transformer: Path  # the folder with config.json and the weights
    pooling: str = "cls"
    tail: Sequence[tuple[str, Path]] = ()  # what follows the pooling: the names of modules, and their folders
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: Similarity = "dot"
    lowercase: bool = False
    pool_prompt: bool = True
    layout: Layout = field(default_factory=Layout)

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """What a folder says; without `modules.json` it is pooled by CLS."""
        check_files(folder)
        if not (folder / "modules.json").exists():
            tokenizer = Tokenizer.from_folder(folder)
            return cls(tokenizer, folder, max_length=tokenizer.max_length)
        modules = read_modules(folder)
        settings = transformer_settings(modules[0][1])
        kind, pool_prompt = read_pooling(modules[1][1])
        path = folder / "config_sentence_transformers.json"
        model = (
            read_model_file(path, SentenceTransformersFile) if path.exists() else SentenceTransformersFile()
        )
        tokenizer = Tokenizer.from_folder(modules[0][1])
        return cls(
            tokenizer,
            modules[0][1],
            pooling=kind,
            tail=modules[2:],
            max_length=settings.max_seq_length or tokenizer.max_length,
            prompts={name: text for name, text in (model.prompts or {}).items() if text},
            default_prompt=model.default_prompt_name,
            similarity=read_similarity(model, folder),
            lowercase=bool(settings.do_lower_case),
            pool_prompt=pool_prompt,
            layout=Layout.load(folder),
        )


class TextReader:
    """How texts in a role become token ids: prompts, title rule, lengths. A model adds its forward."""

    tokenizer: Tokenizer
    max_length: int
    prompts: dict[str, str]
    default_prompt: str | None
    similarity: Similarity
    lowercase: bool
    pool_prompt: bool
    layout: Layout

    @property
    def max_positions(self) -> int:
        raise NotImplementedError

    def prompt_text(self, name: str | None) -> str:
        """The prompt of that name; a role ("query", "passage") without one falls back to the default prompt."""
        for alias in ROLES.get(name or "", (name,)):
            if alias in self.prompts:
                return self.prompts[alias]
        if name not in (None, "", *ROLES):
            raise ModelError(
                f"the model has no prompt {name!r}", fix=f"its prompts are {sorted(self.prompts)}"
            )
        return "" if name == "" else self.prompts.get(self.default_prompt or "", "")

    def use(
        self, *, title: Title | None = None, max_length: int | None = None, query_length: int | None = None
    ) -> Self:
        """Change how texts are read from here on; None leaves what the folder says. Gives the encoder itself.

        `max_length` is the longest passage, and the longest query unless the folder or `query_length` sets that.
        """
        positions = self.max_positions
        if title is not None:
            self.layout = replace(self.layout, title=title)
        if max_length is not None:
            self.max_length = checked_length(max_length, positions)
            self.layout = replace(self.layout, passage_length=max_length)
        if query_length is not None:
            query = checked_length(query_length, positions, "query_length")
            passage = self.layout.length("passage", self.max_length)
            self.layout = replace(self.layout, query_length=query, passage_length=passage)
            self.max_length = max(self.max_length, query)
        return self

    def layout_for(self, role: Role | None, prompt: str | None = None) -> RoleLayout:
        """How texts in this role become token ids; `prompt` names another prompt than the role's."""
        return RoleLayout(
            self.tokenizer,
            self.layout.length(role, self.max_length),
            self.prompt_text(role if prompt is None else prompt),
            self.layout.title if role == "passage" else "no",
            self.lowercase,
        )

    def tokenize(self, texts: Sequence[Record], prompt: str | None = None) -> list[list[int]]:
        """Token ids with title, prompt and special tokens, cut to the length of use."""
        return self._named(prompt).lists(texts)

    def _named(self, prompt: str | None) -> RoleLayout:
        """The layout behind a prompt's name, which may be a role's."""
        roles: dict[str | None, Role] = {"query": "query", "passage": "passage"}
        return self.layout_for(roles[prompt]) if prompt in roles else self.layout_for(None, prompt)

    def skip(self, layout: RoleLayout) -> int:
        """Tokens that pooling leaves out, where the model leaves out its prompt: it, and special ones before it."""
        if self.pool_prompt or not layout.prompt_ids:
            return 0
        return len(self.tokenizer.template.before) + len(layout.prompt_ids)


class FolderReader(TextReader):
    """How a model reads texts, by what its folder says; it takes sequences of so many `positions`."""

    def __init__(self, settings: ModelSettings, positions: int) -> None:
        self._positions = positions
        self.tokenizer, self.layout = settings.tokenizer, settings.layout
        self.max_length = min(settings.max_length or positions, positions)
        self.prompts, self.default_prompt = dict(settings.prompts), settings.default_prompt
        self.similarity, self.lowercase = settings.similarity, settings.lowercase
        self.pool_prompt = settings.pool_prompt

    @property
    def max_positions(self) -> int:
        return self._positions


def check_files(folder: Path) -> None:
    """Refuse a folder that has lost a file: without one of these, vectors would be others, and nothing would say so."""
    workspace.verify_part(folder, largest=SMALL)
    lost = [name for name in OWN_FILES if not (folder / name).is_file()]
    if (folder / LAYOUT).is_file() and lost:
        raise ModelError(f"{lost[0]} is missing", file=folder, fix="restore the file, or train again")


def length_of_use(folder: Path) -> int | None:
    """The longest text a model's folder is used with, without loading the model; None where it does not say."""
    listed = (folder / "modules.json").is_file()
    inside = read_modules(folder)[0][1] if listed else folder
    length = transformer_settings(inside).max_seq_length if listed else None
    return length or Tokenizer.from_folder(inside).max_length


def list_modules(folder: Path) -> list[tuple[str, str]]:
    """Class and folder of every module, as `modules.json` has them."""
    listed = read_model_file(folder / "modules.json", list[ModuleEntry])
    return [(entry.type, entry.path) for entry in listed]


def read_modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules by name with their folders: a Transformer, a Pooling, then others that take and give a vector."""
    path = folder / "modules.json"
    modules, listed = [], list_modules(folder)
    for kind, _ in listed:
        if what := OTHER_MODULES.get(kind.rpartition(".")[2]):
            raise ModelError(
                f"this kind of model is not supported: {what}",
                file=folder,
                fix="name a model that turns any text into one vector",
            )
    for kind, place in listed:
        name = kind.rpartition(".")[2]
        if not kind.startswith("sentence_transformers.") or name not in MODULES:
            raise ModelError(
                f"the module {kind!r} is not supported", file=path, fix=f"use {', '.join(MODULES)}"
            )
        inside = (folder / place).resolve()
        if not inside.is_relative_to(folder.resolve()):
            raise ModelError(f"the module folder {place!r} lies outside the model folder", file=path)
        modules.append((name, folder / place))
    names = [name for name, _ in modules]
    if names[:2] != ["Transformer", "Pooling"] or set(names[2:]) & {"Transformer", "Pooling"}:
        raise ModelError(f"the modules {names} do not turn a text into one vector", file=path)
    return modules


def transformer_settings(folder: Path) -> TextLengthFile:
    """`sentence_bert_config.json` under any of its names; newer files that change the text are refused."""
    files = sorted(folder.glob("sentence_*_config.json"))
    settings = read_model_file(files[0], TextLengthFile) if files else TextLengthFile()
    if settings.query_expansion or settings.transformer_task != "feature-extraction":
        raise ModelError("the model's Transformer module does more than encode text", file=files[0])
    return settings


def read_pooling(folder: Path) -> tuple[str, bool]:
    """The one pooling kind, and whether a prompt's tokens are pooled with the text."""
    config = read_model_file(folder / "config.json", PoolingFile)
    named = config.pooling_mode
    if named is None:
        given = config.model_extra or {}
        kinds = [kind for key, kind in POOLING_KEYS.items() if given.get(key)] or ["mean"]
    else:
        kinds = [named] if isinstance(named, str) else named
    if len(kinds) != 1 or kinds[0] not in POOLING_KEYS.values():
        raise ModelError(f"the pooling {kinds} is not supported", file=folder / "config.json")
    return kinds[0], config.include_prompt


def read_similarity(model: SentenceTransformersFile, folder: Path) -> Similarity:
    """Cosine where the folder does not say, as in sentence-transformers."""
    name = model.similarity_fn_name or "cosine"
    if name not in ("dot", "cosine"):
        raise ModelError(f"the similarity {name!r} is not supported", file=folder, fix="use dot or cosine")
    return cast(Similarity, name)


class TransformerFile(FileModel, extra="allow"):
    """`config.json` of a transformer: what sizes may be, before a library makes layers of them.

    The names are those of the families that transformers has; a file has some of them. The bounds are far above any
    model in use, and low enough that a wrong number is refused instead of filling the memory.
    """

    model_type: str | None = None
    architectures: list[str] | None = None
    num_hidden_layers: Layers | None = None
    n_layers: Layers | None = None
    num_layers: Layers | None = None
    num_decoder_layers: Layers | None = None
    hidden_size: Width | None = None
    dim: Width | None = None
    d_model: Width | None = None
    embedding_size: Width | None = None
    intermediate_size: Width | None = None
    hidden_dim: Width | None = None
    d_ff: Width | None = None
    d_kv: Width | None = None
    num_attention_heads: Heads | None = None
    n_heads: Heads | None = None
    num_heads: Heads | None = None
    vocab_size: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    type_vocab_size: Annotated[int, Field(ge=0, le=1 << 10)] | None = None
    max_position_embeddings: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    hidden_dropout_prob: Rate | None = None
    attention_probs_dropout_prob: Rate | None = None
    initializer_range: Nonnegative | None = None
    layer_norm_eps: Nonnegative | None = None
    pad_token_id: int | None = None
    num_labels: Width | None = None
    auto_map: Any = None
    encoder: TransformerFile | None = None  # the halves of an encoder-decoder model
    decoder: TransformerFile | None = None

    @property
    def layers(self) -> int | None:
        return self.num_hidden_layers or self.n_layers or self.num_layers

    @property
    def width(self) -> int | None:
        return self.hidden_size or self.dim or self.d_model

    @model_validator(mode="after")
    def _the_padding_is_a_token(self) -> Self:
        if self.vocab_size and self.pad_token_id is not None and abs(self.pad_token_id) >= self.vocab_size:
            raise ValueError(f"pad_token_id = {self.pad_token_id} is none of the {self.vocab_size:,} tokens")
        return self

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        heads = self.num_attention_heads or self.n_heads
        width = self.hidden_size or self.dim
        if heads and width and width % heads:
            raise ValueError(f"the width {width} is not a multiple of the {heads} heads")
        return self


class TextLengthFile(FileModel):
    """`sentence_bert_config.json`, which is one of a cross-encoder too."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool | None = None
    query_expansion: Any = None
    transformer_task: str | None = "feature-extraction"


class SentenceTransformersFile(FileModel):
    """`config_sentence_transformers.json`."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    activation_fn: str | None = None


class PoolingFile(FileModel, extra="allow"):
    """`config.json` of a Pooling module; older ones have a key for each kind of pooling."""

    pooling_mode: str | list[str] | None = None
    include_prompt: bool = True


class ModuleEntry(FileModel):
    """An entry of `modules.json`."""

    type: str
    path: str = ""


ModelFile = TypeVar("ModelFile")


def read_model_file(path: Path, kind: type[ModelFile]) -> ModelFile:
    if not path.is_file():
        raise ModelError(f"the model folder has no {path.name}", file=path.parent)
    return read_json(path, kind, error=ModelError, fix="correct the file, or save the model again")


class TailFile(FileModel):
    """`config.json` of a Dense or LayerNorm module; that of a Normalize module has none of the sizes."""

    in_features: Width | None = None
    out_features: Width | None = None
    dimension: Width | None = None
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: str | None = None
    module_output_name: str | None = None
    use_residual: bool | None = None


def scores_pairs(folder: Path) -> bool:
    """Whether the last module of a folder turns a pooled vector into scores, as in a cross-encoder of modules."""
    if not (folder / "modules.json").is_file():
        return False
    kind, place = [("", ""), *list_modules(folder)][-1]
    path = folder / place / "config.json"
    dense = kind.endswith(".Dense") and path.is_file()
    return dense and read_model_file(path, TailFile).module_output_name == SCORES


def read_tail_file(name: str, folder: Path, *, last: bool = False) -> TailFile:
    """The settings of a module behind the pooling; a form that changes more than the vector is refused.

    The `last` one may give scores instead of a vector.
    """
    path = folder / "config.json"
    config = read_model_file(path, TailFile) if path.exists() else TailFile()
    places = {config.module_input_name, None if last else config.module_output_name} - {None, ""}
    if places - {"sentence_embedding"} or config.use_residual:
        raise ModelError(f"this form of {name} is not supported", file=path)
    return config


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # a heading: what is wrong comes after it
        lines[0] += " " + lines[1]
    return lines[0][:300] if lines else type(error).__name__


WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
SMALL_MODEL = 1 << 28  # numbers of a model whose layers can be made before its weights are looked for
CLASSIFIER = "ForSequenceClassification"  # how the names of such classes end


def check_folder(folder: Path) -> None:
    """Says clearly what a folder lacks, before any library looks at it."""
    if not folder.is_dir():
        raise ModelError("there is no such model folder", file=folder)
    config = read_model_file(folder / "config.json", TransformerFile)
    if config.auto_map:
        raise ModelError(
            "the model needs code of its own (`auto_map` in config.json), and code from a model folder is never run",
            file=folder,
            fix="use a model of a family that transformers itself has",
        )
    if not any((folder / name).exists() for name in WEIGHTS):
        raise ModelError(
            "the model folder has no weights",
            file=folder,
            fix=f"it needs {WEIGHTS[0]} (or pytorch_model.bin)",
        )
    # A layer has a square matrix at the least, and a number is a byte at the least; ALBERT's layers share theirs.
    # Without this, a library fills the memory with layers that the file has no weights for.
    size = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    width, layers = config.width or 0, 1 if config.model_type == "albert" else config.layers or 0
    words = (config.vocab_size or 0) * (config.embedding_size or width)
    if max(layers * width * width, words) > max(size, SMALL_MODEL):
        raise ModelError(
            f"describes a larger model ({layers:,} layers of width {width:,}, {config.vocab_size or 0:,} tokens) "
            f"than the {size:,} bytes of weights",
            file=folder / "config.json",
            fix="restore the file, or save the model again",
        )


def is_classifier(folder: Path) -> bool:
    """Whether a folder's model has a classification head, as cross-encoders have."""
    names = read_model_file(folder / "config.json", TransformerFile).architectures or []
    return any(name.endswith(CLASSIFIER) for name in names)


def encoder_folder(source: str | Path) -> Path:
    """The folder of an encoder; a cross-encoder or another classifier is refused, although its body would load as one.

    A pooling module makes any model an encoder, whatever its weights were trained for, unless scores come out.
    """
    folder = model_folder(source)
    modules = list_modules(folder) if (folder / "modules.json").is_file() else []
    pooled = any(kind.endswith(".Pooling") for kind, _ in modules)
    classifier = not pooled and (folder / "config.json").is_file() and is_classifier(folder)
    if classifier or scores_pairs(folder):
        raise ModelError(
            "this model is a reranker or another classifier, not an encoder",
            file=source,
            fix="name an encoder; rerankers are given as --reranker",
        )
    return folder


TOKENS_CPU = 1024  # of a row: what a cache holds
TOKENS_INT8 = 4096  # which is computed in blocks that a cache holds
Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
PackedRow = tuple[Ragged, Longs]  # the tokens of some pieces, and their numbers


@dataclass(frozen=True)
class TokenSpans:
    """S spans of tokens inside pieces that get vectors of their own, in the order of the pieces.

    Places are counted from the first token of a piece, special tokens included.
    """

    piece: Longs
    begin: Longs
    end: Longs

    def __len__(self) -> int:
        return len(self.piece)

    def within(self, tokens: Ragged, numbers: Longs) -> tuple[Longs, Longs, Longs]:
        """Of a row of pieces: the numbers of their spans, how long each is, and the places of its tokens."""
        first, last = (np.searchsorted(self.piece, numbers, side) for side in ("left", "right"))
        spans = _ranges(first, last)
        shift = np.repeat(tokens.offsets[:-1], last - first)
        return (
            spans,
            self.end[spans] - self.begin[spans],
            _ranges(self.begin[spans] + shift, self.end[spans] + shift),
        )


def _ranges(begin: Longs, end: Longs) -> Longs:
    """The whole numbers from each begin to its end, one after the other."""
    sizes = end - begin
    return np.arange(sizes.sum()) + np.repeat(begin - np.cumsum(sizes) + sizes, sizes)


def nothing(count: float) -> None:
    """The progress callback of a caller that shows none."""
