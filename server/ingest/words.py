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

_Phrase = tuple[list[str], list[str]]
_Phrases = Mapping[str, Mapping[str, Sequence[_Phrase]]]

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_PUNCTUATION = r".,:;!?'\"()\[\]{}<>，。！？、；：“”‘’「」『』（）《》【】…·—–*_`~/\\|@&-"
_WORD = re.compile(
    rf"""
    [\u4e00-\u9fef]  # a word each, and looked for first as most characters of a Chinese text
    | (?:(?<!\w)[+-])? [0-9]+ (?:[.,:/-][0-9]+)* [%‰]? (?![^\W_{_UNSPACED}])
    | (?:(?<![\w.])\.)? [^\W_{_UNSPACED}]+ (?:'[^\W_{_UNSPACED}]+)* (?:\+\+|\#)?
    | \w
    | [^\w\s{_PUNCTUATION}]
    """,
    re.VERBOSE,
)
_LETTERS = re.compile(r"[^\W\d_]+")
_MAX_KEPT_CHUNKS, _LONGEST_KEPT = 16_384, 32
"""Some 4 MB; in running text nine words of ten have been seen before."""
_THOUSANDS = re.compile(r",(?<=[0-9],)(?=[0-9]{3}(?![0-9]))")
_PLAIN_SIGNS = (("’", "'"), ("‘", "'"), ("ʼ", "'"), ("−", "-"))
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
    """What each phrase says, by its first word and the one behind it, the longest first; those of one word
    are behind all of these, and alone behind "". Chinese ones go by characters."""
    found: dict[str, list[_Phrase]] = {}
    for line in text.strip().splitlines():
        said, _, means = line.partition("=")
        for phrase in map(str.strip, said.split("|")):
            read = _WORD.findall(phrase)
            found.setdefault(read[0], []).append((read, _WORD.findall(means)))
    return {first: _by_second(same) for first, same in found.items()}


def _by_second(phrases: Iterable[_Phrase]) -> dict[str, list[_Phrase]]:
    longest = sorted(phrases, key=lambda pair: -len(pair[0]))
    seconds = {"", *(phrase[1] for phrase, _ in longest if len(phrase) > 1)}
    return {second: [pair for pair in longest if pair[0][1:2] in ([], [second])] for second in seconds}


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
    (word, re.compile(f"^{pattern}$"))
    for word, pattern in (
        ("between", f"between {_MORE} and {_LESS} i like (?P=more)"),
        ("between", f"between {_LESS} and (?P<more>{_PART}) i like (?P=more)"),
        ("my", rf"{_MORE} is my (?:preferenc|choic|favou?rite?) (?:over|than|not) {_LESS}"),
        ("my", rf"my (?:preferenc|choic) is {_MORE} (?:over|than|not) {_LESS}"),
        ("over", rf"i (?:always |usually )?(?:choos|pick|take) {_MORE} over {_LESS}"),
        ("person", rf"i am more of {_MORE} person than {_LESS} person"),
        ("than", rf"i like {_MORE} than (?:i like )?{_LESS}"),
        ("欢", rf"(?:比 起|相 比 起|相 比|相 较 于|相 较) {_LESS}(?: 我)? 喜 欢 {_MORE}"),
        ("比", rf"[和跟与同] {_LESS} (?:相 )?比(?: 起 来| 较)?(?: 我)? 喜 欢 {_MORE}"),
        ("间", rf"(?:在 )?{_MORE} [和与跟] {_LESS} 之 间(?: 我)? 喜 欢 (?P=more)"),
        ("间", rf"(?:在 )?{_LESS} [和与跟] (?P<more>{_PART}) 之 间(?: 我)? 喜 欢 (?P=more)"),
        ("欢", rf"喜 欢 {_MORE} (?:胜 过|多 过|甚 于|超 过|而 不 是|不 是) {_LESS}"),
    )
)
"""How one says what one likes more: what is liked, and what less; each with a word that it always has."""
_FRONTED = re.compile(rf"(?P<where>(?:in|at|on) {_PART}) (?P<rest>i (?:dis)?like .+)")
_COMPARES = frozenset(("than", "over", "between", "not", "比", "较", "间", "胜", "过", "于", "是"))
_CONSUMED = re.compile(r"\b((?:dis)?likes?|than|喜 欢|讨 厌|胜 过) (?:drink|eat|have|use|喝|吃)(?= )")
_CONSUMING = frozenset(("drink", "eat", "have", "use", "喝", "吃"))
_LIKE = frozenset(("like", "likes", "prefer", "prefers", "dislike", "dislikes"))
_ARTICLES = frozenset(("a", "an", "the"))
_LIKED = frozenset(("like", "dislike", "欢", "厌"))
_OPENING = frozenset(("oh", "hey", "well", "um", "hm", "hmm", "我"))
_FOLDED_ENDS = frozenset("sge")
_THE_LESS_LIKED_WITHIN = 4
"""Words of what is liked, before "to" or "over" and what is liked less."""


