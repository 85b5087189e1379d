"""A local server in place of the Hugging Face hub, with folders as models."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

COMMIT = "0" * 40
REVISIONS = {"main": COMMIT, "v1.0": "1" * 40, "1" * 40: "1" * 40, COMMIT: COMMIT}
"""Commits by revision; all have the same files."""


@dataclass
class Hub:
    """State of the server.

    `pretended` has sizes of files that do not exist, `sent` the bytes of each downloaded file, `commits` the
    commits of the downloads.
    """

    models: dict[str, Path]
    card: dict[str, Any]
    pretended: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)

    def sizes(self, name: str) -> dict[str, int]:
        folder = self.models[name]
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): path.stat().st_size for path in files} | self.pretended

    def answer(self, path: str) -> tuple[dict[str, str], bytes] | None:
        """Return the headers and body for a path."""
        words = path.partition("?")[0].strip("/").split("/")
        name = "/".join(words[2:4] if words[:2] == ["api", "models"] else words[:2])
        named = [after for word, after in pairwise(words) if word in ("resolve", "revision", "tree")]
        commit = REVISIONS.get(named[0]) if named else COMMIT
        if name not in self.models or commit is None:
            return None
        if words[0] != "api":
            file = "/".join(words[4:])
            body = (self.models[name] / file).read_bytes()
            self.sent[file] = len(body)
            self.commits.add(commit)
            return {"ETag": f'"{sha1(body).hexdigest()}"', "X-Repo-Commit": commit}, body
        sizes = self.sizes(name)
        if "tree" in words:
            listed: Any = [
                {"type": "file", "path": file, "size": size, "oid": file} for file, size in sizes.items()
            ]
        else:
            siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
            listed = {"id": name, "sha": commit, "siblings": siblings, "cardData": self.card}
        return {"Content-Type": "application/json"}, json.dumps(listed).encode()


@contextmanager
def stand_in_hub(
    monkeypatch: pytest.MonkeyPatch, cache: Path, models: dict[str, Path], **card: Any
) -> Iterator[Hub]:
    """Run a hub for huggingface_hub with these models, which all have the same card."""
    hub = Hub(models, card)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = hub.answer(self.path)
            headers, body = found or ({"X-Error-Code": "RepoNotFound"}, b"")
            self.send_response(200 if found else 404)
            for key, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # Otherwise closing would wait for idle connections.
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
