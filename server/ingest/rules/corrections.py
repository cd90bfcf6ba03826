"""Corrections: what holds no more, and what holds instead, in one sentence; both languages."""

from __future__ import annotations

import re
from typing import NamedTuple

from server.ingest.rules.template import Template, first, template

_OLD = r"(?P<old>[^,;.!?，。；]{1,60}?)"
_STOP = (
    r"(?=\s*(?:[,;.!?，。；]|$|(?:--|—|–| -)|\b(?:and|but|because|since|as|so|after|now"
    r"|any ?more|any longer|instead|due to|when|for good|these days)\b))"
)
_PREPOSITION = r"(?:(?:in|at|for|on|to|with|from|as|of|by|the|a|an|my|our|any|into|about) ){0,2}"
_WHO = r"\b(?:i|we|you|he|she|they|it|my \w+|our \w+)"
_NOT = (
    r"(?:don't|do not|doesn't|does not|didn't|can't|cannot|won't|m not|am not|are not|aren't"
    r"|isn't|is not|re not|not)"
)
_REPLACED_BY = r"(?:and|,|;|:|—|–|-|i|we|but)"

ENGLISH: tuple[Template, ...] = (
    template(
        "en.correction.switched",
        "FACT",
        rf"\b(?:switch(?:ed|ing)|chang(?:ed|ing)|mov(?:ed|ing)|migrat(?:ed|ing)|convert(?:ed|ing)"
        rf"|transition(?:ed|ing)|upgraded"
        rf"|relocated) (?:\w+ )?(?:\w+ )?from {_PREPOSITION}{_OLD} (?:over )?(?:in)?to \w",
    ),
    template(
        "en.correction.replaced",
        "FACT",
        rf"\b(?:i|we)(?:'ve| have)?(?: just| finally| recently)? (?:replaced|swapped|ditched"
        rf"|dropped|traded|exchanged|abandoned) {_PREPOSITION}{_OLD} (?:with|for|by|in favou?r of"
        rf"|and)\b",
    ),
    template(
        "en.correction.no_longer",
        "FACT",
        rf"\bno longer (?:(?:really|want to|have to|be) )?(?:\w+ {_PREPOSITION}){_OLD}{_STOP}",
        r"\b(?:what|that|which|you|who) no longer\b",
    ),
    template(
        "en.correction.any_more",
        "FACT",
        rf"\b(?:i|we|my \w+|our \w+)(?: \w+)?(?: |'){_NOT} (?:(?:really|even|want to"
        rf"|have to) )?(?:\w+ {_PREPOSITION}){_OLD} any ?(?:more|longer)\b",
    ),
    template(
        "en.correction.not_such_any_more",
        "FACT",
        r"\b(?:i|we|he|she|they|my \w+|our \w+)(?:'m not| am not|'re not| are not| aren't| is not"
        r"| isn't|'s not)"
        rf" {_PREPOSITION}{_OLD} any ?(?:more|longer)\b",
    ),
    template(
        "en.correction.name",
        "FACT",
        r"(?:\b(?:name(?:'s| is)|spelled|spelt|called|i'm|i am)|^(?:actually,? |no,? )?(?:it's"
        r"|it is|that's|that is))"
        r" [^,]{1,40}, not (?!just\b|only\b|too\b|really\b|so\b|that\b"
        r"|even\b)(?P<old>[^,;.!? ]{1,30}(?: [^,;.!? ]{1,30}){0,2})\W*$",
    ),
    template(
        "en.correction.gone",
        "FACT",
        r"\b(?:sold|got rid of|cancell?ed|deleted|quit) (?:the |my "
        r"|our )?(?P<old>[^,;.!?]{1,40}?)"
        r"(?:,| and|;) .{0,40}\b(?:now|these days|instead)\b"
        r"|\bcut (?:out )?(?P<cut>\w[\w -]{0,30}?) out of\b"
        r"|^(?P<past>[^,;.!?]{1,40}?) (?:is|are) (?:history|a thing of the past|over) (?:for me"
        r"|to me|now)\b",
    ),
    template(
        "en.correction.instead",
        "FACT",
        rf"\binstead of {_PREPOSITION}{_OLD} now\b"
        rf"|\bnow\b.{{0,60}}\binstead of {_PREPOSITION}(?P<past>[^,;.!?]{{1,60}})",
    ),
    template(
        "en.correction.call",
        "FACT",
        r"\b(?:don't|do not|stop) call(?:ing)? me (?P<old>[^,;.!?]{1,40}?)(?: any ?more)?[,;.]? (?"
        r":but )?(?:call|it's|i'm|use)\b",
    ),
    template(
        "en.correction.not_any_more",
        "FACT",
        r"^(?:actually[, ]+)?not (?P<old>[^,;.!?]{1,60}?) any ?(?:more|longer)\b",
    ),
    template(
        "en.correction.stopped",
        "FACT",
        rf"\b(?:i|we)(?:'ve| have)?(?: just| finally| recently| already)? (?:stopped|quit|gave up"
        rf"|given up|cut out|no more) (?:using |eating |drinking |taking |playing |going to "
        rf"|working (?:at|for) )?{_PREPOSITION}{_OLD}{_STOP}",
        r"\bquit (?:in|on|for|last|my)\b|\bstopped (?:by|for|at|in|to|and)\b",
    ),
    template(
        "en.correction.used_to",
        "FACT",
        r"\bi used to \w+(?: (?:in|at|for|on|to|with|the"
        r"|a) ?){0,6}(?P<old>[^,;.!?]{0,60}?)"
        r"(?:,? but\b.{0,40}\b(?:now|quit|stopped|no longer|don't|anymore|these days|switched"
        r"|gave up)\b"
        r"|[.,;!] (?:but )?(?:now|these days)\b)",
    ),
    template(
        "en.correction.not_but",
        "FACT",
        r"^(?:actually|correction|no|sorry|in fact|wait|oops|it turns out)\b.{0,80}?(?:\bnot"
        r"|n't) (?:\w+ )?(?:on |in |at |from |to |the "
        r"|an? )?(?P<old>[^,;.!?]{1,60}?),? but (?:rather )?(?:on |in |at |from |to |the |an? )?\w",
    ),
    template(
        "en.correction.not_here_but",
        "FACT",
        r"(?:\bnot|n't) (?:on|in|at|from|to) (?P<old>[^,;.!?]{1,60}?),? but (?:rather )?(?:on|in"
        r"|at|from|to) \w",
    ),
    template(
        "en.correction.not_its",
        "FACT",
        rf"\b(?:it|that|he|she|they|name|this)(?:'s| is| was|'re| are)? ?(?:not|isn't|wasn't"
        rf"|aren't) (?!just\b|only\b|about\b|easy\b|always\b|like\b|so\b|that\b|too\b|really\b"
        rf"|bad\b){_PREPOSITION}(?P<old>[^,;.!?]{{1,60}}?)(?: (?:i|we"
        rf"|that) [^,;.!?]{{1,40}}?)?[,;] ?(?:it|that|he|she|they)(?:'s| is| was|'re| are) ",
    ),
    template(
        "en.correction.meant",
        "FACT",
        r"^(?:sorry|correction|actually|no|oops|wait|scratch that|my mistake"
        r"|i was wrong)[,:]? .{0,80}?, not (?:in |on |at |the "
        r"|an? )?(?P<old>[^,;.!?]{1,60}?)\W*$"
        r"|\bi meant .{1,60},? not (?P<meant>[^,;.!?]{1,60}?)\W*$",
    ),
)

