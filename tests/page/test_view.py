"""`strop view` without a browser: who may ask, what is handed out, and what is said of a run."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output
from strop.cli.main import run
from strop.errors import UserError
from strop.groupeval import load_judgments, score
from strop.groupeval.inputs import read_inputs
from strop.measure.frame import Measured, read_run
from strop.page import gather, render
from strop.page.data import Shown
from strop.page.live import paged as paged_module
from strop.page.live.command import _folders
from strop.page.live.paged import LONGEST, MOST, Paged, Wish
from strop.page.live.watch import WatchedFolder, locked_files, walk
from strop.page.origin import command_of
from strop.spec import SamplerSpec
from strop.store import Cell, Mark, Run, read_mark
from strop.training.curve import METRICS

pytest.importorskip("starlette")

from strop.page.live.guarded import NAMES
from strop.page.live.server import Server, Viewer

TOKEN, PORT = "the-token", 8111
HOST = f"127.0.0.1:{PORT}"
TEXTS = [f"text {i} of the {'long' if i % 3 else 'short'} kind" for i in range(30)]
HOSTILE = [
    "<script>document.title = 'owned'</script>",
    "</script><img src=x onerror=alert(1)>",
    "\u202eright to left\u2066 \x00\x1b[31m \u2028",
    "{{ 7 * 7 }} & < >",
    "a" * 100_000,
    "",
]


def index_of(html: str) -> dict[str, Any]:
    """What a page's scripts know of the generators."""
    return json.loads(html.split('id="browser-index">')[1].split("</script")[0])


def cell_of(path: Path, texts: list[str], **changes: Any) -> Cell:
    """A cell whose outputs have these texts, and as many calls as their number says."""
    rng = np.random.default_rng(1)
    rows = [output(i, rng.integers(0, 11, 4).tolist(), text=text) for i, text in enumerate(texts)]
    return made_cell(path, cell_spec(4, **changes), rows)


