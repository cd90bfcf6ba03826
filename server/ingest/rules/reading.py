"""Reading: a text as templates see it, of the same length, so that what they find can be pointed at.

Lower case, straight apostrophes, simplified characters where templates use them, and what stands inside of
quotation marks blanked: words that somebody else said are nobody's own.
"""

from __future__ import annotations

from server.ingest.rules.sentences import quoted

_TRADITIONAL = (
    "愛爱養养買买賣卖換换從从這这個个們们來来會会說说話话學学習习對对過过時时間间開开關关還还後后點点號号"
    "週周禮礼應应該该準准備备計计劃划決决討讨厭厌歡欢興兴趣趣寧宁願愿給给幫帮請请謝谢為为麼么嗎吗誰谁裡里"
    "實实際际錯错覺觉認认識识記记憶忆讓让買买見见聽听讀读寫写譯译結结離离畢毕業业職职遷迁現现無无沒没須须"
    "當当歲岁媽妈爸爸兒儿姐姐屬属慣惯總总別别叫叫點点東东車车飛飞賽赛參参遇遇戶户醫医院院門门題题問问"
    "釋释閉闭復复嘗尝試试帶带與与終终剛刚經经辭辞陞升張张體体驗验約约項项務务滿满結结婚婚孫孙喚唤稱称"
    "貓猫狗狗難难類类長长網网電电腦脑傳传兩两幾几變变轉转戒戒棄弃舊旧邊边處处"
)
_SIMPLER = {ord(a): b for a, b in zip(_TRADITIONAL[::2], _TRADITIONAL[1::2], strict=True)}
_STRAIGHT = {
    ord(a): b for a, b in {"’": "'", "‘": "'", "ʼ": "'", "\u00a0": " ", "\t": " ", "\n": " "}.items()
}
_TABLE = _SIMPLER | _STRAIGHT
_BLANK = "_"


def read(text: str) -> str:
    """The text as templates see it; as long as ``text``."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = "".join(low if len(low := character.lower()) == 1 else character for character in text)
    seen = lowered.translate(_TABLE)
    for span in reversed(quoted(text)):
        inner = seen[span.start : span.end]
        seen = seen[: span.start] + _BLANK * len(inner) + seen[span.end :]
    return seen
