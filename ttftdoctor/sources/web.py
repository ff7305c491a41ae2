"""Logs that a web server holds, as streams of their bytes.

What is no file is never read as one: pages of errors, of logins, and downloads that break off.
"""

from __future__ import annotations

import base64
import http.client
import io
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import unquote

from ttftdoctor.errors import InputError
from ttftdoctor.sources.addresses import WEB, scheme_of, shown, split

#: How a page begins: comments, and what an XML file begins with, may stand before it. No log
#: begins with a comment, even one whose end is far.
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!--|!doctype\s+html|html|head|body)",
    re.IGNORECASE,
)
#: Seconds without a sign of life.
PATIENCE_S = 30


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Goes where a server sends us, but never from an encrypted connection to a plain one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if scheme_of(newurl) not in WEB or (req.type == "https" and scheme_of(newurl) != "https"):
            if fp is not None:
                fp.close()  # nobody else would
            raise InputError(
                "the server sends us on to an address that is not safe",
                where=shown(req.full_url),
                why=f"to {shown(newurl)}",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Page(io.RawIOBase):
    """One file of a web server, read as it comes; one that breaks off is an error."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        parts = split(path)
        if not parts.hostname:
            raise InputError("the address names no server", where=shown(path))
        host = parts.netloc.rpartition("@")[2]
        request = urllib.request.Request(  # noqa: S310  (http and https only)
            parts._replace(netloc=host, fragment="").geturl().replace(" ", "%20"),
            headers={"User-Agent": "ttftdoctor", "Accept-Encoding": "identity"},
        )
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            word = base64.b64encode(pair.encode()).decode()
            # Not for whoever we are sent on to.
            request.add_unredirected_header("Authorization", f"Basic {word}")
        with _telling(self._path):
            opener = urllib.request.build_opener(_Redirect)
            self._answer = opener.open(request, timeout=PATIENCE_S)
        try:
            self._check()
        except InputError:
            self._answer.close()
            raise
        length = self._answer.headers.get("Content-Length", "")
        self._size = int(length) if length.isdigit() else None
        self._got = 0
        self._begun = False

    def _check(self) -> None:
        """Refuse what is no file."""
        if self._answer.status != 200:
            _refuse(self._path, self._answer.status)
        if self._answer.headers.get_content_type() in ("text/html", "application/xhtml+xml"):
            raise InputError(
                "this is a web page, not a log", where=shown(self._path),
                help="give the address of the file itself; the page may ask to log in",
            )  # fmt: skip

    def close(self) -> None:
        if not self.closed and hasattr(self, "_answer"):
            self._answer.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _telling(self._path):
            data = self._answer.read(len(buffer))
        self._got += len(data)
        if not data and self._size is not None and self._got < self._size:
            raise InputError(
                "the download broke off", where=shown(self._path),
                why=f"{self._got:,} of {self._size:,} bytes came", help="try again",
            )  # fmt: skip
        if not self._begun and data:
            self._begun = True
            if _PAGE.match(data[:4096]):
                raise InputError("this is a web page, not a log", where=shown(self._path))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """Say in our words what went wrong on the way."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        _refuse(path, error.code)
    except http.client.IncompleteRead:
        raise InputError("the download broke off", where=shown(path), help="try again") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        first = (str(reason).strip().splitlines() or [type(reason).__name__])[0]
        why = re.sub(r"\?[^\s\"')]*", "?…", first)[:300]  # an address in it may be signed
        if isinstance(reason, TimeoutError):
            why = f"no answer within {PATIENCE_S} s"
        raise InputError("the server cannot be read", where=shown(path), why=why) from None


def _refuse(path: str, status: int) -> NoReturn:
    words = {
        401: "the server wants a login", 403: "access is refused", 404: "there is no such file",
        407: "the proxy wants a login", 410: "there is no such file",
    }  # fmt: skip
    what = words.get(status, "the server did not send the file")
    why = f"{status} {http.client.responses.get(status, '')}".strip()
    raise InputError(what, where=shown(path), why=why)


def open_page(path: str) -> io.BufferedReader:
    """Open a file of a web server as a stream of its bytes.

    Raises
    ------
    InputError
        If it is not there, may not be read or is a page for people; if it breaks off, while
        reading.
    """
    return io.BufferedReader(_Page(path), 2**20)
