"""Prompts: what is given stands, what is open is counted, and equal ids are equal prompts."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.prompts import (
    Canvas,
    Canvases,
    ChatTemplate,
    PromptReader,
    PromptSet,
    Shots,
    Template,
    chat,
    chat_child,
    escape,
    resolve,
)
from strop.prompts.rows import LONGEST_LINE, joined, parse
from strop.runtime import MOST_LENGTH
from strop.spec import CheckpointSpec, GeneratorSpec, PromptSpec, SamplerSpec

LETTERS = "abcdefghijklmnopqrstuvwxyz .?:=+0123456789\n[]\\{}ABQ"
BOS, MASK = len(LETTERS), len(LETTERS) + 1


def written(pieces):
    """The text that `parse` reads as these pieces."""
    merged, parts = joined(pieces), []
    for piece, after in zip(merged, (*merged, "")[1:], strict=True):
        if isinstance(piece, int):
            parts.append(f"[[{piece}]]")
        else:
            text = escape(piece)
            parts.append(
                re.sub(r"(?<!\\)(\\+)\Z", r"\1\1", text) if isinstance(after, int) else text
            )
    return "".join(parts)


class Characters:
    """A tokenizer of one token per character; it drops what it does not know, as some do."""

    def encode(self, text: str) -> list[int]:
        pieces = text.split("<s>")
        ids = [[LETTERS.index(c) for c in piece if c in LETTERS] for piece in pieces]
        return [*ids[0], *(token for piece in ids[1:] for token in (BOS, *piece))]

    def decode(self, ids: list[int]) -> str:
        return "".join("<s>" if token == BOS else LETTERS[token] for token in ids)


CODEC = Characters()
READER = PromptReader(vocab_size=MASK + 1, mask_id=MASK, room=200, codec=CODEC, bos_id=BOS)


def ids(text: str) -> list[int]:
    return CODEC.encode(text)


def one(row: Any, template: Template | None = None, length: int | None = None) -> Canvas:
    return resolve(PromptSet.of([row]), READER, template, length).prompts[0]


def sha(rows: list[Any], length: int | None = None) -> str:
    return resolve(PromptSet.of(rows), READER, length=length).spec.sha256


# Marks


def test_marks_are_gaps_and_backslashes_make_them_text() -> None:
    assert parse("a [[12]] b") == ("a ", 12, " b")
    assert parse("[[3]][[04]]x") == (3, 4, "x")
    assert parse(r"\[[3]]") == ("[[3]]",)
    assert parse(r"\\[[3]]") == ("\\", 3)
    assert parse(r"\\\[[3]]") == ("\\[[3]]",)
    assert parse(r"\n [[ 3 ]] [[x]] [[]] [[-1]] [[٣]] \[") == (
        r"\n [[ 3 ]] [[x]] [[]] [[-1]] [[٣]] \[",
    )
    assert parse("[[[3]]]") == ("[", 3, "]")


TEXTS = st.text(st.sampled_from("\\[]123 a"), max_size=30) | st.text(max_size=30)


@given(TEXTS)
def test_an_escaped_text_is_read_as_it_was(text: str) -> None:
    assert parse(escape(text)) == ((text,) if text else ())


@given(st.lists(TEXTS | st.integers(1, MOST_LENGTH), max_size=8))
def test_what_is_written_is_read_again(pieces: list[str | int]) -> None:
    read = parse(written(pieces))
    assert parse(written(read)) == read
    assert [p for p in read if isinstance(p, int)] == [p for p in pieces if isinstance(p, int)]
    assert "".join(p for p in read if isinstance(p, str)) == "".join(
        p for p in pieces if isinstance(p, str)
    )


@given(TEXTS)
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        pieces = parse(text)
    except UserError as error:
        assert "[[" in str(error.got)  # noqa: PT017 either outcome is right
    else:
        assert parse(written(pieces)) == pieces


def test_long_runs_are_read_at_once() -> None:
    for text in ("\\" * 10**6, "[" * 10**6, "[[1" * 10**5, "[[" + "1" * 10**6):
        assert parse(text) == (text,)


@pytest.mark.parametrize("digits", ["0", "00", str(MOST_LENGTH + 1), "9" * 20, "9" * 5000])
def test_gaps_without_a_possible_size_are_refused(digits: str) -> None:
    with pytest.raises(UserError, match="no possible size") as caught:
        parse(f"a [[{digits}]]", "line 3")
    assert caught.value.where == "line 3"
    assert len(str(caught.value)) < 300


# Canvases


def test_a_prefix_is_followed_by_the_response() -> None:
    canvas = one("a b", length=3)
    assert canvas.given == (*ids("a b"), None, None, None)
    assert canvas.open == (3, 4, 5)
    assert canvas.is_prefix
    assert canvas.filled([7, 8, 9]) == (*ids("a b"), 7, 8, 9)


def test_gaps_stand_where_the_text_has_them() -> None:
    canvas = one("[[1]]a[[2]]b")
    assert canvas.given == (None, *ids("a"), None, None, *ids("b"))
    assert canvas.open == (0, 2, 3)
    assert not canvas.is_prefix
    assert canvas.filled([7, 8, 9]) == (7, *ids("a"), 8, 9, *ids("b"))
    assert one("ab[[2]]") == one("ab", length=2)
    with pytest.raises(UserError, match="does not fit"):
        canvas.filled([7, 8])


def test_marks_can_be_text() -> None:
    assert one(r"a\[[2]]", length=1).given == (*ids("a[[2]]"), None)
    literal = Template(marks=False)
    assert one(r"\[[2]] [[2]]", literal, 1).given == (*ids(r"\[[2]] [[2]]"), None)


def test_what_is_put_before_a_text_is_a_rule_of_the_template() -> None:
    reader = PromptReader(
        vocab_size=MASK + 1, mask_id=MASK, codec=CODEC, opening=(5, 6), bos_id=BOS
    )
    rows = PromptSet.of(["ab", {"ids": ids("ab")}])
    firsts = {
        bos: [c.given[:-3] for c in resolve(rows, reader, Template(bos=bos), 1).prompts]
        for bos in ("tokenizer", "always", "never")
    }
    assert firsts == {"tokenizer": [(5, 6), ()], "always": [(BOS,), ()], "never": [(), ()]}
    gap = resolve(PromptSet.of(["[[1]]a"]), reader).prompts[0]
    assert gap.given == (5, 6, None, *ids("a"))


# Identity


def test_the_identity_is_the_ids_in_their_order() -> None:
    texts = sha(["ab", "c"], 2)
    assert texts == sha([{"ids": ids("ab")}, {"ids": ids("c")}], 2)
    assert texts == sha([{"prompt": "ab[[2]]", "id": "x"}, {"prompt": "c[[2]]", "reference": "r"}])
    assert texts == sha([{"ids": [*ids("ab"), None, None]}, {"ids": [*ids("c"), None, None]}])
    others = [sha(["c", "ab"], 2), sha(["ab", "c"], 3), sha(["ab"], 2), sha(["ab[[2]]", "[[2]]c"])]
    others += [sha(["abc", "abc"], 2), sha(["a", "bc"], 2)]
    assert len({texts, *others}) == 7


def test_a_file_made_by_the_real_tokenizer_has_the_identity_of_its_ids() -> None:
    codec = TextCodec.gpt2()
    reader = PromptReader(vocab_size=50258, mask_id=50257, room=1024, codec=codec)
    texts = ["Once upon a time", " naïve\n\n日本 <|endoftext|> x", "ﬁ Å \u0301"]
    read = resolve(PromptSet.of(texts), reader, length=5)
    rows = [{"ids": np.array(codec.encode(text))} for text in texts]
    assert resolve(PromptSet.of(rows), reader, length=5).spec == read.spec
    filled = read.prompts[1].filled([50256] * 5)
    assert codec.decode(filled) == texts[1] + "<|endoftext|>" * 5


def test_prompts_are_part_of_a_generators_identity_only_if_there_are_any() -> None:
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={})
    fields: dict[str, Any] = {"checkpoint": checkpoint, "sampler": SamplerSpec(), "length": 8}
    without = GeneratorSpec(**fields)
    assert without.id == "6cdf1eb4b1cdb0c0"  # older than prompts
    assert GeneratorSpec(**fields, prompts=None) == without
    prompts = resolve(PromptSet.of(["a", "b"]), READER, length=8).spec
    asked = GeneratorSpec(**fields, prompts=prompts)
    assert asked.id != without.id
    assert GeneratorSpec(**json.loads(asked.canonical())) == asked
    others = [{"count": 3}, {"sha256": "x"}, {"form": "gaps"}]
    changed = {GeneratorSpec(**fields, prompts=prompts.model_copy(update=o)).id for o in others}
    assert len(changed | {asked.id}) == 4
    with pytest.raises(UserError, match="count"):
        prompts.model_copy(update={"count": 0})


def test_a_causal_sampler_fills_no_gaps() -> None:
    checkpoint = CheckpointSpec(family="ar", sha256="0" * 64, shape={})
    fields: dict[str, Any] = {
        "checkpoint": checkpoint,
        "sampler": SamplerSpec(name="autoregressive", steps=2),
        "length": 2,
    }
    after, between = (resolve(PromptSet.of([t]), READER).spec for t in ("a[[2]]", "a[[2]]b"))
    assert GeneratorSpec(**fields, prompts=after).prompts == after
    with pytest.raises(UserError, match="fills no gaps"):
        GeneratorSpec(**fields, prompts=between)


def test_the_identity_can_be_computed_by_hand() -> None:
    spec = resolve(PromptSet.of([{"ids": [3, None, 1]}]), READER).spec
    assert spec.sha256 == hashlib.sha256(b"[[3,null,1]]").hexdigest()
    assert spec == PromptSpec(sha256=spec.sha256, count=1, form="gaps")
    assert resolve(PromptSet.of(["a", "b"]), READER, length=1).spec.form == "prefix"


def test_files_with_equal_rows_are_equal(tmp_path: Path) -> None:
    rows = [{"prompt": "ab", "id": "x"}, {"prompt": "é?", "reference": "1"}]
    first, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [json.dumps(dict(reversed(row.items())), ensure_ascii=False) for row in rows]
    other.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    assert PromptSet.read(first) == PromptSet.read(str(other)) == PromptSet.of(rows)
    assert [prompt.id for prompt in PromptSet.read(first).prompts] == ["x", "1"]


canvases = st.lists(
    st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=5
)


@given(canvases, canvases)
def test_hashes_are_equal_only_for_equal_ids(a: list[Any], b: list[Any]) -> None:
    first, second = (
        Canvases(tuple(Canvas(str(i), tuple(row)) for i, row in enumerate(rows))) for rows in (a, b)
    )
    assert (first.spec == second.spec) == (a == b)


def test_outputs_go_round_the_prompts() -> None:
    canvases = resolve(PromptSet.of(["a", "bc", "d"]), READER, length=2)
    assert [canvases.prompt_of(i).id for i in range(7)] == ["0", "1", "2", "0", "1", "2", "0"]
    assert (canvases.outputs(1), canvases.outputs(4)) == (3, 12)
    assert (canvases.length, canvases.positions) == (2, 4)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(UserError, match="per_prompt"):
            canvases.outputs(wrong)  # pyright: ignore[reportArgumentType]


# Templates


def test_worked_examples_stand_before_the_question() -> None:
    rows = [{"prompt": "1+1?", "reference": "2"}, {"prompt": "[[3]]?", "reference": "{prompt}"}]
    shots = Shots.of(PromptSet.of(rows), "Q: {prompt}\nA: {reference}\n\n")
    template = Template(shots)
    assert template.pieces("2+[[1]]=5") == (
        "Q: 1+1?\nA: 2\n\nQ: [[3]]?\nA: {prompt}\n\nQ: 2+",
        1,
        "=5\nA:",
    )
    assert template.name == "few-shot"
    usual = "Question: a\nAnswer: b\n\nQuestion: c\nAnswer:"
    assert Template(Shots((("a", "b"),))).pieces("c") == (usual,)


TURNS = (
    "{% for m in messages %}{{ bos_token }}<{{ m['role'] }}>{{ m['content'] | trim }}</>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def chat_directory(place: Path, template: Any = TURNS, **more: Any) -> Path:
    place.mkdir(exist_ok=True)
    config = {"bos_token": {"content": "<s>", "special": True}, "chat_template": template, **more}
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    return place


def test_a_chat_is_rendered_by_the_tokenizers_template(tmp_path: Path) -> None:
    chat = ChatTemplate.beside(chat_directory(tmp_path))
    expected = "<s><user>a & b</>\n<assistant>"
    assert chat.render("  a & b\n") == expected
    template = Template(Shots((("a", "b"),), "{prompt}={reference} "), chat)
    assert template.name == "few-shot chat"
    assert template.pieces("c") == ("<s><user>a=b c=</>\n<assistant>",)
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TURNS}]
    assert ChatTemplate.beside(chat_directory(tmp_path, named)) == chat
    alone = "{{ eos_token }}{{ messages[0].content | tojson }}"
    (tmp_path / "chat_template.jinja").write_text(alone)
    chat_directory(tmp_path, TURNS, eos_token="</s>")
    assert ChatTemplate.beside(tmp_path).render("é<b>") == '</s>"é<b>"'


@pytest.mark.parametrize("text", ["a", "  two\nlines  ", "é <b> & 'q'", "{{ 1 }}{% x %}"])
def test_a_chat_is_rendered_as_transformers_does(text: str, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    source = (
        "{% set system = 'S' %}\n  {% for m in messages %}\n"
        "    {%- if loop.first %}{{ bos_token }}{% endif %}\n"
        "{{ '<|' + m['role'] + '|>' }}\n{{ m['content'] | tojson }}{{ m['content'] | trim }}\n"
        "  {% endfor %}\n{%- if add_generation_prompt and not tools %}<|go|>{% endif %}\n"
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=TextCodec.gpt2()._tokenizer, bos_token="<s>", chat_template=source
    )
    tokenizer.save_pretrained(tmp_path)
    theirs = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    assert ChatTemplate.beside(tmp_path).render(text) == theirs


QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
GEMMA = (
    "{% if enable_thinking %}<|turn>system\n<|think|><turn|>\n{% endif %}"
    "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}"
    "<|turn>model\n{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"
)


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        (QWEN, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        (GEMMA, "<|turn>model\n<|channel>thought\n<channel|>"),
    ],
)
def test_thinking_is_off(source: str, ends: str) -> None:
    # A message may quote the marks: only what the template writes after it counts.
    rendered = ChatTemplate(source).render("What does <think> mean?")
    assert rendered.endswith(ends)
    thinking = ChatTemplate(source).render("a", {"enable_thinking": True})
    assert not thinking.endswith(ends)


@pytest.mark.parametrize(
    "opened",
    ["<think>\n", "<think>Let me see.</think>", "[THINK]", "<|channel>thought\n"],
)
def test_a_template_that_opens_a_thought_is_refused(opened: str) -> None:
    chat = ChatTemplate("{{ messages[-1].content }}|" + opened, where="here")
    with pytest.raises(UserError, match="thinking block") as caught:
        chat.render("a")
    assert caught.value.where == "here"
    assert opened.strip()[:7] in str(caught.value.got)


def test_a_conversation_may_end_in_an_open_answer() -> None:
    chat = ChatTemplate(QWEN)
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is"}]
    told = chat.converse(turns, open_answer=False)
    assert told == "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\nIt is"
    assert chat.converse(turns[:1]) == chat.render("2 + 2?")
    dated = ChatTemplate("{{ today }}: {{ messages[0].content }}")
    assert dated.render("a", {"today": "Monday"}) == "Monday: a"


def test_a_chat_template_writes_its_own_beginning() -> None:
    chat = ChatTemplate("{{ bos_token }}{{ messages[0].content }}:", (("bos_token", "<s>"),))
    canvas = one("a", Template(chat=chat, bos="always"), 2)
    assert canvas.given == (BOS, *ids("a:"), None, None)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('only tools here') }}",
        "{% if %}",
        "{{ messages[0].content.missing.more }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ strftime_now('%d') }}",
        "{{ 1 // 0 }}",
        "{% for i in range(10**9) %}{{ i }}{% endfor %}",
    ],
)
def test_a_template_that_fails_is_told(source: str) -> None:
    with pytest.raises(UserError, match="chat template fails"):
        ChatTemplate(source).render("a")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{{ 9**(9**9) }}", "does not end within 1 seconds"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "does not end within 1 seconds",
        ),
        ("{{ ('x' * (2**30))[:9] }}", "MemoryError"),
        ("{{ messages[0].content }}{{ 'x' * (2**22) }}", "it writes 4,194,3"),
    ],
)
def test_a_template_that_explodes_is_ended_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    ChatTemplate("{{ messages[0].content }}").render("a")  # its process has started
    monkeypatch.setattr(chat, "SECONDS", 1.0)
    with pytest.raises(UserError, match="chat template fails") as caught:
        ChatTemplate(source).render("a")
    assert told in str(caught.value.got)
    monkeypatch.undo()
    assert ChatTemplate("{{ messages[0].content }}!").render("a") == "a!"


@pytest.mark.parametrize(
    "source", ["", "Hello.", "{{ messages[0].content[:3] }}", "{{ messages[0].content | upper }}"]
)
def test_a_template_that_drops_the_message_is_refused(source: str) -> None:
    with pytest.raises(UserError, match="leaves out what the user says"):
        ChatTemplate(source).render("What is 2 + 2?")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content | trim }}",
        "{{ messages | tojson }}",
        "{{ messages[0].content | wordwrap(5) }}",
    ],
)
def test_a_message_may_be_trimmed_wrapped_or_written_as_json(source: str) -> None:
    assert "2 + 2" in ChatTemplate(source).render(' What is\n"2 + 2", é?\n').replace("\n", " ")


def test_every_message_of_the_user_must_be_there() -> None:
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    turns.append({"role": "user", "content": "three"})
    text = ChatTemplate("{% for m in messages %}{{ m.content }};{% endfor %}").converse(turns)
    assert text == "one;two;three;"
    answers = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% endif %}"
    assert ChatTemplate(answers + "{% endfor %}").converse(turns) == "one;three;"
    for source in ("{{ messages[0].content }}", "{{ messages[-1].content }}"):
        with pytest.raises(UserError, match="leaves out what the user says"):
            ChatTemplate(source).converse(turns)


def test_a_conversation_has_as_many_characters_as_are_allowed_and_no_more() -> None:
    request = {"source": "{{ 'x' * n }}", "names": {"n": 7}}
    assert chat_child._answer(request, 7) == {"text": "x" * 7}
    assert "it writes 7 characters" in chat_child._answer(request, 6)["error"]


def test_a_fork_has_a_process_of_its_own() -> None:
    """It shares its parent's pipes, and an answer that it took would be missing there."""
    template = ChatTemplate("{{ messages[0].content }}")
    assert template.render("parent") == "parent"
    child = os.fork()
    if not child:
        own = template.render("child") == "child" and chat._RENDERER._owner == os.getpid()
        chat._RENDERER._end()
        os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert template.render("parent again") == "parent again"


