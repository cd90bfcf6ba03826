"""Entities of English sentences, and what they say of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_lowercase

from server.ingest.entities.capitals import (
    CAP,
    NAME,
    capitalised,
    has_capital,
    is_title_case,
    kind_of,
    starts_of_names,
)
from server.ingest.entities.entity import SUBJECT, Claim, EntityKind, Mention
from server.ingest.entities.placed import Form, Forms, Placed, Told, form, matches
from server.ingest.entities.words import ANIMALS, BEGINNINGS, KIN, NO_NAMES, PLACES, TOOLS

_SPEAKERS = frozenset(("we", "user", "my", "our"))
_SPEAKER = re.compile(r"\b(?:we|user|the [Uu]ser|my|our)\b")
"""Whom claims are about besides, in small letters."""

_TITLE = re.compile(r"\b(?:Dr|Prof|Professor|Doctor|Mr|Mrs|Ms|Uncle|Aunt|Coach)\.? " + f"(?P<name>{NAME})")
_TITLES = frozenset(("dr", "prof", "professor", "doctor", "mr", "mrs", "ms", "uncle", "aunt", "coach"))
_PROJECT = re.compile(
    rf"\b(?:[Pp]roject (?P<after>{NAME})|(?:[Tt]he |[Oo]ur |[Mm]y )(?P<before>{CAP}) project\b)"
)
_TOOL = re.compile(
    r"(?<![\w@/.-])(?:"
    + "|".join(re.escape(tool) for tool in sorted(TOOLS, key=len, reverse=True))
    + r")(?![\w@+#-])",
    re.IGNORECASE,
)
_LETTERS = re.compile("[a-z]+")
_APART = bytes(code if chr(code) in ascii_lowercase else ord(" ") for code in range(256))
"""Small letters as they are, all else a space."""
_LIKE_LETTERS = re.compile("[ıſİ\u212a]")
"""What is a Latin letter too where case is ignored."""
_TOOL_BEGINNINGS = frozenset(beginning[0] for tool in TOOLS if (beginning := _LETTERS.match(tool)))
"""The letters that tools begin with, up to a sign or a space."""
_PLAIN_WORDS = frozenset(
    ("excel", "notion", "slack", "zoom", "windows", "swift", "rust", "ruby", "react", "java")
)
"""Tools whose names are words too, unless a capital letter says otherwise."""

_ADVERB = (
    r"(?: (?:also|now|still|just|currently|recently|really|always|usually|often|mostly|mainly|absolutely"
    r"|already|finally|actually|totally|truly|only|have|'ve|both)){0,3}"
)
_I = r"(?P<self>\b(?:I|We|we|[Tt]he [Uu]ser|[Uu]ser)(?:'ve|’ve)?)"
_OTHER = rf"(?P<who>\b{NAME})"
_WHO = rf"(?:{_I}|{_OTHER})"
_AND = r"(?:(?:'m|’m| am| is|'s)?(?: \w+)? (?:lives?|works?|study|studies|based|from) [^,.;]{2,40}? and)?"
"""Something else of the same one, as in "I live in Rome and work for Fiat"."""
_BE = r"(?: am|'m|’m| is|'s|’s| are|'re|’re)"
_KIN_WORD = "|".join(sorted((word for word in KIN), key=len, reverse=True))
_ADJECTIVE = (
    r"(?:(?:older|elder|younger|little|big|twin|best|good|old|new|close|dear|former|oldest|youngest|first|second"
    r"|late|baby|middle) ){0,2}"
)
_MY_KIN = rf"\b(?:[Mm]y|[Oo]ur) {_ADJECTIVE}(?P<kin>{_KIN_WORD})"
_TOOL_NAMES = "|".join(re.escape(tool) for tool in sorted(TOOLS, key=len, reverse=True))
_PRODUCT = rf"(?P<what>(?i:{_TOOL_NAMES})(?![\w@+#-])|{NAME})"
_PRODUCT2 = _PRODUCT.replace("?P<what>", "?P<new>")
_ROLE = r"(?: as (?:an? |the )?[\w' -]{2,40}?)?"
_LIKE, _LIKES = r"(?:like|love|enjoy|prefer|adore)s?", r"(?:likes|loves|enjoys|prefers|adores)"
_DISLIKE = (
    r"(?:dislikes?|hates?|detests?|can['’]?t stand|cannot stand|don['’]t like|do not like|don['’]t enjoy"
    r"|doesn['’]t like|don['’]t eat|do not eat)"
)
_DISLIKES = r"(?:dislikes|hates|detests|can['’]t stand|doesn['’]t like|does not like|doesn['’]t eat)"
_OBJECT = r"(?P<thing>[A-Za-zÀ-ÿ][\w'’+#-]*(?: [\w'’+#-]+){0,5})"

_KINSHIP = (
    re.compile(
        rf"{_MY_KIN}(?:,(?= {NAME}(?:[,.!?;]|$))|['’]s name is| is called| is named| called| named|:)?"
        rf" (?P<name>(?:(?:Dr|Mr|Ms|Mrs)\.? )?{NAME})"
    ),
    re.compile(
        rf"(?<![\w'’])(?P<name>{NAME})(?:,? who)?(?: is|'s|’s| was|,) (?:[Mm]y|[Oo]ur) {_ADJECTIVE}"
        rf"(?P<kin>{_KIN_WORD})\b(?!['’]s)"
    ),
)
_MINE, _MARRYING = frozenset(("my", "our")), frozenset(("married", "engaged"))
"""Words of kinship's patterns, and of this one."""
_MARRIED = re.compile(rf"{_I}{_BE}{_ADVERB} (?P<how>married|engaged) to (?P<name>{NAME})")

