"""What becomes of a text before any model sees it: the same law for stored memories and for queries.

The rules, in order. They are part of every space: vectors made under other rules do not compare.

1. *Guard.* NUL is dropped, halves of surrogate pairs are joined or replaced by U+FFFD, then NFKC. Native
   tokenizers end a text at NUL, refuse surrogates, and may overrun a buffer on characters that NFKC expands.
2. *Cap.* NFKC can lengthen a text 18 times (U+FDFA), so what is past ``MAX_CHARACTERS`` is left out.
3. *Same person.* Extracted facts say "User likes tea" where the person asks "what do I like": the user is
   rewritten to the first person, in what is embedded only. A text that already says "I" means another person
   by "user" and stays as it is.
4. *Blank.* A text with nothing in it is embedded as a full stop: every row has a direction, and no remote
   model is sent an empty string.
5. *Pieces.* A model reads a long text worse and slower than its sentences, so it is cut at sentence ends
   into pieces whose mean direction stands for the whole.
"""

from __future__ import annotations

import math
import re

from scrubjay.text import nfkc

TEXT_RULES = "1"
"""Version of the rules above; raise it with every change that can alter a vector."""

MAX_CHARACTERS = 16 * 1024
"""Characters of one text that are embedded: what 16 KB of content can hold."""

PIECE_CHARACTERS = 300
"""Characters of one piece: about 80 English or 200 Chinese tokens, well inside every model's window."""

_BLANK = "."
_SURROGATE = re.compile(r"[\ud800-\udfff]")

_HAN = r"\u4e00-\u9fff"
_FIRST_PERSON = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b|[我咱俺]")
# Nouns that make "user" a part of another thing. Verbs of the same spelling (needs, requests) are not here.
_USER_COMPOUND = (
    r"(?:accounts?|agents?|base|behaviou?r|community|data|databases?|defined|engagement|errors?|experience"
    r"|feedback|friendly|generated|groups?|growth|guides?|guidelines?|handles?|ids?|identifiers?|inputs?"
    r"|interactions?|interfaces?|interviews?|journeys?|lists?|logins?|management|manuals?|mode|names?|numbers?"
    r"|onboarding|permissions?|personas?|pool|preferences?|profiles?|registration|research|roles?|satisfaction"
    r"|segments?|sessions?|settings?|space|stor(?:y|ies)|stud(?:y|ies)|tables?|testing|testers?|tokens?|traffic"
    r"|training)"
)
_NOT_INSIDE_A_NAME = r"(?<![A-Za-z0-9_.@/\\<-])"
_NOT_ANY_USER = "".join(
    rf"(?<!\b{word} )"
    for word in ("a", "an", "any", "each", "end", "every", "new", "no", "one", "other", "power", "super")
)
_USER = (
    rf"(?:{_NOT_INSIDE_A_NAME}(?i:the\s+user)|{_NOT_INSIDE_A_NAME}(?i:{_NOT_ANY_USER})User"
    r"|(?:(?<![^\n])|(?<=[.!?;:,]\s))user)"
)
_USER_POSSESSIVE = re.compile(rf"{_USER}['’]s(?![A-Za-z0-9_-])")
_USER_SUBJECT = re.compile(
    rf"{_USER}(?![A-Za-z0-9_>'’-]|\.\w|\()(?!\s+(?:[#\d]|[A-Z]\b))(?!\s+(?i:{_USER_COMPOUND})\b)"
)

_YONGHU_COMPOUND = (
    r"(?:们|名|号|[Ii][Dd]|端|侧|群|组|池|层|量|数(?!学)|体验|界面|手册|协议|研究|增长|调研|画像|反馈|运营|行为"
    r"|需求|故事|访谈|留存|权限|隐私|账号|帐号|账户|规模|满意度|中心)"
)
_YONGHU = re.compile(
    r"(?:(?<!\w)(?:该|此|这位|本)|(?<!\w)|(?<=[和跟给对把被让替帮是但而])"
    r"|(?<=今天|昨天|明天|每天|今年|去年|明年|如果|因为|由于|因此|应该|所以|但是|不过|而且|并且|然后|之后|之前|现在|最近"
    r"|当时|有时|平时|周末|早上|晚上|中午|下午|上午|知道|表示|提到|记得|建议|提醒|告诉|帮助))"
    rf"用[户戶](?!{_YONGHU_COMPOUND})"
)

# A sentence end; in Latin script a full stop ends one only before white space (not in 3.5).
_SENTENCE_END = re.compile(r"[。!?;]+[\"'”’」』)]*\s*|\.+[\"'”’)]*\s+|\n+")
_WORD_END = re.compile(r"[,、:]\s*|\s+")


def prepare(text: str) -> str:
    """Rules 1 to 4: the text a model may see, never empty, at most ``MAX_CHARACTERS`` long."""
    rewritten = same_person(guarded(text)[:MAX_CHARACTERS])
    return rewritten if rewritten.strip() else _BLANK


def guarded(text: str) -> str:
    """Rule 1: NFKC without NUL and without surrogates."""
    text = text.replace("\x00", "")
    if text.isascii():
        return text
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return nfkc(text)


def same_person(text: str) -> str:
    """Rule 3: the user in the first person, unless the text has a first person already."""
    names_user = "user" in text.casefold() or "用" in text
    if not names_user or _FIRST_PERSON.search(text):
        return text
    text = _USER_POSSESSIVE.sub("my", text)
    text = _USER_SUBJECT.sub(_first_person_before, text)
    return _YONGHU.sub("我", text)


def split(text: str) -> list[str]:
    """Rule 5: ``text`` in pieces of at most ``PIECE_CHARACTERS``, nothing lost, cut where a sentence ends.

    The pieces are of about one length, so that a short rest does not weigh as much as a long beginning.
    """
    pieces = []
    while len(text) > PIECE_CHARACTERS:
        share = len(text) / -(-len(text) // PIECE_CHARACTERS)
        cut = _cut_near(text[:PIECE_CHARACTERS], share)
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


def _cut_near(window: str, share: float) -> int:
    """The end of a sentence, or else of a word, nearest to ``share`` and past half of it; or ``share``."""
    for end in (_SENTENCE_END, _WORD_END):
        cuts = [match.end() for match in end.finditer(window) if match.end() > share / 2]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - share))
    return math.ceil(share)


def _first_person_before(match: re.Match[str]) -> str:
    following = match.string[match.end() :].lstrip()[:1]
    return "我" if re.match(f"[{_HAN}]", following) else "I"