def test_a_template_without_an_end_ends_also_if_nobody_waits_for_it() -> None:
    """As when whoever asked was killed. An answer stops the clock."""
    told = json.dumps([sys.path, 2**30, 0.2, 99])
    words = [sys.executable, "-I", "-S", str(chat_child.__file__), told]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        for wait in (0.6, 0.0):
            child.stdin.write(b'{"source": "a", "names": {}}\n')
            child.stdin.flush()
            assert json.loads(child.stdout.readline()) == {"text": "a"}
            time.sleep(wait)
        start = time.monotonic()
        child.stdin.write(b'{"source": "{{ 9**(9**9) }}", "names": {}}\n')
        child.stdin.flush()
        assert child.stdout.readline() == b""
        assert child.wait(30) == -signal.SIGALRM
        assert time.monotonic() - start < 20


def test_parts_that_mark_what_a_model_wrote_are_text() -> None:
    part = "{% generation %}{{ m.content }}{% endgeneration %}{% break %}"
    source = "{% for m in messages %}" + part + "{% endfor %}"
    assert ChatTemplate(source).render("a") == "a"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no chat template"),
        (b'{"chat_template": [{"name": "rag", "template": "x"}]}', "no chat template"),
        (b"[]", "cannot be read"),
        (b"{", "cannot be read"),
        (b'"\xff"', "cannot be read"),
    ],
)
def test_a_missing_template_is_told_with_the_remedy(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        ChatTemplate.beside(tmp_path)
    assert "tokenizer_config.json" in str(caught.value)
    assert caught.value.fix


def test_without_a_tokenizer_there_is_no_chat() -> None:
    with pytest.raises(UserError, match="no chat template"):
        ChatTemplate.beside(None)


# What is refused

NO_CODEC = PromptReader(vocab_size=5, mask_id=4)
CHAT = Template(chat=ChatTemplate(TURNS))
SHOTS = Template(Shots((("a", "b"),)))

UNFIT: list[tuple[Any, dict[str, Any], str]] = [
    ("a [[2]]", {"length": 3}, "gaps, but a length"),
    ({"ids": [1, None]}, {"length": 3}, "gaps, but a length"),
    ("a", {}, "leaves nothing to generate"),
    ({"ids": [1]}, {}, "leaves nothing to generate"),
    ("[[2]][[1]]", {}, "all gap"),
    ("a [[201]]", {}, "do not fit"),
    ("a [[1048576]]", {}, "do not fit"),
    ("a" * 200, {"length": 1}, "200 given + 1 open"),
    ("a", {"length": 200}, "1 given + 200 open"),
    ({"ids": [1] * 200 + [None]}, {}, "do not fit"),
    ("a", {"length": 0}, "`length` is out of range"),
    ("a", {"length": True}, "`length` is out of range"),
    ({"ids": [MASK + 1]}, {"length": 1}, f"ids from 0 to {MASK}"),
    ({"ids": [-1]}, {"length": 1}, "id -1 at position 0"),
    ({"ids": [1, MASK]}, {"length": 1}, "gives the mask"),
    ("a é", {"length": 1}, "'é' comes back as ''"),
    ("é", {"length": 1}, "loses part"),
    ("a [[1]]", {"template": CHAT}, "response follows the message"),
    ("a", {"template": CHAT}, "nothing to generate"),
    ({"ids": [1]}, {"template": CHAT, "length": 1}, "row has ids"),
    ({"ids": [1]}, {"template": SHOTS, "length": 1}, "row has ids"),
    ("a", {"length": 1, "reader": NO_CODEC}, "no tokenizer"),
    ("a", {"length": 1, "reader": NO_CODEC, "template": Template(bos="always")}, "names no"),
]


@pytest.mark.parametrize(("row", "more", "told"), UNFIT, ids=lambda v: repr(v)[:30])
def test_prompts_that_do_not_fit_are_refused(row: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(PromptSet.of([row]), **{"reader": READER, **more})
    assert told in str(caught.value)
    assert "--" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_length_belongs_to_the_prompts_without_gaps() -> None:
    rows = PromptSet.of(["a [[2]]", "b", "c[[1]]d", {"ids": [1, None, 2]}, {"ids": [1]}])
    made = resolve(rows, READER, length=4)
    assert [len(one.open) for one in made.prompts] == [2, 4, 1, 1, 4]
    assert [one.is_prefix for one in made.prompts] == [True, True, False, False, True]
    # Whoever has gaps is laid out as without a length.
    alone = resolve(PromptSet.of(["a [[2]]"]), READER)
    assert made.prompts[0].given == alone.prompts[0].given
    assert (made.length, made.spec.form) == (4, "gaps")
    with pytest.raises(UserError) as caught:
        resolve(rows, READER)
    assert "row 1" in str(caught.value.where)


class Refusing(Characters):
    def encode(self, text: str) -> list[int]:  # noqa: ARG002
        raise UserError("The tokenizer cannot read this text.", fix="use another")


def test_the_tokenizers_refusals_name_the_row() -> None:
    reader = PromptReader(vocab_size=9, codec=Refusing())
    with pytest.raises(UserError, match="cannot read this text") as caught:
        resolve(PromptSet.of(["a"]), reader, length=1)
    assert caught.value.where == "`prompts`, row 0"
    assert caught.value.fix == "use another"


ROWS: list[tuple[Any, str]] = [
    ({}, "neither a text nor ids"),
    ({"prompt": None}, "neither a text nor ids"),
    ({"id": "a"}, "neither a text nor ids"),
    ({"prompt": "a", "ids": [1]}, "both a text and ids"),
    ({"prompt": ""}, "is empty"),
    ({"prompt": "a", "id": ""}, "is empty"),
    ({"prompt": 3}, "not a text"),
    ({"prompt": "a", "reference": 3}, "not a text"),
    ({"prompt": "a", "id": 1.5}, "not a text"),
    ({"prompt": "\ud800"}, "surrogate"),
    ({"promt": "a"}, "did you mean 'prompt'"),
    ({"ids": []}, "gives no token"),
    ({"ids": [None, None]}, "gives no token"),
    ({"ids": "12"}, "not a list"),
    ({"ids": 5}, "not a list"),
    ({"ids": [1, True]}, "True at position 1"),
    ({"ids": [1.0]}, "not a token id"),
    (["a"], "not an object"),
    (7, "not an object"),
]


@pytest.mark.parametrize(("row", "told"), ROWS, ids=lambda v: repr(v)[:30])
def test_rows_that_are_no_prompts_are_refused(row: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        PromptSet.of([{"prompt": "fine"}, row])
    assert told in str(caught.value)
    assert caught.value.where == "`prompts`, row 1"
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "fine"}\n\n' + json.dumps(row))
    with pytest.raises(UserError) as caught:
        PromptSet.read(file)
    assert told in str(caught.value)
    assert caught.value.where == f"{file}, line 3"


FILES: list[tuple[bytes, str]] = [
    (b"", "no prompts"),
    (b"\n \n", "no prompts"),
    (b"\xef\xbb\xbf", "no prompts"),
    (b"plain text", "not JSON"),
    (b'{"prompt": "a"', "not JSON"),
    (b'[{"prompt": "a"}]', "not an object"),
    (b"[" * 100_000, "not JSON"),
    (b'{"prompt": "a", "prompt": "b"}', "'prompt' twice"),
    ('{"prompt": "é"}'.encode("latin1"), "byte 0xe9"),
    ('{"prompt": "a"}'.encode("utf-16"), "UTF-16"),
    (b'{"prompt": "a", "id": "1"}\n{"prompt": "b"}', "the id '1'"),
    (b'{"prompt": "a", "id": 7}\n{"prompt": "b", "id": "7"}', "the id '7'"),
    (b'{"prompt": "' + b"a" * LONGEST_LINE + b'"}', "too long"),
]


@pytest.mark.parametrize(("content", "told"), FILES, ids=lambda v: repr(v)[:30])
def test_files_that_hold_no_prompts_are_refused(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        PromptSet.read(file)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 600


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        PromptSet.read(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        PromptSet.read(tmp_path)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Shots((("a", "b"),), "{prompt}"), "format"),
        (lambda: Shots((("a", "b"),), "{reference} {prompt}"), "format"),
        (lambda: Shots((("a", "b"),), "{prompt}{prompt}{reference}"), "format"),
        (lambda: Shots(()), "no worked examples"),
        (lambda: Shots.of(PromptSet.of(["a"])), "no reference"),
        (lambda: Shots.of(PromptSet.of([{"ids": [1], "reference": "b"}])), "no text"),
    ],
)
def test_worked_examples_that_do_not_work_are_refused(make: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        make()


def test_a_prompt_may_fill_the_model_to_its_last_position():
    reader = PromptReader(vocab_size=10, room=4)
    rows = PromptSet.of([{"ids": [1, 2]}])
    assert resolve(rows, reader, None, 2).prompts[0].given == (1, 2, None, None)
    assert resolve(PromptSet.of([{"ids": [1, None, 2, 3]}]), reader).positions == 4
    with pytest.raises(UserError, match="do not fit") as error:
        resolve(rows, reader, None, 3)
    assert error.value.got == "2 given + 3 open positions"