_FIRM = rf"(?:the )?(?P<what>{NAME})"
_ENDS = r"(?: no longer {0}| used to {0}|{1} no longer {2}| (?:don['’]t|do not) {0})"
_FORMS = Forms(
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "work working",
        rf"{_I}{_ENDS.format('work', _BE, 'working')}{_ROLE} (?:at|for) {_FIRM}(?P<more>.*)",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "quit left resigned lost",
        rf"{_I}{_ADVERB} (?:quit|left|resigned from|lost) my (?:old )?(?:job|position|role)"
        rf" (?:at|with) {_FIRM}",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "work works working employed job position role",
        rf"{_WHO}{_AND}{_ADVERB}(?: works?|{_BE}{_ADVERB} (?:working|employed)| started working"
        rf"| (?:got|started|landed|took) an? (?:new )?(?:job|position|role)){_ROLE} (?:at|for|with) {_FIRM}",
    ),
    *form("works_at", EntityKind.ORGANISATION, "joined", rf"{_WHO}{_ADVERB} joined (?P<what>{NAME}) as\b"),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "at",
        rf"{_WHO}{_BE}{_ADVERB} (?:an? |the )(?!student|phd|fan|customer|member|big|patient)"
        rf"(?:[a-z][\w-]* ){{0,4}}[a-z][\w-]* at {_FIRM}",
    ),
    *form(
        "studies_at",
        EntityKind.ORGANISATION,
        "study studies studying student school",
        rf"{_WHO}{_ADVERB}(?: stud(?:y|ies)|{_BE}{_ADVERB} studying|{_BE}{_ADVERB} an? (?:[\w-]+ )?student"
        rf"| go(?:es)? to school)(?: [a-z]+){{0,2}} at {_FIRM}",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "live living",
        rf"{_I}{_ENDS.format('live', _BE, 'living')} in (?:the )?(?P<what>{NAME})(?P<more>.*)",
        ended=True,
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "live lives living based reside resides settled",
        rf"{_WHO}{_AND}{_ADVERB}(?: lives?|{_BE}{_ADVERB} (?:living|based)| resides?| settled) in {_FIRM}",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "moved",
        rf"{_WHO}{_ADVERB} moved (?:back |over )?(?:from {NAME} )?to (?P<what>{NAME})",
    ),
    *form(
        "from",
        EntityKind.PLACE,
        "from",
        rf"{_WHO}(?:{_BE}(?: both)?(?: originally)?| comes?| originally come) from {_FIRM}",
    ),
    *form(
        "uses",
        EntityKind.PRODUCT,
        "use using gave",
        rf"{_I}(?:{_ENDS.format('use', _BE, 'using')}| (?:have )?stopped using| gave up(?: using)?"
        rf"| quit using) {_PRODUCT}(?P<more>.*)",
        ended=True,
    ),
    *form(
        "uses",
        EntityKind.PRODUCT,
        "use uses using write writes code codes program programs switched moved",
        rf"{_WHO}{_ADVERB}(?: uses?|{_BE}{_ADVERB} using| (?:write|code|program)s?(?: (?:my |all )?code)? in"
        rf"| started using|(?: have)? switched (?:over )?to| moved over to) {_PRODUCT}",
    ),
    *form(
        "works_on",
        EntityKind.PRODUCT,
        "project",
        rf"{_WHO}(?:{_ADVERB} (?:works? on|leads?)|{_BE}{_ADVERB} (?:working on|leading|in charge of))"
        rf" (?:the )?(?:[Pp]roject (?P<what>{NAME})|(?P<new>{CAP}) project\b)",
    ),
    *form(
        "allergic_to",
        EntityKind.THING,
        "allergic",
        rf"{_WHO}{_BE}{_ADVERB} (?:severely |badly |highly )?allergic to {_OBJECT}",
    ),
    *form(
        "likes",
        EntityKind.THING,
        "longer",
        rf"{_I} no longer {_LIKE} {_OBJECT}",
        ended=True,
    ),
    *form(
        "likes",
        EntityKind.THING,
        "like likes love loves enjoy enjoys prefer prefers adore adores",
        rf"(?:{_I}{_ADVERB} {_LIKE}|{_OTHER}{_ADVERB} {_LIKES}) {_OBJECT}",
    ),
    *form(
        "likes",
        EntityKind.THING,
        "fan fond crazy into",
        rf"{_WHO}{_BE}{_ADVERB} (?:really |very )?(?:a (?:big |huge |great )?fan of|fond of|crazy about|into)"
        rf" {_OBJECT}",
    ),
    *form(
        "likes",
        EntityKind.THING,
        "favorite favourite",
        rf"(?P<self>\b[Mm]y) favou?rite (?:[a-z]+ ){{1,3}}(?:is|are) {_OBJECT}",
    ),
    *form(
        "dislikes",
        EntityKind.THING,
        "dislike dislikes hate hates detest detests stand like enjoy eat",
        rf"(?:{_I}{_ADVERB} {_DISLIKE}|{_OTHER}{_ADVERB} {_DISLIKES}) {_OBJECT}",
    ),
)
_SWITCHED = re.compile(rf"{_I}{_ADVERB} switched from {_PRODUCT} to {_PRODUCT2}")
_NOT = re.compile(r"\b(?:don['’]t|do not)\b")
"""An end only with "any more"."""
_NO_MORE = re.compile(r"\b(?:any ?more|any longer|these days)\b")
_UNSURE = re.compile(
    r"\b(?:if|wish|would|could|might|may|maybe|perhaps|imagine|suppose|hope|hoping|want|wants|wanted|whether|dream"
    r"|dreamed|unless|think|thought|considering|plan|planning|when|before|until|said|says|told|pretend)\b[^.;]*$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:]| (?:but|and) ")
