"""Parses HTML that we generate, for tests."""

from html.parser import HTMLParser


class HtmlPage(HTMLParser):
    """Tags, attributes of images, links and the visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        if self.cdata_elem != "style":
            self.text += data
