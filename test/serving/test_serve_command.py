"""`crossspec serve` itself: TLS, tokens, and a replica that is killed under a robot."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from plain_target import generated
from refusals import refused

from crossspec_ros.captioning.assembly import load_remote_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.health import link_reading
from crossspec_ros.captioning.settings import CaptionerSettings
from crossspec_ros.captioning.target_server import connected_engine
from crossspec_ros.cli import main
from crossspec_ros.engine.link import Address
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.serving import serve_command as command
from crossspec_ros.serving.application import ANSWER_MS, GAUGES
from crossspec_ros.serving.options import read_tokens
from crossspec_ros.serving.serve_command import MOST_MESSAGE, free_port
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

pytestmark = pytest.mark.realtime
QUESTION = CaptionerSettings().question
TOKEN = "a-token-of-sixteen-or-more"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed one of this machine, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "server.pem", folder / "server.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pem, secret


class Served:
    """The command in a process of its own, ready."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.pem, key = certificate(folder)
        (folder / "tokens").write_text(f"# robots\ncar {TOKEN}\nvan {TOKEN}-too\n")
        (folder / "token").write_text(TOKEN + "\n")
        arguments = ["--port", self.port, "--tls-cert", self.pem, "--tls-key", key, "--robots", 2]
        arguments += ["--tokens", folder / "tokens", "--memories", folder]
        call = [sys.executable, "-m", "crossspec_ros.cli", "serve", *map(str, arguments)]
        self.process = subprocess.Popen(
            call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        said = ""
        assert self.process.stdout is not None
        while "ready" not in said:
            line = self.process.stdout.readline()
            assert line, said
            said += line

    def settings(self, **others: object) -> CaptionerSettings:
        given = {
            "target": f"grpcs://localhost:{self.port}",
            "draft": "none",
            "link.robot": "car",
            "link.token_file": str(self.folder / "token"),
            "link.ca_file": str(self.pem),
            "link.timeout_s": 10.0,
        }
        return CaptionerSettings.of(given | others)

    def replica(self, deployment: str) -> psutil.Process:
        children = psutil.Process(self.process.pid).children(recursive=True)
        name = f"ServeReplica:crossspec:{deployment}"
        return next(one for one in children if name in " ".join(one.cmdline()))

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        finally:
            os.killpg(self.process.pid, signal.SIGKILL) if self.process.poll() is None else None


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    assert served.end() == 0


def said(pair: ModelPair, window: Window) -> str:
    return pair.target.tokenizer.decode(generated(pair, window, question=QUESTION)).strip()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({"link.robot": "van"}, "not that of the robot 'van'"),
        ({"link.robot": "stranger"}, "not that of the robot 'stranger'"),
        ({"link.robot": "stranger", "link.token_file": ""}, "not that of any robot"),
        ({"link.token_file": ""}, "not that of any robot"),
        ({"link.ca_file": ""}, "certificate is not trusted"),
    ],
)
def test_who_is_not_known_is_refused(
    served: Served, others: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossspec_ros.captioning.target_server._CONNECT_S", 3.0)
    with pytest.raises(InputError, match=sentence):
        load_remote_decoder(served.settings(**others))


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_servers_on_one_machine_share_no_port(served: Served, tmp_path: Path) -> None:
    """gRPC lets several listen at one port, and gives each a share of the robots."""

    def ports(server: Served) -> set[int]:
        own = {one.pid for one in psutil.Process(server.process.pid).children(recursive=True)}
        open_ = (one for one in psutil.net_connections("inet") if one.pid in own and one.status == "LISTEN")
        return {one.laddr.port for one in open_}

    other = Served(tmp_path)
    try:
        mine, others = ports(served), ports(other)
        assert len(mine) > 5 < len(others) and not mine & others
    finally:
        other.end()


@pytest.mark.timeout(180)
def test_served_captions_equal_the_target(served: Served, pair: ModelPair, windows: list[Window]) -> None:
    decoder = load_remote_decoder(served.settings())
    try:
        assert decoder.caption(windows[0], QUESTION, Trace()).text == said(pair, windows[0])
    finally:
        decoder.close()


@pytest.mark.nightly
def test_a_replica_that_is_killed_costs_a_window_and_no_more(
    served: Served, pair: ModelPair, windows: list[Window]
) -> None:
    decoder = load_remote_decoder(served.settings())
    try:
        for window in windows[:2]:
            assert decoder.caption(window, QUESTION, Trace()).text == said(pair, window)
        served.replica("target").kill()
        with pytest.raises(LinkError):
            _captioned_forever(decoder, windows[0])
        assert link_reading(decoder)["link"].wrong["lost_links"] == 1
        assert "cannot be reached" in link_reading(decoder)["link"].warnings["unreached"]
        # Ray Serve starts another, and the robot finds it.
        assert decoder.engine.link.wait(90)  # type: ignore[attr-defined]
        assert decoder.caption(windows[2], QUESTION, Trace()).text == said(pair, windows[2])
    finally:
        decoder.close()


def _captioned_forever(decoder: PrefillHiddenDecoder, window: Window) -> None:
    for _ in range(50):
        decoder.caption(window, QUESTION, Trace())


def test_rays_own_services_are_at_the_loopback_address() -> None:
    program = "from ray._private import services; print(services.get_node_ip_address())"
    environment = os.environ | {name: value for name, value in command._ENVIRONMENT.items() if value}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "127.0.0.1\n", done.stderr


def test_the_dashboard_shows_what_there_is() -> None:
    text = (share_dir() / "config" / "grafana" / "fleet.json").read_text()
    shown = set(re.findall(r"ray_crossspec_(\w+)", text))
    assert shown == {*GAUGES, f"{ANSWER_MS}_bucket"}


@pytest.mark.parametrize("file", ["config/serve.yaml", "docs/fleet.md"])
def test_a_cluster_takes_messages_as_large_as_the_command_does(file: str) -> None:
    text = (Path(__file__).resolve().parents[2] / file).read_text()
    assert re.findall(r"RAY_SERVE_GRPC_MAX_MESSAGE_SIZE=(\d+)", text) == [str(MOST_MESSAGE)]


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert f"port {port} cannot be listened at" in capsys.readouterr().err


def test_a_pipe_is_waited_for_by_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = CaptionerSettings(target="grpcs://localhost:1", link_token_file=str(pipe))
    with refused("tokens-pipe"):
        read_tokens(pipe)
    with refused("token-pipe"):
        connected_engine(settings)
    with refused("certificates-pipe"):
        Address(settings.target, "car", ca=str(pipe)).channel()
    with (
        refused("key-pipe"),
        command.tls(1, 2, pipe, pipe),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "tokens-malformed") for text in ("", "car", "car short", f"car {TOKEN} more")),
        (f"car {TOKEN}\ncar {TOKEN[::-1]}\n", "tokens-twice"),
    ],
)
def test_a_bad_file_of_tokens_is_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with refused(code):
        read_tokens(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--robots", "0"], "room for 0 robots"),
        (["--proposers", "heads"], "'heads' drafts for no fleet"),
        (["--tls-cert", "x.pem"], "belong together"),
        (["--idle-s", "0"], "seconds above 0"),
    ],
)
def test_options_that_are_none_are_told(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert main(["serve", *arguments]) == 2 and time.monotonic() - began < 60
    assert sentence in capsys.readouterr().err
