"""Hooks of mkdocs.yml: adds files outside docs/ to the site, and points links at them.

Pages of docs/ are also read on GitHub, where links such as `../SECURITY.md` and
`../../include/evenkeel/array.h` are right. On the site, the first leads to a page with the text of
the file, and the second to a page made from the header.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "evenkeel"
NOT_LISTED = {"compiler.h"}  # macros for the other headers
PAGES = [
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def headers() -> list[Path]:
    return sorted(path for path in HEADERS.glob("*.h") if path.name not in NOT_LISTED)


def examples() -> list[Path]:
    folder = ROOT / "examples"
    return sorted(
        path
        for ext in ("py", "cc", "c", "rs", "ipynb", "sbatch")
        for path in folder.rglob(f"*.{ext}")
    )


# ------------------------------------------------------------------ links


def in_site(path: str) -> str | None:
    """The path below docs/ of a file of the project, or None if the site does not have it."""
    if path.startswith("docs/"):
        return path[len("docs/") :]
    if path in PAGES or (path.startswith("examples/") and (ROOT / path).is_file()):
        return path
    if path in ("examples", "examples/python"):
        return "examples/README.md"
    if path == "include/evenkeel":
        return "reference/cpp.md"
    if path.startswith("include/evenkeel/"):
        return f"reference/cpp/{PurePosixPath(path).stem}.md"
    return {"LICENSE": "LICENSE.txt", "README.md": "index.md"}.get(path)


def redirect(markdown: str, page: str) -> str:
    """Points links that leave docs/ at the site's own copies. `page` is its path in the site."""
    home = posixpath.dirname(page if page in PAGES else f"docs/{page}")

    def moved(match: re.Match[str]) -> str:
        opening, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target or target.startswith("/"):
            return match[0]
        path = posixpath.normpath(posixpath.join(home, target))
        if page not in PAGES and path.startswith("docs/"):
            return match[0]  # unchanged
        there = in_site(path)
        if there is None:
            return match[0]  # mkdocs reports it
        return f"{opening}{posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor})"

    pieces, last = [], 0
    for code in CODE.finditer(markdown):  # links only, no code
        pieces += [LINK.sub(moved, markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*pieces, LINK.sub(moved, markdown[last:])])


# ------------------------------------------------------------------ C++ headers


def prose(comment: list[str]) -> str:
    text = "\n".join(line.strip()[2:].lstrip("/").strip() for line in comment)
    return re.sub(r"([<>*_])", r"\\\1", text) if "`" not in text else text.replace("<", "&lt;")


def without_private(code: list[str]) -> list[str]:
    if " private:" not in code:
        return code
    start = code.index(" private:")
    end = next((n for n in range(start, len(code)) if code[n].startswith("}")), len(code))
    while start and not code[start - 1].strip():
        start -= 1
    return code[:start] + code[end:]


def chunks_of(lines: list[str]) -> list[list[str]]:
    """The declarations of a header's namespace: pieces between empty lines outside of braces."""
    chunks: list[list[str]] = [[]]
    inside, depth = False, 0
    for line in lines:
        if not inside:
            inside = "visibility push" in line
            continue
        if "visibility pop" in line:
            break
        if depth == 0 and re.match(r"(namespace .*\{$|\}  // namespace)", line):
            continue
        if depth == 0 and not line.strip():
            chunks.append([])
            continue
        chunks[-1].append(line)
        code = line.split("//")[0]
        depth += code.count("{") - code.count("}")
    return [chunk for chunk in chunks if chunk]


def names_in(code: list[str]) -> list[str]:
    names = []
    for line in code:
        match = re.match(r"(?:class|struct|enum class|using|concept) (\w+)", line)
        match = match or re.match(r"(?:[\w:<>,&*\[\] ]+[ &*])(\w+)\(", line)
        if match and not line.startswith((" ", "//", "template")) and match[1] not in names:
            names.append(match[1])
    return names


