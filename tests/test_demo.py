"""``make demo`` on this machine: it shows what it promises, and says so where it can't."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from demo.script import read_script
from docs.blocks import blocks, missing
from scrubjay.text import tokens

ROOT = Path(__file__).parent.parent
BOUND_SECONDS = 20


def run_demo(folder: Path = ROOT / "demo") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", folder / "run.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def copy_of_demo(folder: Path) -> Path:
    """The demo in a folder of its own, with the server of this repository."""
    for path in (ROOT / "demo").glob("[a-z]*.*"):
        text = path.read_text(encoding="utf-8")
        root = "ROOT = Path(__file__).parent.parent"
        (folder / path.name).write_text(text.replace(root, f"ROOT = Path({str(ROOT)!r})"), encoding="utf-8")
    return folder


def test_no_question_shares_a_word_with_what_is_remembered() -> None:
    script = read_script()
    questions = {each.user_id: [q.text for q in each.questions] for each in script.conversations}
    first, _ = script.conversations
    questions[first.user_id] += [script.update.question, script.delete.question]
    for conversation in script.conversations:
        texts = [*conversation.remembered, script.update.new]
        words = {word for text in texts for word in tokens(text)}
        for question in questions[conversation.user_id]:
            assert not words.intersection(tokens(question)), question


def test_questions_go_from_each_language_to_each() -> None:
    pairs = {
        (question.text.isascii(), question.answer.isascii())
        for conversation in read_script().conversations
        for question in conversation.questions
    }
    assert pairs == {(True, True), (True, False), (False, True), (False, False)}


def test_the_demo_shows_all_it_promises() -> None:
    started = time.monotonic()
    ran = run_demo()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert time.monotonic() - started < BOUND_SECONDS
    script = read_script()
    for conversation in script.conversations:
        shown = [*conversation.remembered, *(question.text for question in conversation.questions)]
        assert [text for text in shown if text not in ran.stdout] == []
    for words in (script.update.new, "deleted", "changed", "added", "MEMORY_NOT_FOUND", "All of it held"):
        assert words in ran.stdout
    assert "\x1b" not in ran.stdout
    assert missing(shown_in_the_readme(), ran.stdout) is None


def shown_in_the_readme() -> list[str]:
    """What the README shows of the demo."""
    (shown,) = [
        lines
        for block in blocks(ROOT / "README.md")
        if block.language == "console"
        for command, lines in block.commands()
        if command == "make demo"
    ]
    return shown


def test_the_demo_fails_where_a_question_finds_another_memory(tmp_path: Path) -> None:
    folder = copy_of_demo(tmp_path)
    file = folder / "conversation.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("How does he commute?", "Any dangerous foods?"), encoding="utf-8")
    ran = run_demo(folder)
    assert ran.returncode == 1
    assert "the demo failed: 'Any dangerous foods?' finds" in ran.stderr
    assert "All of it held" not in ran.stdout


def test_the_demo_says_why_its_server_does_not_start(tmp_path: Path) -> None:
    folder = copy_of_demo(tmp_path)
    file = folder / "local_server.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("127.0.0.1:0", "no address"), encoding="utf-8")
    ran = run_demo(folder)
    assert ran.returncode == 1
    assert "the demo failed: the server did not start: SCRUBJAY_LISTEN" in ran.stderr
