"""What `liebig build` is told, apart from the build itself, so that its help appears without waiting for torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from liebig import encoders
from liebig.base.config import Config, one_or_several
from liebig.base.errors import RecipeError
from liebig.base.hub import model_folder
from liebig.formats.convert import Converter, only_made
from liebig.search.retriever_folder import RERANK_DEPTH

READING = (
    "language",
    "format",
    "exclude",
    "include",
    "ignore_files",
)  # options that updates take from the build
MINUTES = 30.0  # of training, where it takes place and nobody says how long
TRAINABLE = 20  # judged questions of a user's own that are worth training on
LEFT_OUT = (
    "training on the documents: left out, because it did good on some corpora and harm on others; "
    f"{TRAINABLE} or more judged --questions train and decide, --minutes N trains on the documents alone"
)


def _names(value: Any) -> Any:
    """One source or several, as text."""
    return [str(one) if isinstance(one, Path) else one for one in one_or_several(value)]


def _default_by_name(value: Any) -> Any:
    """The bundled encoder by its name is the default: what was measured with it holds for it under any name."""
    return None if value == encoders.PREFIX + encoders.DEFAULT else value


def _readable(name: str) -> str:
    """A format that can be read, or the error of a wrong choice, which the recipe's reader explains."""
    from liebig.formats import readable  # few builds name one

    if name in readable():
        return name
    raise PydanticCustomError(
        "literal_error", "should be one of {expected}", {"expected": ", ".join(readable())}
    )


def _stemmed(language: str) -> str:
    """A language whose words can be indexed, by name or code; refused before a file is read."""
    from liebig.bm25.analysis import language_name, languages

    try:
        language_name(language)
    except RecipeError:
        raise PydanticCustomError(
            "literal_error", "should be one of {expected}", {"expected": ", ".join(sorted(languages()))}
        ) from None
    return language


class BuildConfig(Config):
    """What a retriever is built from, with which encoder, and how long the encoder is trained."""

    sources: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(
        min_length=1, description="Files and folders, in any format liebig init reads."
    )
    model: Annotated[str | None, BeforeValidator(_default_by_name)] = Field(
        default=None,
        description="The encoder: a folder, liebig:NAME, or org/name of the hub [default: the bundled one].",
    )
    teacher: str | None = Field(
        default=None,
        description="A larger encoder whose vectors and rankings the encoder learns on the corpus; named like --model.",
    )
    texts: str | None = Field(
        default=None,
        description=(
            "Short texts that a teacher's student learns from too, such as a log of queries; in a form of --questions."
        ),
    )
    minutes: float | None = Field(
        default=None,
        ge=0,
        description=(
            "Train on the corpus too, for this many minutes, and at most as long again on --questions; 0 trains "
            "nothing [default: train only with --teacher, with 20 or more judged --questions, or if the encoder cannot "
            "retrieve yet, for 30 minutes at most]."
        ),
    )
    questions: str | None = Field(
        default=None,
        description="Your own questions, with or without judged passages: JSON lines, CSV, TSV, text, a BEIR folder.",
    )
    language: Annotated[str, AfterValidator(_stemmed)] | None = Field(
        default=None,
        description="Language of all the texts, by name or code [default: detected for each document].",
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random choices.")
    format: Annotated[str, AfterValidator(_readable)] | None = Field(
        default=None,
        description="Format of all the sources; docs/formats.md lists them [default: detected for each].",
    )
    exclude: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] = Field(
        default=(),
        description="Leave out files and folders by a pattern as in a .gitignore; !PATTERN takes one back. Repeatable.",
    )
    include: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] = Field(
        default=(), description="Read only files by such a pattern. Repeatable [default: all files]."
    )
    ignore_files: bool = Field(
        default=True, description="Leave out what .gitignore and .liebigignore files list."
    )
    convert: Annotated[tuple[Converter, ...], BeforeValidator(only_made)] = Field(
        default=(),
        description="A command that turns files of a suffix into text where Liebig finds none: "
        "'.pdf=ocrmypdf --force-ocr --sidecar {text} {path} /dev/null'. Repeatable [default: those of the user's "
        "configuration].",
    )
    strict: bool = Field(
        default=False, description="Fail on unreadable or suspicious files [default: skip and list them]."
    )
    replace: bool = Field(
        default=False, description="Replace a retriever that was built from other sources [default: refuse]."
    )

    reranker: str | None = Field(
        default=None,
        description="A cross-encoder that may order the best hits anew: a folder, or org/name [default: none].",
    )
    rerank_depth: int | None = Field(
        default=None, ge=1, description=f"Hits that the reranker orders [default: {RERANK_DEPTH}]."
    )
    rerank_int8: bool = Field(
        default=True,
        description="Make the reranker an int8 graph for CPUs, about twice as fast (needs onnx).",
    )

    @property
    def limit(self) -> float:
        """Minutes of a training that takes place."""
        return MINUTES if self.minutes is None else self.minutes

    @property
    def may_train(self) -> bool:
        """Whether the encoder may be trained on the documents: on request, with a teacher, or if it may not retrieve.

        The bundled one retrieves already, and questions made from a corpus hardly see what such training does to it
        (`experiments/adaptation`).
        """
        return self.limit > 0 and any(one is not None for one in (self.minutes, self.teacher, self.model))

    @property
    def depth(self) -> int:
        """Hits that a reranker orders."""
        return RERANK_DEPTH if self.rerank_depth is None else self.rerank_depth

    @property
    def start(self) -> Path:
        """The folder of the starting encoder: the one named, or the one that comes with the package."""
        return encoders.folder() if self.model is None else model_folder(self.model)


def reading_options(config: BuildConfig) -> dict[str, Any]:
    """The options that updates take from the build, as they are written."""
    return config.model_dump(mode="json", include=set(READING))
