"""Sentences by rule, without a model or a download, in any script.

A regular expression finds the candidates: terminators, closing quotes and brackets, and a space after which no
lower-case letter follows; or a full stop of a script that needs no space (Han, kana, Devanagari, …); or a line
break. Most are decided by the three letters before them, the others by the word before (an abbreviation, an
initial, a number, an enumeration) and the word after. Sentences are spans of the text: together they hold every
character that is no space exactly once. Cost: over 20 M characters/s and core.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from liebig.base.errors import RecipeError

# Abbreviations by language, without their last full stop. An entry in lower case also covers its capitalised and
# upper-case forms; a capitalised one covers itself and upper case ("Miss.", but not "miss.").
#
#     inner      something always follows: "e.g.", "Dr."
#     names      a capitalised word that follows still belongs to it: "Inc.", "St."; unless it is a starter
#     numbers    an abbreviation only before a number: "no. 5", "Oct. 2004"
#     starters   words that begin sentences and are rarely names


@dataclass(frozen=True)
class Abbreviations:
    """What a language knows of its abbreviations, in every form they are written."""

    inner: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[str]
    starters: frozenset[str]  # lower case
    endings: frozenset[str]  # the last three letters of every abbreviation that has three
    suffixes: tuple[str, ...]  # before a number, in any word: "Hauptstr. 5"
    ordinals: bool  # "3. Mai": a full stop after a small number makes it an ordinal


_ENGLISH = {
    "inner": "e.g i.e eg ie cf vs viz approx ca resp esp incl excl i.a q.v s.v v fl Mr Mrs Ms Mx Messrs Prof Dr Drs "
    "Gen Lt Col Sgt Capt Cmdr Cpl Maj Brig Adm Rev Hon Pres Gov Sen Rep Reps Sens Supt Insp Msgr Fr Mme Mlle Ste "
    "Pvt Det Atty Amb Fr Lieut Bp Abp Cdr Cllr",
    "names": "al ed eds trans repr dept est univ inc ltd co corp bros assn assoc intl natl govt bldg b d r jr sr "
    "St Mt Ft Jr Sr LLC plc Cos Inst Ave Blvd Rd Sq Hwy Pkwy Apt Esq Lab Mfg Dist Div Ala Ariz Ark Calif Cal Colo "
    "Conn Del Fla Ga Ill Ind Kan Ky La Md Mass Mich Minn Miss Mont Neb Nev Okla Ore Pa Penn Tenn Tex Va Vt Wash Wis "
    "Wyo Ont Que Alta Skt Var Subsp Ser Proc Trans Natl Acad Sci Phys Soc Am Bull Ann Nat Jos Wm Chas "
    "Geo Thos Jas Edw Robt Alex Benj Dan Saml",
    "numbers": "no nos nr p pp fig figs vol vols ch chap chaps sec sect secs eq eqs eqn ref refs tab art arts par para "
    "paras op cap l ll n nn ex exs app pt pts pl pls bk fol f ff vv ver cl reg tel ext c cc m s circa Jan Feb Mar Apr "
    "Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun",
    "starters": "the a an he she it they we i you this that these those in on at as by for from with when while if but "
    "and so or nor however after before although though there his her its their our my your both all some many most "
    "several each every another what who why how where which whether then thus therefore moreover furthermore also "
    "during since because until unless despite according once yet not no yes today here under over between among "
    "within without through even still such other others later meanwhile nevertheless nonetheless instead only now "
    "perhaps indeed finally eventually initially originally currently recently sometimes often usually generally "
    "typically following given to is are was were did does do can could should would will might must have has had let "
    "it's he's she's that's there's i'm they're we're don't it’s he’s she’s that’s there’s i’m they’re we’re don’t",
}
_OTHERS = {
    "de": {
        "inner": "z.B d.h u.a bzw vgl ggf evtl sog Hr Fr Frl Dr Prof Dipl Ing bspw z.T v.a i.d.R s.o s.u ca inkl exkl "
        "zzgl geb gest hl",
        "names": "St Str str GmbH e.V a.D Nr",
        "numbers": "Nr nr S Bd Abb Kap Art Abs Tel Aufl f ff Jan Feb Mär Apr Jun Jul Aug Sept Okt Nov Dez",
        "starters": "der die das ein eine er sie es wir ich ihr in im am an auf aus bei mit nach seit von vor zu als "
        "wenn weil da aber und oder doch auch so nur noch dies dieser diese dieses",
    },
    "fr": {
        "inner": "M MM Mme Mmes Mlle Mlles Mgr Dr Pr c.-à-d p.ex env cf av St Ste",
        "names": "Cie Sté Bd éd",
        "numbers": "n no art chap fig p pp t vol al janv févr avr juil sept oct nov déc",
        "starters": "le la les un une des il elle ils elles on nous vous je ce cette ces dans en sur par pour avec "
        "mais et ou donc car si quand",
    },
    "es": {
        "inner": "Sr Sra Srta Sres Dr Dra D Dña Prof Ud Uds Lic Ing p.ej aprox Gral Cnel",
        "names": "S.A S.L Cía Av Avda EE.UU",
        "numbers": "n núm art cap fig pág págs p pp vol t ene feb mar abr jun jul ago sept oct nov dic",
        "starters": "el la los las un una él ella ellos ellas en con por para pero y o si cuando como este esta esto "
        "su sus no sí",
    },
    "it": {
        "inner": "sig sig.ra sigg dott dott.ssa prof prof.ssa avv ing arch on mons p.es es ca cfr",
        "names": "S.p.A S.r.l C.so V.le P.za",
        "numbers": "n art cap fig pag pagg p pp vol gen feb mar apr mag giu lug ago set ott nov dic",
        "starters": "il lo la i gli le un una egli ella essi in con per ma e o se quando come questo questa non",
    },
    "pt": {
        "inner": "Sr Sra Srta Dr Dra Prof Profa Exmo D p.ex Eng Gen Cel",
        "names": "S.A Ltda Cia Av R",
        "numbers": "n art cap fig pág p pp vol fev mar abr mai jun jul ago set out nov dez",
        "starters": "o a os as um uma ele ela eles elas em no na com por para mas e ou se quando como este esta não",
    },
    "nl": {
        "inner": "dhr mevr mw dr drs prof ir ing bijv d.w.z o.a m.n t.a.v i.v.m ca vgl resp",
        "names": "B.V N.V St Str",
        "numbers": "nr blz p hfst art afb fig mrt okt",
        "starters": "de het een hij zij ze wij we ik in op aan bij met na van voor maar en of als toen dit deze dat",
    },
    "ru": {
        "inner": "т.е т.к т.н г-н г-жа им проф акад ср см напр ок гг вв",
        "names": "г ул пр пер д обл р н.э",
        "numbers": "с стр рис табл гл т вып п янв фев апр июн июл авг сен сент окт ноя дек",
        "starters": "он она оно они мы вы я это этот эта эти в на с по из за но и а если когда как так что",
    },
    "hi": {"inner": "डॉ श्री प्रो", "names": "", "numbers": "", "starters": ""},
}
LANGUAGES = ("en", *_OTHERS)


@cache
def words_of(language: str | None) -> Abbreviations:
    """English and what is safe everywhere, and with it the words of `language`."""
    if language is not None and language not in LANGUAGES:
        raise RecipeError(
            f"the sentence splitter has no abbreviations for the language {language!r}",
            fix=f"use one of {', '.join(LANGUAGES)}, or none for the language-independent rules",
        )
    own = _OTHERS.get(language or "en", {})
    inner, names, numbers = (
        _forms(_ENGLISH[kind]) | _forms(own.get(kind, "")) for kind in ("inner", "names", "numbers")
    )
    starters = frozenset(_ENGLISH["starters"].split()) | frozenset(own.get("starters", "").split())
    endings = frozenset(word[-3:] for word in inner | names | numbers if len(word) >= 3)
    german = language == "de"
    return Abbreviations(
        inner, names, numbers, starters, endings, ("str",) if german else (), ordinals=german
    )


def _forms(entries: str) -> frozenset[str]:
    words = entries.split()
    return frozenset(form for word in words for form in (word, word[0].upper() + word[1:], word.upper()))


Span = tuple[int, int]
Match = re.Match[str]
_STOPS = ".!?…‥‼⁇⁈⁉"
_FULL = "。！？｡．।॥۔؟։።፧។။"  # ends a sentence whether or not a space follows
_LINES = "\n\u2028\u2029\x85"
_CLOSERS = "\"'´”’»›)\\]}」』）】》〉〕"
_OPENERS = "\"'`“‘«‹(\\[{„‚「『（【《〈¿¡*_"
_HAN_OR_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_STOP, _SPACELESS, _MIXED, _LINE = 1, 2, 3, 4  # which alternative matched: the group that marks its end


def _candidates(following: str) -> re.Pattern[str]:
    """One set in front, so that the search skips all else quickly; then what the character was."""
    after = rf"[{_CLOSERS}]*+(?:\[[\w ,–-]{{1,12}}\])*+()"
    stop = rf"(?<=[{_STOPS}])(?<![{_STOPS}][{_STOPS}])[{_STOPS}]*+{after}\s++(?={following})"
    # Only from the first of a run: at the end of a text each of them would look at all behind it.
    any_stop = f"[{_FULL}{_STOPS}]"
    run = rf"(?<!{any_stop}{any_stop})(?:(?<=[{_FULL}])|(?<=[{_STOPS}])[{_STOPS}]*+[{_FULL}]){any_stop}*+"
    spaceless = rf"{run}{after}\s*+(?=\S)"
    mixed = rf"(?<=[{_HAN_OR_KANA}][!?])[!?]*+{after}(?=[{_HAN_OR_KANA}])"
    line = rf"(?<=[{_LINES}])()\s*+(?=\S)"
    return re.compile(rf"[{_STOPS}{_FULL}{_LINES}](?:{stop}|{spaceless}|{mixed}|{line})")


_CASED = _candidates(r"[^a-z\s]|[a-z][A-Z]")
_UNCASED = _candidates(r"\S")
_LAST_WORD = re.compile(r"[^\s—–/(\[{\"`“‘«„,;:-]*\Z")
_NEXT_WORD = re.compile(rf"[{_OPENERS}]*([\w'’-]+)")
_ACRONYM = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_ENUMERATOR = re.compile(r"[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[^\W\d_]|[ivxIVX]{1,5})[)\]]?")
_LISTED = re.compile(r"[-*•–—▪◦‣·]\s|[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivx]{1,5})[.)\]]\s")
_NUMBER = re.compile(r"[#§(]?\d|[IVXLC]+\b(?<!\bI)|[B-HJ-Z]\b")
_CLOCK = frozenset({"a.m", "p.m", "A.M", "P.M"})
_AFTER_CLOCK = re.compile(
    r"\d|[ECMPGU](?:[SDM]?T|TC)\b|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May\b|"
    r"June|July|August|(?:Septem|Octo|Novem|Decem)ber"
)
_BEFORE_CLOCK = re.compile(r"(?:At|By|Around|About|Before|After|Until|Since|From)\s+\S+\s*[apAP]\.[mM]\Z")
_SPEAKER = re.compile(
    r"(?:He|She|I|They|We|It|[A-Z][\w'’.-]+(?: [A-Z][\w'’-]+)?) (?:said|says|asked|asks|cried|replied|answered|"
    r"shouted|yelled|whispered|exclaimed|called|murmured|muttered|continued|added|wondered|screamed|demanded)\b"
)
_SPOKEN = re.compile(r"[と、，]|って|[他她它我你您們们]{0,2}.{0,4}?[说說道问問喊叫答曰讲講嚷吼]")
_SHOUTED = frozenset({"Yahoo", "Jeopardy", "Oklahoma", "Yum", "Guess"})
_SAME_SENTENCE = frozenset(_STOPS + ",;:)]}%")
_QUOTES = ("「」", "『』", "（）")
_BACK, _AHEAD = 400, 160  # how far an open bracket is looked for, and its partner


def split(text: str, language: str | None = None) -> list[str]:
    """The sentences of a text, without the space around them."""
    return [text[start:end] for start, end in spans(text, language)]


def spans(text: str, language: str | None = None) -> list[Span]:
    """Where the sentences of a text are: in order, apart, and over every character that is no space.

    `language` adds the abbreviations of one of `abbreviations.LANGUAGES`; None knows those of English.
    """
    words = words_of(language)
    endings = words.endings
    candidates = _UNCASED if text.islower() else _CASED
    sentences: list[Span] = []
    start, last = len(text) - len(text.lstrip()), len(text.rstrip())
    bracketed = "(" in text
    for match in candidates.finditer(text, 0, last):
        at, after = match.span()
        before = text[at - 3 : at]
        if text[at] == "." and before.isalpha() and before not in endings and "A" <= text[after] <= "Z":
            ends = not (bracketed and _open(text, "()", start, at, match.start(_STOP)))
        else:
            ends = _ends(text, start, match, words)
        if ends:
            end = _stripped(text, match)
            if end > start:
                sentences.append((start, end))
            start = after
    if last > start:
        sentences.append((start, last))
    return sentences


def _stripped(text: str, match: Match) -> int:
    """The end of the sentence before a boundary, without space."""
    if match.lastindex != _LINE:
        return match.start(match.lastindex or 0)
    return _without_space(text, match.start())


def _ends(text: str, start: int, match: Match, words: Abbreviations) -> bool:
    """Whether the sentence that began at `start` ends here."""
    kind = match.lastindex or 0
    if kind == _LINE:
        return _line_ends(text, start, match)
    if kind != _STOP:
        return _spaceless_ends(text, start, match)
    at, after = match.span()
    following, end = text[after], match.start(_STOP)
    if text.count("\n", end, after) > 1:
        return True
    if following in _SAME_SENTENCE or _open(text, "()", start, at, end):
        return False
    if following.islower() and not following.isascii() and match.re is _CASED:
        return False
    if text[at] in "!?‼⁇⁈⁉":
        return _mark_ends(text, match)
    if text[at] in "…‥" or text[at + 1] == ".":
        return _ellipsis_ends(text, at, after)
    return _stop_ends(text, start, at, after, words)


def _stop_ends(text: str, start: int, at: int, after: int, words: Abbreviations) -> bool:
    """A single full stop: it depends on the word before it and the one after."""
    if at - start <= 10 and _ENUMERATOR.fullmatch(text, start, at):
        return False
    word = _word_before(text, start, at)
    if word == "":
        return _last(text, at) != "." or _ellipsis_ends(text, at, after)
    if word in words.inner:
        return False
    if (word in words.numbers or word.endswith(words.suffixes)) and _NUMBER.match(text, after):
        return False
    if word in _CLOCK:
        return not (_AFTER_CLOCK.match(text, after) or _BEFORE_CLOCK.match(text, start, at))
    initial = len(word) == 1 and word.isupper()
    ordinal = words.ordinals and len(word) <= 2 and word.isdecimal()
    if initial or ordinal or word in words.names or _ACRONYM.fullmatch(word):
        return _starts(text, after, words)
    return True


def _without_space(text: str, end: int) -> int:
    """`end`, moved before the space in front of it."""
    while end > 0 and text[end - 1].isspace():
        end -= 1
    return end


def _last(text: str, at: int) -> str:
    """The last character before `at` that is no space, or nothing."""
    end = _without_space(text, at)
    return text[end - 1 : end]


def _word_before(text: str, start: int, at: int) -> str:
    """The word that ends at `at`, its own full stops included, without opening brackets and quotes."""
    chunk = text[max(start, at - 30) : at]
    chunk = chunk[chunk.rfind(" ") + 1 :]
    if chunk.isalpha():
        return chunk
    match = _LAST_WORD.search(chunk)
    return match[0] if match else ""


def _starts(text: str, after: int, words: Abbreviations) -> bool:
    """Whether a word that begins sentences follows, as such a word is written."""
    match = _NEXT_WORD.match(text, after)
    if match is None:
        return False
    word = match[1]
    if len(word) == 1 and text[match.end() : match.end() + 1] == ".":
        return False  # the next initial
    return word.lower() in words.starters and (word[0].isupper() or match.start(1) == after)


def _ellipsis_ends(text: str, at: int, after: int) -> bool:
    """Dots: mid-sentence after an opening bracket, or after a space before "I"."""
    if text[at - 1 : at] in ("[", "(", ""):
        return False
    return not (text[at - 1].isspace() and re.match(r"I\b", text[after : after + 2]))


def _mark_ends(text: str, match: Match) -> bool:
    """An exclamation or question mark: not "(?)", not inside "Yahoo! Inc.", not before "she said"."""
    at, after = match.span()
    end = match.start(_STOP)
    if text[at - 1 : at] in ("(", "["):
        return False
    if end == at + 1 and _word_before(text, 0, at) in _SHOUTED:
        return False
    quoted = text[end - 1] in "\"'”’»"
    return not (quoted and _SPEAKER.match(text, after))


def _spaceless_ends(text: str, start: int, match: Match) -> bool:
    """A full stop that needs no space: not in a number, not in a quotation, not before "he said"."""
    at, after = match.span()
    end = match.start(match.lastindex or 0)
    if text[at] in "．。" and text[at - 1 : at].isdigit() and text[after].isdigit():
        return False
    if text[after] in "，、；：,;":
        return False
    if any(_open(text, pair, start, at, end) for pair in _QUOTES):
        return False
    if text[end - 1] == "）" and text.rfind("（", max(start, at - _BACK), at) > start:
        return False
    return not (text[end - 1] in "」』”’" and _SPOKEN.match(text, after))


def _line_ends(text: str, start: int, match: Match) -> bool:
    """An empty line always; a single break before a list item, or after a line too short to have been wrapped."""
    at, after = match.span()
    gap = text[at:after]
    if gap.count("\n") > 1 or gap.count("\u2028") > 1 or "\u2029" in gap or _LISTED.match(text, after):
        return True
    following = text[after]
    if following.islower() or _last(text, at) in ("", ",", ";", "(", "-", "–"):
        return False
    width = at - max(start, text.rfind("\n", start, at) + 1)
    return width < (45 if following.isascii() or following.isupper() else 20)


def _open(text: str, pair: str, start: int, at: int, end: int) -> bool:
    """Whether a bracket of this pair is open here and closes soon."""
    opened = text.rfind(pair[0], max(start, at - _BACK), at)
    if opened < 0 or text.find(pair[1], opened, end) >= 0:
        return False
    closed = text.find(pair[1], end, end + _AHEAD)
    return closed >= 0 and text.find(pair[0], end, closed) < 0
