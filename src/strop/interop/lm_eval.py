"""A strop generator as a model of the evaluation harness lm-eval.

The harness finds no models of other packages by itself: `register()` makes it know ours as `strop`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast
from uuid import uuid4

from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.registry import register_model

from strop.denoisers import CausalModel, Denoiser, load_model
from strop.denoisers.prompting import reader_of
from strop.denoisers.tokenizer import end_ids, up_to_end
from strop.draw import sample_cells
from strop.engine.plan import Silent
from strop.errors import UserError, unknown_name, whole_number
from strop.interop.harness_settings import Generation, Settings
from strop.interop.likelihood import Pair, Score, check_masked, exact, is_greedy, monte_carlo
from strop.prompts.canvas import Canvas, Canvases, PromptReader, resolve
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Bos, PromptSet, Template
from strop.records.record import default_sampler
from strop.spec.value import OUTPUT_LIMIT
from strop.version import __version__

NAME = "strop"
LOADING = ("revision", "weights", "family", "dtype", "device")
SAMPLES = 128
"""Sets of masks per log-likelihood, as in the public evaluation of LLaDA."""


class StropLM(LM):
    """One checkpoint with its sampler.

    Its arguments: `pretrained` (a checkpoint as everywhere in strop), how to load it (`revision`,
    `weights`, `family`, `dtype`, `device`), `sampler`, `bos`, `batch_size`, `mc_num`, and what is
    said of generation: `seed`, `length`, `temperature`, `steps`, and whatever the sampler has.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        *,
        sampler: str | None = None,
        bos: Bos = "tokenizer",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        mc_num: int = SAMPLES,
        **arguments: Any,
    ) -> None:
        super().__init__()
        if not isinstance(pretrained, str):
            raise UserError(
                "The model arguments name no checkpoint.",
                where="pretrained",
                got=pretrained,
                expected="pretrained=CHECKPOINT, e.g. pretrained=embedded:tales",
            )
        if max_batch_size is not None:
            raise UserError(
                "The batch size is not searched for automatically.",
                where="max_batch_size",
                got=max_batch_size,
                fix="give batch_size, or leave both out",
            )
        if bos not in ("tokenizer", "always", "never"):
            raise unknown_name("choice", str(bos), ["tokenizer", "always", "never"], where="bos")
        loading = {name: arguments.pop(name) for name in LOADING if arguments.get(name) is not None}
        self.model = load_model(pretrained, **loading)
        if self.model.codec is None:
            raise UserError(
                "The model has no tokenizer, and the harness works with text.",
                where=self.model.source,
                fix="put the model's tokenizer beside its weights",
            )
        self.codec = self.model.codec
        self.settings = Settings(sampler or default_sampler(self.model.spec.family), arguments)
        self.bos: Bos = bos
        self.mc_num = whole_number("mc_num", mc_num, 1, OUTPUT_LIMIT)
        self.batch_size = _batch_size(batch_size)
        self._device = self.model.device
        self._rendered: set[str] = set()
        self._own = uuid4().hex
        self._ends = end_ids(self.model)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> StropLM:
        """The harness's way to make a model; an argument that is given twice must agree."""
        more = {k: v for k, v in (additional_config or {}).items() if v is not None}
        for name in arg_dict.keys() & more.keys():
            if arg_dict[name] != more[name]:
                raise UserError(
                    f"`{name}` is given twice.",
                    where="model arguments",
                    got=f"{name}={arg_dict[name]} there, and {more[name]} as a flag",
                    fix="say it once",
                )
        return cls(**{**arg_dict, **more})

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> StropLM:
        """Make a model from `key=value,key=value`."""
        return cls.create_from_arg_obj(
            utils.simple_parse_args_string(arg_string), additional_config
        )

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Refuse the harness's cache of answers."""
        if getattr(cache_hook, "dbdict", None) is not None:
            raise UserError(
                "The harness's cache of answers knows neither the checkpoint nor its settings.",
                where="use_cache",
                got="a key of the prompt and the task's arguments alone, so that another "
                "temperature, seed or model would get the same texts",
                fix="leave use_cache out",
            )

    # Chats

    @cached_property
    def _chat(self) -> ChatTemplate:
        return ChatTemplate.beside(self.codec.directory)

    @property
    def tokenizer_name(self) -> str:
        """The harness keeps rendered prompts under this name: of no use to another run."""
        return f"strop-{self.codec.fingerprint[:16]}-{self._own}"

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template's text; a checkpoint has one."""
        if isinstance(chat_template, str):
            raise UserError(
                "Chat templates are not chosen by name here.",
                where="apply_chat_template",
                got=chat_template,
                expected="the checkpoint's own template",
                fix="use apply_chat_template without a name",
            )
        return self._chat.source if chat_template else ""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Messages as the checkpoint's template writes them, thinking off."""
        text = self._chat.converse(chat_history, open_answer=add_generation_prompt)
        self._rendered.add(text)
        return text

    def _bos_of(self, text: str) -> Bos:
        """A chat template writes its own beginning."""
        return "never" if text in self._rendered else self.bos

    # Generation

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Responses up to where they end; request p of a task, asked for the r-th time, is output
        r P + p of P prompts, as `strop sample --prompts` counts them.
        """
        answers = [""] * len(requests)
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        settings: dict[str, Generation] = {}
        for index, request in enumerate(requests):
            task = str(request.task_name)
            _only_text(request.args, task)
            if not isinstance(request.args[-1], Mapping):
                got = repr(request.args[-1])[:80]
                raise UserError(
                    "A request comes without generation arguments.", where=task, got=got
                )
            generation = self.settings.of(request.args[-1], task)
            groups[task, generation.key].append(index)
            settings[generation.key] = generation
        for (task, key), places in groups.items():
            of_task, generation = [requests[index] for index in places], settings[key]
            for index, answer in zip(places, self._answers(task, generation, of_task), strict=True):
                answers[index] = answer
        return answers

    def _answers(
        self, task: str, generation: Generation, requests: Sequence[Instance]
    ) -> list[str]:
        """Answers to the requests of one task."""
        first: dict[int, int] = {}
        times: dict[int, int] = defaultdict(int)
        counted = []
        for request in requests:  # a repeated request is the same object again
            prompt = first.setdefault(id(request), len(first))
            counted.append((times[prompt], prompt))
            times[prompt] += 1
        texts = [
            str(request.args[0])
            for request in {id(request): request for request in requests}.values()
        ]
        canvases = Canvases(
            tuple(self._canvas(f"{task} {i}", text, generation) for i, text in enumerate(texts))
        )
        pool = sample_cells(
            self.model,
            [generation.spec],
            n=len(texts) * max(times.values()),
            seed=generation.seed,
            batch_size=self.batch_size,
            canvases=canvases,
            progress=_Bar(task),
        )[0]
        rows = (pool.ids[time * len(texts) + prompt].tolist() for time, prompt in counted)
        return [generation.cut(self._text(row)) for row in rows]

    def _canvas(self, name: str, text: str, generation: Generation) -> Canvas:
        # Questions and programs are full of [[1]]: nothing in them is a mark.
        template = Template(bos=self._bos_of(text), marks=False)
        rows = PromptSet.of([{"prompt": text, "id": name}])
        return resolve(rows, self._reader, template, generation.length).prompts[0]

    def _text(self, ids: list[int]) -> str:
        return self.codec.decode(up_to_end(ids, self._ends), mask_id=self.model.mask_id)

    @cached_property
    def _reader(self) -> PromptReader:
        return reader_of(self.model)

    # Log-likelihoods

    def loglikelihood(self, requests: list[Instance]) -> list[Score]:
        """Log-likelihoods of continuations: exact with a causal model, else estimated."""
        for request in requests:
            _only_text(request.args, str(request.task_name))
        return self._scores([self._pair(*map(str, request.args[:2])) for request in requests])

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Log-likelihoods of whole texts, read in windows; causal models only."""
        if not isinstance(self.model, CausalModel):
            raise UserError(
                "Log-likelihoods of long texts are for causal models.",
                where=self.model.source,
                got="windows of a text; with masks their bounds do not add up to one of the text",
                fix="run loglikelihood, multiple_choice or generate_until tasks",
            )
        sums = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                token_list=self._encode(str(request.args[0])),
                prefix_token=self.model.start_id,
                max_seq_len=self.model.length - 1,
                context_len=1,
            )
            disjoint = map(utils.make_disjoint_window, windows)
            pairs = [Pair(tuple(context), tuple(scored)) for context, scored in disjoint]
            sums.append(sum(score for score, _ in self._scores(pairs)))
        return sums

    def _scores(self, pairs: Sequence[Pair]) -> list[Score]:
        for pair in pairs:
            self._check_room(pair)
        if isinstance(self.model, CausalModel):
            return exact(self.model, pairs, self.batch_size)
        model = cast(Denoiser, self.model)
        check_masked(model)
        seed, bar = self.settings.of({}, "loglikelihood").seed, _Bar("loglikelihood")
        bar.start(None, len(pairs), 0)
        scores: list[Score] = []
        for pair in pairs:
            score: Score = (0.0, True)
            if pair.response:
                bound = monte_carlo(
                    model, pair, samples=self.mc_num, seed=seed, batch_size=self.batch_size
                )
                score = bound, is_greedy(model, pair)
            scores.append(score)
            bar.advance(1, len(pair.response))
        return scores

    def _pair(self, context: str, continuation: str) -> Pair:
        """Token ids of both, cut where the context ends; blanks at its end go to what follows."""
        bos = self._bos_of(context) if context else self.bos
        blanks = len(context) - len(context.rstrip())
        if blanks:
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        context_ids, all_ids = self._encode(context), self._encode(context + continuation)
        fits = all_ids[: len(context_ids)] == context_ids
        scored = all_ids[len(context_ids) :] if fits else self._encode(continuation)
        return Pair((*self._opening(bos, context_ids), *context_ids), tuple(scored))

    def _opening(self, bos: Bos, context_ids: Sequence[int]) -> tuple[int, ...]:
        """The tokens before a context, or in place of an empty one."""
        opening = self._reader.opening if bos == "tokenizer" else ()
        if bos == "always" and self._reader.bos_id is not None:
            opening = (self._reader.bos_id,)
        if opening or context_ids:
            return opening
        if isinstance(self.model, CausalModel):
            return (self.model.start_id,)
        # Dream's first column means nothing, so a token must stand in it.
        first = self._reader.bos_id if self.model.spec.family == "dream" else None
        return () if first is None else (first,)

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        reader = PromptReader(self.model.vocab_size, self.model.mask_id, None, self.codec)
        rows = PromptSet.of([text])
        token_ids = resolve(rows, reader, Template(bos="never", marks=False), 1).prompts[0].given
        return [int(token) for token in token_ids if token is not None]

    def _check_room(self, pair: Pair) -> None:
        if pair.size > self.model.length:
            raise UserError(
                "A context and its continuation do not fit into the model's length.",
                where=self.model.source,
                got=f"{len(pair.context)} + {len(pair.response)} tokens",
                expected=f"at most {self.model.length}",
                fix="use fewer shots, or leave such tasks out; nothing is cut off here",
            )

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes into its results beside the arguments."""
        plain = self.settings.of({}, "")
        return {
            "strop_version": __version__,
            "strop_checkpoint": self.model.spec.model_dump(mode="json"),
            "strop_source": self.model.source,
            "strop_sampler": plain.spec.model_dump(mode="json"),
            "strop_seed": plain.seed,
            "strop_mc_num": self.mc_num,
        }


class _Bar(Silent):
    """The harness's own kind of progress."""

    def __init__(self, task: str) -> None:
        self._task, self._bar = task, None

    def start(self, cell: Any, total: int, done: int, what: str = "") -> None:  # noqa: ARG002
        from tqdm import tqdm

        self._bar = tqdm(total=total, initial=done, desc=self._task, disable=None)

    def advance(self, outputs: int, tokens: int) -> None:  # noqa: ARG002
        if self._bar is not None:
            self._bar.update(outputs)
            if self._bar.n >= (self._bar.total or 0):
                self._bar.close()


def _batch_size(value: int | str | None) -> int | None:
    """None: as many as strop finds good; it changes nothing but speed."""
    if value is None or value == "auto":
        return None
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    return whole_number("batch_size", number, 1, OUTPUT_LIMIT)


def _only_text(args: Sequence[Any], task: str) -> None:
    if len(args) > 2:
        raise UserError(
            "A request holds more than text.",
            where=task,
            got=", ".join(map(str, args[2]))
            if isinstance(args[2], Mapping)
            else repr(args[2])[:80],
            fix="choose tasks of text alone",
        )


def register() -> type[StropLM]:
    """Make the harness know the model `strop`, as often as one likes."""
    register_model(NAME)(StropLM)
    return StropLM
