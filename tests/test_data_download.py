"""Downloads, against a server on this machine: complete, wrong, cut short, refused and unreachable."""

import hashlib
import re
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gatewise.data import DATASETS, load_dataset
from gatewise.data.source import cache_folder
from gatewise.errors import DataError

CONTENT = {
    "monks-1.train": b" 1 1 1 1 1 3 1 data_5\n 0 1 1 1 1 3 2 data_6\n" * 5000,
    "monks-1.test": b" 1 1 1 1 1 1 1 data_1\n",
}


class Server(ThreadingHTTPServer):
    """Serves CONTENT, or part of it, and counts what it is asked for."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.keep = [], None


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in CONTENT:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT[name])))
        self.end_headers()
        self.wfile.write(CONTENT[name][: self.server.keep])
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GATEWISE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


def serve_from(monkeypatch, port, **changes):
    """Let the row monks-1 point at the server, with the right checksums unless told otherwise."""
    row = DATASETS["monks-1"]
    files = tuple(
        replace(
            f,
            url=f"http://127.0.0.1:{port}/{changes.get('path', f.name)}",
            checksum=changes.get("checksum", f"sha256:{hashlib.sha256(CONTENT[f.name]).hexdigest()}"),
        )
        for f in row.files
    )
    monkeypatch.setitem(DATASETS, "monks-1", replace(row, files=files))


def fails(*words):
    return pytest.raises(DataError, match=".*".join(map(re.escape, words)))


def files_in(folder):
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_what_is_missing_is_downloaded_once(server, cache, monkeypatch):
    serve_from(monkeypatch, server.server_port)
    first = load_dataset("monks-1")
    again = load_dataset("monks-1")
    assert first.train_y.tolist() == again.train_y.tolist() == [1, 0] * 5000
    assert server.asked == ["monks-1.train", "monks-1.test"]
    assert files_in(cache / "uci") == ["monks-1.test", "monks-1.train"]


def test_only_what_is_missing_is_downloaded_and_nothing_is_overwritten(server, cache, monkeypatch):
    serve_from(monkeypatch, server.server_port)
    cache.mkdir()
    (cache / "monks-1.train").write_bytes(b" 1 1 1 1 1 3 1 mine\n")
    assert len(load_dataset("monks-1").train_x) == 1
    assert server.asked == ["monks-1.test"]
    assert (cache / "monks-1.train").read_bytes() == b" 1 1 1 1 1 3 1 mine\n"


def test_progress_counts_the_bytes(server, cache, monkeypatch):
    serve_from(monkeypatch, server.server_port)
    steps = []
    load_dataset("monks-1", progress=lambda done, total: steps.append((done, total)))
    size = len(CONTENT["monks-1.train"])
    train = [done for done, total in steps if total == size]
    assert train == sorted(train)
    assert train[-1] == size
    assert len(train) > 2


def test_a_given_folder_never_downloads(server, cache, tmp_path, monkeypatch):
    serve_from(monkeypatch, server.server_port)
    with fails("monks-1 needs uci/monks-1.train", "name no folder to have it downloaded"):
        load_dataset("monks-1", tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "md5:" + "0" * 32])
def test_a_wrong_checksum_is_refused_and_leaves_nothing(server, cache, monkeypatch, checksum):
    serve_from(monkeypatch, server.server_port, checksum=checksum)
    with fails("monks-1.train", "checksum", checksum, "by hand"):
        load_dataset("monks-1")
    assert files_in(cache) == []


@pytest.mark.parametrize("keep", [0, 1000])
def test_a_download_cut_short_is_refused_and_leaves_nothing(server, cache, monkeypatch, keep):
    serve_from(monkeypatch, server.server_port)
    server.keep = keep
    with fails("monks-1.train", f"127.0.0.1:{server.server_port}", "try again"):
        load_dataset("monks-1")
    assert files_in(cache) == []
    server.keep = None
    assert len(load_dataset("monks-1").train_x) == 10_000


def test_a_server_that_refuses_is_quoted(server, cache, monkeypatch):
    serve_from(monkeypatch, server.server_port, path="gone")
    with fails("monks-1.train", "the server answers 404"):
        load_dataset("monks-1")


def test_a_server_that_cannot_be_reached_is_named(cache, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve_from(monkeypatch, port)
    with fails("monks-1.train cannot be downloaded", f"127.0.0.1:{port}", "ConnectionError", "check the connection"):
        load_dataset("monks-1")


def test_a_cache_that_cannot_be_written_is_named(cache, monkeypatch):
    cache.write_text("a file where the folder should be")
    with fails("monks-1.train cannot be written into", "GATEWISE_DATA"):
        load_dataset("monks-1")


def test_what_needs_a_login_is_not_downloaded(cache):
    with fails("ecg needs mitbih/mitbih_train.csv", str(cache), "kaggle.com"):
        load_dataset("ecg")


def test_the_cache_is_the_systems_unless_the_environment_names_one(monkeypatch, tmp_path):
    monkeypatch.setenv("GATEWISE_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GATEWISE_DATA")
    assert cache_folder().name == "gatewise"


def test_every_file_that_can_be_downloaded_has_a_checksum():
    for row in DATASETS.values():
        for file in row.files:
            if file.url:
                assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", file.checksum)
                assert file.url.endswith("/" + file.name)
            else:
                assert row.fetch
