"""Words that names are told from: what begins sentences, kin, places, tools; both languages."""

from __future__ import annotations

_BEGINNINGS = """
    i a an the this that these those it he she we you they there here who what when where why how which
    whose my our your his her its their mine and or but so if because as at by for from in into of on onto
    to with without about after before during since until while although though unless whether not no yes
    yeah yep nope ok okay hi hello hey dear thanks thank please sorry sure well oh wow ah hmm haha lol
    great good nice cool awesome amazing congrats congratulations happy today tomorrow yesterday tonight
    now then later soon recently lately currently actually honestly really maybe perhaps probably
    definitely also just still even only once again always never sometimes usually often every each all
    some any many most more much both either neither another other one two three first second last next
    new is are was were am be been being do does did done have has had can could will would shall should
    may might must let lets let's get got go going went come came see saw say said tell told ask asked
    think thought know knew make made take took give gave find found look looks looking want wanted need
    needed like liked love loved hate prefer use used using try tried trying keep kept work worked working
    live lived living remember note update reminder todo fyi btw question answer re ps everyone everything
    someone something anyone anything nothing nobody people guys folks absolutely exactly totally speaking
    speaks besides however instead meanwhile finally anyway plus than too very had-been whenever wherever
    whatever long talk check don't can't won't didn't doesn't isn't aren't wasn't i'm i've i'll i'd it's
    that's there's what's he's she's we're you're they're we've you've they've here's who's where's how's
    we'll you'll they'll he'll she'll it'll feel feeling hope hoping glad excited having being doing
    making taking getting seeing reading watching playing cooking running been got bought favorite
    favourite best mom mum dad mother father brother sister son daughter user assistant
    """
BEGINNINGS = frozenset(_BEGINNINGS.split())
"""What a capital letter says nothing about: it begins a sentence, or is written so anyway."""

_NO_NAMES = """
    i i'm i've i'll i'd monday tuesday wednesday thursday friday saturday sunday mondays tuesdays
    wednesdays thursdays fridays saturdays sundays mon tue tues wed thu thur thurs fri sat sun january
    february march april may june july august september october november december jan feb mar apr jun jul
    aug sep sept oct nov dec ok tv am pm ai api pdf ceo cto cfo diy lgbtq lgbtq+ lgbt omg lol asap fyi btw
    id pc it hr pr qa ui ux url json sql html css http https cpu gpu ram usb gps atm faq ps rsvp vip gdp
    mba phd bbq dna ac dm wifi wi-fi utc gmt est pst cet english chinese french german japanese spanish
    italian korean american british indian russian dutch portuguese arabic mandarin cantonese european
    asian african christian muslim jewish internet god mr mrs ms dr prof sir madam yes no hi hello hey
    thanks please mom mum dad mommy daddy mama papa grandma grandpa granny nana auntie uncle aunt photo
    image covid spring summer autumn winter fall ii iii iv todo xoxo haha yay aww ugh hmm wow oh ah
    """
NO_NAMES = frozenset(_NO_NAMES.split())
"""Capitalised and no name of anybody or anything in particular."""

_KIN_WORDS = """
sister brother mother father wife husband partner girlfriend boyfriend fiance fiancee fiancé fiancée son
daughter child baby uncle aunt cousin nephew niece grandmother grandfather grandson granddaughter
godmother godfather stepmother stepfather stepson stepdaughter friend colleague boss roommate neighbour
landlord landlady teacher tutor mentor coach therapist doctor dentist lawyer accountant supervisor advisor
assistant dog cat pet horse parrot rabbit hamster
"""
KIN = {
    "mum": "mother",
    "mom": "mother",
    "mama": "mother",
    "dad": "father",
    "papa": "father",
    "hubby": "husband",
    "grandma": "grandmother",
    "grandpa": "grandfather",
    "granddad": "grandfather",
    "kid": "child",
    "manager": "boss",
    "coworker": "colleague",
    "co-worker": "colleague",
    "teammate": "colleague",
    "flatmate": "roommate",
    "neighbor": "neighbour",
    "bestie": "friend",
    "pal": "friend",
    "puppy": "dog",
    "kitten": "cat",
    **{word: word for word in _KIN_WORDS.split()},
}
"""Whom one has, and the relation that it says."""
ANIMALS = frozenset(("dog", "cat", "pet", "horse", "parrot", "rabbit", "hamster"))

