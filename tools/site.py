"""The documentation as a web site: ``python -m tools.site [DIRECTORY]``, without network.

Makes a page of HTML of each Markdown file that the site has, with its pictures beside it; links
between pages go to pages, all others stay. ``broken_links`` finds links and anchors that lead
nowhere, which a test holds. Anchors are GitHub's. Needs markdown-it-py, which
import-linter (of the extra ``dev``) brings.
"""

import html
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "bench/README.md")
"""What the site has, and folders of it."""
OTHERS = ("tests", "tools", "examples", "src")
"""Folders whose Markdown is checked for links, too."""
STYLE = """
:root { color-scheme: light dark; --line: #8885; --back: #8881; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
nav { border-bottom: 1px solid var(--line); padding-bottom: .5rem; }
pre, code { font: .9em/1.45 ui-monospace, monospace; background: var(--back); border-radius: 4px; }
code { padding: .1em .3em; } pre { padding: .8em; overflow-x: auto; } pre code { padding: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3em .6em; text-align: left; vertical-align: top; }
img { max-width: 100%; } h2, h3 { margin-top: 1.6em; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><nav><a href="{up}README.html">Ottla</a> · <a href="{up}docs/README.html">documentation</a>
</nav>
{body}
</body></html>
"""


def markdown() -> MarkdownIt:
    """Return the reader of the pages: CommonMark and tables."""
    return MarkdownIt("commonmark").enable("table")


def pages(names: tuple[str, ...] = SOURCES) -> list[Path]:
    """Return the Markdown files of these files and folders."""
    found: list[Path] = []
    for name in names:
        path = ROOT / name
        found += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return [path for path in found if path.suffix == ".md"]


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


def _walk(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or [])


def _text(inline: Token) -> str:
    return "".join(
        each.content for each in inline.children or () if each.type in ("text", "code_inline")
    )


def name_headings(tokens: list[Token]) -> list[str]:
    """Give each heading its anchor as id, and return the anchors."""
    seen: dict[str, int] = {}
    anchors = []
    for index, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        anchor = slug(_text(tokens[index + 1]))
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        anchors.append(anchor if not count else f"{anchor}-{count}")
        token.attrSet("id", anchors[-1])
    return anchors


def links(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """Yield each link and picture with the name of its attribute."""
    for token in _walk(tokens):
        if token.type == "link_open":
            yield token, "href"
        elif token.type == "image":
            yield token, "src"


def is_elsewhere(target: str) -> bool:
    """Whether a link leaves the repository."""
    return re.match(r"[a-z]+:", target) is not None


def broken_links(files: list[Path]) -> list[str]:
    """Return a line for each link of ``files`` to a file or an anchor that is not there."""
    anchors: dict[Path, set[str]] = {}

    def anchors_of(path: Path) -> set[str]:
        if path not in anchors:
            tokens = markdown().parse(path.read_text(encoding="utf-8"))
            anchors[path] = set(name_headings(tokens))
        return anchors[path]

    broken = []
    for path in files:
        for token, name in links(markdown().parse(path.read_text(encoding="utf-8"))):
            target = str(token.attrGet(name))
            if is_elsewhere(target):
                continue
            file, _, anchor = unquote(target).partition("#")
            aimed = (path.parent / file).resolve() if file else path
            is_there = aimed.exists() and aimed.is_relative_to(ROOT)
            if is_there and anchor and aimed.suffix == ".md":
                is_there = anchor in anchors_of(aimed)
            if not is_there:
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    return broken


def page_of(path: Path, site: set[Path]) -> str:
    """Return the HTML of a page. ``site``: the pages to which links may go."""
    reader = markdown()
    tokens = reader.parse(path.read_text(encoding="utf-8"))
    name_headings(tokens)
    for token, name in links(tokens):
        target = str(token.attrGet(name))
        file, mark, anchor = target.partition("#")
        if not is_elsewhere(target) and file and (path.parent / file).resolve() in site:
            token.attrSet(name, f"{file.removesuffix('.md')}.html{mark}{anchor}")
    heading = next(_text(tokens[i + 1]) for i, each in enumerate(tokens) if each.tag == "h1")
    up = "../" * (len(path.relative_to(ROOT).parts) - 1)
    body = reader.renderer.render(tokens, reader.options, {})
    return PAGE.format(title=html.escape(f"{heading} - Ottla"), style=STYLE, up=up, body=body)


def build(directory: Path) -> int:
    """Write the site; return how many pages it has."""
    files = pages()
    site = set(files)
    for path in files:
        target = directory / path.relative_to(ROOT).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_of(path, site), encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", directory / "docs/images", dirs_exist_ok=True)
    index = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html">'
    (directory / "index.html").write_text(index, encoding="utf-8")
    return len(files)


def main() -> int:
    """Build, and tell what leads nowhere."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out/site")
    count = build(directory)
    broken = broken_links(pages(SOURCES + OTHERS))
    sys.stdout.write("".join(f"leads nowhere: {line}\n" for line in broken))
    sys.stdout.write(f"{count} pages in {directory}; open {directory / 'index.html'}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
