"""All callbacks are guarded, and all threads are watched."""

from __future__ import annotations

import ast

import pytest

from crossspec_ros.paths import share_dir

PACKAGE = share_dir() / "crossspec_ros"
RUNS = ("captioning", "drafting", "engine", "events", "models", "recordings", "ros", "serving", "telemetry")
RUNS += ("windows", "wire")
"""What runs on a robot or a server; all else is a command that ends."""

THREADS = {
    ("telemetry/pulse.py", "Thread"): "watched by its pulse",
    ("ros/run.py", "Thread"): "of the executor, whose end is that of the node",
    ("captioning/rerun_log.py", "Thread"): "hangs with its viewer, which is to end no node",
    ("ros/camera_base.py", "ThreadPoolExecutor"): "each thread adopts the pulse of its source",
}
NODES = {"Node", "LifecycleNode"}
MAKERS = {"create_node", "ActionServer", "ActionClient", "create_guard_condition"}
"""Functions that create unguarded nodes and callbacks."""
ALLOWED = {("ros/questions.py", "ActionServer")}
"""rclpy logs exceptions of the action's callbacks, and aborts the goal."""


def sources():
    paths = [path for folder in RUNS for path in sorted((PACKAGE / folder).rglob("*.py"))]
    return [(str(path.relative_to(PACKAGE)), ast.parse(path.read_text())) for path in paths]


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def faults(file, tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and file != "ros/node.py":
            bases = [name_of(base) for base in node.bases]
            if file.startswith("ros/") and NODES & set(bases) and bases[0] != "GuardedNode":
                yield f"{file}: {node.name} is a node, but no GuardedNode"
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node.func)
        if called in MAKERS and file.startswith("ros/") and (file, called) not in ALLOWED:
            yield f"{file}: {called} creates unguarded callbacks"
        is_pool = called == "ThreadPoolExecutor"
        has_pulse = len(node.args) > 2 or any(each.arg == "initializer" for each in node.keywords)
        if is_pool and has_pulse:
            continue
        if (is_pool or called in ("Thread", "Timer", "start_new_thread")) and (file, called) not in THREADS:
            yield f"{file}: {called} creates a thread without a pulse"


def test_threads_have_pulses_and_nodes_boundaries():
    trees = sources()
    found = [fault for file, tree in trees for fault in faults(file, tree)]
    assert found == []
    made = {
        (file, name_of(call.func))
        for file, tree in trees
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
    }
    assert set(THREADS) <= made, "an unneeded exception"


@pytest.mark.parametrize(
    "source",
    [
        "class Camera(Node): pass",
        "class Camera(LifecycleNode, GuardedNode): pass",
        "rclpy.create_node('camera')",
        "threading.Thread(target=print).start()",
        "pool = ThreadPoolExecutor(4, 'pool')",
        "threading.Timer(1.0, print)",
    ],
)
def test_unguarded_code_is_found(source):
    assert len(list(faults("ros/camera.py", ast.parse(source)))) == 1


def test_guarded_code_is_no_fault():
    fine = "class Camera(GuardedNode, LifecycleNode): pass\nThreadPoolExecutor(1, 'draft', pulse.adopt)\n"
    assert list(faults("ros/camera.py", ast.parse(fine))) == []