_NO_THING = re.compile(
    r"(?:to|it|this|that|these|those|you|your|him|her|his|them|their|me|my|our|us|how|what|when|where|who|why|which"
    r"|whatever|every\w*|any\w*|some\w*|nothing|all|each|one|not|being|seeing|having|getting|working|talking"
    r"|hearing|spending|making|finding|sharing|expressing|helping|taking|looking|going|learning|giving|thinking"
    r"|is|are|was|were|does|do|did|the (?=[a-z])|a lot|it's|that's|so|and|more|most|both)\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an?|some|most|eating|drinking) (?=\w{3})", re.IGNORECASE)
_THING_ENDS = re.compile(
    r" (?:-|–|right|itself|and|but|or|because|when|while|that|which|who|so|since|if|as|with|without"
    r"|very|more|much|a lot|lots|best|most"
    r"|over|than|rather|to|for|from|at|by|during|after|before|now|too|anymore|any|again|especially|though|although"
    r"|these|this|every|it's|i|my|your|his|her|is|are|was|were|in the|on the|in my|these days)\b.*",
    re.IGNORECASE,
)
_LONGEST_THING = 40


def names_nothing(text: str) -> bool:
    """Whether nothing can be found in a text: it has no capital letter, no word for who speaks and none that
    a tool begins with, and all that is found begins with one of these."""
    if has_capital(text):
        return False
    said = _said(text)
    return _SPEAKERS.isdisjoint(said) and _TOOL_BEGINNINGS.isdisjoint(said)


