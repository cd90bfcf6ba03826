"""English words and phrases that templates are made of, as parts of patterns for lower-case text."""

from __future__ import annotations

ADVERB = (
    r"(?: (?:really|just|also|absolutely|usually|always|still|generally|mostly|actually"
    r"|honestly|simply|too"
    r"|personally|definitely|often|never|truly|totally|much|quite|even|especially"
    r"|particularly|only|now|both"
    r"|currently|recently|finally|already|normally|typically|sometimes|rarely|very|so|pretty"
    r"|kind of|sort of"
    r"|do|did|don't|do not|didn't|did not|would|have|had|been|all|first|once|then|secretly)){0,6}"
)
SPEAKER = r"\b(?:i|we)(?:'ve|'d)?"
SPEAKER_IS = r"\b(?:(?:i'm|i am|we're|we are)|(?:i|we)(?:'ve| have) (?:always |never )?been)"
KIN = (
    r"(?:mother|father|mum|mom|dad|parents?|sister|brother|sibling|son|daughter|kids?|child"
    r"|children|baby|wife"
    r"|husband|partner|girlfriend|boyfriend|fianc\w+|grand\w+|granny|grandma|uncle|aunt"
    r"|cousin|niece|nephew"
    r"|family|friends?|best friend|boss|manager|colleagues?|coworkers?|team|roommate|flatmate"
    r"|neighbou?rs?|dog"
    r"|cat|pet|puppy|kitten|parrot|horse|teacher|doctor|twins?|in-laws|company|office|school"
    r"|flat|house|landlord)"
)
MY = (
    rf"(?:\b(?:my|our) (?:\w+ ){{0,2}}?{KIN}|\b(?:an?|two|some) (?:\w+ )?\w+ of (?:mine|ours"
    rf"|my \w+))(?:,? (?!(?:is|are|was|were|has|have|had)\b)\w+,?)?"
)
LIKE = r"(?:prefer|dread|love|adore|like|enjoy|hate|dislike|detest|loathe|despise|favou?r)"
LIKES = (
    r"(?:prefers|loves|adores|likes|enjoys|hates|dislikes|can't stand|is (?:really )?into"
    r"|is afraid of)"
)
VAGUE = (
    r"(?:it|that|this|you|them|these|those|your (?:\w+ ?){1,3}|how you|the idea|that idea"
    r"|the sound of that)"
)
NOT_LIKED = (
    rf"\b{LIKE} (?:{VAGUE}(?: so much| too| a lot)?\W*$|to (?:know|ask|hear|see if|think)\b"
    rf"|you|hearing)"
    r"|\bi(?:'d| would) (?:love|like) (?:to (?:hear|know|see|help|join|chat|talk|ask|thank)"
    r"|that|it|you\b|some)"
    r"|\b(?:feel|looks?|sounds?|seems?) like\b"
)
PAST = (
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
NO_EVENT = (
    r"(?:\bnever\b|\b(?:every|each|usually|often) |\bi wish\b|(?:'ve| have) got\b"
    r"|\bsince (?:i|we)(?: last)? (?:talked|spoke|met|chatted|caught up|saw|last)\b"
    r"|\byou (?:know|said|told|asked) )"
)
BARE_PAST = (
    r"(?:went|met|got|bought|sold|took|saw|began|caught|drove|ate|flew|found|gave|grew|lost"
    r"|ran|sent|spent|won|wrote|had"
    r"|started|finished|visited|moved|joined|signed up|watched|played|tried|cooked|baked"
    r"|painted|hiked|attended|passed"
    r"|worked|volunteered|celebrated|adopted|enrolled|graduated|learned|booked|made)"
)
STATE = (
    r"(?:(?:liv|work|studi|play|suffer|serv|car|us|own|rais|belong|speciali[sz]|train|major"
    r"|graduat)ed|grew up"
    r"|was born|were born|was raised|were raised|taught|ran a)"
)
SAID = (
    r"(?:thought|wanted|hoped|needed|meant|asked|wondered|figured|guessed|assumed|agreed"
    r"|appreciated|noticed"
    r"|supposed|believed|mentioned|tried|liked|loved|enjoyed|hated|preferred|used)"
)
MENTAL = (
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
MOOD = (
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
COURTESY = (
    r"\b(?:need|want|have|hope|like|going|got|ought)(?:'s)? to (?:know|ask|say|see if|admit"
    r"|agree|thank|tell you"
    r"|confess|understand|be honest|clarify|hear|do is|share|discuss|chat|talk (?:to"
    r"|with) you)\b|\b(?:need|want|like) (?:you|your|help)\b"
    r"|\bhave to do with\b|\bno need to\b|\bkeep (?:it up|going|grinding|pushing|at it)\b"
    r"|\bbe patient\b|\bcheck (?:it|them|that) out\b|\bwhat i'm talking about|\byou (?:have"
    r"|need|want|got|ought|should|must|can)\b"
)
PLAN = (
    r"(?: (?:also|really|still|just|probably|definitely|always|do|now|both|finally|soon"
    r"|first)){0,6}"
    r"(?: (?:need|have|ought|really ought|got|plan|intend|aim|want|hope|mean|wish|decided) to"
    r"|'ve got to"
    r"|'m going to"
    r"|'re going to| am going to| are going to|'m gonna|'re gonna| gotta| must| have got to"
    r"| can't forget to"
    r"| mustn't| must not)\b"
)
PLANNING = (
    rf"{SPEAKER_IS} (?:\w+ )?(?:planning|hoping|intending|aiming|scheduled|supposed|due|about"
    rf"|preparing|saving up|booked"
    r"|signed up|thinking (?:of|about)|considering|looking (?:into|for)|trying to|working on"
    r"|getting ready)\b"
)
ARRANGED = (
    r"\b(?:deadline|due|appointments?|interview|exam|meeting|flight|trip|concert|wedding"
    r"|party|surgery|check-?up"
    r"|birthday|anniversary|visit|call|presentation|class|lesson|recital|race|game|match"
    r"|dinner|lunch|reunion"
    r"|tickets?|holiday|vacation|event|conference|reservation|move|delivery|test|review"
    r"|release|launch)\b"
)