def words(text: str) -> tuple[str, ...]:
    """What the text says, in its order; where that is nothing, the text."""
    plain = text.lower() if text.isascii() else _plain(text)
    written: list[str] = []
    for chunk in plain.split():  # no word goes on behind white space
        written += _kept(chunk) if len(chunk) <= _LONGEST_KEPT and chunk.isascii() else _written(chunk)
    said = _replaced(written, _SAYING_NOTHING)
    if said and said[0] in _OPENING:
        del said[0]
    said = _replaced(said, _MEANING_ONE_THING)
    if not _LIKE.isdisjoint(said):
        said = list(_liked(said))
    folded = [_folded(word) if word[-1] in _FOLDED_ENDS else word for word in said]
    return tuple(_compared(folded)) or (plain.strip(),)


@lru_cache(2048)
def mark(text: str) -> int:
    """The text's mark, a signed number of 64 bits. Those of the last texts are remembered, so that under a
    lock they cost nothing whose texts were read before: two full batches of a device."""
    letters = "".join(
        [
            word[0] + word[-1] if len(word) >= LEAST_MISSPELT and word.isalpha() else word
            for word in words(text)
        ]
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
    text = simplified(_VARIATIONS.sub("", fold(text)))
    for sign, plain in _PLAIN_SIGNS:
        text = text.replace(sign, plain)
    return text


def _written(chunk: str) -> tuple[str, ...]:
    """The words of a text without white space, with what is contracted in full."""
    found = _WORD.findall(_THOUSANDS.sub("", chunk))
    if "'" not in chunk and _CONTRACTED.keys().isdisjoint(found):
        return tuple(found)
    return tuple(part for word in found for part in _expanded(word))


_kept = lru_cache(_MAX_KEPT_CHUNKS)(_written)


def _expanded(word: str) -> tuple[str, ...]:
    if word in _CONTRACTED:
        return _CONTRACTED[word]
    for ending, full in _ENDINGS if "'" in word else ():
        if word.endswith(ending) and word != ending:
            return word.removesuffix(ending), full
    return (word,)


def _replaced(said: list[str], phrases: _Phrases) -> list[str]:
    """The words with each phrase as what it says."""
    found: list[str] = []
    end = 0
    for start in [place for place, word in enumerate(said) if word in phrases]:
        if start < end:
            continue
        word, follow = said[start], said[start + 1] if start + 1 < len(said) else ""
        known = phrases[word]
        for phrase, means in known.get(follow) or known[""]:
            if len(phrase) == 1 and word in _ARTICLES and start + 1 == len(said):
                continue  # a letter: "vitamin A"
            if len(phrase) <= 2 or said[start : start + len(phrase)] == phrase:
                found += said[end:start]
                found += means
                end = start + len(phrase)
                break
    return found + said[end:]


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
    compares = not _COMPARES.isdisjoint(said)
    if not compares and _LIKED.isdisjoint(said):
        return said
    text, known = " ".join(said), set(said)
    if not _CONSUMING.isdisjoint(known):
        text = _CONSUMED.sub(r"\1", text)
    for word, form in _COMPARING if compares else ():
        if word in known and (found := form.match(text)) is not None:
            return f"i like {found['more']} than {found['less']}".split()
    if (found := _FRONTED.fullmatch(text)) is not None:
        text = f"{found['rest']} {found['where']}"
    return text.split()


@lru_cache(16_384)
def _folded(word: str) -> str:
    """A word without its plural, -s or -ing; one of the past as it is, and so is any with none of
    ``_FOLDED_ENDS``."""
    root = stem(word)
    return root if word.endswith(("s", "ing", "ie")) or (word[-1] == "e" and root == word[:-1]) else word