def header_page(path: Path) -> str:
    text = path.read_text()
    if text.startswith("/*"):  # the header of the C interface is shown as it is
        return f"# {path.name}\n\n[C](../../c.md) has an example.\n\n```c\n{text}```\n"
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if not line.startswith("//")), 0)
    parts = [f"# {path.name}", prose(lines[:first])]
    parts.append(f"```cpp\n#include <evenkeel/{path.name}>\n```")
    for chunk in chunks_of(lines):
        comments = next(
            (n for n, line in enumerate(chunk) if not line.startswith("//")), len(chunk)
        )
        code = without_private(chunk[comments:])
        if not code or re.fullmatch(r"(class|struct) \w+;", " ".join(code)):
            if comments:
                parts.append(prose(chunk[:comments]))
            continue
        names = names_in(code)
        if names:
            parts.append("## " + ", ".join(f"`{name}`" for name in names))
        if comments:
            parts.append(prose(chunk[:comments]))
        parts.append("```cpp\n" + "\n".join(code) + "\n```")
    return "\n\n".join(parts) + "\n"


# ------------------------------------------------------------------ what mkdocs calls


def pages_in(nav: list[Any]) -> set[str]:
    values = [
        value for entry in nav for value in (entry.values() if isinstance(entry, dict) else [entry])
    ]
    return {
        page
        for value in values
        for page in (pages_in(value) if isinstance(value, list) else [value])
    }


def section(nav: list[Any], name: str) -> list[Any]:
    return next(entry[name] for entry in nav if name in entry)


def on_config(config: Any, **_: Any) -> Any:
    """Adds the headers to the menu, and guides that mkdocs.yml does not name yet."""
    reference = section(config.nav, "Reference")
    pages = [{path.name: f"reference/cpp/{path.stem}.md"} for path in headers()]
    for number, entry in enumerate(reference):
        if entry.get("C++ headers") == "reference/cpp.md":
            reference[number] = {"C++ headers": [{"All headers": "reference/cpp.md"}, *pages]}
    known = pages_in(config.nav)
    docs = Path(config.docs_dir)
    new = (path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md")))
    section(config.nav, "Guides").extend(page for page in new if page not in known)
    return config


def public_names() -> list[str]:
    """Of the package, without importing it: the table in its __init__.py."""
    tree = ast.parse((ROOT / "python" / "evenkeel" / "__init__.py").read_text())
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOME"
    )
    return sorted(name for name in ast.literal_eval(table) if not name.startswith("_"))


def complete(markdown: str, page: str) -> str:
    """Adds names and headers that a page of the reference does not list yet."""
    if page == "reference/python.md":
        names = (name for name in public_names() if f"::: evenkeel.{name}\n" not in markdown)
        return markdown.rstrip("\n") + "".join(f"\n\n::: evenkeel.{name}\n" for name in names)
    if page == "reference/cpp.md":
        new = (path for path in headers() if f"[{path.name}]" not in markdown)
        rows = (f"| [{path.name}](cpp/{path.stem}.md) | {first_line(path)} |" for path in new)
        return "\n".join([markdown.rstrip("\n"), *rows, ""])
    return markdown


def first_line(header: Path) -> str:
    text = header.read_text().split("\n", 1)[0].lstrip("/* ").rstrip(" .")
    return text[:1].lower() + text[1:]


def on_files(files: Any, config: Any, **_: Any) -> Any:
    from mkdocs.structure.files import File

    for page in PAGES:
        files.append(File.generated(config, page, content=(ROOT / page).read_text()))
    for path in headers():
        made = header_page(path)
        files.append(File.generated(config, f"reference/cpp/{path.stem}.md", content=made))
    for path in examples():
        uri = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    files.append(File.generated(config, "LICENSE.txt", abs_src_path=str(ROOT / "LICENSE")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return complete(redirect(markdown, page.file.src_uri), page.file.src_uri)
