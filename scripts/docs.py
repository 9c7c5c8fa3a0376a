#!/usr/bin/env python3
"""Builds the documentation as a site with search: target/docs/html/index.html.

    scripts/docs.py              lays out the pages, runs mdBook, checks every link and anchor of the result, and that
                                 the search knows every page
    scripts/docs.py --layout     only lays out the pages, in target/docs/src; needs no mdBook

The pages keep their places in the repository, so their links hold. Files that pages link to are copied beside them;
Markdown files that are no pages become text. MDBOOK names the program; without it, the pinned version is installed into
target/tools.
"""

import html.parser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

MDBOOK = "0.5.4"
ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
OUT = TARGET / "docs"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
MOST_FILES = 200  # of a folder that a page links to


def mdbook():
    """The program, installed if it is missing."""
    given = os.environ.get("MDBOOK")
    if given:
        return given
    program = TARGET / "tools" / f"mdbook-{MDBOOK}" / "bin" / "mdbook"
    if not program.exists():
        print(f"Installing mdBook {MDBOOK} into {program.parent.parent}", file=sys.stderr)
        command = ["cargo", "install", "mdbook", "--locked", "--version", f"={MDBOOK}", "--no-default-features",
                   "--features", "search", "--root", str(program.parent.parent)]
        subprocess.run(command, check=True, cwd="/")
    return str(program)


def summary():
    """The contents as mdBook wants them, and the pages, relative to the repository's root."""
    pages = []

    def moved(match):
        page = os.path.normpath(os.path.join("docs", match[2]))
        pages.append(page)
        return f"{match[1]}{page}{match[3]}"

    return LINK.sub(moved, (ROOT / "docs/SUMMARY.md").read_text()), pages


def copy_file(path):
    """Copies a file that a page links to, and returns its place in the site."""
    # mdBook would turn a link to `.md.txt` into one to `.html`.
    place = path.removesuffix(".md") + ".txt" if path.endswith(".md") else path
    to = OUT / "src" / place
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, to)
    return place


def copy_folder(path):
    """Copies the files of a folder with a list of them, and returns the list's place in the site."""
    found = sorted(str(file.relative_to(ROOT)) for file in (ROOT / path).rglob("*") if file.is_file())
    if len(found) > MOST_FILES:
        sys.exit(f"{path} has more than {MOST_FILES} files: link to one of them")
    items = []
    for file in found:
        place = os.path.relpath(copy_file(file), path)
        items.append(f'<li><a href="{place}">{os.path.relpath(file, path)}</a></li>')
    to = OUT / "src" / path / "index.html"
    to.write_text(f'<!doctype html><meta charset="utf-8"><title>{path}</title><h1>{path}</h1><ul>{"".join(items)}</ul>\n')
    return f"{path}/index.html"


def lay_out():
    """Puts pages, and what they link to, into target/docs/src."""
    shutil.rmtree(OUT, ignore_errors=True)
    contents, pages = summary()
    (OUT / "src").mkdir(parents=True)
    (OUT / "src/SUMMARY.md").write_text(contents)
    shutil.copyfile(ROOT / "docs/book.toml", OUT / "book.toml")
    places = {page: page for page in pages}

    def place_of(path):
        if path not in places:
            places[path] = copy_folder(path) if (ROOT / path).is_dir() else copy_file(path)
        return places[path]

    for page in pages:
        folder = os.path.dirname(page)

        def fixed(match):
            link, _, anchor = match[2].partition("#")
            if not link or "://" in link or link.startswith("mailto:"):
                return match[0]
            path = os.path.normpath(os.path.join(folder, link))
            if not (ROOT / path).exists():
                sys.exit(f"{page}: there is no {link}")
            place = os.path.relpath(place_of(path), folder or ".")
            return f"{match[1]}{place}{'#' + anchor if anchor else ''}{match[3]}"

        to = OUT / "src" / page
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(LINK.sub(fixed, (ROOT / page).read_text()))
    return pages


class Page(html.parser.HTMLParser):
    """The anchors and the local links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if attrs.get("id"):
            self.anchors.add(attrs["id"])
        link = attrs.get("href") if tag in ("a", "link") else attrs.get("src")
        if link and not urlsplit(link).scheme and not link.startswith("//"):
            self.links.append(link)


def check_links(pages):
    """Every local link of the site leads to a file, and to an anchor in it."""
    site = OUT / "html"
    found = {}

    def page(path):
        if path not in found:
            found[path] = Page(path.read_text())
        return found[path]

    broken = []
    for path in sorted(site.rglob("*.html")):
        if path.name in ("404.html", "toc.html", "print.html"):
            continue
        for link in page(path).links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            name = f"{path.relative_to(site)}: {link}"
            if not target.is_file():
                broken.append(name)
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).anchors:
                broken.append(name)
    missing = [p for p in pages if not (site / Path(p).with_suffix(".html")).is_file()]
    if broken or missing:
        sys.exit("\n".join(["Links of the site that lead nowhere:", *broken, *(f"no page of {p}" for p in missing)]))


def check_search(pages):
    """The index of the search has every page but the changelog (docs/book.toml)."""
    index = next((OUT / "html").glob("searchindex-*.js"), None)
    text = index.read_text() if index else ""
    missing = [p for p in pages if p != "CHANGELOG.md" and f'"{Path(p).with_suffix(".html")}#' not in text]
    if missing:
        sys.exit("\n".join(["The search does not find:", *missing]))


def main():
    pages = lay_out()
    if sys.argv[1:] == ["--layout"]:
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    subprocess.run([mdbook(), "build", str(OUT)], check=True)
    check_links(pages)
    check_search(pages)
    print(f"{len(pages)} pages: {OUT / 'html/index.html'}")


main()
