"""The documentation site: built strictly, whole, silent; its links also work on GitHub."""

import ast
import re
import subprocess
import textwrap
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Attributes that make a browser load something, not those of links that a reader follows.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "video": "src"}


class Page(HTMLParser):
    """What a page loads, where its links lead, and the places that links can lead to."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.places, self.of_article = [], [], set(), []
        self.in_article = False
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        self.in_article |= tag == "article"
        self.places |= {has[name] for name in ("id", "name") if has.get(name)}
        if has.get(LOADS.get(tag, "")):
            self.loads.append(has[LOADS[tag]])
        if tag == "link" and has.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loads.append(has["href"])
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
            if self.in_article:
                self.of_article.append(has["href"])

    def handle_endtag(self, tag):
        self.in_article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not MKDOCS.exists():
        pytest.skip("mkdocs is not installed: scripts/setup docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def elsewhere(address):
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def goal(page, address):
    """The file and the place in it that a link of a page leads to."""
    parts = urlsplit(address)
    path = page.parent / unquote(parts.path) if parts.path else page
    return (path / "index.html" if path.is_dir() else path).resolve(), unquote(parts.fragment)


def broken_links(pages):
    for path, page in pages.items():
        for address in page.links:
            if elsewhere(address):
                continue
            file, place = goal(path, address)
            known = pages[file].places if file in pages else {""}
            if not file.exists() or (place and place not in known):
                yield f"{path.name}: {address}"


def loads_from_elsewhere(site, pages):
    for path, page in pages.items():
        yield from (f"{path.name}: {address}" for address in page.loads if elsewhere(address))
    for path in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text()):
            if elsewhere(address):
                yield f"{path.name}: {address}"


def answers():
    """The links of each question, in docs/questions.md."""
    text = (DOCS / "questions.md").read_text()
    questions = re.split(r"^### \d+\. ", text, flags=re.MULTILINE)[1:]
    return [LINK.findall("\n".join(re.findall("→.*", question))) for question in questions]


def test_the_site_is_whole_and_silent(site):
    html = sorted(path.resolve() for path in site.rglob("*.html") if path.name != "404.html")
    pages = {path: Page(path) for path in html}
    assert len(pages) > 50
    assert list(broken_links(pages)) == []
    assert list(loads_from_elsewhere(site, pages)) == []

    # From the landing page, the answers to all questions are two clicks away, without the menus.
    home = site.resolve() / "index.html"
    one = {goal(home, address)[0] for address in pages[home].of_article if not elsewhere(address)}
    two = {
        goal(path, address)[0]
        for path in one & pages.keys()
        for address in pages[path].of_article
        if not elsewhere(address)
    }
    for links in answers():
        assert {(site / link.split("#")[0]).with_suffix(".html").resolve() for link in links} <= two

    # Every public name is in the reference, with its docstring; doctests are code, not quotations.
    reference = (site / "reference" / "python.html").read_text()
    source = ast.parse((ROOT / "python" / "evenkeel" / "__init__.py").read_text())
    homes = next(
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOME"
    )
    for name in (name for name in homes if not name.startswith("_")):
        assert f'id="evenkeel.{name}"' in reference, name
    assert "<blockquote>" not in reference
    # Loaders inherit from readers of _core, whose members are not public.
    assert 'id="evenkeel.Loader.seek"' in reference and "put_back" not in reference
    header = (site / "reference" / "cpp" / "array.html").read_text()
    assert all(f"<code>{name}</code>" in header for name in ("Array", "ArrayOptions"))


def test_search_works_without_a_server_and_asks_nobody(site, browser):
    page = browser.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    # The query is in the address: nothing is typed before the page listens.
    page.goto((site / "index.html").as_uri() + "?q=OOMKilled")
    found = ".md-search-result__link[href*='pod-killed']"
    page.wait_for_selector(found, state="attached", timeout=120_000)
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def pages_of_docs():
    return sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", pages_of_docs(), ids=lambda page: page.stem)
def test_links_work_on_github_too(page):
    text = FENCE.sub("", page.read_text())
    text = re.sub(r"`[^`\n]+`", "", text)
    for address in LINK.findall(text):
        if not elsewhere(address) and not address.startswith("#"):
            assert (page.parent / urlsplit(address).path).exists(), address


def test_links_are_found():
    assert sum(len(LINK.findall(page.read_text())) for page in pages_of_docs()) > 200


def test_there_are_twenty_questions_and_each_has_an_answer():
    assert len(answers()) == 20
    assert all(answers())


def test_python_of_the_pages_compiles():
    compiled = 0
    for page in pages_of_docs():
        for language, code in FENCE.findall(page.read_text()):
            if language == "python":
                compile(textwrap.dedent(code), str(page), "exec")
                compiled += 1
    assert compiled > 50  # the search works
