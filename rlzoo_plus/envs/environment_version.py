"""The version of an environment: its id, and hashes of what decides what it does.

Hashed are the definitions that its class and wrappers of the user's reach (methods, functions,
constants; in the user's modules and in the tasks of `robots`), model files they name, `env.kwargs`,
and the engine. Neither comments, docstrings and annotations count, nor what is installed and has
versions of its own.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.engine import engine_version
from rlzoo_plus.envs.user_code import MODEL_SUFFIXES, hash_all, is_installed, with_references

log = logging.getLogger(__name__)
# What all our robots share: that each id behaves as before is checked by its digest in the tests.
_SHARED = {
    *("ballast", "camera", "conditions", "cores", "distributions", "drives", "engines", "env"),
    *("mirror", "shipped_mirrors"),
    *("privileged", "quiet", "randomization", "ranges", "rendering", "robot", "safety", "sensors"),
    *(
        "shield",
        "shielding",
        "simulation",
        "state",
        "task",
        "terrain",
        "threads",
        "transition",
        "vec_env",
    ),
    "world",
}
_MOST_DEFINITIONS, _MOST_SHOWN, _DIGITS = 2000, 4, 12
_NO_CODE = {"ctx", "kind", "type_comment", "type_params"}
_HASHED = {"code": "code", "assets": "model"}
# A process acts with the code that it has imported, whatever happens to the files later.
_known: dict[str, dict[str, Any] | None] = {}


def environment_version(spec: EnvConfig) -> dict[str, Any] | None:
    """Return the version of an environment: `id`, `version`, and the parts it is a hash of.

    None if it cannot be told, as for what makes no environment, or for one in another interpreter.
    Its packages are imported.
    """
    if spec.python is not None:
        return None
    key = repr((spec.id, spec.packages, spec.kwargs, spec.wrappers))
    if key not in _known:
        try:
            _known[key] = _version(spec)
        # Somebody else's code; whoever makes the environment tells what is wrong.
        except Exception:
            log.debug("%s has no version", spec.id, exc_info=True)
            _known[key] = None
    return _known[key]


def version_text(version: Mapping[str, Any] | None) -> str | None:
    """Return id and hash of a version, None if it is not known."""
    return None if version is None else printable(f"{version.get('id')} {version.get('version')}")


def differences(before: object, now: object, *, kwargs: bool = True) -> list[str]:
    """Return in what two versions differ, a text for each part; nothing if one is not known.

    Args:
        before: The version that was recorded; untrusted.
        now: The other one.
        kwargs: Whether `env.kwargs` count.
    """
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return []
    keys = ["id", "engine", *(["kwargs"] if kwargs else [])]
    found = []
    for key in keys:
        old, new = before.get(key), now.get(key)
        if key == "kwargs" and old != new:
            found.append("env.kwargs differ")
        elif old != new and (key == "id" or _series(old) != _series(new)):
            found.append(f"{key} {old} became {new}")
    for key, word in _HASHED.items():
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            names = [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]
            more = len(names) - _MOST_SHOWN
            shown = ", ".join([*map(str, names[:_MOST_SHOWN])] + [f"{more} more"] * (more > 0))
            found += [f"{word} of {shown} was changed"] if names else []
    return [printable(text) for text in found]


def has_own_kwargs(spec: EnvConfig) -> bool:
    """Return whether `env.kwargs` has other values than the defaults of the environment."""
    try:
        known = inspect.signature(_creator_of(spec)).parameters
        return any(n not in known or known[n].default != v for n, v in spec.kwargs.items())
    # Somebody else's code; its arguments are not known then.
    except Exception:
        return bool(spec.kwargs)


def had_kwargs(version: object) -> bool:
    """Return whether an environment was made with `env.kwargs`, or that is not known."""
    return not isinstance(version, Mapping) or version.get("kwargs") != _hash_of_kwargs({})


def _hash_of_kwargs(kwargs: Mapping[str, Any]) -> str:
    return _hash(json.dumps(kwargs, sort_keys=True, default=repr))


def _series(engine: object) -> list[str]:
    """Return an engine's name and the first two numbers of its version: others mend mistakes."""
    name, _, version = str(engine).partition(" ")
    return [name, *version.split(".")[:2]]


def _creator_of(spec: EnvConfig) -> Any:
    from rlzoo_plus.envs.single import creator_of  # It imports Gymnasium, as `envs.engine` says.

    return creator_of(spec)