class Reader:
    """Reads the sentences of a text by the rules that can find something: all that one matches has one of its
    words, apart from other letters."""

    def __init__(self, text: str) -> None:
        said = _said(text)
        self._titles = not _TITLES.isdisjoint(said)
        self._projects = "project" in said
        self._tools = not _TOOL_BEGINNINGS.isdisjoint(said)
        self._speakers = not _SPEAKERS.isdisjoint(said)
        self._kinship = () if _MINE.isdisjoint(said) else _KINSHIP
        self._married = not _MARRYING.isdisjoint(said)
        self._switched = "switched" in said
        self._forms = _FORMS.among(said)

    def read(self, text: str, *, tells: bool) -> tuple[list[Placed], list[Told]]:
        """What a sentence names, each with its place, and what it says of that, if it ``tells`` anything."""
        starts = starts_of_names(text)
        return list(self._entities(text, starts)), list(self._claims(text, starts)) if tells else []

    def _entities(self, text: str, starts: Sequence[int]) -> Iterator[Placed]:
        for match in matches(_TITLE, text, starts) if self._titles else ():
            yield Placed(match.start(), match.end(), Mention(match[0], EntityKind.PERSON))
        for match in _PROJECT.finditer(text) if self._projects else ():
            group = "after" if match["after"] else "before"
            yield Placed(*match.span(group), Mention(match[group], EntityKind.PRODUCT))
        for match in _tools(text) if self._tools else ():
            name = match[0]
            is_word = name.lower() in _PLAIN_WORDS and (name.islower() or not match.start())
            if not is_word:
                yield Placed(match.start(), match.end(), Mention(name, EntityKind.PRODUCT))
        if starts and not is_title_case(text, starts):
            yield from capitalised(text, starts)

    def _claims(self, text: str, starts: Sequence[int]) -> Iterator[Told]:
        if self._speakers:
            starts = sorted({*starts, *(match.start() for match in _SPEAKER.finditer(text))})
        if not starts:
            return
        for pattern in self._kinship:
            for match in matches(pattern, text, starts):
                if (name := _proper(match["name"])) is not None:
                    kin = KIN[match["kin"]]
                    kind = EntityKind.NAME if kin in ANIMALS else EntityKind.PERSON
                    yield Told(match.start("name"), Claim(SUBJECT, kin, Mention(name, kind)))
        for match in matches(_MARRIED, text, starts) if self._married else ():
            relation = "spouse" if match["how"] == "married" else "partner"
            spouse = Mention(match["name"], EntityKind.PERSON)
            yield Told(match.start("name"), Claim(SUBJECT, relation, spouse))
        for match in matches(_SWITCHED, text, starts) if self._switched else ():
            for group, ended in (("what", True), ("new", False)):
                product = Mention(match[group], EntityKind.PRODUCT)
                yield Told(match.start(group), Claim(SUBJECT, "uses", product, ended))
        for one in self._forms:
            for match in matches(one.pattern, text, starts):
                if (told := _told(text, match, one)) is not None:
                    yield told


def _said(text: str) -> set[str]:
    """Its words, as far as they are of Latin letters, and all that tools begin with where some letter is like
    a Latin one."""
    said = set(text.lower().encode("ascii", "replace").translate(_APART).decode("ascii").split())
    if _has_like_letters(text):
        said |= _TOOL_BEGINNINGS
    return said


def _has_like_letters(text: str) -> bool:
    return not text.isascii() and _LIKE_LETTERS.search(text) is not None


def _tools(text: str) -> Iterable[re.Match[str]]:
    if _has_like_letters(text):
        return _TOOL.finditer(text)
    words = _LETTERS.finditer(text.lower())
    return matches(_TOOL, text, [word.start() for word in words if word[0] in _TOOL_BEGINNINGS])


def _told(text: str, match: re.Match[str], one: Form) -> Told | None:
    groups, kind = match.groupdict(), one.kind
    subject = _subject(match)
    if subject is None or _UNSURE.search(_clause_before(text, match.start())) is not None:
        return None
    if one.ended and _NOT.search(match[0]) and not _NO_MORE.search(groups.get("more") or ""):
        return None
    group = next(group for group in ("what", "new", "thing") if groups.get(group))
    name = _thing(match[group]) if group == "thing" else _proper(match[group])
    if name is None:
        return None
    if one.relation == "uses" and name.lower() in PLACES:
        return None
    if group == "thing" and name[0].isupper() and kind is EntityKind.THING:
        kind = kind_of(name)
    return Told(match.start(group), Claim(subject, one.relation, Mention(name, kind), one.ended))


def _clause_before(text: str, start: int) -> str:
    pieces = _CLAUSE.split(text[:start])
    return pieces[-1]


def _subject(match: re.Match[str]) -> Mention | None:
    if match["self"]:
        return SUBJECT
    name = match.groupdict().get("who")
    if not name:
        return None
    words = name.split(" ")
    while words and words[0].lower() in BEGINNINGS:
        words = words[1:]
    proper = _proper(" ".join(words))
    return None if proper is None else Mention(proper, EntityKind.PERSON)


def _proper(name: str) -> str | None:
    """The name without what is no part of it; None where nothing is left."""
    words = name.split(" ")
    while words and words[-1].lower() in NO_NAMES:
        words = words[:-1]
    if not words or words[0].lower() in NO_NAMES or words[0].lower() in BEGINNINGS:
        return None
    return " ".join(words)


def _thing(said: str) -> str | None:
    """What is liked or not, as few words as say it; None where it is somebody, or nothing in particular."""
    if _NO_THING.match(said):
        return None
    thing = _ARTICLE.sub("", _THING_ENDS.sub("", said), count=1).strip(" '’-")
    if len(thing) < 3 or len(thing) > _LONGEST_THING or _NO_THING.match(thing):
        return None
    return None if thing.lower() in NO_NAMES or thing.lower() in BEGINNINGS else thing
