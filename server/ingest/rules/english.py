"""English templates, the first that fits decides."""

from __future__ import annotations

from server.ingest.rules.english_words import (
    ADVERB,
    ARRANGED,
    BARE_PAST,
    COURTESY,
    LIKE,
    LIKES,
    MENTAL,
    MOOD,
    MY,
    NO_EVENT,
    NOT_LIKED,
    PAST,
    PLAN,
    PLANNING,
    SAID,
    SPEAKER,
    SPEAKER_IS,
    STATE,
    VAGUE,
)
from server.ingest.rules.template import Template, When, template

PERSONAL: tuple[Template, ...] = (
    template(
        "en.preference.favourite",
        "PREFERENCE",
        r"\b(?:my|our)\b.{0,60}\bfavou?rites?\b|\bfavou?rites? (?:of mine|of ours)\b"
        r"|\b(?:my|our) (?:\w+ )?(?:hobby|hobbies|passion|preference|pet peeve|guilty pleasure"
        r"|go-to)\b"
        r"|\bdrives me (?:crazy|mad|nuts)\b|\bi have a (?:weakness|soft spot|passion|thing) for\b"
        r"|\bfavou?rite\b.{0,40}\bis\b",
    ),
    template(
        "en.preference.rather",
        "PREFERENCE",
        r"^can't (?:stand|get enough|live without)\b|\bhit with me\b|\b(?:i"
        r"|we) (?:\w+ )?(?:go for|choose|pick|take) .{1,40} over\b"
        r"|\b(?:best|better|worst|favou?rite)\b.{0,30}\bfor me\b|\b(?:things?|food|music"
        r"|part) (?:that )?(?:i|we) (?:really )?(?:love|like|hate|dread|enjoy)\b"
        r"|\b(?:i|we)(?:'d| would) (?:much |really )?(?:rather|prefer|sooner)\b"
        r"|\b(?:i|we)(?: really| just)? (?:can't|cannot|can not|could never) (?:stand|bear|abide"
        r"|tolerate|live without|get enough)\b",
    ),
    template(
        "en.preference.fond",
        "PREFERENCE",
        rf"{SPEAKER_IS}{ADVERB}(?: not)?{ADVERB} (?:into|fond of|keen on|crazy about|passionate about"
        rf"|obsessed with"
        r"|addicted to|partial to|interested in|sick of|tired of|afraid of|scared of|terrified of"
        r"|hooked on"
        r"|a sucker for|an? (?:\w+ )?(?:fan|lover) of|big on|allergic to (?:mornings|meetings))\b"
        rf"|{SPEAKER_IS} (?:\w+ )?an? (?:\w+ )?(?:\w+ )?(?:lover|person|fan|enthusiast|fanatic|buff"
        rf"|junkie)\b",
        r"\b(?:into|of|in) (?:it|that|this)\W*$|\binterested in (?:hearing|knowing)",
    ),
    template("en.preference.like", "PREFERENCE", rf"{SPEAKER}{ADVERB} {LIKE} \S", NOT_LIKED),
    template(
        "en.preference.liked",
        "PREFERENCE",
        rf"{SPEAKER}{ADVERB} (?:loved|liked|enjoyed|hated|preferred|adored)\b",
        rf"\b(?:loved|liked|enjoyed|hated|preferred|adored) {VAGUE}\W*$",
    ),
    template("en.preference.kin", "PREFERENCE", rf"{MY} (?:really |also |just |absolutely )?{LIKES}\b"),
    template(
        "en.preference.mixed",
        "PREFERENCE",
        rf"(?:\b(?:my|our) \S+|\bmy \S+ \S+) {LIKES}\b|我们? ?(?:really |also )?{LIKE}\b",
    ),
    template(
        "en.preference.want",
        "PREFERENCE",
        r"\b(?:i|we)(?: (?:really|just|also|always|don't|only|do)){0,6} want (?!to\b|you|your"
        r"|it\b|that\b|this\b|some (?:help|advice))\w",
    ),
    template(
        "en.task.need",
        "TASK",
        r"\b(?:i|we)(?: (?:really|just|also|still)){0,6} need (?!to\b|you|your|it\b|that\b|this\b"
        r"|help|some (?:help|advice)|them|more|all)\w",
        when=When.AHEAD,
    ),
    template(
        "en.event.coming",
        "EVENT",
        rf"{MY}(?:'s|'ll)? (?:is|are|will|starts?|leaves?|arrives?|comes?|turns?|gets?|graduates?"
        rf"|has|have)\b",
        r"\b(?:since|was|were|deadline|need|have to|has to)\b",
        When.AHEAD_NAMED,
    ),
    template(
        "en.task.moved",
        "TASK",
        r"\b(?:moved|postponed|rescheduled|pushed|brought forward|delayed|changed"
        r"|shifted) (?:back |forward )?(?:to|until|till)\b",
        when=When.AHEAD_NAMED,
    ),
    template(
        "en.self.born",
        "FACT",
        r"\b(?:i|we)(?: \w+)? (?:was|were) (?:born|raised)\b|\bi grew up\b|\bmy birthday\b",
    ),
    template(
        "en.event.past",
        "EVENT",
        rf"{SPEAKER}{ADVERB} {PAST}(?!['\w])",
        rf"{SPEAKER}{ADVERB} (?:{SAID}|{STATE})\b|{NO_EVENT}",
        When.BEHIND,
    ),
    template(
        "en.event.kin",
        "EVENT",
        rf"{MY}{ADVERB}(?:'s)? {PAST}(?!['\w])",
        rf"{MY}{ADVERB} (?:{SAID}|{STATE})\b",
        When.BEHIND,
    ),
    template(
        "en.event.bare",
        "EVENT",
        rf"^(?:just |also |finally |recently |already |even |then ){{0,6}}{BARE_PAST} ",
        when=When.BEHIND,
    ),
    template(
        "en.task.plan",
        "TASK",
        rf"\b(?:i|we){PLAN}|{PLANNING}|^(?:need|have|got|must) to \w+|^(?:gotta|gonna"
        rf"|planning (?:on|to)|hoping to) ",
        COURTESY,
        When.AHEAD,
    ),
    template(
        "en.task.arranged",
        "TASK",
        rf"{ARRANGED}|\b(?:must|has to|have to|needs to|need to|should) be\b",
        r"\b(?:was|were|had|went)\b",
        When.AHEAD_NAMED,
    ),
    template(
        "en.task.dated",
        "TASK",
        r"\b(?:i|we)(?:'ll| will| should| shall| have| 've got|'ve got|'m|'re| am| are| can"
        r"| leave| start| fly)\b",
        r"\b(?:i|we)(?:'ve| have)? (?:had|was|were|went)\b|\b(?:was|were|today)\b",
        When.AHEAD_NAMED,
    ),
    template(
        "en.task.wanted",
        "TASK",
        r"\b(?:wants?|needs?|expects?|requires?|asked for|asks for)\b.{1,60}\b(?:by|before|until)\b",
        when=When.AHEAD_NAMED,
    ),
    template(
        "en.task.due",
        "TASK",
        r"\b(?:my|our|the) (?:\w+ ){0,3}(?:deadline|appointment) is\b|\bis due\b",
        when=When.AHEAD,
    ),
    template(
        "en.event.dated",
        "EVENT",
        rf"^(?:yesterday|last (?:night|week\w*|month|year|\w+day))\b|{SPEAKER}{ADVERB} (?:\w+ed"
        rf"|{PAST}|was|were|had)\b|\b(?:my|our|the|it|he|she|they"
        rf"|we) (?:\w+ ){{0,3}}(?:was|were|had|{PAST})\b",
        rf"\bsince (?:19|20)\d\d\b|(?:'ve| have){ADVERB} {STATE}\b|\bi wish\b",
        When.BEHIND_NAMED,
    ),
    template("en.event.baby", "EVENT", r"\bexpecting (?:a|our|my) (?:\w+ )?(?:baby|child)\b"),
    template(
        "en.event.had",
        "EVENT",
        r"\b(?:i|we)(?: just| also| recently)? had (?:an?|the|my|our|to|some|so|our first)\b",
        when=When.BEHIND,
    ),
    template(
        "en.self.be",
        "FACT",
        rf"{SPEAKER_IS} (?!{MOOD})[a-z0-9_]|\b(?:i was|we were|i've always|i wasn't) (?!{MOOD})\w",
    ),
    template(
        "en.self.kin",
        "FACT",
        rf"{MY}(?:'s|'re)? (?:{ADVERB} )?\w+",
        r"\bmy (?:friend|bad|pleasure|dear)\W*$",
    ),
    template(
        "en.self.mine",
        "FACT",
        r"^(?:\w+ ){0,3}?(?:my|our) (?:\S+ ){1,5}?(?:is|are|was|were|has|have|had|isn't|aren't"
        r"|lives?|works?|starts?|needs?|goes|makes?|means?|helps?)\b",
        r"\bmy (?:question|point|bad|pleasure|apologies|guess|understanding|opinion|fault|dear)\b",
    ),
    template(
        "en.self.me",
        "FACT",
        r"\b(?:said|says|advised|recommended|told (?:me|us))(?: that)? (?:i|we) (?:should|must"
        r"|have to|need to|can't|cannot|can)\b"
        r"|\b(?:to|for|with|of|makes?|made|helps?|helped|helping|lets?|gives?|gave|given|allow(?:s"
        r"|ed)|inspire[sd]?|reminds?|reminded|keeps?|kept|taught|teaches|brings?|brought|got|had"
        r"|tells?|told|shows?|showed|\w{3,}ed) (?:me|us)\b(?:.{12}|(?<=.{16}))"
        r"|\w.{12}\b(?:important|special|dear|hard|easy|tough|new|huge|good|big) (?:to|for) (?:me|us)\b",
        r"\b(?:tell|told|give|show|help|let) me (?:about|more|know|how|what|if|why)\b|\byou(?:'ve"
        r"| have)? (?:\w+ )?(?:gave|given|made|make|help\w*|taught|brought|got|keep|told) me\b",
    ),
    template(
        "en.self.still",
        "FACT",
        r"^been (?:\w+ ){1,3}(?:since|for)\b|^(?:been|still|currently|just|recently|lately"
        r"|also) (?:been )?(?:\w+ )?(?:\w+ )?\w+ing\b|^(?:haven't|hasn't|never|didn't) \w+ \w",
        r"^\w+ (?:wondering|checking|saying|asking|kidding|curious)|^never (?:mind|know)",
    ),
    template(
        "en.self.not",
        "FACT",
        rf"\b(?:i|we)(?: (?:really|usually|also|still|just)){{0,6}} (?:don't|do not|never|can't|cannot"
        rf"|can not|won't|will never|haven't|have never|didn't"
        rf"|couldn't|hardly|rarely|'ve never|no longer)(?: (?:really|ever|usually|even|actually"
        rf"|yet|want to)){{0,6}} (?!{MENTAL}\b)\w{{2,}} ?\w",
        r"\bcan(?:'t|not) (?:wait|believe|agree|help|say|tell|imagine|decide|think|complain|see"
        r"|find|figure|go wrong|do it)\b",
    ),
    template(
        "en.self.do",
        "FACT",
        rf"\b(?:i|we)(?:'ve been)?{ADVERB} (?!{MENTAL}\b)[a-z]{{2,}} \S",
        rf"\b(?:love|like|hate|enjoy)d? {VAGUE}\W*$|\bhave an? (?:idea|question|feeling|look)\b",
    ),
    template(
        "en.self.have",
        "FACT",
        r"\b(?:i|we)(?:'ve got|'ve had| have got| have| had| do have)(?: (?:also|always|only"
        r"|never|just|been)){0,6} (?:an?|the|two|three|four|five|six|many|several|some|no|any|my|our"
        r"|\d+|been|\w+ \w+)\b"
        r"|\bi can (?:eat|drink|speak|play|cook|drive|swim|only|ride|sing|dance|read)\b"
        r"|\bmine is\b|\bused to \w+"
        r"|\bi (?:believe in|belong to)\b|^(?!who|what|this|that|it)[\w' ]{1,30} (?:is|are|was"
        r"|were) (?:my|our) \w"
        r"|^\w+(?: \w+){0,4} (?:is|are) (?:called|named) \w",
        r"\bhave (?:an? (?:question|nice|good|great|look|idea|feeling|point)|no (?:idea|clue"
        r"|problem|question)|to say|you (?:\w+ )?)"
        r"|\bhave some questions\b|\bhave one more question\b",
    ),
)
