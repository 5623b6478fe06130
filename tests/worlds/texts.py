"""A small world in five scripts, and the three families of tokenizers made from it."""

from functools import cache
from typing import Literal

from tokenizers import Tokenizer as Core, decoders, models, normalizers, pre_tokenizers, processors

from liebig.text.tokenizer import Tokenizer
from liebig.text.tokenizer_folder import TokenizerParts

ENGLISH = "The quick brown foxes were jumping over the unbelievably lazy dogs, weren't they? Yes, they were."
GERMAN = "Die Geschwindigkeit der Straßenbahn überraschte die Bürgermeisterin außerordentlich."
CHINESE = "今天天气很好。我们去公园吧！你想去吗？"
JAPANESE = "東京は日本の首都です。猫が座った。"
ARABIC = "ذهب الولد إلى المدرسة. هل عاد؟"
HINDI = "यह एक वाक्य है। यह दूसरा वाक्य है।"
RUSSIAN = "Москва является столицей России. Она очень большая."
TEXTS = (ENGLISH, GERMAN, CHINESE, JAPANESE, ARABIC, HINDI, RUSSIAN)
NASTY = (
    "",
    " ",
    "  two  spaces  ",
    "tab\tand\nline\r\nbreaks \n \n x",
    "[MASK] and <mask> and </s><s> in text",
    "a\u00a0b\u3000c\u2028d",
    "e\u0301 ﬁ İstanbul ΣΊΣΥΦΟΣ",
    "control\x00\x1c\x7fcharacters",
    "😀😀 emoji, ‘quotes’—dashes… 3.14 don't can't I'll",
    "x" * 150,
)


@cache
def trained(kind: Literal["wordpiece", "bpe"], lowercase: bool = True, vocab_size: int = 420) -> Tokenizer:
    return Tokenizer.train(TEXTS * 3, kind, vocab_size, lowercase)


@cache
def sentencepiece() -> Tokenizer:
    """A Unigram tokenizer as XLM-R's: ▁ before words, <s> a </s></s> b </s>."""
    words = ["▁the", "▁quick", "▁brown", "▁fox", "es", "▁jump", "ing", "▁", ",", ".", "天", "气", "很", "好"]
    letters = [c for c in "abcdefghijklmnopqrstuvwxyz" if c not in words]
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(w, -2.0) for w in words] + [(c, -9.0) for c in letters] + [("<mask>", 0.0)]
    core = Core(models.Unigram(pieces, unk_id=3))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    core.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return Tokenizer(TokenizerParts.named(core, 512))


def every() -> dict[str, Tokenizer]:
    return {"wordpiece": trained("wordpiece"), "bpe": trained("bpe"), "sentencepiece": sentencepiece()}
