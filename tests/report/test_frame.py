"""What every page is filled with."""

import base64

from crac.report.frame import svg_uri, to_html


def test_markdown_becomes_html_without_links_and_marks_of_html() -> None:
    html = to_html("# A *b*\n\n<b>raw</b> and [a link](elsewhere.md)\n\n| a |\n| --- |\n| 1 |\n")
    assert "<h1>A <em>b</em></h1>" in html
    assert "&lt;b&gt;raw&lt;/b&gt; and a link" in html
    assert "elsewhere" not in html
    assert '<div class="scroll"><table>' in html
    assert "</table></div>" in html


def test_a_picture_is_in_its_address() -> None:
    kind, _, content = svg_uri("<svg>é</svg>").partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content).decode() == "<svg>é</svg>"
