"""Promises: what an assistant says it did or will do; both languages."""

from __future__ import annotations

from server.ingest.rules.template import Template, When, template

ENGLISH: tuple[Template, ...] = (
    template(
        "en.promise.done",
        "EVENT",
        r"\b(?:i|we)(?:'ve| have)?(?: just| already| now| successfully| also"
        r"| gone ahead and){0,6} (?:booked|reserved|scheduled|set up|set|added"
        r"|sent|ordered|created|saved|cancell?ed|moved|updated|paid|registered|signed|bought"
        r"|arranged|made (?:a|the|your)"
        r"|noted|recorded|confirmed|submitted|filed|deleted|removed|changed|renewed|rescheduled"
        r"|enrolled|uploaded|emailed|called)\b",
        r"\b(?:if|would|could|should) (?:you|i)\b|\bhave you\b|\bif i\b",
        When.AHEAD,
    ),
    template(
        "en.promise.will",
        "TASK",
        r"\b(?:i'll|i will|i'm going to|i am going to) (?:also |then |make sure to "
        r"|be sure to ){0,6}(?:remind|send|book|call|check back|check in|follow up|schedule"
        r"|notify|email|order|prepare|reserve|cancel|renew|keep (?:you|an eye)|get back to you"
        r"|have \w+ ready|let you know)\b",
        r"\bif you\b|\b(?:want|like) me to\b",
        When.AHEAD,
    ),
)

CHINESE: tuple[Template, ...] = (
    template(
        "zh.promise.done",
        "EVENT",
        r"我?(?:已经|已|刚刚?)(?:成功)?(?:帮|为|给|替|把|将)(?:你|您|咱)?.{0,30}?(?:订|预订|预定"
        r"|预约|安排|添加|发送|发|设|设置|创建|保存|取消|更新|支付|下单|买|购买|记录|记|提交|改"
        r"|报名|约)",
        r"如果|要不要|是否|可以帮",
        When.AHEAD,
    ),
    template(
        "zh.promise.will",
        "TASK",
        r"我(?:会|将|到时候?会?|稍后会?).{0,16}?(?:提醒|发给|发送|通知|打电话|联系|预订|预约|安排"
        r"|跟进|准备好|订)",
        r"如果|要不要|是否|(?:你|您)(?:需要|想)",
        When.AHEAD,
    ),
)
