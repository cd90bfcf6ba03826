"""Entities of English sentences, and what they say of these."""

from __future__ import annotations

import re
from collections.abc import Iterator

from server.ingest.entities.entity import SUBJECT, Claim, EntityKind, Mention
from server.ingest.entities.placed import Form, Forms, Placed, Told, form
from server.ingest.entities.words import (
    ANIMALS,
    BEGINNINGS,
    GIVEN_NAMES,
    KIN,
    NO_NAMES,
    PLACES,
    TOOLS,
)

_CAP = (
    r"(?:(?:Mc|Mac|O['’]|D['’])?[A-Z][a-zß-ÿ]+(?:[A-Z][a-z]+)*(?:-[A-Z][a-zß-ÿ]+)*|[A-Z]{2,}[a-z0-9+#]*"
    r"|[a-z]{1,2}[A-Z][A-Za-z]+|[A-Z]\.(?= [A-Z]))"
)
_JOINS = r"(?: (?:of the|of|de|van|von|der|da|del|&) | )"
_RUN = rf"(?<![\w@/.'’-]){_CAP}(?:(?:{_JOINS}|-){_CAP})*(?: \d+(?![\w:/.]))?(?![\w@/])"
_NAME = rf"{_CAP}(?:{_JOINS}{_CAP}){{0,4}}(?![\w@])"
_RUNS = re.compile(_RUN)
_TITLE = re.compile(r"\b(?:Dr|Prof|Professor|Doctor|Mr|Mrs|Ms|Uncle|Aunt|Coach)\.? " + f"(?P<name>{_NAME})")
_ORGANISATION = re.compile(
    r"(?:\b(?:Inc|Ltd|LLC|GmbH|Corp|Corporation|Company|University|Institute|Bank|Hospital|Clinic|College|School"
    r"|Academy|Foundation|Labs|Airlines|Airways|Museum|Agency|Ministry|Association)$)|^(?:University|Bank"
    r"|Institute|Ministry|Bank) of "
)
_PROJECT = re.compile(
    rf"\b(?:[Pp]roject (?P<after>{_NAME})|(?:[Tt]he |[Oo]ur |[Mm]y )(?P<before>{_CAP}) project\b)"
)
_TOOL = re.compile(
    r"(?<![\w@/.-])(?:"
    + "|".join(re.escape(tool) for tool in sorted(TOOLS, key=len, reverse=True))
    + r")(?![\w@+#-])",
    re.IGNORECASE,
)
_LETTERS = re.compile("[a-z]+")
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
_OTHER = rf"(?P<who>\b{_NAME})"
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
_PRODUCT = rf"(?P<what>(?i:{_TOOL_NAMES})(?![\w@+#-])|{_NAME})"
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
        rf"{_MY_KIN}(?:,(?= {_NAME}(?:[,.!?;]|$))|['’]s name is| is called| is named| called| named|:)?"
        rf" (?P<name>(?:(?:Dr|Mr|Ms|Mrs)\.? )?{_NAME})"
    ),
    re.compile(
        rf"(?<![\w'’])(?P<name>{_NAME})(?:,? who)?(?: is|'s|’s| was|,) (?:[Mm]y|[Oo]ur) {_ADJECTIVE}"
        rf"(?P<kin>{_KIN_WORD})\b(?!['’]s)"
    ),
)
_MARRIED = re.compile(rf"{_I}{_BE}{_ADVERB} (?P<how>married|engaged) to (?P<name>{_NAME})")

