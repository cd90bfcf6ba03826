"""What a text says, word by word, so that two wordings of one thing are equal: Chinese and English.

Left out is what says nothing (articles, "really", "honestly", 非常, 其实). Some words are one: those for
liking, those for disliking, "over" and "rather than". Plurals, -s and -ing are folded; the past is not, since
what was is another thing than what is. Everything else counts, in its order: numbers, names, "not", "before".

A text's *mark* is a number that texts share which say the same, spelt the same or nearly: it finds the few
that are worth comparing. It is stored: a change of these rules needs the marks of all memories made anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from scrubjay.text import fold, stem
from server.ingest.simplified import simplified

_Phrases = Mapping[str, Sequence[tuple[tuple[str, ...], tuple[str, ...]]]]

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_PUNCTUATION = r".,:;!?'\"()\[\]{}<>，。！？、；：“”‘’「」『』（）《》【】…·—–*_`~/\\|@&-"
_WORD = re.compile(
    rf"""
    (?:(?<!\w)[+-])? [0-9]+ (?:[.,:/-][0-9]+)* [%‰]? (?![^\W_{_UNSPACED}])
    | (?:(?<![\w.])\.)? [^\W_{_UNSPACED}]+ (?:'[^\W_{_UNSPACED}]+)* (?:\+\+|\#)?
    | \w
    | [^\w\s{_PUNCTUATION}]
    """,
    re.VERBOSE,
)
_LETTERS = re.compile(r"[^\W\d_]+")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "−": "-"})
_VARIATIONS = re.compile("[\ufe00-\ufe0f\u200d]")
_CONTRACTED = {
    "can't": ("can", "not"),
    "cannot": ("can", "not"),
    "cant": ("can", "not"),
    "won't": ("will", "not"),
    "wont": ("will", "not"),
    "dont": ("do", "not"),
    "doesnt": ("does", "not"),
    "im": ("i", "am"),
}
_ENDINGS = (("n't", "not"), ("'m", "am"), ("'re", "are"), ("'ve", "have"), ("'ll", "will"), ("'d", "would"))


def _phrases(text: str) -> _Phrases:
    """By its first word, what each phrase says; the longest first. Chinese ones go by characters."""
    found: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for line in text.strip().splitlines():
        said, _, means = line.partition("=")
        for phrase in map(str.strip, said.split("|")):
            read = tuple(_WORD.findall(phrase))
            found.setdefault(read[0], []).append((read, tuple(_WORD.findall(means))))
    return {first: sorted(same, key=lambda pair: -len(pair[0])) for first, same in found.items()}


_SAYING_NOTHING = _phrases(
    """
    the | a | an | really | very | so | quite | just | actually | definitely | absolutely | totally =
    truly | certainly | simply | honestly | frankly | basically | personally | generally | in general =
    please | also =
    a lot | very much | so much | as well | to be honest | to be quite honest | by the way | you know =
    as you know | as i said | i think | i think that | i guess | i guess that | i believe | i believe that =
    说实话 | 老实说 | 坦白说 | 真的 | 真心 | 非常 | 超级 | 十分 | 其实 | 我觉得 | 我认为 | 我个人 =
    啊 | 呀 | 吧 | 呢 | 嘛 | 啦 | 哦 | 嗯 | 唉 | 很 | 挺 | 蛮 | 也 | 的 =
    十分钟 = 十分钟
    超级市场 = 超级市场
    酒吧 = 酒吧
    目的 = 目的
    """
)
_MEANING_ONE_THING = _phrases(
    """
    love | enjoy | adore | favor | favour = like
    loves | enjoys | adores | favors | favours = likes
    am fan of | am big fan of | am huge fan of | am fond of | am keen on | am into | am lover of = like
    is fan of | is big fan of | is huge fan of | is fond of | is keen on | is into | is lover of = likes
    would rather | would much rather | would rather have | would much rather have = prefer
    do not like | do not love | do not enjoy | do not care for | can not stand | am not fan of = dislike
    does not like | does not love | does not enjoy | does not care for | is not fan of = dislikes
    am not big fan of | hate | detest | loathe = dislike
    is not big fan of | hates | detests | loathes = dislikes
    do like | do prefer | do love | do enjoy = like
    does like | does prefer | does love | does enjoy = likes
    rather than | more than | much more than | far more than | better than | much better than = than
    instead of = than
    each = every
    喜爱 | 热爱 | 偏爱 | 偏好 | 钟爱 | 更喜欢 | 更加喜欢 | 比较喜欢 | 特别喜欢 | 更爱 | 更偏爱 | 更偏好 = 喜欢
    不喜欢 | 不太喜欢 | 不爱 | 厌恶 | 反感 | 特别讨厌 = 讨厌
    爱在 = 喜欢在
    爱喝 = 喜欢喝
    爱吃 = 喜欢吃
    爱看 = 喜欢看
    爱听 = 喜欢听
    爱玩 = 喜欢玩
    """
)
LEAST_MISSPELT = 6
"""Letters of a word that may be misspelt: of shorter ones most neighbours are other words."""
_PART = r"\S+(?: \S+){0,5}?"
_MORE, _LESS = f"(?P<more>{_PART})", f"(?P<less>{_PART})"
_COMPARING = tuple(
    re.compile(f"^{pattern}$")
    for pattern in (
        f"between {_MORE} and {_LESS} i like (?P=more)",
        f"between {_LESS} and (?P<more>{_PART}) i like (?P=more)",
        rf"{_MORE} is my (?:preferenc|choic|favou?rite?) (?:over|than|not) {_LESS}",
        rf"my (?:preferenc|choic) is {_MORE} (?:over|than|not) {_LESS}",
        rf"i (?:always |usually )?(?:choos|pick|take) {_MORE} over {_LESS}",
        rf"i am more of {_MORE} person than {_LESS} person",
        rf"i like {_MORE} than (?:i like )?{_LESS}",
        rf"(?:比 起|相 比 起|相 比|相 较 于|相 较) {_LESS}(?: 我)? 喜 欢 {_MORE}",
        rf"[和跟与同] {_LESS} (?:相 )?比(?: 起 来| 较)?(?: 我)? 喜 欢 {_MORE}",
        rf"(?:在 )?{_MORE} [和与跟] {_LESS} 之 间(?: 我)? 喜 欢 (?P=more)",
        rf"(?:在 )?{_LESS} [和与跟] (?P<more>{_PART}) 之 间(?: 我)? 喜 欢 (?P=more)",
        rf"喜 欢 {_MORE} (?:胜 过|多 过|甚 于|超 过|而 不 是|不 是) {_LESS}",
    )
)
"""How one says what one likes more: what is liked, and what less."""
_FRONTED = re.compile(rf"(?P<where>(?:in|at|on) {_PART}) (?P<rest>i (?:dis)?like .+)")
_COMPARES = frozenset(("than", "over", "between", "not", "比", "较", "间", "胜", "过", "于", "是"))
_CONSUMED = re.compile(r"\b((?:dis)?likes?|than|喜 欢|讨 厌|胜 过) (?:drink|eat|have|use|喝|吃)(?= )")
_LIKE = frozenset(("like", "likes", "prefer", "prefers", "dislike", "dislikes"))
_ARTICLES = frozenset(("a", "an", "the"))
_LIKED = frozenset(("like", "dislike", "欢", "厌"))
_OPENING = frozenset(("oh", "hey", "well", "um", "hm", "hmm", "我"))
_THE_LESS_LIKED_WITHIN = 4
"""Words of what is liked, before "to" or "over" and what is liked less."""


def words(text: str) -> tuple[str, ...]:
    """What the text says, in its order; where that is nothing, the text."""
    plain = text.lower() if text.isascii() else _plain(text)
    said = _replaced(_whole(_WORD.findall(_THOUSANDS.sub("", plain))), _SAYING_NOTHING)
    if said and said[0] in _OPENING:
        del said[0]
    found = list(map(_folded, _liked(_replaced(said, _MEANING_ONE_THING))))
    return tuple(_compared(found)) or (plain.strip(),)


@lru_cache(2048)
def mark(text: str) -> int:
    """The text's mark, a signed number of 64 bits. Those of the last texts are remembered, so that under a
    lock they cost nothing whose texts were read before: two full batches of a device."""
    letters = "".join(
        word[0] + word[-1] if len(word) >= LEAST_MISSPELT and word.isalpha() else word for word in words(text)
    )
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "big", signed=True)


def misspelt(one: str, other: str) -> bool:
    """Whether two words may be one: a letter is missing, too much, another, or has changed places with its
    neighbour, but neither the first one nor the last, where tense and number are."""
    if min(len(one), len(other)) < LEAST_MISSPELT or not (one.isalpha() and other.isalpha()):
        return False
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    if start == 0:
        return False
    one, other = one[start:], other[start:]
    rests = [(one[1:], other), (one, other[1:]), (one[1:], other[1:])]
    if one[:2] == other[1::-1]:
        rests.append((one[2:], other[2:]))
    return any(a == b != "" for a, b in rests)


def names(text: str) -> frozenset[str]:
    """The words that begin with a capital letter, as ``words`` gives them."""
    return frozenset(_folded(fold(word)) for word in _LETTERS.findall(text) if word[0].isupper())


def _plain(text: str) -> str:
    return simplified(_VARIATIONS.sub("", fold(text))).translate(_APOSTROPHES)


def _whole(found: Iterable[str]) -> list[str]:
    """The words with what is contracted in full."""
    whole: list[str] = []
    for word in found:
        if "'" in word or word in _CONTRACTED:
            whole += _expanded(word)
        else:
            whole.append(word)
    return whole


def _expanded(word: str) -> tuple[str, ...]:
    if word in _CONTRACTED:
        return _CONTRACTED[word]
    for ending, full in _ENDINGS:
        if word.endswith(ending):
            return word.removesuffix(ending), full
    return (word,)


def _replaced(said: Sequence[str], phrases: _Phrases) -> list[str]:
    """The words with each phrase as what it says."""
    if phrases.keys().isdisjoint(said):
        return list(said)
    found: list[str] = []
    place = 0
    while place < len(said):
        word = said[place]
        for phrase, means in phrases.get(word, ()):
            if len(phrase) == 1 and word in _ARTICLES and place + 1 == len(said):
                continue  # a letter: "vitamin A"
            if len(phrase) == 1 or tuple(said[place : place + len(phrase)]) == phrase:
                found += means
                place += len(phrase)
                break
        else:
            found.append(word)
            place += 1
    return found


def _liked(said: Iterable[str]) -> Iterator[str]:
    """The words with one form for what is liked, and liked more than what."""
    since, prefers = _THE_LESS_LIKED_WITHIN + 1, False
    for word in said:
        if word in _LIKE:
            since, prefers = 0, word.startswith("prefer")
            yield word.replace("prefer", "like")
        elif word == "to" and since == 0:
            continue
        elif 0 < since <= _THE_LESS_LIKED_WITHIN and (word == "over" or (prefers and word == "to")):
            since = _THE_LESS_LIKED_WITHIN + 1
            yield "than"
        else:
            since += 1
            yield word


def _compared(said: list[str]) -> list[str]:
    """The words with one form for what is liked more than what, however that is said; "I like drinking tea"
    is "I like tea"."""
    if not any(word in _LIKED or word in _COMPARES for word in said):
        return said
    text = _CONSUMED.sub(r"\1", " ".join(said))
    if not _COMPARES.isdisjoint(said):
        for form in _COMPARING:
            if (found := form.match(text)) is not None:
                return f"i like {found['more']} than {found['less']}".split()
    if (found := _FRONTED.fullmatch(text)) is not None:
        text = f"{found['rest']} {found['where']}"
    return text.split()


@lru_cache(16_384)
def _folded(word: str) -> str:
    """A word without its plural, -s or -ing; one of the past as it is."""
    root = stem(word)
    return root if word.endswith(("s", "ing", "ie")) or (word[-1] == "e" and root == word[:-1]) else word
