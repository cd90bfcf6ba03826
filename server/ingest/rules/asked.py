"""Asked: what the assistant is told to keep in mind; it may stand in a request. Both languages."""

from __future__ import annotations

from server.ingest.rules.template import Template, When, template

_MANNER = r"(?:from now on|going forward|in (?:the )?future|by default|every time|whenever you)"
_ZH_MANNER = r"(?:以后|从现在起|从今以后|今后|从此|往后|默认|每次|一律|总是)"

ENGLISH: tuple[Template, ...] = (
    template(
        "en.task.remind",
        "TASK",
        r"\b(?:remind|nudge) (?:me|us)\b(?! (?:of|how|why|what|that (?:it|life|we))\b)"
        r"|\bdon't let me forget\b",
        when=When.AHEAD,
    ),
    template(
        "en.task.together",
        "TASK",
        r"^let's (?:meet|have|go|do|plan|talk|catch up|get)\b|^(?:please )?don't forget to \w",
        when=When.AHEAD_NAMED,
    ),
    template(
        "en.name.call",
        "FACT",
        r"\b(?:address|refer to) me as \w|\bcall me (?!when|if|back|at|on|later|tomorrow|crazy|in"
        r"|after|before|tonight|today|asap"
        r"|now|by|this|next)\w",
        r"\b(?:don't|do not|never|stop|not) call|\b(?:they|everyone|everybody|people|friends|he"
        r"|she) (?:\w+ )?calls? me",
    ),
    template(
        "en.task.note",
        "TASK",
        r"^(?:to-?do|to do|tasks?|reminder|note to self)\s?[:\-–—]|^\[ ?\] ",
        when=When.AHEAD,
    ),
    template(
        "en.preference.manner",
        "PREFERENCE",
        rf"\b{_MANNER}\b.*\b(?:answer|reply|respond|write|use|speak|talk|call|address|give|keep"
        rf"|avoid|stop|include"
        rf"|don't|do not|never|always|be|add|show|send|format|explain)\b|^(?:please )?(?:always"
        rf"|never) \w+"
        rf"|\b(?:answer|reply|respond|use|speak|call me|keep|don't|write)\b.*\b{_MANNER}\b",
        r"^never ?(?:mind|knew|thought)|^always (?:a pleasure|nice|good|great|happy|here)",
    ),
)

CHINESE: tuple[Template, ...] = (
    template(
        "zh.task.remind",
        "TASK",
        r"提醒(?:我|一下我|咱)|别(?:让我)?忘了?|不要忘了?|记得(?:要|去|帮我|给|带|买|提醒)",
        r"你还?记得",
        When.AHEAD,
    ),
    template("zh.task.note", "TASK", r"^(?:待办|代办|任务|备忘|提醒|日程)(?:事项)?\s?[:：]", when=When.AHEAD),
    template(
        "zh.preference.manner",
        "PREFERENCE",
        rf"{_ZH_MANNER}[，,]?(?:请|都|你|要|别|不要|就|请你){{0,6}}(?:用|回答|回复|叫|称呼|说|输出"
        rf"|写|给"
        rf"|保持|不要|别)|^(?:永远)?(?:别|不要)再?(?:叫|用|给|跟)我?.*(?:回答|回复|称呼)",
    ),
)
