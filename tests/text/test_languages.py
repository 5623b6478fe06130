"""Languages are told apart where a text says enough, and left open where it does not."""

import pytest

from liebig.base.records import Document, Passage, Section
from liebig.text import languages
from liebig.text.languages import code_of, detect, language_of

TEXTS = {
    "en": "The minutes of the meeting were sent to all members, and they have been asked to reply before Friday.",
    "de": "Die Küche wurde im letzten Jahr renoviert, und der Vermieter hat die Kosten für das Material übernommen.",
    "fr": "Les demandes de congés doivent être adressées au service du personnel au moins deux semaines avant la date.",
    "es": "Las solicitudes de vacaciones se deben enviar al departamento de personal con dos semanas de antelación.",
    "pl": "Wnioski o urlop należy składać w dziale kadr co najmniej dwa tygodnie przed planowanym terminem wyjazdu.",
    "ru": "Заявления на отпуск подаются в отдел кадров не позднее чем за две недели до предполагаемой даты.",
    "ja": "休暇の申請は、希望日の二週間前までに人事部へ提出してください。",
    "zh": "休假申请应至少提前两周提交给人事部门。",
    "ko": "휴가 신청서는 희망일 2주 전까지 인사부에 제출해 주십시오.",
    "th": "กรุณาส่งคำขอลาหยุดล่วงหน้าอย่างน้อยสองสัปดาห์",
}
OPEN = [
    "", "4711", "Müller, Meier, Schulze", "RDV mardi",
    "def covstr(s):\n  try:\n    ret = int(s)\n  except ValueError:\n    ret = float(s)\n  return ret",
    "Land Rover RANGE ROVER SPORT ESTATE 3.0 V6 S/C HSE Dynamic 5dr Auto Land Rover 7 seat",
]  # fmt: skip


@pytest.mark.parametrize("code", TEXTS)
def test_a_sentence_is_enough(code):
    assert detect(TEXTS[code]) == code


@pytest.mark.parametrize("text", OPEN)
def test_names_numbers_and_code_have_no_other_language(text):
    assert detect(text) in ("", "en")


def test_texts_with_stop_words_need_no_classifier(monkeypatch):
    monkeypatch.setattr(languages, "_classifier", None)
    assert [detect(TEXTS[code]) for code in ("en", "de", "fr", "ja")] == ["en", "de", "fr", "ja"]


def test_what_the_source_says_counts_before_what_is_detected():
    sections = (Section("", (TEXTS["de"],)),)
    assert language_of(Document("a", "", sections)) == "de"
    assert language_of(Document("a", "", sections, {"language": "nl-BE"})) == "nl"
    assert language_of(Document("a", "", sections, {"language": "Dutch"})) == "nl"
    assert language_of(Document("a", "", sections, {"language": "COBOL"})) == "de"
    assert language_of(Passage("a", TEXTS["de"], language="fr")) == "fr"


def test_codes_are_those_of_names_and_tags():
    assert [code_of(name) for name in ("de", "German", "de-AT", "pt_BR", "Klingon", "")] == [
        "de", "de", "de", "pt", "", "",
    ]  # fmt: skip
