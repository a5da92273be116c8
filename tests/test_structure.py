"""The structure of the package: no circles, few imports inside functions, one file for a name."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "rlzoo_plus").rglob("*.py"))
# A room's entry, and the verbs, which have the names of what they call.
ENTRIES = {"__init__.py", "factory.py", "plan.py"}
MOST_LOCAL_IMPORTS = 120
# What a run on this machine needs not; verbs and tables of names alone lead there.
ROOMS = {
    *("algorithms", "cloud", "contracts", "control", "dashboard", "demonstrations", "deploy"),
    *("doctor", "drivers", "experience", "fast", "hub", "identify", "interpreters", "learner"),
    *("models",),
    *("policies", "populations", "ranks", "sb3", "serving", "suites", "teams", "testing"),
    *("preferences", "teleop", "timetravel", "tuning", "workers"),
}
# The package itself names what it offers, for type checkers only.
WAYS_IN = {"commands", "__init__.py", *ROOMS}
MOST_LINES_OF_THE_CORE = 45_800
MOST_LINES_OF_THE_TESTS_OF_THE_CORE = 50_000
MOST_LINES_OF_A_ROOM = 6_900


def circles(imports):
    """Return the sets of modules that import each other, directly or through others (Tarjan)."""
    order, lowest, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            circle = {stack.pop()}
            while module not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                found.append(circle)

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def local_imports(source):
    """Return the lines of imports inside functions; those for type checkers are none."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        inner.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, functions)
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    }


def room_of(file):
    """Return the package below rlzoo_plus that a file is in, its own name for one at the top."""
    return file.relative_to(ROOT / "rlzoo_plus").parts[0]


def rooms_imported(source):
    """Return the rooms with one way in that a module imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    return {name[1] for name in parts if name[0] == "rlzoo_plus" and len(name) > 1} & ROOMS


def test_rooms_beside_the_core_have_one_way_in():
    found = {
        str(file.relative_to(ROOT)): rooms_imported(file.read_text())
        for file in FILES
        if room_of(file) not in WAYS_IN
    }
    assert {name: rooms for name, rooms in found.items() if rooms} == {}


def test_no_test_but_its_own_needs_the_room_that_may_be_deleted():
    found = {
        file.relative_to(ROOT / "tests").parts[0]
        for file in (ROOT / "tests").rglob("*.py")
        if "fast" in rooms_imported(file.read_text())
    }
    assert found <= {"fast"}


def test_an_import_of_a_room_is_found():
    assert rooms_imported("from rlzoo_plus import tuning\nimport rlzoo_plus.cloud.aws\n") == {
        "tuning",
        "cloud",
    }


def test_the_core_and_each_room_stay_small():
    lines = Counter()
    for file in FILES:
        lines[room_of(file)] += len(file.read_text().splitlines())
    assert sum(count for room, count in lines.items() if room not in ROOMS) <= (
        MOST_LINES_OF_THE_CORE
    )
    assert {room: n for room, n in lines.items() if n > MOST_LINES_OF_A_ROOM} == {}


def test_the_tests_of_the_core_stay_small():
    folder = ROOT / "tests"
    lines = Counter()
    for file in folder.rglob("*.py"):
        lines[file.relative_to(folder).parts[0]] += len(file.read_text().splitlines())
    assert sum(count for room, count in lines.items() if room not in ROOMS) <= (
        MOST_LINES_OF_THE_TESTS_OF_THE_CORE
    )


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("rlzoo_plus", "robots")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # The package itself names what it offers, for type checkers only.
    imports["rlzoo_plus"] = set()
    assert circles(imports) == []


def test_a_circle_is_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(imports) == [{"b", "c"}]


def test_imports_stand_at_the_top_but_for_a_few():
    counted = Counter({file: len(local_imports(file.read_text())) for file in FILES})
    assert sum(counted.values()) <= MOST_LOCAL_IMPORTS, counted.most_common(10)


def test_an_import_inside_a_function_is_counted():
    assert local_imports(
        "import a\ndef f():\n    import b\n    def g():\n        from c import d\n"
    ) == {3, 5}


def test_a_file_name_is_used_once():
    places = defaultdict(list)
    for file in FILES:
        if file.name not in ENTRIES and file.parent.name != "commands":
            places[file.name].append(str(file.relative_to(ROOT)))
    # pytest collects one file of a name.
    for file in (ROOT / "tests").rglob("test_*.py"):
        places[file.name].append(str(file.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