class Client:
    """Asks an application as it stands, without any client that would tidy addresses up."""

    def __init__(self, server: Server) -> None:
        self.app = server.app

    def ask(
        self,
        path: str,
        query: str = "",
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> tuple[int, dict[str, str], bytes]:
        told = {"host": HOST} | {k.replace("_", "-"): v for k, v in headers.items()}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in told.items()],
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        start = next(one for one in sent if one["type"] == "http.response.start")
        answer = b"".join(one.get("body", b"") for one in sent)
        return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, answer

    def get(self, path: str, **asked: Any) -> Any:
        """The JSON of an address below the token."""
        from urllib.parse import urlencode

        status, _, body = self.ask(f"/{TOKEN}/{path}", urlencode(asked))
        return {"status": status, **json.loads(body)}

    def rate(self, view: str = "0", **said: Any) -> Any:
        status, _, body = self.ask(
            f"/{TOKEN}/{view}/ratings",
            method="POST",
            body=json.dumps(said).encode(),
            content_type="application/json",
        )
        return {"status": status, **json.loads(body)}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two cells: thirty plain texts, and the hostile ones."""
    path = tmp_path_factory.mktemp("view") / "run"
    cell = cell_of(path, TEXTS)
    sizes = dict.fromkeys(("tokens", "bytes", "kept_bytes", "source_bytes"), np.full(28, 2))
    nll = {"index": np.arange(28), "nll": 3.0 * np.arange(28)[::-1]}
    cell.add_scores(PERPLEXITY, nll | sizes)
    cell_of(path, HOSTILE, temperature=0.5)
    return path


@pytest.fixture(scope="module")
def viewer(kept: Path) -> Viewer:
    viewer = Viewer([kept])
    viewer.look()
    viewer.made((0,))  # a page that is not ready within a second is announced instead
    return viewer


@pytest.fixture
def client(viewer: Viewer) -> Client:
    return Client(Server(viewer, TOKEN, PORT))


@pytest.fixture(scope="module")
def plain(kept: Path) -> str:
    return cell_spec(4).id


# ---------------------------------------------------------------------------- who may ask


@pytest.mark.parametrize("path", ["/", "//", "", "/wrong/", "/the-toke/0/", f"/{TOKEN}x/0/", "/0/"])
def test_without_the_token_nothing_is_answered(client: Client, path: str) -> None:
    status, headers, body = client.ask(path)
    assert status == 403
    assert b"strop view" in body
    assert "script-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", "", "0.0.0.0:8111"],
)
def test_a_foreign_host_is_refused_even_with_the_token(client: Client, host: str) -> None:
    assert client.ask(f"/{TOKEN}/0/", host=host)[0] == 403


@pytest.mark.parametrize("hosts", [[HOST, "evil.example"], ["evil.example", HOST], [HOST] * 2, []])
def test_one_host_is_asked_for(viewer: Viewer, hosts: list[str]) -> None:
    app = Server(viewer, TOKEN, PORT).app
    assert app._refusal(
        {
            "path": f"/{TOKEN}/0/",
            "method": "GET",
            "headers": [(b"host", host.encode()) for host in hosts],
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_this_machine_may_ask_by_either_name(client: Client, name: str) -> None:
    status, headers, _ = client.ask(f"/{TOKEN}/0/", host=f"{name}:{PORT}")
    assert status == 200
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(one.split(" ", 1) for one in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["0/", "0/outputs", "0/page.css", "0/events"])
def test_all_but_ratings_can_be_read_only(client: Client, method: str, path: str) -> None:
    assert client.ask(f"/{TOKEN}/{path}", method=method)[0] == 405


def test_another_page_cannot_rate(client: Client, plain: str) -> None:
    body = json.dumps({"cell": plain, "index": 0, "value": 2}).encode()
    json_ = {"content_type": "application/json"}
    for more, expected in (
        ({"origin": "http://127.0.0.1:9", **json_}, 403),
        ({"origin": "null", **json_}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"origin": f"http://{HOST}", "content_type": "text/plain"}, 415),
    ):
        status, _, _ = client.ask(f"/{TOKEN}/0/ratings", method="POST", body=body, **more)
        assert status == expected
    assert client.get("0/ratings")["ratings"] == []


@pytest.mark.parametrize(
    "path",
    [
        "0/../../../../etc/passwd", "0/%2e%2e/strop.json", "0/strop.json", "0/cells", "../0/",
        "0//", "0/page.html", "page.html", "0/....//strop.json", "0/\\..\\strop.json",
        "static/../0/", "0/outputs/x",
        "1/", "0+1/", "-1/", "٠/", "0+/", "00000000/", "0/page.css/", "0/page.css\x00",
    ],
)  # fmt: skip
def test_nothing_but_pages_and_their_files_has_an_address(client: Client, path: str) -> None:
    status, _, body = client.ask(f"/{TOKEN}/{path}")
    assert status == 404
    assert b"root:" not in body


def test_a_link_that_leads_out_hides_the_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    cell_of(secret, ["what nobody may see"])
    given = tmp_path / "given"
    cell_of(given, ["plain"], seed=3)
    inside = next((secret / "cells").iterdir())
    (given / "cells" / inside.name).symlink_to(inside)
    (given / "notes").symlink_to(given / "cells")  # within the folder: fine
    viewer = Viewer([given])
    viewer.look()
    viewer.made((0,))
    [state] = viewer.states()
    assert state["state"] == "damaged"
    assert "leads out of it" in state["failures"][0]["why"]
    client = Client(Server(viewer, TOKEN, PORT))
    status, _, page = client.ask(f"/{TOKEN}/0/")
    assert status == 200
    assert b"browser-index" not in page
    assert client.get("0/outputs", cell=inside.name)["status"] == 404
    both = Viewer([given, secret])  # what was given may be led to
    both.look()
    assert [one["state"] for one in both.states()] == ["finished", "finished"]
    walk(given, [given.resolve(), secret.resolve()])
    with pytest.raises(UserError, match="leads out"):
        walk(given, [given.resolve()])


# ---------------------------------------------------------------------------- what is handed out


def test_the_page_is_the_report_without_its_outputs(client: Client) -> None:
    _, _, body = client.ask(f"/{TOKEN}/0/")
    page = body.decode()
    assert 'id="browser-index"' in page
    assert "pack-0" not in page
    assert 'src="live.js"' in page
    for text in HOSTILE[:4]:
        assert text not in page
    scripts = [one.split(">", 1)[0] for one in page.split("<script")[1:]]
    assert all("src=" in one or 'type="application/json"' in one for one in scripts)
    for name in ("base.js", "live.js", "page.css", "live.css"):
        assert client.ask(f"/{TOKEN}/0/{name}")[0] == 200


def test_outputs_come_a_few_at_a_time_each_once(client: Client, plain: str) -> None:
    seen, after = [], 0
    while after is not None:
        page = client.get("0/outputs", cell=plain, after=after, n=7)
        assert page["status"] == 200
        assert (page["held"], page["kept"]) == (30, 30)
        seen += page["rows"]
        after = page["next"]
    assert [row[0] for row in seen] == list(range(30))
    assert [row[1] for row in seen] == TEXTS
    assert len(client.get("0/outputs", cell=plain, n=10_000)["rows"]) == min(MOST, 30)


def test_search_bounds_and_order_hold_for_all_outputs(client: Client, plain: str) -> None:
    found = client.get("0/outputs", cell=plain, search="SHORT", n=4)
    assert [row[0] for row in found["rows"]] == [0, 3, 6, 9]
    assert (found["kept"], found["next"]) == (10, 4)
    rest = client.get("0/outputs", cell=plain, search="SHORT", n=64, after=4)
    assert [row[0] for row in rest["rows"]] == [12, 15, 18, 21, 24, 27]
    columns = index_of(client.ask(f"/{TOKEN}/0/")[2].decode())["columns"]
    calls = next(i for i, one in enumerate(columns) if one["label"] == "calls")
    nll = next(i for i, one in enumerate(columns) if "perplexity" in one["label"])
    down = client.get("0/outputs", cell=plain, order=f"{calls} -1", n=3)
    assert [row[0] for row in down["rows"]] == [29, 28, 27]
    up = client.get("0/outputs", cell=plain, order=f"{nll} 1", n=3, search="long")
    assert [row[0] for row in up["rows"]] == [26, 25, 23]
    for way in (1, -1):  # two have no perplexity
        rows = client.get("0/outputs", cell=plain, order=f"{nll} {way}", n=64)["rows"]
        assert [row[0] for row in rows][-2:] == [28, 29]
    most = client.get("0/outputs", cell=plain, column=calls, bound=12, direction="most")
    assert [row[0] for row in most["rows"]] == [0, 1, 2]
    least = client.get("0/outputs", cell=plain, column=calls, bound=38, direction="least")
    assert [row[0] for row in least["rows"]] == [28, 29]


def test_texts_are_data(client: Client) -> None:
    hostile = cell_spec(4, temperature=0.5).id
    rows = client.get("0/outputs", cell=hostile)["rows"]
    assert [row[1] for row in rows[:4]] == HOSTILE[:4]
    assert rows[4][1] == HOSTILE[4][:LONGEST] + "…"
    assert client.get("0/output", cell=hostile, index=4)["text"] == HOSTILE[4]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"cell": "0" * 16}, 404), ({}, 404), ({"cell": "../../etc"}, 404),
        ({"cell": None, "after": "x"}, 400), ({"cell": None, "order": "9 1"}, 400),
        ({"cell": None, "order": "up"}, 400), ({"cell": None, "bound": "x", "column": 0}, 400),
        ({"cell": None, "column": -1, "bound": 1}, 400),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly_is_refused_in_words(
    client: Client, plain: str, asked: dict[str, Any], status: int
) -> None:
    asked = {k: plain if v is None else v for k, v in asked.items()}
    found = client.get("0/outputs", **asked)
    assert found["status"] == status
    assert found["error"]


def test_a_page_far_into_a_large_cell_reads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(tmp_path / "run", [f"{i}" for i in range(5000)])
    shown = Shown(Measured(cell.spec, cell.path, 5000, None, ()), "one", {})
    paged = Paged(cell, shown, [])
    assert len(paged.numbers) == 5000
    read = rows_read(monkeypatch)
    page = paged.page(Wish(after=4900, count=5))
    assert [row[0] for row in page["rows"]] == [4900, 4901, 4902, 4903, 4904]
    assert 0 < read["text"] < 2100  # its own row group, and not the four before


def rows_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many entries of every column are read of files of outputs from now on."""
    import strop.store.tables as tables

    read: Counter[str] = Counter()
    real = tables.parquet_file

    def watched(source: Any, **options: Any) -> Any:
        file = real(source, **options)
        iterate = file.iter_batches

        def counted(*arguments: Any, **more: Any) -> Any:
            for batch in iterate(*arguments, **more):
                read.update(dict.fromkeys(batch.schema.names, batch.num_rows))
                yield batch

        file.iter_batches = counted
        return file

    monkeypatch.setattr(tables, "parquet_file", watched)
    return read


