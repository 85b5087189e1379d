"""`crossspec serve`: TLS, tokens, options, and a killed replica."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from plain_target import generated
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.health import Status, fill_link
from crossspec_ros.captioning.load_decoder import connect_target, load_decoder
from crossspec_ros.cli import main
from crossspec_ros.engine.link import Address
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.serving import serve_command as command
from crossspec_ros.serving.application import ANSWER_MS, GAUGES
from crossspec_ros.serving.load_fleet import read_tokens
from crossspec_ros.serving.serve_command import await_end, free_ports
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

pytestmark = pytest.mark.realtime
QUESTION = CaptionerSettings().question
TOKEN = "a-token-of-sixteen-or-more"
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key "
    "-out server.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost"
)


class Served:
    """The command in its own process, ready."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_ports(2)
        subprocess.run(CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
        (folder / "tokens").write_text(f"# robots\ncar {TOKEN}\nvan {TOKEN}-too\n")
        (folder / "token").write_text(TOKEN + "\n")
        options = f"serve --port {self.port} --memories {folder} --robots 2 --tokens {folder}/tokens"
        options += f" --tls-cert {folder}/server.pem --tls-key {folder}/server.key"
        call = [sys.executable, "-m", "crossspec_ros.cli", *options.split()]
        self.process = subprocess.Popen(
            call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or "ready" not in lines[-1]:
            lines.append(self.process.stdout.readline())
            assert lines[-1], lines

    def settings(self, **others: object) -> CaptionerSettings:
        values = {
            "target": f"grpcs://localhost:{self.port}",
            "draft": "none",
            "link.robot": "car",
            "link.token_file": str(self.folder / "token"),
            "link.ca_file": str(self.folder / "server.pem"),
            "link.timeout_s": 10.0,
        }
        return CaptionerSettings.of(values | others)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ports(self) -> set[int]:
        own = {one.pid for one in self.children()}
        open_ = (one for one in psutil.net_connections("inet") if one.pid in own and one.status == "LISTEN")
        return {one.laddr.port for one in open_}

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    assert served.end() == 0


def target_text(pair: ModelPair, window: Window) -> str:
    return pair.target.tokenizer.decode(generated(pair, window, question=QUESTION)).strip()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"link.robot": "van"}, "does not belong to the robot 'van'"),
        ({"link.robot": "unknown"}, "does not belong to the robot 'unknown'"),
        ({"link.robot": "unknown", "link.token_file": ""}, "belongs to no robot"),
        ({"link.token_file": ""}, "belongs to no robot"),
        ({"link.ca_file": ""}, "certificate is not trusted"),
    ],
)
def test_unknown_robot_is_refused(
    served: Served, others: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossspec_ros.captioning.load_decoder._CONNECT_S", 3.0)
    with pytest.raises(InputError, match=words):
        load_decoder(served.settings(**others), is_live=True)


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_two_servers_share_no_port(served: Served, tmp_path: Path) -> None:
    """gRPC lets several servers listen at one port, and splits the robots between them."""
    other = Served(tmp_path)
    try:
        ports = served.ports(), other.ports()
        assert min(map(len, ports)) > 5 and not ports[0] & ports[1]
    finally:
        other.end()


@pytest.mark.timeout(180)
def test_served_captions_equal_target(served: Served, pair: ModelPair, windows: list[Window]) -> None:
    with closing(load_decoder(served.settings(), is_live=True)) as decoder:
        assert decoder.caption(windows[0], Options(QUESTION), Trace()).text == target_text(pair, windows[0])


@pytest.mark.nightly
def test_killed_replica_fails_one_window(served: Served, pair: ModelPair, windows: list[Window]) -> None:
    with closing(load_decoder(served.settings(), is_live=True)) as decoder:
        for window in windows[:2]:
            assert decoder.caption(window, Options(QUESTION), Trace()).text == target_text(pair, window)
        name = "ServeReplica:crossspec:target"
        next(one for one in served.children() if name in " ".join(one.cmdline())).kill()
        with pytest.raises(LinkError):
            [decoder.caption(windows[0], Options(QUESTION), Trace()) for _ in range(50)]
        status = Status("link")
        fill_link(status, decoder)
        assert status.values["lost_links"] == "1" and "cannot be reached" in status.message
        # Ray Serve starts another replica, and the link reconnects.
        assert decoder.engine.link.up.wait(90)
        assert decoder.caption(windows[2], Options(QUESTION), Trace()).text == target_text(pair, windows[2])


def test_services_of_ray_listen_at_loopback() -> None:
    program = "from ray._private import services; print(services.get_node_ip_address())"
    variables = os.environ | command.environment(20_000)
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True)
    assert done.stdout == "127.0.0.1\n", done.stderr


def test_dashboard_has_all_metrics() -> None:
    text = (share_dir() / "config" / "grafana" / "fleet.json").read_text()
    assert set(re.findall(r"ray_crossspec_(\w+)", text)) == {*GAUGES, f"{ANSWER_MS}_bucket"}


def test_end_of_tls_proxy_ends_server() -> None:
    proxy = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], text=True)
    assert "the proxy for TLS has ended with code 3" in await_end(proxy)


def test_pipe_in_place_of_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = CaptionerSettings(target="grpcs://localhost:1", link_token_file=str(pipe))
    with refused("tokens-pipe"):
        read_tokens(pipe)
    with refused("token-pipe"):
        connect_target(settings)
    with refused("certificates-pipe"):
        Address(settings.target, "car", ca=str(pipe)).channel()
    with refused("key-pipe"), command.tls(1, 2, pipe, pipe):
        pass


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "tokens-malformed") for text in ("", "car", "car short", f"car {TOKEN} more")),
        (f"car {TOKEN}\ncar {TOKEN[::-1]}\n", "tokens-twice"),
    ],
)
def test_invalid_tokens_are_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with refused(code):
        read_tokens(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--robots 0", "robots is 0, but it must be from 1 to 64"),
        ("--engine rust", "one of torch, llama.cpp"),
        ("--proposers heads", "any of rehearsal, memory, event_draft"),
        ("--tls-cert x.pem", "belong together"),
        ("--idle-s 0", "from 0.1 to 86400"),
        ("--port PORT", "cannot listen at port PORT"),
        ("--port 99999", "the port 99999 is invalid: choose a --port from 1 to 65535"),
    ],
)
def test_invalid_option_is_refused(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", *arguments.replace("PORT", port).split()]) == 2
    assert words.replace("PORT", port) in capsys.readouterr().err