ZH_KIN = {
    "妈妈": "mother",
    "妈": "mother",
    "母亲": "mother",
    "爸爸": "father",
    "爸": "father",
    "父亲": "father",
    "姐姐": "sister",
    "姐": "sister",
    "妹妹": "sister",
    "妹": "sister",
    "哥哥": "brother",
    "哥": "brother",
    "弟弟": "brother",
    "弟": "brother",
    "老婆": "wife",
    "妻子": "wife",
    "太太": "wife",
    "媳妇": "wife",
    "老公": "husband",
    "丈夫": "husband",
    "先生": "husband",
    "女朋友": "girlfriend",
    "女友": "girlfriend",
    "男朋友": "boyfriend",
    "男友": "boyfriend",
    "儿子": "son",
    "女儿": "daughter",
    "孩子": "child",
    "爷爷": "grandfather",
    "奶奶": "grandmother",
    "外公": "grandfather",
    "外婆": "grandmother",
    "叔叔": "uncle",
    "舅舅": "uncle",
    "阿姨": "aunt",
    "姑姑": "aunt",
    "表姐": "cousin",
    "表妹": "cousin",
    "表哥": "cousin",
    "表弟": "cousin",
    "堂姐": "cousin",
    "堂妹": "cousin",
    "堂哥": "cousin",
    "堂弟": "cousin",
    "侄子": "nephew",
    "侄女": "niece",
    "好朋友": "friend",
    "朋友": "friend",
    "闺蜜": "friend",
    "哥们": "friend",
    "同事": "colleague",
    "老板": "boss",
    "上司": "boss",
    "领导": "boss",
    "经理": "boss",
    "室友": "roommate",
    "邻居": "neighbour",
    "同学": "classmate",
    "老师": "teacher",
    "导师": "mentor",
    "教练": "coach",
    "房东": "landlord",
    "狗": "dog",
    "猫": "cat",
}

_GIVEN_NAMES = """
Aaron Adam Adrian Agnes Ahmed Aisha Alan Albert Alejandro Alex Alexander Alexandra Alice Alicia Amanda
Amelia Amy Ana Anders Andrea Andreas Andrew Angela Anita Anja Ann Anna Anne Annie Anthony Antonio Arthur
Astrid Audrey Barbara Beatrice Ben Benjamin Bernard Bob Boris Brenda Brian Bruno Carla Carlos Carmen
Caroline Catherine Cecilia Charles Charlotte Chloe Chris Christian Christina Christopher Clara Claire
Claudia Clemens Colin Daniel Daniela Dave David Deborah Denise Dennis Diana Diego Dominik Dora Doris Dorothy
Edith Edward Elena Eleanor Elias Elisa Elizabeth Ella Ellen Emil Emily Emma Eric Erik Erika Esther Ethan Eva
Evan Felix Fiona Florian Frances Francesca Francis Franz Frederick Fritz Gabriel Gabriela George Gina Giulia
Gloria Greta Greg Gustav Hannah Hans Harold Harry Hassan Heidi Helen Helena Henry Hugo Ian Ibrahim Ida Igor
Ingrid Irene Isaac Isabel Isabella Ivan Jack Jakob James Jane Janet Jasmine Jason Jennifer Jeremy Jessica
Jim Joan Joanna Joe Johann Johannes John Jon Jonas Jonathan Jose Josef Joseph Joshua Juan Julia Julian
Juliana Karen Karl Katarina Kate Katherine Kathleen Keith Kelly Kenneth Kevin Lara Larissa Laura Lauren Lena
Leo Leon Leonard Liam Linda Lisa Louis Louise Luca Lucas Lucia Lucy Luis Lukas Luke Lydia Maja Malik Manuel
Marco Margaret Maria Marie Marina Mario Marta Martha Martin Mary Mateo Matthew Matthias Maya Melanie Melissa
Mia Michael Michelle Miguel Mike Miriam Mohammed Monica Nadia Natalie Nathan Nicholas Nicole Nina Noah Nora
Oliver Olivia Omar Oscar Oskar Otto Pablo Pamela Patricia Patrick Paul Paula Pedro Peter Philip Priya Rachel
Rafael Rahul Ralph Raymond Rebecca Richard Rita Robert Roberto Roger Ronald Rosa Ruth Ryan Sabine Sally
Samantha Samuel Sandra Sara Sarah Sebastian Sergio Sharon Silvia Simon Sofia Sophia Sophie Stefan Stella
Stephanie Stephen Steve Steven Susan Susanne Sven Sylvia Teresa Theo Theresa Thomas Tim Timothy Tina Tobias
Tom Tommy Tony Valentina Vanessa Vera Victor Victoria Viktor Vincent Vivian Walter Wendy William Yasmin Yuki
Yusuf Zoe
"""
GIVEN_NAMES = frozenset(_GIVEN_NAMES.lower().split())
"""Common ones that are hardly anything else: no Will, Mark, May, Rose, Paris or Jordan."""