@pytest.fixture
def large(tmp_path: Path) -> Cell:
    """A cell whose numbers take a while, as far as a page without them is concerned."""
    return cell_of(tmp_path / "large", [f"{i} of many" for i in range(5000)])


def test_outputs_are_there_before_the_numbers_and_nothing_is_read_for_them(
    large: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = Viewer([large.path.parents[1]])
    client = Client(Server(viewer, TOKEN, PORT))
    numbers = threading.Event()
    monkeypatch.setattr(
        "strop.page.live.server.read_run", lambda run: numbers.wait(60) and read_run(run)
    )
    monkeypatch.setattr("strop.page.live.server.SOON", 0.01)
    read = rows_read(monkeypatch)
    asking = threading.Thread(target=viewer.made, args=[(0,)])
    viewer.look()
    asking.start()
    try:
        first = viewer.first((0,))
        assert "The numbers are being computed" in first.html
        assert 'id="corners"' not in first.html
        assert 'id="outputs"' in first.html
        rows = client.get("0/outputs", cell=large.id, after=4990, n=20)
        assert (rows["held"], rows["kept"]) == (5000, 5000)
        assert [row[1] for row in rows["rows"]] == [f"{i} of many" for i in range(4990, 5000)]
        assert client.get("0/output", cell=large.id, index=4999)["text"] == "4999 of many"
        assert client.get("0/ratings")["ratings"] == []
        # The index to count them and to page; of texts and ids three groups of rows.
        assert read["text"] < 3500
        assert read["ids"] < 3500
        assert viewer.outdated((0,))
    finally:
        numbers.set()
        asking.join(60)
    made = viewer.known((0,))
    assert made is not None
    assert made.version != first.version
    assert "are being computed" not in made.html
    assert 'id="corners"' in made.html
    rows = client.get("0/outputs", cell=large.id, order="0 1", n=1)["rows"]
    assert [one["label"] for one in index_of(made.html)["columns"]] == [
        "entropy",
        "repeated",
        "calls",
    ]
    assert len(rows[0][2]) == 3


def test_a_page_reads_ids_a_few_times_and_its_outputs_never_again(
    large: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every metric reads all ids, some of them twice; a page of outputs reads its own."""
    viewer = Viewer([large.path.parents[1]])
    viewer.look()
    read = rows_read(monkeypatch)
    viewer.made((0,))
    assert read["ids"] <= 6 * 5000
    read.clear()
    for _ in range(3):
        viewer.made((0,))
        viewer.paged((0,), large.id).page(Wish(after=4000, order=(0, -1)))
    assert read["text"] <= 3 * 12 * 1024


# ---------------------------------------------------------------------------- ratings


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files")
def test_ratings_last_and_become_judgments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    one = cell_of(path, TEXTS[:4])
    two = cell_of(path, TEXTS[:4], temperature=0.5)
    client = Client(Server(Viewer([path]), TOKEN, PORT))
    for cell, index, value in ((one, 0, 2), (one, 1, 1), (two, 3, 0), (one, 1, 0), (two, 2, 2)):
        assert client.rate(cell=cell.id, index=index, value=value)["status"] == 200
    assert client.rate(cell=two.id, index=2, value=None)["status"] == 200
    kept = {(one.id, 0, 2), (one.id, 1, 0), (two.id, 3, 0)}
    # A server that is killed in the middle of a line leaves the lines before it.
    journal = path / "ratings" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"cell": "' + two.id.encode())
    client = Client(Server(Viewer([path]), TOKEN, PORT))
    assert {tuple(said) for said in client.get("0/ratings")["ratings"]} == kept
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr("strop.page.live.ratings.os.fsync", fsync)
    client.rate(cell=two.id, index=0, value=1)
    assert synced[0] == str(journal)  # before anybody is told
    kept.add((two.id, 0, 1))
    assert {tuple(said) for said in client.get("0/ratings")["ratings"]} == kept
    judged = load_judgments(str(path / "ratings" / "human.jsonl"))
    names = {source.name for source in read_inputs([str(path)])}
    assert set(judged.cells) == names  # as a plan of the same run calls them
    found = score(judged)["cells"]
    assert {round(found[name]["geq"].value, 3) for name in names} == {5.0, 2.5}
    [series] = gather([path], outputs=1).series
    assert [row["geq"].value for row in series.table.rows] == [5.0, 2.5]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"index": 0, "value": 3}, 400), ({"index": 0, "value": -1}, 400),
        ({"index": 0, "value": 1.0}, 400), ({"index": 0, "value": True}, 400),
        ({"index": 30, "value": 1}, 404), ({"index": -1, "value": 1}, 404),
        ({"index": "0", "value": 1}, 400), ({"index": 0}, 404),
        ({"cell": "f" * 16, "index": 0, "value": 1}, 404),
        ({"cell": 7, "index": 0, "value": 1}, 400),
    ],
)  # fmt: skip
def test_other_ratings_are_refused(
    client: Client, plain: str, kept: Path, said: dict[str, Any], status: int
) -> None:
    assert client.rate(**{"cell": plain, **said})["status"] == status
    assert not (kept / "ratings").exists()


def test_a_rating_is_small_and_json(client: Client) -> None:
    for body, status in ((b"x" * 5000, 413), (b"[1]", 400), (b"{", 400), (b"\xff", 400)):
        found = client.ask(
            f"/{TOKEN}/0/ratings", method="POST", body=body, content_type="application/json"
        )
        assert found[0] == status


# ---------------------------------------------------------------------------- what is under way


def watched(path: Path) -> WatchedFolder:
    return WatchedFolder(0, path, [path.resolve()])


def test_progress_follows_the_files(tmp_path: Path) -> None:
    path, spec = tmp_path / "run", cell_spec(4)
    Run.prepare(path, {"checkpoint": "made", "samplers": [], "n": 8}, [spec])
    folder, cell = watched(path), Run(path).cell(spec.id)
    assert folder.look(set())
    state = folder.state(0.0)
    assert (state["state"], state["done"], state["asked"], state["kind"]) == (
        "stopped",
        0,
        8,
        "run",
    )
    cell.add([output(i, [1, 2, 3, 4]) for i in range(3)])
    assert folder.look(set())
    assert not folder.look(set())
    assert folder.state(1.0)["cells"] == [
        {"id": spec.id, "label": "M=4 tau=1 float64", "done": 3, "asked": 8}
    ]
    cell.add([output(i, [1, 2, 3, 4]) for i in range(3, 8)])
    cell.merge()
    folder.look(set())
    state = folder.state(2.0)
    assert (state["state"], state["done"], state["rate"]) == ("finished", 8, None)


def test_rate_and_time_to_go_are_of_the_last_minute(tmp_path: Path) -> None:
    path, spec = tmp_path / "run", cell_spec(4)
    Run.prepare(path, {"checkpoint": "made", "samplers": [], "n": 100}, [spec])
    folder, cell = watched(path), Run(path).cell(spec.id)
    for second, until in ((0, 10), (50, 20), (70, 40), (80, 60)):
        done = len(cell.indices())
        cell.add([output(i, [1, 2, 3, 4]) for i in range(done, until)])
        folder.look(set())
        folder.busy = True
        state = folder.state(float(second))
    # From second 50 on, where there were 20: 40 more in 30 s, and 40 are left.
    assert state["rate"] == pytest.approx(4 / 3)
    assert state["left"] == pytest.approx(30)


HOLDER = """
import sys, time
from pathlib import Path
from strop.store import Run
run = Run(Path(sys.argv[1]))
with run.cells()[0].drawing():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(locked_files() is None, reason="the system does not tell its locks")
def test_a_run_that_is_killed_is_stopped_at_once(tmp_path: Path) -> None:
    path, spec = tmp_path / "run", cell_spec(4)
    Run.prepare(path, {"checkpoint": "made", "samplers": [], "n": 8}, [spec])
    folder = watched(path)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    folder.look(locked_files())
    assert folder.state()["state"] == "under way"
    # Looking at the lock does not take it: another process can still draw, alone or together.
    with Run(path).cell(spec.id).drawing(wait=False) as mine:
        assert mine
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    folder.look(locked_files())
    assert folder.state()["state"] == "stopped"


def test_without_locks_to_see_what_changed_lately_is_under_way(tmp_path: Path) -> None:
    cell_of(tmp_path / "run", ["one"])
    folder = watched(tmp_path / "run")
    folder.look(None, time.time() + 5)
    assert folder.state()["state"] == "under way"
    folder.look(None, time.time() + 3600)
    assert folder.state()["state"] == "finished"


def test_the_command_that_continues_is_what_was_asked(tmp_path: Path) -> None:
    out = tmp_path / "a run"
    words = ["sample", "embedded:tales-tiny", "--steps", "2,4", "--temperature", "1.0,0.5"]
    assert run([*words, "-n", "2", "--length", "8", "--seed", "7", "-o", str(out)]) == 0
    folder = watched(out)
    folder.look(set())
    command = folder.state()["command"]
    assert command.startswith("strop sample embedded:tales-tiny --steps 2,4 --temperature 1.0,0.5")
    assert "-n 2" in command
    assert "--seed 7" in command
    assert command.endswith(f"-o '{out}'")
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.parquet")}
    assert run(shlex.split(command)[1:]) == 0  # it continues: there is nothing to draw
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.parquet")} == before


def test_the_command_of_a_task_run_draws_nothing_new(tmp_path: Path) -> None:
    out = tmp_path / "sums"
    words = ["task", "run", "sums", "embedded:sums", "--limit", "2", "--seeds", "2"]
    asked = [*words, "--temperature", "0,1", "--steps", "2,4", "-o", str(out)]
    assert run(asked) == 0
    mark = read_mark(out)
    assert mark is not None
    whole = command_of(out, mark)
    assert whole == (
        "strop task run sums embedded:sums --temperature 0.0,1.0 --seeds 2 --limit 2 --steps 2,4 "
        f"--length 24 -o {out}"
    )
    cells = sorted((out / "sums" / "cells").iterdir())
    assert len(cells) == 6  # two numbers of steps, greedy once and otherwise under two seeds
    before = {file: file.stat().st_mtime_ns for file in out.rglob("outputs.parquet")}
    shutil.rmtree(cells[-1])  # as if it had not been begun
    assert command_of(out, mark) == whole
    assert run(shlex.split(whole)[1:]) == 0
    after = {file: file.stat().st_mtime_ns for file in out.rglob("outputs.parquet")}
    assert after.keys() == before.keys()
    assert {file for file in after if after[file] != before[file]} == {
        cells[-1] / "outputs.parquet"
    }


@pytest.mark.parametrize("finished", [False, True])
def test_the_command_of_an_audit_has_its_axes(tmp_path: Path, finished: bool) -> None:
    settings = [
        SamplerSpec(steps=steps, temperature=tau).model_dump(mode="json")
        for steps in (4, 8)
        for tau in (1.0, 0.8)
    ]
    asked = {"checkpoint": "embedded:tales", "samplers": settings, "n": 16, "seed": 0}
    asked |= {"weights": {"family": "mdlm", "shape": {"length": 128}}, "length": 128}
    if finished:  # the result knows more of what was asked than the mark
        axis = {"temperature": [1.0, 0.8], "precision": ["float64"]}
        told = {
            "steps": [4, 8],
            "n": [16],
            "fresh_n": [8],
            "axis": axis,
            "evaluator": {"name": "x"},
        }
        (tmp_path / "result.json").write_text(json.dumps({"asked": told}))
    found = command_of(tmp_path, Mark("audit", "audit", asked, ()))
    fresh = " --fresh-n 8" if finished else ""
    axes = "--axis temperature=1.0,0.8 --axis precision=float64"
    assert found == f"strop audit embedded:tales --steps 4,8 -n 16{fresh} {axes} -o {tmp_path}"
    asked["samplers"] = settings[:3]  # no combinations of anything: a mark alone does not tell
    again = command_of(tmp_path, Mark("audit", "audit", asked, ()))
    assert again == (found if finished else None)


def test_losses_are_told_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "trained"
    path.mkdir()
    mark = {
        "kind": "training",
        "format": 1,
        "strop": "0",
        "owner": "train",
        "asked": {"steps": 100},
    }
    (path / "strop.json").write_text(json.dumps(mark))
    held = {"value": 2.5, "low": 2.0, "high": 3.0}
    lines = [
        {"kind": "train", "step": 10, "loss": 4.0},
        {"kind": "held_out", "step": 10, "nats_per_token": held},
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (path / METRICS).write_text(content + '{"kind": "train", "st')
    folder = watched(path)
    folder.look(set())
    state = folder.state()
    assert (state["done"], state["asked"], state["unit"]) == (10, 100, "steps")
    assert state["command"] == f"strop train {path} -o {path}"
    page = render(gather([path]), live=Viewer([path]).about((0,))).html
    assert "After 10 steps held-out text has at most 2.5000 [2.0000, 3.0000] nats" in page
    assert "10 of 100 steps are done" in page
    assert str(path) not in page
    (path / METRICS).write_text(json.dumps(lines[0]) + "\n")
    page = render(gather([path]), live=Viewer([path]).about((0,))).html
    assert "The training loss is 4.0000 nats per token." in page


def test_judges_are_told_with_their_failures(tmp_path: Path) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "ge"
    source.write_text(
        "".join(json.dumps({"text": f"A text, number {i}."}) + "\n" for i in range(16))
    )
    assert run(["groupeval", "plan", str(source), "-o", str(out)]) == 0
    folder = watched(out)
    folder.look(set())
    assert folder.state()["state"] == "not judged"
    assert run(["groupeval", "judge", str(out), "--offline"]) == 0
    journal = next(out.glob("series/*/calls.jsonl"))
    lines = journal.read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    failed = {k: last[k] for k in ("sheet", "repeat")} | {
        "outcome": "timeout",
        "detail": "no reply",
    }
    journal.write_text("".join(lines[:-1]) + json.dumps(failed) + "\n")
    folder.look(set())
    [series] = folder.details()["series"]
    assert (series["done"], series["asked"], series["failed"]) == (len(lines) - 1, len(lines), 1)
    [why] = folder.state()["failures"]
    assert why["why"] == "timeout: no reply"
    assert folder.state()["state"] == "stopped"


# ---------------------------------------------------------------------------- the command


def test_wrong_input_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["view", "--no-open"]) == 1
    assert "nothing to show" in capsys.readouterr().err
    assert run(["view", "nowhere", "--no-open"]) == 1
    assert "no such directory" in capsys.readouterr().err
    Path("notes.txt").write_text("x")
    assert run(["view", "notes.txt", "--no-open"]) == 1
    assert "This is a file" in capsys.readouterr().err
    Path("empty").mkdir()
    assert run(["view", "empty", "--no-open"]) == 1
    assert "nothing to show in this directory" in capsys.readouterr().err
    cell_of(tmp_path / "run", ["one"])
    assert run(["view", "run", "--port", "70000", "--no-open"]) == 1
    assert "--port" in capsys.readouterr().err
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["view", "run", "--port", str(port), "--no-open"]) == 1
        assert "This port cannot be used" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["view", "run", "--no-open"]) == 1
    assert "pip install 'strop[view]'" in capsys.readouterr().err


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_by_a_signal_without_a_word_also_while_a_page_is_open(
    kept: Path, ends: signal.Signals
) -> None:
    command = [sys.executable, "-m", "strop", "view", str(kept), "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as view:  # fmt: skip
        try:
            assert view.stdout is not None
            address = view.stdout.readline().strip()
            with urlopen(f"{address}0/events", timeout=60) as events:
                assert events.readline().startswith(b"event: ")
                view.send_signal(ends)
                while events.readline():  # what was sent before, and then the end
                    pass
            out, err = view.communicate(timeout=60)
        finally:
            view.kill()
    assert (view.returncode, out) == (0, "")
    assert err.strip().splitlines() == [
        "this page is for this machine alone; Ctrl-C ends it, and disturbs no run"
    ]


def test_folders_with_nothing_to_show_do_not_hide_the_others(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    Run.prepare(begun, {"checkpoint": "made", "n": 2}, [cell_spec(4, seed=9)])
    for seed, name in enumerate("ab"):
        cell_of(tmp_path / name, ["one"], seed=seed)
    viewer = Viewer([begun, tmp_path / "a", tmp_path / "b"])
    viewer.look()
    assert [group.seed for group in viewer.made((0, 1, 2)).report.groups] == [0, 1]
    assert viewer.made((0,)).report.groups == ()


def test_a_directory_of_runs_stands_for_what_lies_in_it(tmp_path: Path) -> None:
    for name in ("runs/b", "runs/deep/c", "runs/a"):
        cell_of(tmp_path / name, ["one"])
    named = tuple(str(tmp_path / one) for one in ("runs", "runs/a"))
    shown = [str(path.relative_to(tmp_path)) for path in _folders(named)]
    assert shown == ["runs/a", "runs/b", "runs/deep/c"]
    judged = tmp_path / "judged.jsonl"
    judged.write_text("{}\n")
    assert _folders((str(judged), named[1])) == [judged, tmp_path / "runs/a"]


def paged_of(path: Path, texts: list[str], *, as_ids: bool = False, **changes: Any) -> Paged:
    cell = cell_of(path, texts, **changes)
    cell_numbers = Measured(cell.spec, cell.path, len(texts), None, ())
    return Paged(cell, Shown(cell_numbers, "one", {}, as_ids=as_ids), [])


def test_repeats_are_found_among_all_outputs(tmp_path: Path) -> None:
    """By the page's own words: what JavaScript calls white space, and runs that overlap."""
    texts = [
        "a b c d a b c d",
        "a a a a a",
        "a b c a b x",
        "a\ufeffb\u2003c a\tb\u3000c",
        "",
        "a b",
    ]
    texts += ["a\u0085b c a\u0085b c"]  # no white space there: two words that occur twice
    paged = paged_of(tmp_path / "run", texts)
    for length, wanted in ((4, [0, 1]), (3, [0, 1, 3]), (2, [0, 1, 2, 3, 6]), (0, list(range(7)))):
        page = paged.page(Wish(repeats=length))
        assert [row[0] for row in page["rows"]] == wanted, length
        assert (page["kept"], page["held"]) == (len(wanted), 7)
    both = paged.page(Wish(repeats=2, search="D A"))
    assert [row[0] for row in both["rows"]] == [0]
    assert paged.page(Wish(repeats=2, after=1, count=2))["next"] == 3


def test_pairs_that_differ_are_found_among_all_outputs(tmp_path: Path) -> None:
    left = paged_of(tmp_path / "run", [f"text {i % 3}" for i in range(200)])
    right = paged_of(tmp_path / "run", [f"text {i % 3 % 2}" for i in range(150)], temperature=0.5)
    wanted = [i for i in range(150) if i % 3 == 2]  # only where both have an output
    for one, other in ((left, right), (right, left)):
        page = one.page(Wish(count=64), other)
        assert [row[0] for row in page["rows"]] == wanted
        assert page["kept"] == len(wanted)
    assert left.page(Wish(), left)["kept"] == 0
    later = [output(i, [1, 2, 3, 4], text=f"text {i % 3 % 2}") for i in range(60, 90)]
    cell = made_cell(tmp_path / "run", cell_spec(4, temperature=0.25), later)
    shown = Shown(Measured(cell.spec, cell.path, 30, None, ()), "one", {})
    for one, other in ((left, Paged(cell, shown, [])), (Paged(cell, shown, []), left)):
        assert [row[0] for row in one.page(Wish(), other)["rows"]] == list(range(62, 90, 3))
    rows = [output(i, [1, 2, 3, 4], text="another") for i in range(150, 155)]
    Cell.open(tmp_path / "run" / "cells" / cell_spec(4, temperature=0.5).id).add(rows)
    assert left.page(Wish(), right)["kept"] == len(wanted) + 5


def test_a_search_that_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged = paged_of(tmp_path / "run", ["a b a b"] * 3)
    other = paged_of(tmp_path / "run", ["c"] * 3, temperature=0.5)
    monkeypatch.setattr(paged_module, "SECONDS", -1.0)
    for page in (
        paged.page(Wish(search="a")),
        paged.page(Wish(repeats=2)),
        paged.page(Wish(), other),
    ):
        assert (page["kept"], page["held"]) == (None, 3)


def test_search_in_any_case_and_script(tmp_path: Path) -> None:
    texts = ["Straße", "ÉCOLE normale", "école", "a.b*c", "A.B*C (x)", "ΣΊΣΥΦΟΣ", "none"]
    paged = paged_of(tmp_path / "run", texts)
    for words, wanted in (
        ("école", [1, 2]), ("ÉCOLE", [1, 2]), ("A.B*", [3, 4]), ("(X)", [4]), ("straß", [0]),
        ("σίσυφο", [5]), (".", [3, 4]), ("absent", []),
    ):  # fmt: skip
        page = paged.page(Wish(search=words))
        assert [row[0] for row in page["rows"]] == wanted, words
        assert page["kept"] == len(wanted)