def _version(spec: EnvConfig) -> dict[str, Any] | None:
    named = [name for each in spec.wrappers for name in ([each] if isinstance(each, str) else each)]
    own = [WRAPPERS.load(name) for name in named if name not in WRAPPERS]
    roots = [(made.__module__, made.__qualname__) for made in (_creator_of(spec), *own)]
    module = roots[0][0]
    code, constants = _reached([(place, name.partition(".")[0]) for place, name in roots])
    if not code and _is_own(module):
        return None
    texts = [*constants, *_texts(spec.kwargs)]
    files = sorted(with_references({file for text in texts for file in _models(text, module)}))
    parts = {
        "id": spec.id,
        "engine": engine_version(spec),
        "kwargs": _hash_of_kwargs(spec.kwargs),
        "code": code,
        "assets": {file.name: hash_all([file])[:_DIGITS] for file in files},
    }
    return {"version": _hash(json.dumps(parts, sort_keys=True)), **parts}


def _reached(pending: list[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return a hash of each definition that some reach, and the names of models in them."""
    found, models = dict[str, str](), list[str]()
    # Names too: packages import from themselves, and modules each other's `*`.
    seen = set[tuple[str, str]]()
    while pending and len(found) < _MOST_DEFINITIONS:
        module, name = pending.pop()
        if (module, name) in seen or not _is_own(module):
            continue
        seen.add((module, name))
        source = _source(module)
        if source is None:
            continue
        if name not in source.definitions:
            is_known = name in source.imports
            pending += [source.imports[name]] if is_known else [(m, name) for m in source.stars]
            continue
        nodes = source.definitions[name]
        found[f"{module}.{name}"] = _hash("\n".join(map(_text, nodes)))
        for node in (inner for top in nodes for inner in ast.walk(top)):
            if isinstance(node, ast.Name):
                pending.append(source.imports.get(node.id, (module, node.id)))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = node.value.id
                place = source.modules.get(name) or ".".join(source.imports.get(name, ()))
                pending.append((place, node.attr))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                models += [node.value] if node.value.lower().endswith(MODEL_SUFFIXES) else []
    return dict(sorted(found.items())), models


class _Source(ast.NodeTransformer):
    """The definitions of a module by name, without what has no effect, and what it imports."""

    def __init__(self, file: Path, module: str) -> None:
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.modules: dict[str, str] = {}
        self.stars: list[str] = []
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        tree = ast.parse(file.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                place = ".".join([*(above if node.level else []), *filter(None, [node.module])])
                self.stars += [place] if node.names[0].name == "*" else []
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (place, alias.name)
            elif isinstance(node, ast.Import):
                self.modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        for statement in _statements(self.visit(tree)):
            for name in _names(statement):
                self.definitions.setdefault(name, []).append(statement)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Leave out docstrings, of attributes too."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Leave out the annotation of an argument."""
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Leave out the annotation of a variable."""
        value = node.value if node.value is not None else ast.Constant(...)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Leave out what a function is said to return."""
        node.returns = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Keep a class whose docstring was all of it."""
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def _text(node: Any) -> str:
    """Return a tree as text, the same in all versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, getattr(node, name, None)) for name in node._fields if name not in _NO_CODE)
    shown = (f"{name}={_text(value)}" for name, value in fields if value not in (None, []))
    return f"{type(node).__name__}({','.join(shown)})"


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those inside of its conditions."""
    for field in ("body", "orelse", "handlers", "finalbody"):
        for statement in getattr(node, field, []):
            if isinstance(statement, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
                yield from _statements(statement)
            else:
                yield statement


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    names = []
    for node in ast.walk(statement):
        if isinstance(getattr(node, "ctx", None), ast.Store):
            # `WEIGHTS["alive"] = 0.6` changes what was defined before.
            while isinstance(node, (ast.Subscript, ast.Attribute)):
                node = node.value
            names += [node.id] if isinstance(node, ast.Name) else []
    return names


@functools.cache
def _source(module: str) -> _Source | None:
    file = _file(module)
    try:
        return None if file is None else _Source(file, module)
    except (OSError, SyntaxError, ValueError):
        return None


def _file(module: str) -> Path | None:
    name = getattr(sys.modules.get(module), "__file__", None)
    return Path(name).resolve() if isinstance(name, str) and name.endswith(".py") else None


def _is_own(module: str) -> bool:
    """Return whether a module is code of the user, or a task of `robots`."""
    first, _, rest = module.partition(".")
    if first == "robots":
        return rest.partition(".")[0] not in _SHARED
    file = _file(module)
    return file is not None and not is_installed(file)


def _models(text: str, module: str) -> Iterator[Path]:
    """Yield the file that a text names, beside a module or here; what engines bring is theirs."""
    file = _file(module)
    folders = [] if file is None else [file.parent, file.parent / "assets"]
    for path in (folder / text for folder in [*folders, Path.cwd()]):
        if path.is_file():
            yield path.resolve()
            return


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.lower().endswith(MODEL_SUFFIXES):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
