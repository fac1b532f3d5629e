"""The server of the live page: it reads run folders, answers this machine alone, and changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fastes.watch.followed_progress import checked_cursor
from fastes.watch.videos import Videos
from fastes.watch.watched_runs import WatchedRuns

_HOSTS = ("127.0.0.1", "localhost")  # names under which a browser may ask: others are pages that had their name point here
_PAGE: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/watch.css": ("watch.css", "text/css; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.js": ("uPlot.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
}
_POLICY = "; ".join(
    f"{what} {source}"
    for what, source in {
        "default-src": "'none'",
        **dict.fromkeys(("script-src", "style-src", "connect-src", "media-src"), "'self'"),
        "img-src": "data:",  # the page's icon
        **dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'"),
    }.items()
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_RANGE = re.compile(r"bytes=(\d{1,12})-(\d{0,12})")
_MOST_CURSOR = 20_000  # characters


class WatchServer(ThreadingHTTPServer):
    """Serves the page for some runs on 127.0.0.1.

    Args:
        roots: Run folders, or folders of them.
        port: 0 takes a free one.

    Raises:
        OSError: If the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, roots: Sequence[Path], port: int, videos: Videos) -> None:
        self.runs, self.videos = WatchedRuns(roots), videos
        folder = resources.files("fastes.watch") / "page"
        self.page = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}
        super().__init__(("127.0.0.1", port), _Answer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off: the console stays quiet."""

    @property
    def address(self) -> str:
        """The address to type into a browser."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Refused(Exception):
    """A request that gets a status and words in place of an answer."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: WatchServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fastes", ""
    timeout = 60.0  # seconds that a connection may be silent
    disable_nagle_algorithm = True  # else the text waits 40 ms, until the browser has confirmed the headers

    def do_GET(self) -> None:
        self._answer({"/runs": self._runs, "/run": self._run, "/video": self._video, "/video.mp4": self._video_file})

    def do_POST(self) -> None:
        self._answer({"/video": self._draw})

    def _answer(self, parts: Mapping[str, Callable[[dict[str, str]], None]]) -> None:
        try:
            self._check_origin()
            url = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            if self.command == "GET" and url.path in self.server.page:
                content, kind = self.server.page[url.path]
                self._send(HTTPStatus.OK, content, kind)
            elif url.path in parts:
                parts[url.path](query)
            else:
                raise _Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        except _Refused as refused:
            self.close_connection = True
            self._send(refused.status, refused.words.encode(), "text/plain; charset=utf-8")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):  # the browser has gone
            self.close_connection = True
        except Exception as error:  # a file that nobody thought of must not end the page
            self.close_connection = True
            words = f"{type(error).__name__}: {error}"[:500]
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, words.encode(errors="replace"), "text/plain; charset=utf-8")

    def _check_origin(self) -> None:
        """Refuse what a page of another site asks, through a name of its own or by a link."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _HOSTS:
            raise _Refused(HTTPStatus.FORBIDDEN, f"this page is at {self.server.address}")
        is_link = self.path == "/" and self.headers.get("Sec-Fetch-Mode") == "navigate"  # a click on the address elsewhere
        if not is_link and self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise _Refused(HTTPStatus.FORBIDDEN, "another site may not ask for this")
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != self.headers.get("Host"):
            raise _Refused(HTTPStatus.FORBIDDEN, "another site may not ask for this")

    # --- what the page asks for -------------------------------------------------------------------------------------

    def _runs(self, query: dict[str, str]) -> None:
        """/runs?since=REVISION"""
        self._send_json(self.server.runs.rows_since(query.get("since", "")))

    def _run(self, query: dict[str, str]) -> None:
        """/run?name=RUN&cursor=JSON"""
        name, text = query.get("name", ""), query.get("cursor", "{}")
        try:
            cursor = checked_cursor(json.loads(text) if len(text) < _MOST_CURSOR else None)
        except (ValueError, RecursionError):
            raise _Refused(HTTPStatus.BAD_REQUEST, "this is not a cursor of this page") from None
        try:
            found = self.server.runs.run_since(name, cursor)
        except KeyError:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such run") from None
        self._send_json(found)

    def _path_of(self, query: dict[str, str]) -> Path:
        try:
            return self.server.runs.path_of(query.get("name", ""))
        except KeyError:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such run") from None

    def _video(self, query: dict[str, str]) -> None:
        """/video?name=RUN"""
        self._send_json(self.server.videos.state_of(self._path_of(query)))

    def _draw(self, query: dict[str, str]) -> None:
        """POST /video?name=RUN"""
        path = self._path_of(query)
        try:
            began = self.server.videos.draw(path)
        except OSError as error:
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"no video can be drawn: {error}") from None
        self._send_json({"began": began, **self.server.videos.state_of(path)})

    def _video_file(self, query: dict[str, str]) -> None:
        """/video.mp4?name=RUN&number=N"""
        number = query.get("number", "")
        known = number.isdecimal() and len(number) < 10
        file = self.server.videos.file_of(self._path_of(query), int(number)) if known else None
        if file is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such video")
        try:
            content = file.read_bytes()
        except OSError:  # drawn again meanwhile
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such video") from None
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None:
            self._send(HTTPStatus.OK, content, "video/mp4", {"Accept-Ranges": "bytes"})
            return
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            raise _Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"the video has {len(content)} bytes")
        part = {"Content-Range": f"bytes {first}-{last}/{len(content)}", "Accept-Ranges": "bytes"}
        self._send(HTTPStatus.PARTIAL_CONTENT, content[first : last + 1], "video/mp4", part)

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send_json(self, values: Mapping[str, Any]) -> None:
        text = json.dumps(values, allow_nan=False, separators=(",", ":"))
        self._send(HTTPStatus.OK, text.encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """The console stays quiet."""
