"""Talk: sentences that are no memory: questions, requests, greetings, thanks, nods, suppositions."""

from __future__ import annotations

import re

_EN_QUESTION = re.compile(
    r"^(?:and |but |so |then |or )?(?:"
    r"(?:what|who|why|how|where|when|which|whose)(?:'s|'re|'d)?(?: (?!i\b|we\b|my\b|our\b"
    r"|he\b|she\b|they\b|it\b)\w+)? (?:is|are|was|were|do|does|did|can|could|should|would"
    r"|will|am|has|have|to|much|many|about|come)\b"
    r"|what(?:'s| a)? \w+ is\b|(?:what|how|where|who|when)(?:'s|'re)\b|what about\b"
    r"|how about\b|any (?:idea|tips|chance|suggestions|plans|thoughts)\b"
    r"|(?:do|does|did|is|are|was|were|can|could|will|would|should|shall|may|might|has|have|am"
    r"|don't|doesn't|didn't|isn't|aren't|won't|can't|couldn't|wouldn't|haven't)"
    r" (?:i|you|we|they|he|she|it|there|this|that|the|my|your|his|her|our|their|any|anyone"
    r"|someone|people)\b"
    r"|(?:i )?wonder(?:ing)? (?:if|how|what|why|whether)\b|(?:i'm |i am "
    r"|i was )(?:just )?(?:wondering|curious)\b"
    r"|have you\b|did you\b|right\W*$|correct\W*$)"
)
_ZH_QUESTION = re.compile(
    r"(?:吗|(?:你|您|们|什么|怎么|怎样|谁|哪|为什么|多少|如何)[^，,]{0,14}呢|(?<!什)么|对吧"
    r"|好吧|是吧|行不行|好不好|对不对|是不是|可以不)[。~～!！]*$"
    r"|^(?:请问|为什么|为何|怎么|怎样|如何|什么|哪|谁|多少|几点|是不是|能不能|可不可以|有没有"
    r"|要不要|会不会|该不该|难道|是否)"
    r"|^(?:你|您|他|她|它|这|那|今天|明天|现在|我们?)(?:们|是|有|能|会|在|个|该|应该|可以|想"
    r"|要|到底|都|知道|天气|觉得){0,6}(?:什么|怎么|怎样|如何|哪|谁|多少|几[点个号]|是不是|能不能"
    r"|可不可以|有没有|要不要|会不会|该不该|是否|吗|为什么)"
    r"|^(?:我|我们)?(?:想知道|想问|想请教|想了解|不知道)[^，,]{0,20}(?:什么|怎么|怎样|如何|哪"
    r"|谁|多少|是不是|能不能|有没有|是否)"
)
_TAG = re.compile(
    r"^(?:对吗|对吧|是吗|是吧|对不对|是不是|没错吧|right|correct|isn't it|don't i|do i|am i"
    r"|aren't i|didn't i|did i|is that right)\W*$"
)
"""It asks whether what was said before it is so."""
_SUPPOSES = re.compile(
    r"^(?:and |but |so )?(?:if|unless|suppose|imagine|let's say|what if|whether|i wish)\b|^(?:如果"
    r"|假如|要是|假设|倘若|万一|若是|只要)"
)
_EN_REQUEST = re.compile(
    r"^(?:(?:please|kindly|now|then|ok|okay|can you|could you|would you|will you|so|and|also"
    r"|just|hey)[, ]+){0,6}"
    r"(?:write|tell|give|show|explain|summari[sz]e|translate|help|list|make|create|generate"
    r"|find|search|recommend|suggest|describe|fix|let's|let us"
    r"|let me|compare|rewrite|shorten|correct|check|calculate|convert|draft|compose|outline"
    r"|provide|add|remove|change|continue|go on|go ahead|try"
    r"|use|look|define|solve|analy[sz]e|review|edit|pick|name|choose|read|play|open|send|book"
    r"|order|set|turn|start|stop|wait|enjoy|take care|have a"
    r"|come on|keep|stay|be careful|don't (?:worry|forget to|be|give up)|never mind|please"
    r"|improve|expand|turn|refactor|implement|run|say|ask|think|act|pretend|answer|format"
    r"|act as|feel free|check out)\b"
    r"|\bi need (?:the|this|that|it|your) (?:\w+ ){0,3}to (?:be|have|use|work|include|sound"
    r"|look)\b|\bi(?:'d| would)? (?:want|need|like) (?:you|your (?:help|advice|opinion)|help"
    r"|some (?:help|advice|ideas|tips)|an? (?:\w+ )?(?:poem|essay|recipe|summary|script|list"
    r"|story|email|letter|example|function|idea|suggestion|recommendation))\b"
    r"|^(?:can|could|would|will) you\b"
)
_ZH_REQUEST = re.compile(
    r"^(?:那|那么|现在|麻烦|请|请你|请您|你|您|快|再|能|可以|给我|帮我|帮忙|先|然后|好|来){0,6}"
    r"(?:写|翻译|解释|告诉|推荐|总结|概括|列出|列举|生成|创作|介绍|说说|讲|聊聊|分析|比较"
    r"|检查|修改|改写|润色|查|搜|算|画|编|做一|做个|举|描述|继续|展开|开始|帮[我忙助]|给我"
    r"|教我|来一|来首|来个|看看这|试试|回答|续写|扩写|整理|设计|推薦)"
    r"|(?:需要|想|要|希望|想让|麻烦)(?:请)?(?:你|您)(?:能|可以|来)?|^请(?!客|假|了)|^(?:你"
    r"|您)(?:能|可以|帮|给)"
)
_EN_SMALL = re.compile(
    r"^(?:(?:oh|ah|wow|haha\w*|lol|aww*|yeah|yes|yep|no|nope|ok|okay|sure|right|well|hm+|hey"
    r"|hi|hello|thanks?|great|nice|cool|true|absolutely|definitely|exactly|totally"
    r"|agreed)\b[,!. ]*){0,6}"
    r"(?:$|thank(?:s| you)\b|(?:good|happy) (?:morning|afternoon|evening|night|day|to hear"
    r"|idea|point|luck|for you|one)\b|hello\b|hi\b|hey\b|bye\b|goodbye\b|see you\b"
    r"|take care\b|welcome\b|no problem|no worries|you(?:'re| are)\b(?! my)|you (?:too|can"
    r"|should|know|got|always|look|really|have|must)\b"
    r"|(?:that|this|it|what)(?:'s| is|'d be| sounds| looks| would be| was| makes| must| will"
    r"|'ll| a) (?:so |such |very |really |quite |an? |absolutely |be |sense|have|truly "
    r"|a lot ){0,6}(?:\w+)\W*$"
    r"|(?:that|this|it|what)(?:'s| is| sounds| looks| would be) (?:so |such |very |really "
    r"|an? ){0,6}(?:awesome|great|nice|amazing|wonderful|cool|good|interesting|lovely|fantastic"
    r"|fun|true|right|beautiful|helpful|perfect|inspiring|incredible|impressive)\b"
    r"|sounds (?:good|great|like|fun|amazing|nice|perfect|awesome)|looks (?:good|great)"
    r"|(?:i )?got it|(?:i |we )?(?:gotta|have to|need to|got to|should|must) (?:run|go"
    r"|get going|leave|head out)(?: now)?\W*$|i see\b|i (?:totally |completely |really "
    r"|fully |just |also )?(?:agree|understand|appreciate|get it|know what|hear you|hope"
    r"|think so|guess so|bet)\b|(?:how )?(?:awesome|great|nice|amazing|wonderful|cool"
    r"|fantastic|lovely|interesting|beautiful)\b|congrat\w*|my (?:pleasure|bad)|good (?:for"
    r"|to)\b|glad\b|sorry\b|i'm (?:so |really |very |just |truly |also ){0,6}(?:glad|sorry"
    r"|happy (?:to|for|that|you)|sure|here|proud of you|fine|good|ok|well|doing"
    r"|looking forward|impressed|curious|all ears)\b|i don't (?:know|understand|think|get it"
    r"|mind|care|remember)\b|i (?:think|guess|know|suppose|believe|mean|feel|bet|imagine"
    r"|wonder) (?:you|that|it|this|so|i|the|we|they|he|she|what|how)\b(?! (?:have|am|'m|need"
    r"|prefer|love|like))|i can(?:'t)? (?:wait|imagine|see|believe|tell|relate)\b"
    r"|can't wait\b|keep (?:it )?up\b|i'd love (?:to|that)\b|i (?:would )?love (?:it|that"
    r"|this)\W*$|love (?:it|that)\W*$|i'll (?:try|check|let you know|think|keep|be sure"
    r"|definitely|do that|give it|look|have a look|take a look)\b)"
)
_ZH_SMALL = re.compile(
    r"^(?:嗯|啊|哦|噢|哈|呵呵|嘿|嗨|好的?|好吧|行|可以|没错|是的?|对的?|对啊|当然|不|哇+"
    r"|唉|嘻嘻|ok|太好了|真的){0,6}[，,！!。~～ ]*"
    r"(?:$|(?:你|您|大家|早上|晚上|下午|中午|早|晚)好|早安|晚安|早啊|再见|拜拜|回头见|明天见"
    r"|谢|多谢|感谢|非常感谢|太感谢|不客气|没关系|不用谢|别客气|没事|辛苦|抱歉|对不起"
    r"|不好意思|很高兴|高兴认识|幸会|初次见面"
    r"|(?:我)?(?:也)?(?:知道|明白|懂|了解|理解|同意|收到|记住|清楚)(?:了|啦|你)?[^，,]{0,6}$"
    r"|(?:我)?(?:会|一定会|也会|就)(?:去)?(?:试|考虑|努力|尽|加油|看一看|看看|去看|照做|注意)"
    r"|(?:听起来|看起来|那)?(?:真|太|好|很|非常|挺|确实|真的)(?:是|太)?[^，,我]{1,6}(?:了|啊"
    r"|呀|哦|呢|的)?[。！!~～]*$|(?:你|您)(?:真|太|好|说|这|也|很|可|的)"
    r"|(?:我)?(?:也)?(?:觉得|认为|相信|感觉)(?:你|您|这|那|挺|很|不错|也|是|真|还)|希望(?:你"
    r"|您|一切)|祝|加油|恭喜|没问题|原来(?:如此|这样|是这样)|有道理|说得|(?:让)?我(?:再)?想想"
    r"|我?先(?:去)?(?:忙|走|撤|下|睡|吃饭)了|我(?:说|指|问)的是|就这样"
    r"|(?:我)?(?:现在)?(?:得|要|必须|该)(?:先)?(?:走|离开|下线|睡)了|不错|哪里哪里|过奖|随便"
    r"|无所谓|我也是|我也这么|这(?:真|太|个?主意|听|很|样)|那(?:就|我就|真|太|好|你)|听你"
    r"|看来|应该(?:会|可以|没|不)|作为一个)"
)
_LETTER = re.compile(r"[^\W_]")
_NUMBERS = re.compile(r"[\d\W_]*$")


def asks(seen: str) -> bool:
    """Whether a sentence or clause, as ``read`` gives it, is a question."""
    return (
        seen.rstrip("\"'”」』)） ").endswith(("?", "？"))
        or _EN_QUESTION.match(seen) is not None
        or _ZH_QUESTION.search(seen) is not None
    )


def asks_back(seen: str) -> bool:
    """Whether it asks if what stands before it is true."""
    return _TAG.match(seen.strip()) is not None


def supposes(seen: str) -> bool:
    """Whether it only supposes something."""
    return _SUPPOSES.match(seen) is not None


def requests(seen: str) -> bool:
    """Whether it tells the assistant what to do."""
    return _EN_REQUEST.search(seen) is not None or _ZH_REQUEST.search(seen) is not None


def is_small(seen: str) -> bool:
    """Whether it says nothing that could be remembered: a greeting, thanks, a nod, no words."""
    return (
        _LETTER.search(seen) is None
        or _NUMBERS.match(seen) is not None
        or _EN_SMALL.match(seen) is not None
        or _ZH_SMALL.match(seen) is not None
    )
