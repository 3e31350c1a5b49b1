"""Turns a Poplar codelet source into a shared library that describes its vertices.

Run as a command by the model's `Graph::addCodelets`: `python codelets.py SOURCE FLAGS` prints the library's path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, Sequence

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "codelet_include"

COMPILE_FLAGS = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    # A multiply and an add stay two roundings, as the reference computes them.
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fsanitize=alignment",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wdouble-promotion",
    "-Wno-attributes",
    "-Wno-unused-parameter",
]
ALLOWED_HEADERS = {
    "algorithm",
    "array",
    "cassert",
    "cfloat",
    "climits",
    "cmath",
    "cstddef",
    "cstdint",
    "cstring",
    "initializer_list",
    "limits",
    "tuple",
    "type_traits",
    "utility",
    "stdint.h",
    "stddef.h",
    "math.h",
}
FORBIDDEN_SYMBOLS = re.compile(r"^(_Zn[wa]|_Zd[la]|malloc|calloc|realloc|free|__cxa_|_ZSt|_ZNSt)")
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.+-]*|::|->|\S')


class CodeletError(Exception):
    """The codelet source is something that Poplar, or an IPU, does not take."""


@dataclass
class VertexClass:
    namespace: tuple[str, ...]
    name: str
    template: bool
    bases: list[str]
    fields: list[str]


@dataclass
class Source:
    classes: dict[str, VertexClass] = field(default_factory=dict)
    # Namespace and text of each `template class V<...>;`
    instances: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def preprocess(path: Path, flags: Sequence[str]) -> str:
    command = [compiler(), "-std=c++17", "-E", "-dI", "-isystem", str(INCLUDE), *flags, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CodeletError(done.stderr)
    return done.stdout


def own_text(preprocessed: str) -> tuple[str, list[str]]:
    """The lines that come from the codelet and its own headers, and the system headers that these include."""
    lines: list[str] = []
    headers: list[str] = []
    own = True
    for line in preprocessed.splitlines():
        marker = re.match(r'# \d+ "(.*)"((?: \d)*)$', line)
        if marker:
            own = "3" not in marker[2].split() and not marker[1].startswith("<")
            continue
        include = re.match(r"#include\s*<(.*)>", line)
        if include and own:
            headers.append(include[1])
        elif own and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines), headers


def check_text(text: str, headers: Sequence[str]) -> None:
    for header in headers:
        if header not in ALLOWED_HEADERS and not header.startswith("poplar/"):
            raise CodeletError(f"codelet includes <{header}>: an IPU tile has no such library")
    tokens = TOKEN.findall(text)
    for word, why in (
        ("double", "an IPU has no double: write floats, with 1.0f"),
        ("new", "a tile has no heap"),
        ("delete", "a tile has no heap"),
        ("malloc", "a tile has no heap"),
        ("throw", "a tile has no exceptions"),
        ("try", "a tile has no exceptions"),
    ):
        if word in tokens:
            raise CodeletError(f"codelet uses `{word}`: {why}")


def skip_group(tokens: Sequence[str], i: int) -> int:
    """The index after the bracket that closes the one at `i`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    close = pairs[tokens[i]]
    depth = 0
    opening = tokens[i]
    while i < len(tokens):
        depth += (tokens[i] == opening) - (tokens[i] == close)
        i += 1
        if depth == 0:
            return i
    raise CodeletError(f"unbalanced {opening}")


def skip_angles(tokens: Sequence[str], i: int) -> int:
    depth = 0
    while i < len(tokens):
        if tokens[i] in "({[":
            i = skip_group(tokens, i)
            continue
        depth += (tokens[i] == "<") - (tokens[i] == ">")
        i += 1
        if depth == 0:
            return i
    raise CodeletError("unbalanced <")


def statements(tokens: Sequence[str]) -> Iterator[tuple[list[str], bool]]:
    """Statements of a class body, and whether each ends in a braced body."""
    i = 0
    current: list[str] = []
    while i < len(tokens):
        token = tokens[i]
        if token in ("public", "private", "protected") and tokens[i + 1 : i + 2] == [":"]:
            i += 2
        elif token == "[" and tokens[i + 1 : i + 2] == ["["]:
            i = skip_group(tokens, i)
        elif token == ";":
            if current:
                yield current, False
            current = []
            i += 1
        elif token == "{":
            end = skip_group(tokens, i)
            # `T name{value};` and `enum {...} name;` go on to a semicolon; a function body does not.
            if "(" in current or tokens[end : end + 1] != [";"]:
                yield current, True
                current = []
            i = end
        else:
            current.append(token)
            i += 1


def field_names(statement: list[str], owner: str) -> list[str]:
    first = statement[0]
    if first in ("using", "typedef", "friend", "static", "template", "enum", "struct", "class", "constexpr"):
        return []
    if "static_assert" in statement or "operator" in statement or "virtual" in statement:
        return []
    depth = 0
    parts: list[list[str]] = [[]]
    for token in statement:
        depth += (token == "<") - (token == ">")
        if token == "(" and depth == 0:
            return []
        if token == "," and depth == 0:
            parts.append([])
            continue
        parts[-1].append(token)
    names = []
    for part in parts:
        declarator = part[: part.index("=")] if "=" in part else part
        if declarator[-1] == "]" or "*" in declarator:
            raise CodeletError(f"{owner}: field `{' '.join(part)}` is an array or a pointer; use a Vector")
        names.append(declarator[-1])
    return names


