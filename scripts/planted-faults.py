"""Plant one-line faults, one at a time, and see that the tests which watch the code go red.

    make planted-faults                       all of them, on one core
    python scripts/planted-faults.py race     those whose words or file say so

A fault is known by the text it replaces, not by a line number: where code has moved, give it its
new file or text here. Each is planted in a copy of the tree, and only its own tests run. First all
of these tests run without a fault: a red that was there before says nothing. Ends with 3 if a fault
stays green, if its text is not there exactly once, or if its tests do not run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", ".stamps", ".pytest_cache", ".ruff_cache", "__pycache__", "docs")
SECONDS = 600
"""After which a test hangs, also on a busy machine; no fault here is an endless loop."""
FAILED, HUNG, SILENT = 1, -1, 3


@dataclass(frozen=True)
class Fault:
    """One line that is wrong, and the tests that must say so."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        return Path("src", "strop", self.file)


FAULTS = (
    # samplers
    Fault(
        "a score on the threshold does not pass",
        "samplers/machinery/committing.py",
        "first | (value >= self.level)",
        "first | (value > self.level)",
        ("tests/samplers/test_committing.py::test_threshold",),
    ),
    Fault(
        "top_k keeps one token fewer",
        "samplers/machinery/drawing.py",
        "law.topk(min(self.top_k, law.shape[-1]), dim=-1)",
        "law.topk(max(1, min(self.top_k, law.shape[-1]) - 1), dim=-1)",
        ("tests/samplers/test_drawing.py::test_top_k_keeps_exactly_the_k_best",),
    ),
    Fault(
        "left padding is not told to a cache",
        "samplers/machinery/committing.py",
        "self.denoiser.remember(ids, self._starts(rows))",
        "self.denoiser.remember(ids)",
        ("tests/samplers/test_padded.py::test_an_output_is_what_it_is_alone",),
    ),
    Fault(
        "the bench of caches takes prompts by their place in the batch",
        "samplers/caches.py",
        "for i in numbers.tolist()])",
        "for i in batch.tolist()])",
        ("tests/samplers/test_caches.py",),
    ),
    # metrics and statistics
    Fault(
        "entropy counts a token too few",
        "measure/entropy.py",
        "share = counts / length",
        "share = counts / (length - 1)",
        ("tests/measure/test_pool_metrics.py::test_entropy_by_hand",),
    ),
    Fault(
        "an interval of 95% leaves out 5% below",
        "stats/resample.py",
        "[(1 - level) / 2, (1 + level) / 2]",
        "[(1 - level), (1 + level) / 2]",
        ("tests/stats/test_resample.py::test_the_interval_of_a_mean_is_the_textbook_one",),
    ),
    Fault(
        "replicates of a mean are over one output fewer",
        "stats/resample.py",
        'derive_seed(seed, "bootstrap", n)) / n',
        'derive_seed(seed, "bootstrap", n)) / (n - 1)',
        ("tests/stats/test_paired.py",),
    ),
    Fault(
        "macro perplexity counts outputs without a token",
        "measure/across.py",
        "np.stack([mean, scored.astype(float)], 1)",
        "np.stack([mean, np.ones(len(scored))], 1)",
        ("tests/measure/test_perplexity.py::test_macro_gives_every_output_one_voice",),
    ),
    Fault(
        "a guard that was kept for another length is used",
        "measure/guard.py",
        'if run is None or stored is None or stored.get("length") != generator.length:',
        "if run is None or stored is None:",
        ("tests/measure/test_guard.py",),
    ),
    Fault(
        "the interval of a share may go below zero",
        "stats/resample.py",
        "max(low, span[0]), min(high, span[1])",
        "low, min(high, span[1])",
        ("tests/stats/test_jackknife.py",),
    ),
    # store and engine
    Fault(
        "scores that are added later stand in the wrong rows",
        "store/tables.py",
        "name: np.concatenate([values, new.columns[name][fresh]])[order]",
        "name: np.concatenate([values, new.columns[name][fresh]])",
        ("tests/test_scores.py::test_what_is_added_is_read",),
    ),
    Fault(
        "a pool with a hole counts as whole",
        "store/cell.py",
        'have = int((table["index"].to_numpy() < n).sum())',
        'have = int((table["index"].to_numpy() <= n).sum())',
        ("tests/test_store.py::test_a_pool_with_a_hole_is_refused",),
    ),
    Fault(
        "merge sees a conflict only where every token differs",
        "store/tables.py",
        "token_ids(right, spec)).all(1)",
        "token_ids(right, spec)).any(1)",
        ("tests/engines/test_merge.py",),
    ),
    Fault(
        "the token after the last one is in the vocabulary",
        "store/tables.py",
        "< most:",
        "<= most:",
        ("tests/engines/test_merge.py",),
    ),
    Fault(
        "two different rows under one number are not compared",
        "store/cell.py",
        "if last is not None and at == after:",
        "if last is not None and at < after:",
        ("tests/test_stream.py",),
    ),
    Fault(
        "merged files have no checksums",
        "store/tables.py",
        "pq.ParquetWriter(file, schema, **HOW)",
        'pq.ParquetWriter(file, schema, compression="zstd")',
        ("tests/test_store.py::test_a_flipped_bit_in_the_numbers_is_seen",),
    ),
    Fault(
        "files changed in place look the same",
        "store/remembered.py",
        "status.st_mtime_ns, status.st_ctime_ns",
        "status.st_mtime_ns, status.st_mtime_ns",
        ("tests/verbs/test_finished.py::test_a_change_that_keeps_size_and_time_is_seen",),
    ),
    Fault(
        "another revision of a repository is the same answer",
        "verbs/entrants.py",
        "config_of(repo, revision or None)",
        "config_of(repo, None)",
        ("tests/verbs/test_finished.py::test_what_an_answer_depends_on",),
    ),
    Fault(
        "the length of a batch is not counted",
        "draw/__init__.py",
        "bounded_batch(batch_size, positions)",
        "bounded_batch(batch_size)",
        ("tests/test_bounds.py",),
    ),
    Fault(
        "only the last message must be in a conversation",
        "prompts/chat.py",
        "for message in messages:\n            if",
        "for message in messages[-1:]:\n            if",
        ("tests/test_prompts.py::test_every_message_of_the_user_must_be_there",),
    ),
    # judges
    Fault(
        "texts follow a server's redirect",
        "served/transport.py",
        "stream=True, follow_redirects=False",
        "stream=True, follow_redirects=True",
        ("tests/groupeval/test_hostile_server.py",),
    ),
    Fault(
        "GEQ divides by all partitions, judged or not",
        "groupeval/scores.py",
        "self.q.sum(axis=1) / self.judged.sum(axis=1)",
        "self.q.mean(axis=1)",
        ("tests/groupeval/test_geq_ged.py::test_geq_counts_each_output_once",),
    ),
    Fault(
        "GED forgets the share of valid outputs",
        "groupeval/scores.py",
        "TOP * sum(counts) / size * entropy(counts)",
        "TOP * entropy(counts)",
        ("tests/groupeval/test_geq_ged.py",),
    ),
    # tasks and their sandbox
    Fault(
        "programs in the sandbox share this machine's network and processes",
        "tasks/sandbox.py",
        '            "--unshare-all",\n',
        "",
        ("tests/tasks/test_walls.py",),
    ),
    Fault(
        "programs in the sandbox see all files of this machine",
        "tasks/sandbox.py",
        'walls += [*python.binds(), "--ro-bind", str(INSIDE)',
        'walls += ["--ro-bind", "/", "/", *python.binds(), "--ro-bind", str(INSIDE)',
        ("tests/tasks/test_walls.py",),
    ),
    Fault(
        "programs in the sandbox get twice their memory",
        "tasks/inside/plain.py",
        '(resource.RLIMIT_AS, limits["memory"])',
        '(resource.RLIMIT_AS, 2 * limits["memory"])',
        ("tests/tasks/test_walls.py",),
    ),
    Fault(
        "message queues are open in the sandbox",
        "tasks/sandbox.py",
        "29, 68, 64, 240)",
        "29, 68, 64)",
        ("tests/tasks/test_walls.py",),
    ),
    Fault(
        "a filter's limit ends a program in the sandbox, too",
        "tasks/task.py",
        "check(*arguments) if self.sandboxed else within(check, *arguments)",
        "within(check, *arguments)",
        ("tests/tasks/test_grade.py",),
    ),
    Fault(
        "numbers leave the sandbox in another base",
        "tasks/inside/plain.py",
        "lambda digits: int(digits, 16)",
        "lambda digits: int(digits, 36)",
        ("tests/tasks/test_plain.py",),
    ),
    Fault(
        "results of 0 are allowed in the sums",
        "tasks/sums.py",
        "if not 1 <= after <= LARGEST:",
        "if not 0 <= after <= LARGEST:",
        ("tests/tasks/test_sums.py",),
    ),
    Fault(
        "problems are taken by place in the batch",
        "tasks/running.py",
        "for number, text in zip(index.tolist(), texts, strict=True)",
        "for number, text in enumerate(texts)",
        ("tests/tasks/test_grading.py",),
    ),
    # comparing
    Fault(
        "a side that is one point ignores the guard",
        "comparing/frontier.py",
        "least = outer[0] if floor is None else max(outer[0], floor)",
        "least = outer[0]",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "a tenth less alike counts as less diverse",
        "comparing/diversity.py",
        "(1 + TENTH) * other",
        "(1 - TENTH) * other",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "better though somewhere it may be worse by the margin",
        "comparing/verdict.py",
        "if equal.mean.below(-average) and all(point.below(most) for point, most in points):",
        "if equal.mean.below(-average):",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "what noise does to a point that is left out counts as a bend",
        "comparing/side.py",
        "np.maximum(self.missed[0] ** 2 - usable.var(axis=0), 0.0)",
        "self.missed[0] ** 2",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "what noise does to points counts as lying off the parabola",
        "comparing/frontier.py",
        "np.maximum(left[0] ** 2 - usable.var(axis=0), 0.0)",
        "left[0] ** 2",
        ("tests/comparing/test_smooth.py",),
    ),
    Fault(
        "enough outputs for each entropy by itself",
        "comparing/compare.py",
        ".all(axis=1).mean()",
        ".mean(axis=0).min()",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "an output that is too short is scored on what it has",
        "comparing/diversity.py",
        "long_enough = self.lengths >= tokens",
        "long_enough = self.lengths >= 1",
        ("tests/comparing/test_scored.py",),
    ),
    Fault(
        "another margin begins to count looks anew",
        "comparing/outputs.py",
        "looks = looks_by_pair.setdefault(_hash([_identity(side) for side in pair]), [])",
        'looks = looks_by_pair.setdefault(_hash([ask["margin"], *map(_identity, pair)]), [])',
        ("tests/verbs/test_looks.py",),
    ),
    Fault(
        "what follows the first document of a text is read",
        "measure/cells.py",
        "metric = perplexity_metric(evaluator, policy, name=TOKENS)",
        'metric = perplexity_metric(evaluator, "full-stream", name=TOKENS)',
        ("tests/verbs/test_points.py::test_nothing_behind_the_first_document_is_read",),
    ),
    Fault(
        "what follows the first document lifts an output over the guard",
        "measure/frame.py",
        "cut |= np.isin(index, part.index[less])",
        "cut |= False",
        ("tests/measure/test_documents.py",),
    ),
    Fault(
        "a side may leave out more of its outputs than the other",
        "comparing/compare.py",
        "if differ.above(UNEQUAL) or differ.below(-UNEQUAL):",
        "if differ.above(1):",
        ("tests/comparing/test_scored.py",),
    ),
    Fault(
        "methods are held against each other where their searches stopped",
        "verbs/tuned_against_tuned.py",
        "gap = None if comparison.equal is None else comparison.equal.mean",
        "gap = None if comparison.tuned is None else comparison.tuned.gap",
        ("tests/verbs/test_tune.py::test_what_is_left_of_a_gain",),
    ),
    Fault(
        "two temperatures are a frontier without a bend",
        "comparing/side.py",
        "0.0 if len(level) == 1 else np.inf",
        "0.0",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "the same by the mean gap",
        "comparing/verdict.py",
        "if all(gap.within(off - margin, margin - off) for gap, off in smooth):",
        "if equal.mean.within(-margin, margin):",
        ("tests/comparing/test_smooth.py",),
    ),
    Fault(
        "the guard's threshold is told as if it were known",
        "measure/guard.py",
        "quantile_ends(values, SHARE), rise",
        "None, rise",
        ("tests/measure/test_guard.py",),
    ),
    Fault(
        "answers to one prompt count as independent",
        "measure/frame.py",
        "by_prompt = prompts is not None and 1 < len(np.unique(answered)) < len(index)",
        "by_prompt = False",
        ("tests/measure/test_by_prompt.py",),
    ),
    Fault(
        "the work of intervals grows with very many outputs",
        "stats/resample.py",
        "return columns if n <= MANY else",
        "return columns if n else",
        (
            "tests/stats/test_resample.py::test_the_work_of_very_many_outputs_does_not_grow_with_them",
        ),
    ),
    Fault(
        "a page waits for numbers before it shows outputs",
        "page/live/server.py",
        "self._rendered(numbers, looks, measured=False)",
        "self._rendered(numbers, looks, measured=True)",
        (
            "tests/page/test_view.py"
            "::test_outputs_are_there_before_the_numbers_and_nothing_is_read_for_them",
        ),
    ),
    Fault(
        "ratios of answers to the same prompts are not paired",
        "measure/frame.py",
        "prompts.count > 1 and prompts == below.spec.generator.prompts",
        "prompts.count < 1",
        ("tests/measure/test_by_prompt.py",),
    ),
    Fault(
        "the mood of a judge's reading is left out of GEQ's interval",
        "stats/resample.py",
        "variance = unit * of_unit + group * by_group +",
        "variance = unit * of_unit +",
        ("tests/stats/test_crossed.py",),
    ),
    Fault(
        "outputs for the next look are counted at the level of this one",
        "comparing/compare.py",
        "replace(level, look=level.look + 1)",
        "level",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "copies are told of eight outputs",
        "comparing/diversity.py",
        "LEAST = 32",
        "LEAST = 8",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "few outputs of one setting have normal limits",
        "comparing/side.py",
        "wider = float(stdtrit(n - 1, quantile) / ndtri(quantile)) *",
        "wider = ",
        ("tests/comparing/test_exact.py",),
    ),
    Fault(
        "fresh outputs are those of the next seed's search",
        "verbs/tune.py",
        'seed=derive_seed(ask["seed"], "fresh")',
        'seed=ask["seed"] + 1',
        ("tests/verbs/test_tune.py::test_the_gain_is_that_of_fresh_outputs_under_another_seed",),
    ),
    Fault(
        "McNemar's test has one side",
        "stats/resample.py",
        "return min(1.0, 2 * float(",
        "return min(1.0, float(",
        ("tests/stats/test_shares.py",),
    ),
    Fault(
        "a pilot's spread is taken for the true one",
        "stats/published.py",
        "return np.sqrt(chdtri(freedom, 1 - at) / freedom)",
        "return np.ones(len(at))",
        ("tests/stats/test_power.py",),
    ),
    Fault(
        "steps of the test follow each other in training, too",
        "tasks/sums.py",
        'return "test" if held_out[0] else None if any(held_out) else "train"',
        'return "test" if held_out[0] else "train"',
        ("tests/tasks/test_sums.py",),
    ),
    Fault(
        "a pool is not cut to the outputs that were asked for",
        "comparing/outputs.py",
        'cell.table().slice(0, self._ask["n"])',
        "cell.table()",
        ("tests/verbs/test_points.py::test_a_pool_is_cut_to_as_many_as_were_asked_for",),
    ),
    # tuning
    Fault(
        "where more is better the wrong end of the interval decides",
        "tuning/race.py",
        "low = difference.ends[0] if sign > 0 else -difference.ends[1]",
        "low = difference.ends[0] if sign > 0 else -difference.ends[0]",
        ("tests/tuning/test_race_rules.py",),
    ),
    Fault(
        "limits are held against the standard sampler's outputs",
        "tuning/gain.py",
        "_value(fresh, Number.of(limit.name)",
        "_value(standard, Number.of(limit.name)",
        ("tests/verbs/test_gain.py",),
    ),
    Fault(
        "a gain is the choice over the standard sampler",
        "tuning/gain.py",
        "perplexity_ratio(standard, fresh, metric, level",
        "perplexity_ratio(fresh, standard, metric, level",
        ("tests/verbs/test_gain.py",),
    ),
    Fault(
        "text after the end token is kept",
        "interop/lm_eval.py",
        "self.codec.decode(up_to_end(ids, self._ends), ",
        "self.codec.decode(ids, ",
        ("tests/interop/test_lm_eval.py::test_nothing_after_the_first_end_token_counts",),
    ),
    # the study of truth
    Fault(
        "a network behind its prompt is read one word too early",
        "verbs/truth_measured.py",
        "self.model.logits(hidden, sequence, position + 1)",
        "self.model.logits(hidden, sequence, position)",
        (
            "tests/verbs/test_truth_study.py::test_a_network_behind_its_prompt_loses_what_its_card_says",
        ),
    ),
    Fault(
        "perplexity without the prompt",
        "verbs/truth_measured.py",
        '[f"{PROMPT} {text}" for text in texts]',
        "list(texts)",
        ("tests/verbs/test_truth_study.py::test_perplexity_is_read_behind_the_prompt",),
    ),
    Fault(
        "a trade is taken for a gain",
        "verbs/truth_measured.py",
        'np.log(other["modes"].value / cleaner["modes"].value)',
        'np.log(cleaner["modes"].value / other["modes"].value)',
        ("tests/verbs/test_truth_study.py::test_what_is_true_of_a_pair_is_settled_beforehand",),
    ),
    Fault(
        "the law of outputs is the sum over paths, not their mean",
        "verbs/truth_measured.py",
        "np.logaddexp.reduce(laws) - np.log(len(paths))",
        "np.logaddexp.reduce(laws)",
        ("tests/verbs/test_truth_study.py::test_the_bound_and_the_rare_words",),
    ),
    # the paper's tables
    Fault(
        "table 2A has the standard sampler's number on both sides",
        "verbs/groupeval_study.py",
        'published = printed_row.get(f"{name}_{setting}")',
        'published = printed_row.get(f"{name}_standard")',
        (
            "tests/verbs/test_groupeval_study.py::test_table_2a_has_every_printed_number_in_its_place",
        ),
    ),
    Fault(
        "a ratio of two generators is the other way round",
        "verbs/exact_output.py",
        'measured = ratio(above, below, seed=ask["seed"])',
        'measured = ratio(below, above, seed=ask["seed"])',
        (
            "tests/verbs/test_family_studies.py"
            "::test_ratios_and_judged_differences_are_of_the_first_over_the_second",
        ),
    ),
    Fault(
        "better samples are told as worse ones",
        "verbs/posterior.py",
        'rows.append({**row, "ratio": perplexity_ratio(plain, sharp)})',
        'rows.append({**row, "ratio": perplexity_ratio(sharp, plain)})',
        ("tests/verbs/test_paper.py::test_cells_beside_a_loss_are_its_own_at_1_over_sharpened",),
    ),
    Fault(
        "a certificate forgets the noise of what was published",
        "verbs/certify.py",
        'printed["outputs"], error=error',
        'printed["outputs"] * 10**9, error=error',
        ("tests/verbs/test_certify.py::test_a_gap_has_the_noise_of_both_sides",),
    ),
)


