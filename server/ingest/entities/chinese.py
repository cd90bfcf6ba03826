"""Entities of Chinese sentences, and what they say of these.

Nothing is segmented, so a person's name is taken only where something beside it says so: kinship, a title, or
a verb of calling. Patterns see simplified characters; names are given as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from server.ingest.entities.entity import SUBJECT, Claim, EntityKind, Mention
from server.ingest.entities.placed import Form, Forms, Placed, Told, form, matches
from server.ingest.entities.words import ANIMALS, SURNAMES, ZH_KIN, ZH_PLACES, ZH_TOOLS

_HAN = "\u4e00-\u9fff"
_FUNCTION = (
    "的了是在和跟与也都就还又很最不没有去来到说叫给把被对从让要会能想做住上下过着吗呢吧啊呀我你他她它们这那"
)
"""Characters that no given name has here: they begin what comes after it."""
_GIVEN = f"(?:(?![{_FUNCTION}])[{_HAN}])"
_NO_SMALL = "时心学孩板师家说伙朋偷组区麦吃众声型气看实乡人姐妹弟哥爸妈公婆虎鼠鹰年大二三外"
_SMALL = rf"(?:[小老阿](?![{_NO_SMALL}]){_GIVEN})"
_LATIN = r"[A-Z][a-z]+(?: [A-Z][a-z]+)?"
_AFTER = (
    rf"(?=[{_FUNCTION}，。！？、；：,.!?;:\s（）()“”\"]|今[年天]|明[天年]|昨天|喜欢|负责|工作|下[个周]|$)"
)
_PERSON = rf"(?:{_SMALL}{_AFTER}|[{SURNAMES}]{_GIVEN}{{1,2}}{_AFTER}|{_LATIN})"
_CALLED = rf"(?:[{_HAN}]{{1,4}}?(?=[，。！？、；,.!?;\s]|今年|在|是|的|和|也|$)|{_LATIN})"
_KIN = "|".join(sorted(ZH_KIN, key=len, reverse=True))
_I = r"(?P<self>我们?|本人|咱们?|俺|用户)"
_MY = r"(?:我们?|咱们?|俺|用户)(?:的|家的?|家里的?)?"
_ADVERB = (
    r"(?:现在|目前|一直|已经|刚刚?|今年|最近|也|都|还|就|仍然?|依然|平时|主要|其实|去年|后来|终于|真的|经常"
    r"|一般|通常|每天|每周|现|正){0,4}"
)
_WHO = rf"(?:{_I}|(?:{_MY}(?:{_KIN}))?(?P<who>{_PERSON}))"
_GOING_ON = rf"(?<=[，,])(?P<self>){_ADVERB}"
"""A clause that goes on about the speaker, where the one before is about nobody else."""
_PLACE = rf"(?P<what>{'|'.join(ZH_PLACES)})"
_TOOL = rf"(?P<what>{'|'.join(ZH_TOOLS)}|[A-Za-z][A-Za-z0-9+#.-]*(?: [A-Z][A-Za-z0-9+#.-]*){{0,3}})"
_TOOL2 = _TOOL.replace("?P<what>", "?P<new>")
_TITLES = "老师|医生|教授|博士|经理|主任|先生|女士|律师|师傅|院长|校长|教练|阿姨|叔叔|总监|同学"
_TITLED = re.compile(rf"(?<![{SURNAMES}])(?P<name>[{SURNAMES}]{_GIVEN}{{0,2}}?(?:{_TITLES}))")
_SMALL_NAME = re.compile(rf"(?P<name>[小老阿](?<![{_HAN}].)[{SURNAMES}]{_AFTER})")
_FIRM_ENDS = (
    "有限公司|公司|集团|银行|大学|学院|医院|研究院|研究所|中学|小学|工作室|实验室|事务所|出版社"
    "|博物馆|基金会|科技"
)
_ORGANISATION = re.compile(
    rf"(?:^|(?<=[{_FUNCTION}，。！？、；：,;:\s“”《》于入任比]))(?P<name>(?:(?!喜欢|觉得|参观|想|[{_FUNCTION}于])[{_HAN}A-Za-z]){{2,10}}"
    rf"(?:{_FIRM_ENDS}))"
)
_NO_ORGANISATION = re.compile(
    r"^(?:一家|这家|那家|某|一个|两家|几家|每家|哪家|本|分|总|子|母|新|老|大|小|原|前|我们|自己|上市|互联网|科技|外国|外资|国企|私人|人民"
    r"|第一|读|上|考|念|省|市|县|附近|隔壁|旁边)(?:公司|集团|银行|大学|学院|医院|研究院|中学|小学|实验室)?"
)
_PROJECT = re.compile(
    rf"[「“\"『](?P<quoted>[^「」“”\"『』]{{1,16}})[」”\"』]\s?(?:这个|的)?(?:项目|计划|系统|平台)"
    rf"|(?:负责|参与|主导|跟进|加入|推进|启动|接手)(?:了|的是|着)?(?P<plain>(?:(?!的|了|一个|这个|那个|新|公司|几个)[{_HAN}]){{2,6}}"
    r"|[A-Za-z][A-Za-z0-9-]*)\s?项目"
)
_PROJECT_ENDS = "项目|计划|系统|平台"
_TITLE_OF_WORK = re.compile(r"《(?P<name>[^《》]{1,30})》")
_PLACES = re.compile("|".join(ZH_PLACES))
_TOOLS = re.compile("|".join(ZH_TOOLS))
_NOT_PLACE = re.compile(
    r"(?:北京烤鸭|重庆火锅|四川火锅|扬州炒饭|兰州拉面|云南白药|中国人|日本人|韩国人|法国人|德国人|英国人|美国人|意大利面)"
)

_MENTIONS_KIN = re.compile(f"{_MY}(?:{_KIN})")
"""All of these patterns have this."""
_KINSHIP = (
    re.compile(rf"{_MY}(?P<kin>{_KIN})(?:的名字)?(?:名叫|叫做?|是)(?P<name>{_CALLED})(?![老师医])"),
    re.compile(rf"{_MY}(?P<kin>{_KIN})[，,]?(?P<name>{_PERSON})"),
    re.compile(
        rf"(?P<name>{_PERSON}|{_LATIN}|[{_HAN}]{{2,4}}(?=就?是{_MY}(?:{_KIN})))\s?(?:就)?是{_MY}(?P<kin>{_KIN})(?![的家])"
    ),
)
_WORK = r"(?:上班|工作|任职|就职|实习|做事|当[^，。！？的]{1,8}|做[^，。！？的]{1,8}|担任[^，。！？的]{1,8})"
_IN = r"(?<![不现正实])在"
_FIRM = rf"(?P<what>(?!不|没)(?:(?!的|里面|上班|工作|任职|就职|实习)[{_HAN}A-Za-z0-9·&.\- ]){{2,16}}?)"
_LIKED = r"(?P<thing>[^，。！？、；,.!?;\s…~～]{1,12})"

_FORMS = Forms(
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_I}{_ADVERB}(?:不|没有?|不再)(?:再)?在{_FIRM}{_WORK}了",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_I}{_ADVERB}从{_FIRM}(?:离职|辞职|跳槽|退休|走人)",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_I}(?:以前|之前|曾经?|原来)在{_FIRM}{_WORK}",
        ended=True,
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_WHO}{_ADVERB}{_IN}{_FIRM}{_WORK}(?!过)",
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_GOING_ON}{_IN}{_FIRM}{_WORK}(?!过)",
    ),
    *form(
        "works_at",
        EntityKind.ORGANISATION,
        "班 工作 职 习 做事 当 做 任",
        rf"{_WHO}{_ADVERB}(?:就职于|任职于|入职了?|跳槽到了?|供职于)(?P<what>[{_HAN}A-Za-z0-9·&]{{2,16}}?)"
        r"(?=[，。！？、；,.!?;\s]|$|了|做|当|担任|的)",
    ),
    *form(
        "studies_at",
        EntityKind.ORGANISATION,
        "大学 学院 中学 小学",
        rf"{_WHO}{_ADVERB}(?:在|就读于)(?P<what>[{_HAN}A-Za-z]{{1,12}}(?:大学|学院|中学|小学))(?:读|上学|念|学习|，|。|$)",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "住 居 搬 生活 人在",
        rf"{_I}{_ADVERB}(?:不住在?|不再住在?|没住在?)(?P<what>[{_HAN}]{{2,8}}?)了",
        ended=True,
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "住 居 搬 生活 人在",
        rf"{_I}{_ADVERB}从{_PLACE}(?:搬走|搬出来|搬离)",
        ended=True,
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "住 居 搬 生活 人在",
        rf"{_I}(?:以前|之前|曾经?|原来)(?:住在?|在){_PLACE}(?:住|生活|[，。]|$)?",
        ended=True,
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "住 居 搬 生活 人在",
        rf"{_WHO}{_ADVERB}(?:住在|定居在?|生活在|搬到了?|搬去了?|搬家到了?|移居到?)"
        rf"(?P<what>(?:(?![的了])[{_HAN}]){{2,10}}?)(?=[，。！？、；,.!?;\s]|$|了|的|已经|很久|多年|[一二三四五六七八九十两几\d]+年|生活|工作)",
    ),
    *form(
        "lives_in",
        EntityKind.PLACE,
        "住 居 搬 生活 人在",
        rf"{_WHO}{_ADVERB}(?:住|人在){_PLACE}(?:[^，。！？\s]{{0,4}}[区县市])?",
    ),
    *form("lives_in", EntityKind.PLACE, "住 居 搬 生活 人在", rf"{_WHO}{_ADVERB}在{_PLACE}(?:生活|定居|住)"),
    *form(
        "from",
        EntityKind.PLACE,
        "来自 老家 家乡 是",
        rf"{_WHO}{_ADVERB}(?:来自|老家在|老家是|家乡在|家乡是|是){_PLACE}(?:人|[，。！？]|$)",
    ),
    *form("from", EntityKind.PLACE, "来自 老家 家乡 是", rf"(?P<self>我)的?(?:老家|家乡)(?:在|是){_PLACE}"),
    *form(
        "uses",
        EntityKind.PRODUCT,
        "用 换 卸载",
        rf"{_I}{_ADVERB}(?:不再用|再也不用|不用|不使用|卸载了?|弃用了?)\s?{_TOOL}\s?了",
        ended=True,
    ),
    *form(
        "uses",
        EntityKind.PRODUCT,
        "用 换 卸载",
        rf"{_WHO}{_ADVERB}(?:在)?(?:用的是|用|使用|改用|换成|换到|转用|开始用|换用)了?\s?{_TOOL}",
    ),
    *form(
        "uses",
        EntityKind.PRODUCT,
        "用 换 卸载",
        rf"{_GOING_ON}"
        rf"(?:用|使用|改用|换成|换到|转用|换用)了?\s?{_TOOL}",
    ),
    *form(
        "lives_in", EntityKind.PLACE, "住 居 搬 生活 人在", rf"{_GOING_ON}(?:搬到了?|搬去了?|住在){_PLACE}"
    ),
    *form(
        "allergic_to",
        EntityKind.THING,
        "过敏",
        rf"{_WHO}{_ADVERB}对(?P<thing>[^，。！？、；\s]{{1,8}}?)(?:严重|有点)?过敏",
    ),
    *form(
        "likes",
        EntityKind.THING,
        "喜欢 爱 迷上",
        rf"{_I}{_ADVERB}(?:不再|再也不|已经不)(?:喜欢|爱){_LIKED}",
        ended=True,
    ),
    *form(
        "dislikes",
        EntityKind.THING,
        "喜欢 爱 讨厌 厌恶 受不了 反感",
        rf"{_WHO}{_ADVERB}(?:很|最|特别|非常|超级?|挺|比较|都|从来|一直){{0,2}}"
        rf"(?:不(?:太|怎么|是很|大)?喜欢|不爱(?=吃|喝|看|听|玩)|讨厌|厌恶|受不了|反感){_LIKED}",
    ),
    *form(
        "likes",
        EntityKind.THING,
        "喜欢 爱 迷上",
        rf"{_WHO}{_ADVERB}(?:很|最|特别|非常|超级?|挺|比较|更|从小|一直){{0,2}}"
        rf"(?:喜欢|热爱|偏爱|钟爱|迷上了?|爱上了?|爱(?=吃|喝|看|听|玩)){_LIKED}",
    ),
    *form(
        "works_on",
        EntityKind.PRODUCT,
        "项目",
        rf"{_WHO}{_ADVERB}(?:负责|在做|参与|主导|在跟进|接手)(?:了|的是)?[「“\"『]?(?P<what>(?:(?!的|了|一个|这个|那个|新|公司|几个)[{_HAN}]){{2,8}}?|[A-Za-z][A-Za-z0-9-]*)[」”\"』]?\s?项目",
    ),
)
_STARTS = re.compile(f"[，,我本咱俺用小老阿{SURNAMES}A-Z]")
"""Where these patterns begin: with whom they are about, or behind a comma."""
_SWITCHED = re.compile(rf"{_I}{_ADVERB}从\s?{_TOOL}\s?(?:换成|换到|改用|转到|切换到)了?\s?{_TOOL2}")
_UNSURE = re.compile(
    r"(?:如果|要是|假如|希望|想要?|打算|计划|准备|可能|也许|或许|考虑|以为|说|梦见|建议|据说|听说)[^，。；]*$"
)
_PASSED = re.compile(r"(?:以前|之前|曾经?|原来|过去|小时候|当时|那时候?)[^，。；]*$")
_GENERIC_FIRM = re.compile(
    r"^(?:一[家个所间]|当前|现在|学习|研究|看|找|思|考虑|热|做|写|读|听|玩|等|想|忙|准备|努力|很|也|都|比|学|不|没|这|那|某|哪|什么|家里?$|家附近|公司$|外面|外地|国外|国内|学校$|医院$|银行$|单位$|工厂$|办公室|老家|线上|网上|同一"
    r"|现在|我|他|她|你|自己|新|几|两|互联网|外企|国企|私企|深夜|晚上|周末|早上|下午|旁边|附近|楼|大厂|创业公司|初创)"
)
_GENERIC_PLACE = re.compile(
    r"^(?:一|这|那|某|哪|什么|家里?|学校|公司|酒店|宿舍|外面|别处|新家|郊区|市区|市中心|城里|乡下|农村|隔壁|附近|楼上|楼下|同|我|他|她|你|自己|父母|爸|妈|朋友|亲戚|国外|国内|海边|山里|城|小区|公寓|里|医院)"
)
_NO_THING = re.compile(
    r"^(?:让|尝试|电影中|你|您|我|他|她|它|这|那|什么|谁|哪|怎么|的|上了|过|吗|呢|吧|了|和|跟|在|有|把|被|给|一个人|一起|听你|跟你|这样|大家|自己|别人|人家)|的$|你|什么|[吗呢吧]"
)
_THING_ENDS = re.compile(r"(?:了|啊|呀|哦|啦|的时候.*|时.{0,2}$|因为.*|但.*|所以.*|而且.*|和你.*|吗.*|呢.*)$")


_NAMED = tuple(
    (re.compile(sign), pattern, group, kind)
    for sign, pattern, group, kind in (
        (_TITLES, _TITLED, "name", EntityKind.PERSON),
        ("[小老阿]", _SMALL_NAME, "name", EntityKind.PERSON),
        ("《", _TITLE_OF_WORK, "name", EntityKind.NAME),
        (_FIRM_ENDS, _ORGANISATION, "name", EntityKind.ORGANISATION),
        (_PROJECT_ENDS, _PROJECT, "", EntityKind.PRODUCT),
    )
)
"""What names are found by, each with something that it always has, which is found sooner."""


def entities(seen: str, text: str) -> Iterator[Placed]:
    """What the sentence names, each with its place; ``seen`` is ``text`` in simplified characters."""
    for sign, pattern, group, kind in _NAMED:
        for match in pattern.finditer(seen) if sign.search(seen) is not None else ():
            if kind is EntityKind.ORGANISATION and _NO_ORGANISATION.match(match["name"]):
                continue
            yield _placed(text, match, group or ("quoted" if match["quoted"] else "plain"), kind)
    for match in _PLACES.finditer(seen):
        if not _NOT_PLACE.match(seen, match.start()):
            yield _placed(text, match, 0, EntityKind.PLACE)
    for match in _TOOLS.finditer(seen):
        yield _placed(text, match, 0, EntityKind.PRODUCT)


def _placed(text: str, match: re.Match[str], group: str | int, kind: EntityKind) -> Placed:
    start, end = match.span(group)
    return Placed(start, end, Mention(text[start:end], kind))


def claims(seen: str, text: str) -> Iterator[Told]:
    """What the sentence says of what it names."""
    for pattern in _KINSHIP if _MENTIONS_KIN.search(seen) is not None else ():
        for match in pattern.finditer(seen):
            start, end = match.span("name")
            if _is_name(seen[start:end]):
                kin = ZH_KIN[match["kin"]]
                kind = EntityKind.NAME if kin in ANIMALS else EntityKind.PERSON
                yield Told(start, Claim(SUBJECT, kin, Mention(text[start:end], kind)))
    starts = [one.end() if one[0] in "，," else one.start() for one in _STARTS.finditer(seen)]
    if not starts:
        return
    for match in matches(_SWITCHED, seen, starts) if "从" in seen else ():
        for group, ended in (("what", True), ("new", False)):
            product = Mention(text[slice(*match.span(group))], EntityKind.PRODUCT)
            yield Told(match.start(group), Claim(SUBJECT, "uses", product, ended))
    for one in _FORMS.within(seen):
        for match in matches(one.pattern, seen, starts):
            if (told := _told(seen, text, match, one)) is not None:
                yield told


_SELF, _OTHERS = re.compile("我|本人|用户"), re.compile(f"[他她它你您]|{_KIN}")
_NO_NAME = re.compile(
    rf"[{_FUNCTION}]|^(?:许多|一|个|什么|谁|哪|怎|真|非常|特别|医生|老师|工程师|学生|律师|护士|程序员|个)|[师员生家工长]$"
)


def _is_name(name: str) -> bool:
    return bool(name) and _NO_NAME.search(name) is None


def _told(seen: str, text: str, match: re.Match[str], one: Form) -> Told | None:
    before, kind = seen[: match.start()], one.kind
    if _UNSURE.search(before) or (not one.ended and _PASSED.search(before + match[0][:6])):
        return None
    subject = SUBJECT
    if match["self"] == "" and (_OTHERS.search(before) or not _SELF.search(before)):
        return None
    if match["self"] is None:
        start, end = match.span("who")
        if not _is_name(seen[start:end]):
            return None
        subject = Mention(text[start:end], EntityKind.PERSON)
    group = "thing" if "thing" in match.re.groupindex else "what"
    start, end = match.span(group)
    name = seen[start:end].strip()
    if group == "thing":
        name = _THING_ENDS.sub("", name)
        if not name or _NO_THING.search(name):
            return None
    if kind is EntityKind.ORGANISATION and (_GENERIC_FIRM.match(name) or _PLACES.fullmatch(name)):
        return None
    if kind is EntityKind.PLACE and _GENERIC_PLACE.match(name):
        return None
    start += len(seen[start:end]) - len(seen[start:end].lstrip())
    return Told(
        start, Claim(subject, one.relation, Mention(text[start : start + len(name)], kind), one.ended)
    )