_FIRM = rf"(?:the )?(?P<what>{_NAME})"
_ENDS = r"(?: no longer {0}| used to {0}|{1} no longer {2}| (?:don['’]t|do not) {0})"
_FORMS = Forms(
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "work job position role",
        rf"{_I}{_ENDS.format('work', _BE, 'working')}{_ROLE} (?:at|for) {_FIRM}(?P<more>.*)",
        rf"{_I}{_ADVERB} (?:quit|left|resigned from|lost) my (?:old )?(?:job|position|role)"
        rf" (?:at|with) {_FIRM}",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "work job position role employed",
        rf"{_WHO}{_AND}{_ADVERB}(?: works?|{_BE}{_ADVERB} (?:working|employed)| started working"
        rf"| (?:got|started|landed|took) an? (?:new )?(?:job|position|role)){_ROLE} (?:at|for|with) {_FIRM}",
    ),
    *form("works_at", EntityKind.ORGANISATION, "joined", rf"{_WHO}{_ADVERB} joined (?P<what>{_NAME}) as\b"),
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
        "stud school",
        rf"{_WHO}{_ADVERB}(?: stud(?:y|ies)|{_BE}{_ADVERB} studying|{_BE}{_ADVERB} an? (?:[\w-]+ )?student"
        rf"| go(?:es)? to school)(?: [a-z]+){{0,2}} at {_FIRM}",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "live living",
        rf"{_I}{_ENDS.format('live', _BE, 'living')} in (?:the )?(?P<what>{_NAME})(?P<more>.*)",
        ended=True,
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "live living based reside settled",
        rf"{_WHO}{_AND}{_ADVERB}(?: lives?|{_BE}{_ADVERB} (?:living|based)| resides?| settled) in {_FIRM}",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "moved",
        rf"{_WHO}{_ADVERB} moved (?:back |over )?(?:from {_NAME} )?to (?P<what>{_NAME})",
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
        "use using write code program switched moved",
        rf"{_WHO}{_ADVERB}(?: uses?|{_BE}{_ADVERB} using| (?:write|code|program)s?(?: (?:my |all )?code)? in"
        rf"| started using|(?: have)? switched (?:over )?to| moved over to) {_PRODUCT}",
    ),
    *form(
        "works_on",
        EntityKind.PRODUCT,
        "project Project",
        rf"{_WHO}(?:{_ADVERB} (?:works? on|leads?)|{_BE}{_ADVERB} (?:working on|leading|in charge of))"
        rf" (?:the )?(?:[Pp]roject (?P<what>{_NAME})|(?P<new>{_CAP}) project\b)",
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
        "like love enjoy prefer adore",
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
        "like hate stand enjoy detest eat",
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
_OWNS = re.compile(
    r"['’]s (?!an?\b|the\b|so\b|not\b|been\b|just\b|really\b|all\b|always\b|great|good|too\b|about\b"
    r"|like\b|my\b|your\b|our\b|in\b|on\b|to\b|never\b|such\b|what|why|how|full\b|\w+ing\b|\w+ed\b)[a-z]"
)
_LONGEST_THING = 40


def entities(text: str) -> Iterator[Placed]:
    """What the sentence names, each with its place."""
    for match in _TITLE.finditer(text):
        yield Placed(match.start(), match.end(), Mention(match[0], EntityKind.PERSON))
    for match in _PROJECT.finditer(text) if "roject" in text else ():
        group = "after" if match["after"] else "before"
        yield Placed(*match.span(group), Mention(match[group], EntityKind.PRODUCT))
    for match in _TOOL.finditer(text) if _may_name_tool(text) else ():
        name = match[0]
        is_word = name.lower() in _PLAIN_WORDS and (name.islower() or not match.start())
        if not is_word:
            yield Placed(match.start(), match.end(), Mention(name, EntityKind.PRODUCT))
    if not _is_title_case(text):
        yield from _capitalised(text)


def _may_name_tool(text: str) -> bool:
    """Whether it is worth looking for tools."""
    return not text.isascii() or not _TOOL_BEGINNINGS.isdisjoint(_LETTERS.findall(text.lower()))


def _is_title_case(text: str) -> bool:
    """Whether capitals say nothing here: a heading, or somebody who shouts."""
    words = [word for word in text.split() if word[0].isalpha()]
    high = len([word for word in words if word[0].isupper()])
    return len(words) > 4 and high > 0.7 * len(words)


def _capitalised(text: str) -> Iterator[Placed]:
    for match in _RUNS.finditer(text):
        start, words = match.start(), match[0].split(" ")
        first = _begins(text, start)
        while words and _is_no_name(words[0], first):
            start += len(words[0]) + 1
            words, first = words[1:], False
        while words and (_is_no_name(words[-1], False) or words[-1] in ("of", "the", "de", "&")):
            words = words[:-1]
        name = " ".join(words)
        if not words or (first and len(words) == 1 and not _is_marked(name, text[start + len(name) :])):
            continue
        yield Placed(start, start + len(name), Mention(name, _kind(name)))


def _begins(text: str, start: int) -> bool:
    """Whether a sentence, a quotation or an item begins here, so that a capital says nothing."""
    before = text[:start].rstrip(" ")
    return not before or before[-1] in ".!?:;\"“‘'(—–-*•#>[…"


def _is_no_name(word: str, first: bool) -> bool:
    low = word.lower().replace("’", "'")
    return low in NO_NAMES or (low in BEGINNINGS and (first or low in ("i", "my", "the", "a")))


def _is_marked(name: str, rest: str) -> bool:
    """Whether a single word at a beginning shows by itself that it is a name."""
    low = name.lower()
    inner = any(character.isupper() for character in name[1:])
    return low in PLACES or low in GIVEN_NAMES or inner or _OWNS.match(rest) is not None


def _kind(name: str) -> EntityKind:
    if _ORGANISATION.search(name):
        return EntityKind.ORGANISATION
    if name.lower() in PLACES:
        return EntityKind.PLACE
    return EntityKind.PERSON if name.split(" ")[0].lower() in GIVEN_NAMES else EntityKind.NAME


def claims(text: str) -> Iterator[Told]:
    """What the sentence says of what it names."""
    for pattern in _KINSHIP if "y " in text or "ur " in text else ():
        for match in pattern.finditer(text):
            if (name := _proper(match["name"])) is not None:
                kin = KIN[match["kin"]]
                kind = EntityKind.NAME if kin in ANIMALS else EntityKind.PERSON
                yield Told(match.start("name"), Claim(SUBJECT, kin, Mention(name, kind)))
    for match in _MARRIED.finditer(text) if " to " in text else ():
        relation = "spouse" if match["how"] == "married" else "partner"
        yield Told(match.start("name"), Claim(SUBJECT, relation, Mention(match["name"], EntityKind.PERSON)))
    for match in _SWITCHED.finditer(text) if " switched " in text else ():
        for group, ended in (("what", True), ("new", False)):
            product = Mention(match[group], EntityKind.PRODUCT)
            yield Told(match.start(group), Claim(SUBJECT, "uses", product, ended))
    for one in _FORMS.within(text):
        for match in one.pattern.finditer(text):
            if (told := _told(text, match, one)) is not None:
                yield told


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
        kind = _kind(name)
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
