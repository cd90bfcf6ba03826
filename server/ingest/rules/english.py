"""English templates, the first that fits decides."""

from __future__ import annotations

from server.ingest.rules.template import Template, When, template

_ADVERB = (
    r"(?: (?:really|just|also|absolutely|usually|always|still|generally|mostly|actually"
    r"|honestly|simply|too"
    r"|personally|definitely|often|never|truly|totally|much|quite|even|especially"
    r"|particularly|only|now|both"
    r"|currently|recently|finally|already|normally|typically|sometimes|rarely|very|so|pretty"
    r"|kind of|sort of"
    r"|do|did|don't|do not|didn't|did not|would|have|had|been|all|first|once|then|secretly)){0,6}"
)
_I = r"\b(?:i|we)(?:'ve|'d)?"
_I_AM = r"\b(?:(?:i'm|i am|we're|we are)|(?:i|we)(?:'ve| have) (?:always |never )?been)"
_KIN = (
    r"(?:mother|father|mum|mom|dad|parents?|sister|brother|sibling|son|daughter|kids?|child"
    r"|children|baby|wife"
    r"|husband|partner|girlfriend|boyfriend|fianc\w+|grand\w+|granny|grandma|uncle|aunt"
    r"|cousin|niece|nephew"
    r"|family|friends?|best friend|boss|manager|colleagues?|coworkers?|team|roommate|flatmate"
    r"|neighbou?rs?|dog"
    r"|cat|pet|puppy|kitten|parrot|horse|teacher|doctor|twins?|in-laws|company|office|school"
    r"|flat|house|landlord)"
)
_MY = (
    rf"(?:\b(?:my|our) (?:\w+ ){{0,2}}?{_KIN}|\b(?:an?|two|some) (?:\w+ )?\w+ of (?:mine|ours"
    rf"|my \w+))(?:,? (?!(?:is|are|was|were|has|have|had)\b)\w+,?)?"
)
_LIKE = r"(?:prefer|dread|love|adore|like|enjoy|hate|dislike|detest|loathe|despise|favou?r)"
_LIKES = (
    r"(?:prefers|loves|adores|likes|enjoys|hates|dislikes|can't stand|is (?:really )?into"
    r"|is afraid of)"
)
_VAGUE = (
    r"(?:it|that|this|you|them|these|those|your (?:\w+ ?){1,3}|how you|the idea|that idea"
    r"|the sound of that)"
)
_NOT_LIKED = (
    rf"\b{_LIKE} (?:{_VAGUE}(?: so much| too| a lot)?\W*$|to (?:know|ask|hear|see if|think)\b"
    rf"|you|hearing)"
    r"|\bi(?:'d| would) (?:love|like) (?:to (?:hear|know|see|help|join|chat|talk|ask|thank)"
    r"|that|it|you\b|some)"
    r"|\b(?:feel|looks?|sounds?|seems?) like\b"
)
_PAST = (
    r"(?:(?!(?:need|feed|speed|bleed|succeed|proceed|exceed|embed)\b)\w{2,}ed|went|met|got"
    r"|bought|sold|made|took|came|saw|began|broke|brought|built|caught|chose|drove|ate"
    r"|fell|flew|forgot|found|gave|grew|held|hurt|kept|left|lent|lost|paid|quit|ran|read|rode"
    r"|rang|sent|set|sang"
    r"|slept|spent|spoke|stole|swam|taught|threw|won|wrote|woke|did|drank|hit|put|shot|shut"
    r"|built|beat|bit"
    r"|became|celebrated|split|hung|led|lit|wore|dug|drew|stood|stuck|told|signed up|gone"
    r"|taken|seen|been to|done|begun"
    r"|driven|eaten|flown|ridden|broken|chosen|written|worn|spoken|fallen|given|grown|become)"
)
_NO_EVENT = (
    r"(?:\bnever\b|\b(?:every|each|usually|often) |\bi wish\b|(?:'ve| have) got\b"
    r"|\bsince (?:i|we)(?: last)? (?:talked|spoke|met|chatted|caught up|saw|last)\b"
    r"|\byou (?:know|said|told|asked) )"
)
_BARE_PAST = (
    r"(?:went|met|got|bought|sold|took|saw|began|caught|drove|ate|flew|found|gave|grew|lost"
    r"|ran|sent|spent|won|wrote|had"
    r"|started|finished|visited|moved|joined|signed up|watched|played|tried|cooked|baked"
    r"|painted|hiked|attended|passed"
    r"|worked|volunteered|celebrated|adopted|enrolled|graduated|learned|booked|made)"
)
_STATE = (
    r"(?:(?:liv|work|studi|play|suffer|serv|car|us|own|rais|belong|speciali[sz]|train|major"
    r"|graduat)ed|grew up"
    r"|was born|were born|was raised|were raised|taught|ran a)"
)
_SAID = (
    r"(?:thought|wanted|hoped|needed|meant|asked|wondered|figured|guessed|assumed|agreed"
    r"|appreciated|noticed"
    r"|supposed|believed|mentioned|tried|liked|loved|enjoyed|hated|preferred|used)"
)
_MENTAL = (
    r"(?:think|guess|know|see|mean|hope|wonder|agree|understand|appreciate|feel|believe"
    r"|suppose|get|hear|wish"
    r"|bet|doubt|promise|swear|apologi[sz]e|thank|trust|say|ask|admit|assume|imagine|remember"
    r"|figure|recommend"
    r"|suggest|notice|want|need|hope|care|mind|expect|completely|totally|fully|could|would"
    r"|might|may|shall|can"
    r"|will|must|should|was|were|am|do|did|don't|didn't|have|had|cannot|can't|won't|couldn't"
    r"|wouldn't|haven't"
    r"|thought|knew|heard|meant|hoped|wished|guessed|wondered|figured|asked|said|told|wanted"
    r"|look forward|came|see|seem|look|go ahead|give up|just|really|also|so|too|honestly"
    r"|actually|think|and|or)"
)
_MOOD = (
    r"(?:not |so |very |really |just |also |still |pretty |quite |too |all |a bit |a little "
    r"|feeling |glad |now ){0,6}"
    r"(?:sorry|glad|happy|sure|fine|good|ok|okay|well|great|curious|wondering|here|there|back"
    r"|excited|proud"
    r"|looking|trying|thinking|confused|ready|done|impressed|grateful|thankful|sad|tired"
    r"|bored|busy|hungry|right"
    r"|wrong|certain|afraid that|afraid i|afraid not|asking|talking|saying|thrilled|pleased"
    r"|honou?red|lucky|aware"
    r"|delighted|always here|amazed|surprised|joking|kidding|guessing|stoked|jealous"
    r"|blessed|relieved|feeling|hoping|telling|wishing|doing (?:well|great|good|fine|ok)"
    r"|(?:off|on it|in|going)\W*$)\b"
)
_COURTESY = (
    r"\b(?:need|want|have|hope|like|going|got|ought)(?:'s)? to (?:know|ask|say|see if|admit"
    r"|agree|thank|tell you"
    r"|confess|understand|be honest|clarify|hear|do is|share|discuss|chat|talk (?:to"
    r"|with) you)\b|\b(?:need|want|like) (?:you|your|help)\b"
    r"|\bhave to do with\b|\bno need to\b|\bkeep (?:it up|going|grinding|pushing|at it)\b"
    r"|\bbe patient\b|\bcheck (?:it|them|that) out\b|\bwhat i'm talking about|\byou (?:have"
    r"|need|want|got|ought|should|must|can)\b"
)
_PLAN = (
    r"(?: (?:also|really|still|just|probably|definitely|always|do|now|both|finally|soon"
    r"|first)){0,6}"
    r"(?: (?:need|have|ought|really ought|got|plan|intend|aim|want|hope|mean|wish|decided) to"
    r"|'ve got to"
    r"|'m going to"
    r"|'re going to| am going to| are going to|'m gonna|'re gonna| gotta| must| have got to"
    r"| can't forget to"
    r"| mustn't| must not)\b"
)
_PLANNING = (
    rf"{_I_AM} (?:\w+ )?(?:planning|hoping|intending|aiming|scheduled|supposed|due|about"
    rf"|preparing|saving up|booked"
    r"|signed up|thinking (?:of|about)|considering|looking (?:into|for)|trying to|working on"
    r"|getting ready)\b"
)
_ARRANGED = (
    r"\b(?:deadline|due|appointments?|interview|exam|meeting|flight|trip|concert|wedding"
    r"|party|surgery|check-?up"
    r"|birthday|anniversary|visit|call|presentation|class|lesson|recital|race|game|match"
    r"|dinner|lunch|reunion"
    r"|tickets?|holiday|vacation|event|conference|reservation|move|delivery|test|review"
    r"|release|launch)\b"
)


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
        rf"{_I_AM}{_ADVERB}(?: not)?{_ADVERB} (?:into|fond of|keen on|crazy about|passionate about"
        rf"|obsessed with"
        r"|addicted to|partial to|interested in|sick of|tired of|afraid of|scared of|terrified of"
        r"|hooked on"
        r"|a sucker for|an? (?:\w+ )?(?:fan|lover) of|big on|allergic to (?:mornings|meetings))\b"
        rf"|{_I_AM} (?:\w+ )?an? (?:\w+ )?(?:\w+ )?(?:lover|person|fan|enthusiast|fanatic|buff"
        rf"|junkie)\b",
        r"\b(?:into|of|in) (?:it|that|this)\W*$|\binterested in (?:hearing|knowing)",
    ),
    template("en.preference.like", "PREFERENCE", rf"{_I}{_ADVERB} {_LIKE} \S", _NOT_LIKED),
    template(
        "en.preference.liked",
        "PREFERENCE",
        rf"{_I}{_ADVERB} (?:loved|liked|enjoyed|hated|preferred|adored)\b",
        rf"\b(?:loved|liked|enjoyed|hated|preferred|adored) {_VAGUE}\W*$",
    ),
    template("en.preference.kin", "PREFERENCE", rf"{_MY} (?:really |also |just |absolutely )?{_LIKES}\b"),
    template(
        "en.preference.mixed",
        "PREFERENCE",
        rf"(?:\b(?:my|our) \S+|\bmy \S+ \S+) {_LIKES}\b|我们? ?(?:really |also )?{_LIKE}\b",
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
        rf"{_MY}(?:'s|'ll)? (?:is|are|will|starts?|leaves?|arrives?|comes?|turns?|gets?|graduates?"
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
        rf"{_I}{_ADVERB} {_PAST}(?!['\w])",
        rf"{_I}{_ADVERB} (?:{_SAID}|{_STATE})\b|{_NO_EVENT}",
        When.BEHIND,
    ),
    template(
        "en.event.kin",
        "EVENT",
        rf"{_MY}{_ADVERB}(?:'s)? {_PAST}(?!['\w])",
        rf"{_MY}{_ADVERB} (?:{_SAID}|{_STATE})\b",
        When.BEHIND,
    ),
    template(
        "en.event.bare",
        "EVENT",
        rf"^(?:just |also |finally |recently |already |even |then ){{0,6}}{_BARE_PAST} ",
        when=When.BEHIND,
    ),
    template(
        "en.task.plan",
        "TASK",
        rf"\b(?:i|we){_PLAN}|{_PLANNING}|^(?:need|have|got|must) to \w+|^(?:gotta|gonna"
        rf"|planning (?:on|to)|hoping to) ",
        _COURTESY,
        When.AHEAD,
    ),
    template(
        "en.task.arranged",
        "TASK",
        rf"{_ARRANGED}|\b(?:must|has to|have to|needs to|need to|should) be\b",
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
        rf"^(?:yesterday|last (?:night|week\w*|month|year|\w+day))\b|{_I}{_ADVERB} (?:\w+ed"
        rf"|{_PAST}|was|were|had)\b|\b(?:my|our|the|it|he|she|they"
        rf"|we) (?:\w+ ){{0,3}}(?:was|were|had|{_PAST})\b",
        rf"\bsince (?:19|20)\d\d\b|(?:'ve| have){_ADVERB} {_STATE}\b|\bi wish\b",
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
        rf"{_I_AM} (?!{_MOOD})[a-z0-9_]|\b(?:i was|we were|i've always|i wasn't) (?!{_MOOD})\w",
    ),
    template(
        "en.self.kin",
        "FACT",
        rf"{_MY}(?:'s|'re)? (?:{_ADVERB} )?\w+",
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
        rf"|yet|want to)){{0,6}} (?!{_MENTAL}\b)\w{{2,}} ?\w",
        r"\bcan(?:'t|not) (?:wait|believe|agree|help|say|tell|imagine|decide|think|complain|see"
        r"|find|figure|go wrong|do it)\b",
    ),
    template(
        "en.self.do",
        "FACT",
        rf"\b(?:i|we)(?:'ve been)?{_ADVERB} (?!{_MENTAL}\b)[a-z]{{2,}} \S",
        rf"\b(?:love|like|hate|enjoy)d? {_VAGUE}\W*$|\bhave an? (?:idea|question|feeling|look)\b",
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
