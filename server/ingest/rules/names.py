"""Names: what people call themselves and want to be called; both languages."""

from __future__ import annotations

from server.ingest.rules.template import Template, template

_I = r"(?:我们?|咱们?|本人|俺)"

ENGLISH: tuple[Template, ...] = (
    template(
        "en.name.own",
        "FACT",
        r"\b(?:my|our) (?:\w+ )?(?:name|nickname|surname)(?:'s| is| was)\b"
        r"|\b(?:people|everyone|everybody|friends|they|colleagues|family) (?:all )?calls? me\b"
        r"|\bi go by\b",
    ),
)

CHINESE: tuple[Template, ...] = (
    template(
        "zh.name.own",
        "FACT",
        rf"{_I}的?(?:全名|大名|名字|英文名|中文名|小名|昵称|网名|外号|笔名|姓)(?:字)?(?:是|叫)"
        rf"|{_I}姓[^名]"
        rf"|{_I}(?:的名字)?叫(?!了|他|她|你|外卖|车|醒|过)|(?:大家|朋友们?|别人|同事们?|家人"
        rf"|他们)(?:平时|一般)?都?(?:叫|喊|称呼)我"
        r"|^(?:你|请|就|以后|可以){0,6}(?:叫|喊|称呼)我(?!们|起|去|怎么|一声)",
    ),
)
