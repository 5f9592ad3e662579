"""The documentation as a site: every link leads somewhere, in the sources and in what is built."""

import re

from tools import site


def test_no_link_of_any_page_leads_nowhere():
    found = site.pages(site.SOURCES + site.OTHERS)
    assert len(found) > 80
    assert site.broken_links(found) == []


def test_a_link_or_an_anchor_that_leads_nowhere_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A `b`, c & d!\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# P\n\n[1](there.md) [2](gone.md) [3](there.md#twice-1) [4](there.md#a-b-c--d) "
        "[5](there.md#twice-2) [6](#p) [7](#q) [8](https://example.org/gone) [9](../out.md) "
        "![10](gone.png)\n"
    )
    (tmp_path.parent / "out.md").write_text("# out\n")
    broken = [line.removeprefix("page.md: ") for line in site.broken_links([page])]
    assert broken == ["gone.md", "there.md#twice-2", "#q", "../out.md", "gone.png"]


def test_the_site_is_built_and_holds_together(tmp_path):
    count = site.build(tmp_path)
    made = sorted(tmp_path.rglob("*.html"))
    assert len(made) == count + 1
    for page in made:
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            file, _, anchor = target.partition("#")
            if site.is_elsewhere(target) or not (file.endswith(".html") or not file):
                continue
            aimed = (page.parent / file).resolve() if file else page
            assert aimed.exists(), (page, target)
            if anchor:
                assert f'id="{anchor}"' in aimed.read_text(encoding="utf-8"), (page, target)
    assert "<table>" in (tmp_path / "docs/client.html").read_text(encoding="utf-8")
    assert (tmp_path / "docs/images/flights.png").exists()