def times(fault: Fault) -> int:
    """How often the text that a fault replaces stands in its file: once, unless it was moved."""
    path = ROOT / fault.path
    return path.read_text().count(fault.old) if path.is_file() else 0


def main(words: list[str]) -> int:
    """Plant the faults that were asked for; see above."""
    wanted = [one for one in FAULTS if not words or any(w in one.what + one.file for w in words)]
    lost = [one for one in wanted if times(one) != 1]
    for one in lost:
        print(f"{one.file}: the text of {one.what!r} is there {times(one)} times, not once")
    if lost or not wanted:
        return SILENT
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder, "strop")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
        every = tuple(dict.fromkeys(test for one in wanted for test in one.tests))
        began = time.monotonic()
        code, told = pytest_says(tree, every, len(every))
        spent = f"{time.monotonic() - began:.0f} s"
        print(f"without a fault: {len(every)} groups of tests, {spent}", flush=True)
        if code:
            print(told)
            return SILENT
        found = [planted(tree, one) for one in wanted]
    print(f"{found.count('red')} of {len(found)} faults are noticed")
    return 0 if set(found) == {"red"} else SILENT


def planted(tree: Path, fault: Fault) -> str:
    """One line of the table: what the tests say of a fault in the copy."""
    path, began = tree / fault.path, time.monotonic()
    sound = path.read_text()
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        code, told = pytest_says(tree, fault.tests)
    finally:
        path.write_text(sound)
        _forget(path)
    state = {0: "GREEN", FAILED: "red"}.get(code, "BROKEN")
    tests = " ".join(fault.tests).replace("tests/", "")
    spent = f"{time.monotonic() - began:4.0f} s"
    print(f"{state:6} {spent}  {fault.what}: {fault.file} ({tests})", flush=True)
    if state == "BROKEN":
        print(told)
    return state


def pytest_says(tree: Path, tests: tuple[str, ...], turns: int = 1) -> tuple[int, str]:
    """The exit code of pytest in a tree, and the end of what it said; a hang says nothing."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "--tb=short", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=turns * SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HUNG, f"no end after {turns * SECONDS} s"
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def _forget(path: Path) -> None:
    """Its bytecode: two versions of one second and one length look the same to Python."""
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
