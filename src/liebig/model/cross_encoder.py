"""The cross-encoder: query and passage in one sequence, and one number that says how well they fit.

It is any sequence classifier of Hugging Face with one label or two, its own head included, or a chain of modules of
sentence-transformers (a Transformer, a Pooling, Dense and LayerNorm, the last Dense with the scores), and so a folder
that those libraries load: what they save is loaded here, what is saved here they load, and `predict` gives the numbers
of sentence-transformers' class of the same name. `score` gives raw numbers, without an activation:
the logit, or with two labels the second less the first, whose sigmoid is the second one's probability. Those are what
is ranked by, and what distillation learns. Pairs are cut as transformers cuts them, the longer text first, sorted by
length and packed up to a budget of tokens; families that cannot be packed run padded. Cost: the backbone on the tokens
of every pair.

N pairs, B pairs of a row, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from liebig.base.errors import DataError, ModelError
from liebig.base.hub import model_folder
from liebig.base.machine import chosen, threads
from liebig.base.records import Title
from liebig.model.backbone import Backbone
from liebig.model.encoder import TOKENS, TOKENS_CUDA
from liebig.model.folder import model_card, read_tail, write_json, write_tail, written_beside
from liebig.model.loading import load_classifier, quiet, read_config, readable
from liebig.model.onnx_graph import WRITERS, is_export, needs, padded, session, write_graph
from liebig.model.packed import Packed
from liebig.model.pooling import ACTIVATIONS, PaddedForward, check_exportable, pool, through, width_after
from liebig.model.settings import (
    SCORES,
    SentenceTransformersFile,
    TextLengthFile,
    TransformerFile,
    check_folder,
    is_classifier,
    list_modules,
    read_model_file,
    read_modules,
    read_pooling,
    read_tail_file,
    scores_pairs,
)
from liebig.ragged import Ragged, split_by_budget
from liebig.text.layout import Layout, Record, RoleLayout, checked_length
from liebig.text.tokenizer import Tokenizer

Pair = tuple[Record, Record]
Floats = NDArray[np.float32]
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
WHOLE = 1 << 30  # a text is not cut before it is known which of the two is the longer
PROMPTS = "config_sentence_transformers.json"
PLACES = {  # in sentence-transformers
    "Dense": "base.modules.dense",
    "LayerNorm": "sentence_transformer.modules.layer_norm",
    "Normalize": "base.modules.normalize",
}


class CrossEncoderSettings(NamedTuple):
    """What a folder says about the use of its model, in the files of sentence-transformers."""

    activation: str
    length: int | None = None
    prompt: str = ""  # put before the first text of a pair
    lowercase: bool = False


class CrossEncoder(nn.Module):
    """A sequence classifier with its tokenizer: pairs of texts in, numbers out.

    `CrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2").score([("a question", "a passage")])`
    """

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        *,
        length: int | None = None,
        activation: str = SIGMOID,
        prompt: str = "",
        lowercase: bool = False,
        title: Title = "space",
        segments: bool = False,
        pooling: str | None = None,
        tail: Sequence[nn.Module] = (),
    ) -> None:
        """With a `pooling`, the scores are what `tail` makes of the pooled states; else the backbone has its head."""
        super().__init__()
        if tokenizer.vocab_size > backbone.vocab_size:
            raise ModelError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only {backbone.vocab_size}"
            )
        self.backbone, self.tokenizer = backbone, tokenizer
        self.pooling, self.tail = pooling, nn.ModuleList(tail)
        self.length = checked_length(length or backbone.max_positions, backbone.max_positions, "length")
        self.activation, self.prompt, self.lowercase, self.title = activation, prompt, lowercase, title
        # Whether the model is told which of the two texts a token belongs to.
        self.segments = segments and getattr(backbone.config, "type_vocab_size", 0) > 1
        self.around = len(tokenizer.wrap_pair([], [])[0])
        self.graph: OnnxGraph | None = None  # runs instead of the backbone, where the folder is an export

    @classmethod
    def load(
        cls, source: str | Path, *, device: str | None = None, length: int | None = None
    ) -> CrossEncoder:
        """From a folder or by name from the hub, on the device that is named, else on a GPU if there is one.

        `length` is the most tokens of a pair, if not the model's own.
        """
        folder = reranker_folder(source)
        made = cls.start(folder, length=length)
        if is_export(folder):
            made.graph = OnnxGraph(folder, tokenizer=made.tokenizer)
        return made.to("cpu" if made.graph else chosen(device)).eval()

    @classmethod
    def start(
        cls, folder: Path, *, length: int | None = None, title: Title | None = None, activation: str = ""
    ) -> CrossEncoder:
        """A model to train: a cross-encoder with its head, or any other encoder with a fresh one."""
        tokenizer, settings = read_files(folder)
        head = read_head(folder)
        inside = folder if head is None else head.transformer
        backbone = (
            Backbone(load_classifier(folder).eval(), source=str(folder))
            if head is None
            else Backbone.load(inside)
        )
        own = settings.length or tokenizer.max_length or backbone.max_positions
        return cls(
            backbone,
            tokenizer,
            length=length or min(own, backbone.max_positions),
            activation=activation or settings.activation,
            prompt=settings.prompt,
            lowercase=settings.lowercase,
            title=title or Layout.load(folder).title,
            segments=takes_segments(inside, tokenizer),
            pooling=None if head is None else head.pooling,
            tail=[] if head is None else head.modules(),
        )

    @property
    def labels(self) -> int:
        """C, one or two."""
        if self.pooling is not None:
            return width_after(self.tail, self.backbone.width)
        return int(self.backbone.config.num_labels)

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    def describe(self) -> str:
        said = f"{self.labels} label{'s' * (self.labels > 1)}, at most {self.length} tokens per pair"
        return f"{self.backbone.describe()[:-1]}; {said}."

    def forward(self, packed: Packed) -> Tensor:
        """The raw score of each pair of a row, B."""
        return relevance(self.logits(packed))

    def logits(self, packed: Packed) -> Tensor:
        """What the model's head gives, B x C."""
        if self.graph is not None:
            return self.graph(packed)
        if self.pooling is None:
            logits_BC = self.backbone.class_logits(packed)
        else:
            logits_BC = through(self.tail, pool(self.backbone(packed).last, packed, self.pooling))
        return logits_BC if logits_BC.dtype == torch.float64 else logits_BC.float()

    def score(self, pairs: Sequence[Pair], *, title: Title | None = None, half: bool | None = None) -> Floats:
        """Raw scores of pairs of query and passage, N: higher fits better, and any number is possible.

        Texts are strings or records: a passage brings its title, put before its text as in training unless `title`
        says otherwise. `half` computes in bfloat16; None means on CUDA only.
        """
        return relevance(torch.from_numpy(self._run(*self.tokenise(pairs, title), half))).numpy()

    def predict(self, pairs: Sequence[Pair], *, half: bool | None = None) -> Floats:
        """What sentence-transformers' `predict` gives: the activation of the logits, N, or N x 2 with two labels."""
        logits_NC = torch.from_numpy(self._run(*self.tokenise(pairs), half))
        values: Floats = ACTIVATIONS[self.activation]()(logits_NC).numpy()
        return values[:, 0] if self.labels == 1 else values

    def scores(
        self, queries: Sequence[Sequence[int]], passages: Sequence[Sequence[int]], half: bool | None = None
    ) -> Floats:
        """Raw scores of texts that are token ids already (`layouts`), row by row, N."""
        return relevance(torch.from_numpy(self._run(queries, passages, half))).numpy()

    def layouts(self, title: Title | None = None, limit: int | None = None) -> tuple[RoleLayout, RoleLayout]:
        """How queries and passages become the two halves of a pair, without special tokens around them.

        `limit` is the most tokens of each; by default what a pair has room for.
        """
        most, lower = limit or self.length - self.around, self.lowercase
        return (
            RoleLayout(self.tokenizer, most, self.prompt, title="no", lowercase=lower, bare=True),
            RoleLayout(self.tokenizer, most, title=title or self.title, lowercase=lower, bare=True),
        )

    def tokenise(
        self, pairs: Sequence[Pair], title: Title | None = None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Both halves of every pair as token ids; a text that occurs in several pairs is tokenised once."""
        for number, pair in enumerate(pairs):
            if isinstance(pair, str) or len(pair) != 2 or any(text is None for text in pair):
                raise DataError(
                    f"pair {number} is {pair!r:.60}, not a question and a passage",
                    fix="give pairs of two texts",
                )
        query, passage = self.layouts(title, WHOLE)
        return lists(query, [pair[0] for pair in pairs]), lists(passage, [pair[1] for pair in pairs])

    def pack(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
        """Pairs of token ids without special tokens as one row."""
        rows = [self._pair(query, passage) for query, passage in pairs]
        return Packed.from_lists(
            [row[0] for row in rows], [row[1] for row in rows] if self.segments else None
        )

    def _pair(self, query: Sequence[int], passage: Sequence[int]) -> tuple[list[int], list[int]]:
        one, two = longest_first(len(query), len(passage), self.length - self.around)
        return self.tokenizer.wrap_pair(query[:one], passage[:two])

    @torch.inference_mode()
    def _run(
        self, queries: Sequence[Sequence[int]], passages: Sequence[Sequence[int]], half: bool | None
    ) -> Floats:
        """Logits, N x C; the mode of training is left as it was."""
        was_training = self.training
        self.eval()
        device = self.device
        budget = TOKENS_CUDA if device.type == "cuda" else TOKENS
        lengths = np.array([len(q) + len(p) for q, p in zip(queries, passages, strict=True)], np.int64)
        out_NC = np.empty((len(lengths), self.labels), np.float32)
        short = (device.type == "cuda" if half is None else half) and self.backbone.dtype == torch.float32
        with torch.autocast(device.type, torch.bfloat16, enabled=short):
            for some in split_by_budget(np.minimum(lengths + self.around, self.length), budget):
                packed = self.pack([(queries[i], passages[i]) for i in some]).to(device)
                out_NC[some] = self.logits(packed).float().cpu().numpy()
        self.train(was_training)
        return out_NC

    def save(self, folder: str | Path) -> None:
        """A folder that transformers and sentence-transformers load; the title rule is in `layout.json`."""
        config = self.backbone.config
        config.sentence_transformers = {"activation_fn": self.activation}
        with written_beside(Path(folder)) as beside:
            with quiet():
                self.backbone.model.save_pretrained(str(beside), safe_serialization=True)
            self.tokenizer.save(beside, max_length=self.length)
            Layout(title=self.title).save(beside)
            if self.prompt or self.lowercase or self.pooling:
                write_modules(self, beside)
            card = model_card(
                "A cross-encoder", "text-ranking", "cross-encoder", self.describe(), usage(self)
            )
            (beside / "README.md").write_text(card, encoding="utf-8")

    def export(self, folder: Path, *, int8: bool = True) -> None:
        """The same folder with a graph for ONNX Runtime in it, which `load` then runs on the CPU."""
        from transformers import AutoModel, AutoModelForSequenceClassification

        needs(*WRITERS)
        if self.pooling is not None:
            check_exportable(self.pooling)
        self.save(folder)
        with quiet():
            loader = AutoModelForSequenceClassification if self.pooling is None else AutoModel
            model = loader.from_pretrained(
                str(folder), attn_implementation="eager", local_files_only=True, dtype=torch.float32
            )
        names = ["input_ids", "attention_mask", *["token_type_ids"] * self.segments]
        graph = PaddedForward(model.eval(), self.pooling, self.tail.to("cpu"))
        write_graph(graph, folder, names, "logits", int8=int8)


class OnnxGraph:
    """The graph of an export, run on packed rows."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._session, self._pad = session(folder, threads()), tokenizer.pad
        self._segments = any(part.name == "token_type_ids" for part in self._session.get_inputs())

    def __call__(self, packed: Packed) -> Tensor:
        """Logits, B x C."""
        inputs = padded(Ragged(packed.tokens.numpy(), packed.bounds), self._pad)
        if self._segments:
            types = padded(Ragged(packed.segment_ids.numpy(), packed.bounds), 0)["input_ids"]
            inputs["token_type_ids"] = types
        return torch.from_numpy(self._session.run(["logits"], inputs)[0])


def is_reranker(folder: Path) -> bool:
    """Whether a folder's model scores pairs: by a classification head, or by its last module."""
    return scores_pairs(folder) or is_classifier(folder)


def reranker_folder(source: str | Path) -> Path:
    """The folder of a cross-encoder; a model that has no head for scores is refused."""
    folder = model_folder(source)
    listed = list_modules(folder) if (folder / "modules.json").is_file() else []
    if any(kind.endswith(".LogitScore") for kind, _ in listed):
        raise ModelError(
            "this reranker is a language model whose next token is the score (LogitScore), which is not supported",
            file=source,
            fix="name a cross-encoder with a head",
        )
    if not is_reranker(folder):
        raise ModelError(
            "this model is not a reranker: it has no classification head",
            file=source,
            fix="name a cross-encoder, or train one with liebig rerank train",
        )
    return folder


class ScoreModules(NamedTuple):
    """The modules of a cross-encoder that is a chain of them."""

    transformer: Path
    pooling: str
    tail: Sequence[tuple[str, Path]]

    @property
    def labels(self) -> int:
        """How many scores a pair gets; 0 where the file does not say, which loading refuses."""
        return read_tail_file(*self.tail[-1], last=True).out_features or 0

    def modules(self) -> list[nn.Module]:
        """What follows the pooling; the last one gives the scores."""
        return [read_tail(name, path, last=path == self.tail[-1][1]) for name, path in self.tail]


def read_head(folder: Path) -> ScoreModules | None:
    """The modules that give the scores; None where a classifier has, or will have, a head of its own."""
    if not scores_pairs(folder):
        return None
    (_, transformer), (_, pooling), *tail = read_modules(folder)
    kind, pool_prompt = read_pooling(pooling)
    if not pool_prompt:
        raise ModelError("a reranker that leaves its prompt out of pooling is not supported", file=folder)
    return ScoreModules(transformer, kind, tail)


def read_files(folder: Path) -> tuple[Tokenizer, CrossEncoderSettings]:
    """What a folder has beside its weights; what cannot score pairs is refused."""
    head = read_head(folder)
    inside = folder if head is None else head.transformer
    check_folder(inside)
    tokenizer, settings = Tokenizer.from_folder(inside), CrossEncoderSettings(SIGMOID)
    if head is not None or is_classifier(folder):
        with quiet(), readable(folder):
            labels = int(read_config(folder).num_labels) if head is None else head.labels
        if labels > 2:
            raise ModelError(
                f"the model sorts pairs into {labels} classes; a reranker has one label or two",
                file=folder,
                fix="name another model",
            )
        settings = read_settings(folder, inside, labels)
    if tokenizer.cuts_left:
        raise ModelError("the model cuts the beginnings of long texts, which is not supported", file=folder)
    return tokenizer, settings


def relevance(logits_NC: Tensor) -> Tensor:
    """Raw scores, N: the only logit, or the second (relevant) minus the first."""
    return logits_NC[:, 0] if logits_NC.shape[1] == 1 else logits_NC[:, 1] - logits_NC[:, 0]


def longest_first(one: int, two: int, room: int) -> tuple[int, int]:
    """How many tokens two texts keep: the longer one gives way until both are equal, as in transformers."""
    short = min(one, two)
    long = min(max(one, two), max(short, room - short))
    if short + long > room:
        short, long = room // 2, room // 2 + room % 2
    return (short, long) if one <= two else (long, short)


def lists(layout: RoleLayout, records: Sequence[Record]) -> list[list[int]]:
    """Token ids of every record; one that occurs several times is tokenised once."""
    unique = {id(record): record for record in records}
    ids = dict(zip(unique, layout.lists(list(unique.values()))))
    return [ids[id(record)] for record in records]


def read_settings(folder: Path, inside: Path, labels: int) -> CrossEncoderSettings:
    """What sentence-transformers would use; a plain transformers folder has no settings, so it gets the defaults."""
    config = read_model_file(inside / "config.json", TransformerFile).model_extra or {}
    section = config.get("sentence_transformers")
    name = section.get("activation_fn") if isinstance(section, dict) else None
    name = name or config.get("sbert_ce_default_activation_function")
    if not (folder / "modules.json").exists():
        return CrossEncoderSettings(read_activation(name, labels, folder))
    check_modules(folder)
    files = sorted(inside.glob("sentence_*_config.json"))
    inner = read_model_file(files[0], TextLengthFile) if files else TextLengthFile()
    path = folder / PROMPTS
    model = read_model_file(path, SentenceTransformersFile) if path.exists() else SentenceTransformersFile()
    prompt = (model.prompts or {}).get(model.default_prompt_name or "")
    return CrossEncoderSettings(
        read_activation(model.activation_fn or name, labels, folder),
        inner.max_seq_length,
        prompt or "",
        bool(inner.do_lower_case),
    )


def read_activation(name: object, labels: int, folder: Path) -> str:
    """The activation by its full name; without one, or with one outside torch, sentence-transformers' default."""
    if not isinstance(name, str) or not name.startswith("torch."):
        return SIGMOID if labels == 1 else IDENTITY
    last = name.rpartition(".")[2]
    for known in ACTIVATIONS:
        if known.endswith(f".{last}"):
            return known
    raise ModelError(
        f"the activation {name!r} is not supported", file=folder, fix=f"use one of {', '.join(ACTIVATIONS)}"
    )


def check_modules(folder: Path) -> None:
    """A folder that lists modules has one that is a sequence classifier, or a chain of them with scores at its end."""
    if scores_pairs(folder):
        return
    path, kinds = folder / "modules.json", [kind for kind, _ in list_modules(folder)]
    if [kind.rpartition(".")[2] for kind in kinds] != ["Transformer"]:
        raise ModelError(
            f"the modules {kinds} are not supported", file=path, fix="use a model of one Transformer module"
        )


def takes_segments(folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer tells a model which of the two texts a token belongs to."""
    names = tokenizer.input_names
    if names is None:  # what the class of the tokenizer says
        from transformers import AutoTokenizer

        with quiet(), readable(folder):
            names = AutoTokenizer.from_pretrained(
                str(folder), trust_remote_code=False, local_files_only=True
            ).model_input_names
    return "token_type_ids" in names


def write_modules(model: CrossEncoder, folder: Path) -> None:
    """What `config.json` cannot say: modules, prompt and lowercasing, for sentence-transformers 6 and later."""
    modules = [("", "base.modules.transformer.Transformer")]
    if model.pooling is not None:
        modules.append(("1_Pooling", "sentence_transformer.modules.pooling.Pooling"))
        pooling = {"embedding_dimension": model.backbone.width, "pooling_mode": model.pooling}
        write_json(folder / "1_Pooling" / "config.json", pooling)
    for number, part in enumerate(model.tail, 2):
        name = type(part).__name__
        modules.append((f"{number}_{name}", f"{PLACES[name]}.{name}"))
        write_tail(part, folder / modules[-1][0], SCORES if part is model.tail[-1] else None)
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    settings = {
        "transformer_task": "sequence-classification" if model.pooling is None else "feature-extraction",
        "max_seq_length": model.length,
        "do_lower_case": model.lowercase,
    }
    write_json(folder / "sentence_bert_config.json", settings)
    prompts = {"prompts": {"query": model.prompt}, "default_prompt_name": "query"} if model.prompt else {}
    write_json(folder / PROMPTS, {"model_type": "CrossEncoder", "activation_fn": model.activation, **prompts})


def usage(model: CrossEncoder) -> str:
    """What a score means and how to get one, for the model's card."""
    meaning = (
        "the probability that the passage is relevant"
        if model.activation == SIGMOID
        else "a number to rank by, higher is better"
    )
    return f"""A score is {meaning}.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("this folder")
scores = model.predict([("a question", "a passage")])
```
"""