def parse_scope(tokens: Sequence[str], namespace: tuple[str, ...], out: Source) -> None:
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token == "namespace" and "{" in tokens[i : i + 20]:
            brace = tokens.index("{", i)
            if "=" in tokens[i:brace] or ";" in tokens[i:brace]:
                i = tokens.index(";", i) + 1
                continue
            names = tuple(t for t in tokens[i + 1 : brace] if t != "::")
            end = skip_group(tokens, brace)
            parse_scope(tokens[brace + 1 : end - 1], namespace + names, out)
            i = end
        elif token == "template" and tokens[i + 1] != "<":
            end = list(tokens).index(";", i)
            if tokens[i + 1] in ("class", "struct"):
                out.instances.append((namespace, joined(tokens[i + 2 : end])))
            i = end + 1
        elif token == "template":
            after = skip_angles(tokens, i + 1)
            i = parse_entity(tokens, after, namespace, True, out)
        else:
            i = parse_entity(tokens, i, namespace, False, out)


def joined(tokens: Sequence[str]) -> str:
    text = ""
    for token in tokens:
        if text and re.match(r"\w", token) and re.search(r"\w$", text):
            text += " "
        text += token
    return text


def parse_entity(tokens: Sequence[str], i: int, namespace: tuple[str, ...], template: bool, out: Source) -> int:
    """One class, function or declaration; returns the index after it."""
    start = i
    is_class = tokens[i : i + 1] and tokens[i] in ("class", "struct")
    name = tokens[i + 1] if is_class and i + 1 < len(tokens) else ""
    while i < len(tokens) and tokens[i] not in (";", "{"):
        i = skip_group(tokens, i) if tokens[i] in "([" else i + 1
    if i >= len(tokens):
        return i
    if tokens[i] == ";":
        return i + 1
    end = skip_group(tokens, i)
    head = list(tokens[start:i])
    if is_class and ":" in head:
        bases = [t for t in head[head.index(":") + 1 :] if re.match(r"\w", t)]
        if any(b in ("Vertex", "MultiVertex") or b in out.classes for b in bases):
            names = [n for base in bases if base in out.classes for n in out.classes[base].fields]
            for statement, has_body in statements(tokens[i + 1 : end - 1]):
                if not (has_body and "(" in statement):
                    names += field_names(statement, name)
            out.classes[name] = VertexClass(namespace, name, template, bases, names)
    return end + 1 if tokens[end : end + 1] == [";"] else end


def parse(text: str) -> Source:
    out = Source()
    parse_scope(TOKEN.findall(text), (), out)
    return out


def host_name(namespace: tuple[str, ...], text: str) -> str:
    """The name Poplar knows the vertex by, as templateVertex writes it."""
    name = re.sub(r"\s*([<>,])\s*", r"\1", text)
    name = re.sub(r"\bunsigned\b(?! (?:int|char|short|long))", "unsigned int", name)
    name = name.replace("poplar::half", "half")
    prefix = "::".join(namespace)
    return f"{prefix}::{name}" if prefix and not name.startswith(f"{prefix}::") else name


def registry(path: str, source: Source) -> str:
    entries: list[tuple[tuple[str, ...], str, VertexClass]] = []
    for vertex in source.classes.values():
        if not vertex.template:
            entries.append((vertex.namespace, vertex.name, vertex))
    for namespace, text in source.instances:
        name = re.sub(r"<.*", "", text).split("::")[-1]
        if name in source.classes:
            entries.append((namespace, text, source.classes[name]))
    if not entries:
        raise CodeletError(
            "no vertex found: derive a class from poplar::Vertex or poplar::MultiVertex, and instantiate templates "
            "explicitly, `template class V<float>;`"
        )
    lines = [f'#include "{path}"', '#include "host_sdk/registry.hpp"']
    for i, (namespace, text, _) in enumerate(entries):
        opening = "".join(f"namespace {n} {{ " for n in namespace)
        lines.append(f"{opening}using HostSdkVertex{i} = {text};{' }' * len(namespace)}")
    vertices = []
    for i, (namespace, text, vertex) in enumerate(entries):
        cpp = "::".join(("", *namespace, f"HostSdkVertex{i}"))
        fields = ", ".join(f'host_sdk::field<{cpp}>("{name}", &{cpp}::{name})' for name in vertex.fields)
        # A vertex without fields still needs an array of one.
        lines.append(f"static const HostSdkField fields_{i}[] = {{{fields or '{}'}}};")
        vertices.append(f'host_sdk::vertex<{cpp}>("{host_name(namespace, text)}", fields_{i}, {len(vertex.fields)})')
    listed = ",\n    ".join(vertices)
    lines.append(f"static const HostSdkVertex all_vertices[] = {{\n    {listed}}};")
    lines.append('extern "C" const HostSdkVertex* host_sdk_vertices(unsigned long* count) {')
    lines.append(f"  *count = {len(vertices)};\n  return all_vertices;\n}}")
    return "\n".join(lines) + "\n"


