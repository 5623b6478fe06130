"""The words that the sentence splitter has to know, by language: who takes a full stop without ending anything.

Without their last full stop, in three kinds. `inner`: something always follows ("e.g.", "Dr."). `names`: what
follows, though capitalised, belongs to it ("Inc.", "St."), unless it is a word that begins sentences.
`numbers`: an abbreviation only before a number ("no. 5", "Oct. 2004"). An entry in lower case also stands for
its capitalised and upper-case forms; a capitalised one for itself and upper case ("Miss.", but not "miss.").
`starters` are words that begin sentences and hardly ever names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from liebig.errors import RecipeError


@dataclass(frozen=True)
class Words:
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
def words_of(language: str | None) -> Words:
    """English and what is safe everywhere, and with it the words of `language`."""
    if language is not None and language not in LANGUAGES:
        raise RecipeError(
            f"the sentence splitter has no abbreviations for the language {language!r}",
            fix=f"use one of {', '.join(LANGUAGES)}, or none for the rules that hold everywhere",
        )
    own = _OTHERS.get(language or "en", {})
    inner, names, numbers = (
        _forms(_ENGLISH[kind]) | _forms(own.get(kind, "")) for kind in ("inner", "names", "numbers")
    )
    starters = frozenset(_ENGLISH["starters"].split()) | frozenset(own.get("starters", "").split())
    endings = frozenset(word[-3:] for word in inner | names | numbers if len(word) >= 3)
    german = language == "de"
    return Words(inner, names, numbers, starters, endings, ("str",) if german else (), ordinals=german)


def _forms(entries: str) -> frozenset[str]:
    words = entries.split()
    return frozenset(form for word in words for form in (word, word[0].upper() + word[1:], word.upper()))