_PLACES = """
Berlin Munich Hamburg Frankfurt Cologne Paris Lyon Marseille London Manchester Edinburgh Glasgow Dublin
Oxford Cambridge Madrid Barcelona Lisbon Rome Milan Florence Venice Naples Vienna Zurich Geneva Brussels
Amsterdam Rotterdam Copenhagen Stockholm Oslo Helsinki Warsaw Prague Budapest Athens Istanbul Moscow Kyiv
Boston Chicago Seattle Portland Denver Austin Dallas Houston Miami Atlanta Detroit Philadelphia Toronto
Montreal Vancouver Sydney Melbourne Auckland Tokyo Osaka Kyoto Seoul Busan Beijing Shanghai Shenzhen
Guangzhou Hangzhou Nanjing Chengdu Wuhan Suzhou Taipei Singapore Bangkok Hanoi Jakarta Manila Mumbai Delhi
Bangalore Dubai Cairo Nairobi Lagos Germany France Spain Portugal Italy Austria Switzerland Belgium
Netherlands Denmark Sweden Norway Finland Poland Greece Ireland England Scotland Wales Russia Ukraine Canada
Mexico Brazil Argentina Chile Colombia Peru China Japan Korea Taiwan Thailand Vietnam Indonesia Philippines
India Pakistan Australia Egypt Kenya Nigeria Europe Asia Africa California Texas Florida Ohio Oregon Hawaii
Alaska Colorado Virginia
"""
_PLACES_OF_WORDS = (
    "new york",
    "new york city",
    "los angeles",
    "san francisco",
    "san diego",
    "las vegas",
    "hong kong",
    "new zealand",
    "south africa",
    "south korea",
    "united states",
    "united kingdom",
    "usa",
    "uk",
)
PLACES = frozenset((*_PLACES.lower().split(), *_PLACES_OF_WORDS))

_ZH_PLACES = """
    呼和浩特 石家庄 乌鲁木齐 哈尔滨 北京 上海 天津 重庆 广州 深圳 杭州 南京 苏州
    成都 武汉 西安 长沙 郑州 青岛 济南 大连 沈阳 长春 厦门 福州 合肥 昆明 贵阳
    南昌 南宁 海口 三亚 太原 兰州 银川 西宁 拉萨 无锡 宁波 佛山 东莞 珠海 温州
    桂林 洛阳 香港 澳门 台北 台湾 高雄 河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽
    福建 江西 山东 河南 湖北 湖南 广东 海南 四川 贵州 云南 陕西 甘肃 青海 广西
    西藏 宁夏 新疆 内蒙古 中国 日本 韩国 泰国 越南 新加坡 马来西亚 美国 英国 法国
    德国 意大利 西班牙 加拿大 澳大利亚 新西兰 俄罗斯 印度 巴西 瑞士 瑞典 挪威 荷兰
    东京 大阪 京都 首尔 曼谷 纽约 洛杉矶 旧金山 伦敦 巴黎 柏林 悉尼 多伦多
    """
ZH_PLACES = tuple(_ZH_PLACES.split())

TOOLS = (
    "vs code",
    "visual studio code",
    "vim",
    "neovim",
    "emacs",
    "pycharm",
    "intellij",
    "xcode",
    "android studio",
    "jupyter",
    "sublime text",
    "obsidian",
    "notion",
    "evernote",
    "excel",
    "powerpoint",
    "photoshop",
    "figma",
    "slack",
    "zoom",
    "github",
    "gitlab",
    "jira",
    "docker",
    "kubernetes",
    "terraform",
    "postgres",
    "postgresql",
    "mysql",
    "sqlite",
    "mongodb",
    "redis",
    "kafka",
    "linux",
    "ubuntu",
    "macos",
    "windows",
    "android",
    "iphone",
    "ipad",
    "python",
    "javascript",
    "typescript",
    "java",
    "rust",
    "golang",
    "kotlin",
    "swift",
    "c++",
    "c#",
    "ruby",
    "react",
    "vue",
    "django",
    "flask",
    "pytorch",
    "tensorflow",
    "chatgpt",
    "gmail",
    "whatsapp",
    "telegram",
    "spotify",
    "netflix",
)
ZH_TOOLS = (
    "微信",
    "支付宝",
    "飞书",
    "钉钉",
    "企业微信",
    "抖音",
    "小红书",
    "微博",
    "知乎",
    "淘宝",
    "京东",
    "高德地图",
    "百度地图",
    "印象笔记",
    "网易云音乐",
    "石墨文档",
)

SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢"
    "姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
)