_ZH_END = r"(?=[，,。；;！!\s]|$|因为|由于|而是|改|换|现在|啦)"
_ZH_OLD = r"(?P<old>[^，,。；;！!？?]{1,30}?)"
_ZH_VERB = (
    r"(?:使用|喜欢|上班|居住|用|住在?|在|喝|吃|抽|去|做|学|玩|看|刷|逛|爱|打|骑|开|养|上|当|是|写"
    r"|买|听|戴|坐|穿|信|订|跟|练|叫|追)"
)
_INTO = (
    r"(?:换|改|转|搬|跳槽|切换|变|迁移|升级|调)(?:成|到|为|用|喝|吃|去|回|学|做|了|至|岗|来"
    r"|住|坐|骑|看){0,6}"
)

CHINESE: tuple[Template, ...] = (
    template(
        "zh.correction.from",
        "FACT",
        rf"(?:从|由){_ZH_OLD}(?:那边|这边)?{_INTO}",
        r"从(?:来|小|现在起|今以后|此)|从[^，,]{0,12}(?:开始|起|以来)"
        r"|从[^，,]{1,30}(?:转[机车乘院]|换乘|调查|变得)",
    ),
    template(
        "zh.correction.take",
        "FACT",
        rf"把(?:原来的|旧的?)?{_ZH_OLD}(?:都|全|也)?(?:换|改|替换|更换)(?:成|为)",
    ),
    template(
        "zh.correction.not_but",
        "FACT",
        rf"(?<![是要还])不是(?!说|很|因为|所有|为了|我说){_ZH_OLD}[，,；;]?\s?(?:而是|是|应该是"
        rf"|改成)(?!不是|吗)",
        r"不是.{1,30}就是",
    ),
    template(
        "zh.correction.no_more",
        "FACT",
        rf"(?:不再|再也不|再不|没再|已经不|早就?不|现在不|不)(?:会|想|能|去"
        rf"|继续)?{_ZH_VERB}{_ZH_OLD}(?:工作|上班|上学|读书|生活)?(?:了|啦){_ZH_END}",
        r"不是|不在乎|受不了|用不了|不用(?:谢|麻烦|客气|担心|管|等|说|想|再)|今天|今晚|明天|这次|刚才",
    ),
    template(
        "zh.correction.not_any_longer", "FACT", rf"(?:不再|再也不){_ZH_VERB}{_ZH_OLD}(?:了|啦)?{_ZH_END}"
    ),
    template(
        "zh.correction.gave_up",
        "FACT",
        rf"(?:我们?|已经|现在|刚|都)(?:放弃|弃用|卸载|戒|戒掉|停用|停止使用|退订|卖掉"
        rf"|取消)(?:掉)?了{_ZH_OLD}{_ZH_END}",
        r"取消了(?:会议|约)",
    ),
    template(
        "zh.correction.quit",
        "FACT",
        rf"(?:我们?|已经|终于|刚|把)戒(?:掉)?(?![了指备])(?P<old>[^，,。；了]{{1,6}})了{_ZH_END}"
        rf"|把(?P<quit>[^，,。；]{{1,6}})戒(?:掉)?了",
    ),
    template(
        "zh.correction.gone",
        "FACT",
        rf"^(?P<old>[^，,。我你]{{1,12}}?)(?:早就?|早已|已经|都|也)?(?:不"
        rf"|没再)(?:再)?{_ZH_VERB}[^，,。]{{0,4}}了[，,；;]?(?:现在|改|换)"
        rf"|^(?:我)?(?:把)?(?P<past>[^，,。你]{{1,12}}?)(?:已经)?(?:卖|退|停|删|扔|注销|取消"
        rf"|送人)(?:掉)?了[，,；;]?(?:.{{0,4}})(?:换|改|现在)",
    ),
    template(
        "zh.correction.meant",
        "FACT",
        r"(?:说错|不对|更正|应该是|搞错|纠正|记错|弄错).{0,60}?[，,]?(?<![是还要])不是(?P<old>[^，"
        r",。；！!吗]{1,2"
        r"0})[。！!]*$",
    ),
    template(
        "zh.correction.rather",
        "FACT",
        rf"我[^，,。]{{0,4}}(?:用|是|喝|吃|住|在)的?(?:是)?[^，,。]{{1,20}}而不是(?P<old>[^，,。；"
        rf"！!吗]{{1,20}})"
        rf"|(?:现在|如今|改)[^，,。]{{1,20}}[，,]不(?:再)?{_ZH_VERB}(?P<past>[^，,。；！!吗了]{{1,2"
        rf"0}})[。！!]*$"
        rf"|(?:已经|早就?|再)?(?<![是要还])不是(?P<cut>[^，,。；！!吗]{{1,12}})了{_ZH_END}",
        r"不是(?:说|因为|你)",
    ),
    template(
        "zh.correction.call",
        "FACT",
        r"(?:别|不要)再?[叫喊](?:我)?(?P<old>[^，,。；]{1,12}?)了?[，,；;]?(?:请)?[叫喊]我",
    ),
    template(
        "zh.correction.before",
        "FACT",
        rf"(?:以前|之前|原来|过去|曾经|原本|本来)(?:我|我们)?(?:很|最|都|总是?|常|一直|经常)?(?:爱"
        rf"|喜欢)?(?:是)?{_ZH_VERB}?{_ZH_OLD}[，,；;。](?:但|但是|不过|可是|后来)?(?:我"
        rf"|我们)?(?:现在|如今|目前)(?:我|我们)?(?:已经|都|也)?(?:不|改|换|转|戒|搬|却|是|在|用)",
    ),
)
_NOUN = re.compile(r"^(?:the |a |an |my |our |using |in |at |on |我的|那个|这个|了)")
_PRONOUNS = frozenset(
    (
        *("it", "that", "this", "you", "him", "her", "them", "me", "us", "there"),
        *("你", "您", "他", "她", "它", "他们", "这", "那", "这个", "那个", "什么"),
    )
)
"""What names nothing by itself, so that nothing is replaced."""
_PREFERRED = re.compile(r"\b(?:prefer|love|like|enjoy|hate|favou?rite)\b|喜欢|爱吃|爱喝|讨厌|偏好|最爱")


class Correction(NamedTuple):
    """What a sentence corrects: ``old`` is the span of what holds no more in the text, empty if unnamed."""

    name: str
    category: str
    old: tuple[int, int]


def correction(seen: str) -> Correction | None:
    """The correction that a sentence, as ``read`` gives it, makes; None where it makes none."""
    found = first(ENGLISH, seen) or first(CHINESE, seen)
    if found is None:
        return None
    one, match = found
    named = match.groupdict()
    group = next((other for other in ("meant", "quit", "cut", "past") if named.get(other)), "old")
    start, end = match.span(group)
    while (prefix := _NOUN.match(seen[start:end])) is not None:
        start += prefix.end()
    end -= len(seen[start:end]) - len(seen[start:end].rstrip())
    if seen[start:end] in _PRONOUNS:
        return None
    return Correction(one.name, "PREFERENCE" if _PREFERRED.search(seen) else one.category, (start, end))