def cache_dir() -> Path:
    path = Path(os.environ.get("HOST_SDK_CACHE") or Path(tempfile.gettempdir()) / "host_sdk_cache")
    path.mkdir(parents=True, exist_ok=True)
    return path


def accepted_flags(flags: Sequence[str]) -> list[str]:
    for flag in flags:
        if not re.match(r"-[ODUIWfg]", flag):
            raise CodeletError(f"compile flag {flag} is not one the host model can pass on")
    return list(flags)


def header_state() -> bytes:
    parts = [Path(__file__).read_bytes()]
    parts += [p.read_bytes() for p in sorted(INCLUDE.rglob("*.hpp"))]
    return b"".join(parts)


def compile_codelets(source: Path, flags: Sequence[str]) -> Path:
    """Build the library for one codelet source, or find it in the cache."""
    flags = accepted_flags(flags)
    if source.suffix == ".gp":
        source, flags = unpack_gp(source, flags)
    elif source.suffix not in (".cpp", ".cc", ".cxx"):
        raise CodeletError(f"{source.name}: the host model takes .cpp and .gp codelets")
    preprocessed = preprocess(source, [*flags, f"-I{source.parent}"])
    key = hashlib.sha256(
        b"\0".join([preprocessed.encode(), repr(flags).encode(), compiler().encode(), header_state()])
    ).hexdigest()[:32]
    library = cache_dir() / f"codelets_{key}.so"
    if library.exists():
        return library
    text, headers = own_text(preprocessed)
    check_text(text, headers)
    generated = registry(str(source.resolve()), parse(text))
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        unit = Path(folder) / "registry.cpp"
        unit.write_text(generated)
        obj = Path(folder) / "codelets.o"
        command = [compiler(), *COMPILE_FLAGS, *flags, "-isystem", str(INCLUDE), f"-I{source.parent}"]
        done = subprocess.run([*command, "-c", str(unit), "-o", str(obj)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CodeletError(done.stderr)
        check_symbols(obj)
        shared = Path(folder) / "codelets.so"
        subprocess.run([compiler(), "-shared", str(obj), "-o", str(shared)], check=True)
        os.replace(shared, library)
    return library


def check_symbols(obj: Path) -> None:
    listing = subprocess.run(["nm", "-u", str(obj)], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        symbol = line.split()[-1]
        if FORBIDDEN_SYMBOLS.match(symbol):
            raise CodeletError(f"codelet needs {symbol}: a tile has no heap, exceptions or standard library")


GP_MAGIC = "host_sdk codelets, not a Poplar .gp\n"


def pack_gp(source: Path, flags: Sequence[str], targets: Sequence[str], output: Path) -> None:
    preprocessed = preprocess(source, [*flags, f"-I{source.parent}"])
    text, headers = own_text(preprocessed)
    check_text(text, headers)
    content = {"targets": list(targets), "flags": list(flags), "source": str(source.resolve())}
    output.write_text(GP_MAGIC + json.dumps(content) + "\n")


def unpack_gp(path: Path, flags: Sequence[str]) -> tuple[Path, list[str]]:
    text = path.read_text()
    if not text.startswith(GP_MAGIC):
        raise CodeletError(f"{path}: made for a real IPU; the host model needs the source, or its own popc")
    content = json.loads(text[len(GP_MAGIC) :])
    missing = {"cpu", "ipu2"} - set(content["targets"])
    if missing:
        raise CodeletError(
            f"{path} was made for {content['targets']}: an IPU model runs code of cpu and of ipu2, "
            f"compile with -target cpu,ipu2"
        )
    return Path(content["source"]), [*content["flags"], *flags]


def popc(arguments: Sequence[str]) -> int:
    """The stand-in for `popc`: checks the source and writes a .gp that the model understands."""
    if "--version" in arguments:
        print("POPLAR version 3.4.0 (host model, NOT AN IPU)")
        return 0
    if "--list-targets" in arguments:
        print("cpu\nipu2\nipu21")
        return 0
    source: Path | None = None
    output = Path("a.gp")
    targets = ["cpu", "ipu2"]
    flags: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "-o":
            output = Path(next(words))
        elif word in ("-target", "--target"):
            targets = next(words).split(",")
        elif word.startswith(("--target=", "-target=")):
            targets = word.split("=", 1)[1].split(",")
        elif word.startswith("-"):
            flags.append(word)
        else:
            source = Path(word)
    try:
        if source is None:
            raise CodeletError("no source file")
        pack_gp(source, accepted_flags(flags), targets, output)
    except CodeletError as error:
        print(f"popc (host model): {error}", file=sys.stderr)
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["popc"]:
        return popc(arguments[1:])
    try:
        print(compile_codelets(Path(arguments[0]), arguments[1].split() if len(arguments) > 1 else []))
    except CodeletError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
