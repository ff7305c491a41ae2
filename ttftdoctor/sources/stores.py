"""Logs that are objects of S3, Google Cloud Storage or Azure, as streams of their bytes.

Each is unpacked and recognised by content, like a file. Polars scans object stores by itself, but
only tables and lines of clean text, not packed bytes of any kind: so only Parquet is left to it.
Other objects come through ``obstore``, which is built on the same library as Polars' own access
and takes the same settings from the environment.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ttftdoctor.errors import InputError
from ttftdoctor.sources.addresses import STORES, lacking, scheme_of

#: Bytes asked for at a time of an object.
PART_BYTES = 8 * 2**20
#: Seconds without a sign of life.
PATIENCE_S = 30
#: More objects than this below one address are no log that somebody meant.
MOST_OBJECTS = 100_000

_MAGIC = re.compile(r"[*?\[]")
#: A query behind a key; a question mark stands for any sign otherwise.
_SIGNED = re.compile(r"\?[\w.~%-]+=")


def expand(path: str, looks_like_log: Callable[[str], bool]) -> list[str]:
    """The addresses that one address stands for: globs and prefixes of object stores, or itself.

    Parameters
    ----------
    looks_like_log
        Whether a name ends as logs do; asked below a prefix only.

    Raises
    ------
    InputError
        If the store cannot be asked, or nothing is there.
    """
    if scheme_of(path) not in STORES:
        return [path]
    place = _place_of(path)
    if _MAGIC.search(place.key):
        folder = _MAGIC.split(place.key, maxsplit=1)[0].rpartition("/")[0]
        try:
            wanted = re.compile(_regex_of(place.key), re.DOTALL)
        except re.error:
            raise InputError("this pattern makes no sense", where=path) from None
        found = [key for key in _below(path, place, folder) if wanted.fullmatch(key)]
        if not found:
            raise InputError("no object matches", where=path)
        return [place.root + key for key in found]
    if place.key and not place.key.endswith("/") and _is_object(path, place):
        return [path]
    inside = [key for key in _below(path, place, place.key.strip("/")) if key != place.key]
    logs = [key for key in inside if looks_like_log(key) and not _hidden(key)]
    if not logs:
        there = f"{len(inside):,} objects of other kinds" if inside else "nothing to read"
        raise InputError("no such object, and no log below it", where=path, available=there)
    return [place.root + key for key in logs]


def _hidden(key: str) -> bool:
    return key.rpartition("/")[2].startswith((".", "_"))


def _regex_of(pattern: str) -> str:
    """A glob as a regular expression: ``*`` and ``?`` within a name, ``**/`` over folders."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
            continue
        if pattern.startswith("**", at):
            out.append(".*")
            at += 2
            continue
        letter = pattern[at]
        at += 1
        if letter == "*":
            out.append("[^/]*")
        elif letter == "?":
            out.append("[^/]")
        elif letter == "[" and (end := pattern.find("]", at + 1)) > 0:
            inside = pattern[at:end].replace("\\", r"\\").replace("[", r"\[")
            out.append("[" + ("^" + inside[1:] if inside[0] == "!" else inside) + "]")
            at = end + 1
        else:
            out.append(re.escape(letter))
    return "".join(out)


@dataclass(frozen=True)
class _Place:
    """A place in a store: what comes before the keys, and the key, glob or prefix."""

    kind: str
    bucket: str
    account: str | None
    root: str
    key: str


def _place_of(path: str) -> _Place:
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    keys = "@" in rest and (":" in bucket or ("@" in bucket and STORES[scheme.lower()] != "az"))
    if keys or _SIGNED.search(key):
        # As part of a name they would be of no use, and go to whoever keeps a log of requests.
        raise InputError(
            "keys and signatures in the address of an object are not used", where=path,
            help="name credentials as for the provider's own tools, in the environment or a "
            "profile; a signed address is one that begins with https://",
        )  # fmt: skip
    kind, account = STORES[scheme.lower()], None
    root = f"{scheme}://{bucket}/"
    if kind == "az" and "@" in bucket:  # abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if not bucket or _MAGIC.search(bucket):
        raise InputError(
            "the address names no bucket", where=path, help=f"write {scheme}://BUCKET/PATH"
        )
    return _Place(kind, bucket, account, root, key)


def _below(path: str, place: _Place, folder: str) -> list[str]:
    """All keys below a folder, in order."""
    found: list[str] = []
    try:
        import obstore

        for batch in obstore.list(_store(path, place), prefix=folder or None):
            found += [item["path"] for item in batch]
            if len(found) > MOST_OBJECTS:
                break
    except InputError:
        raise
    except ImportError:
        raise lacking("obstore", "cloud", path) from None
    except Exception as error:  # noqa: BLE001  (the library has no class of its own for all)
        _told(error, path)
    if len(found) > MOST_OBJECTS:
        raise InputError(
            f"there are more than {MOST_OBJECTS:,} objects below this address", where=path,
            help="name a longer prefix",
        )  # fmt: skip
    return sorted(found)


def _is_object(path: str, place: _Place) -> bool:
    try:
        import obstore

        obstore.head(_store(path, place), place.key)
    except FileNotFoundError:
        return False
    except InputError:
        raise
    except ImportError:
        raise lacking("obstore", "cloud", path) from None
    except Exception as error:  # noqa: BLE001  (as above)
        _told(error, path)
    return True


# --------------------------------------------------------------------- the stores

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def _endpoint(kind: str) -> str | None:
    """Where the environment says that the store is, if it is not its provider's."""
    return next((os.environ[name] for name in _ENDPOINTS[kind] if os.environ.get(name)), None)


def _store(path: str, place: _Place) -> Any:
    from datetime import timedelta

    from obstore.store import AzureStore, GCSStore, S3Store

    endpoint = _endpoint(place.kind)
    common: dict[str, Any] = {
        # Who names an endpoint without encryption in the environment means it.
        "client_options": {
            "allow_http": (endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            "timeout": timedelta(seconds=4 * PATIENCE_S),
        },
        "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=PATIENCE_S)},
    }
    if place.kind == "s3":
        if endpoint is not None:
            common["endpoint"] = endpoint
        common |= _aws(path)
        return S3Store(place.bucket, **common)
    if place.kind == "gs":
        return GCSStore(place.bucket, **common)
    if place.account is not None:
        common["account_name"] = place.account
    return AzureStore(place.bucket, **common)


def _aws(path: str) -> dict[str, Any]:
    """Region and keys that are not in the environment: those of the profile in ``~/.aws``."""
    environment = os.environ
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    found: dict[str, Any] = {"region": region} if region else {}
    files = [
        Path(environment.get(name) or default).expanduser()
        for name, default in (
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
            ("AWS_CONFIG_FILE", "~/.aws/config"),
        )
    ]
    given = environment.get("AWS_ACCESS_KEY_ID") or environment.get("AWS_SKIP_SIGNATURE")
    if given or not any(file.is_file() for file in files):
        return found
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider

        session = boto3.Session()
        if session.get_credentials() is None:
            return found
        if session.region_name:
            found.setdefault("region", session.region_name)
        return {**found, "credential_provider": Boto3CredentialProvider(session)}
    except ImportError:
        return found
    except Exception as error:  # noqa: BLE001  (a broken profile; every kind has its own class)
        raise InputError("the AWS profile cannot be used", where=path, why=_line(error)) from None


def scan_options(path: str) -> dict[str, str] | None:
    """What Polars must be told to scan this object beside what it finds in the environment."""
    kind = STORES.get(scheme_of(path) or "")
    endpoint = None if kind is None else _endpoint(kind)
    if kind != "s3" or endpoint is None:
        return None
    options = {"aws_endpoint_url": endpoint}
    if endpoint.startswith("http://"):
        options["aws_allow_http"] = "true"
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return {**options, "aws_region": region} if region else options


class _Object(io.RawIOBase):
    """One object of a store, read in parts that are asked for one by one.

    So no request lasts long, and at most two parts are held. An object that is written anew
    meanwhile is told by its tag: its halves are never mixed.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._place = _place_of(path)
        self._at = 0
        self._part = memoryview(b"")
        try:
            import obstore

            self._get = obstore.get
            self._store = _store(path, self._place)
            self._meta = obstore.head(self._store, self._place.key)
        except ImportError:
            raise lacking("obstore", "cloud", path) from None
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001  (as above)
            _told(error, path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._part and self._at < self._meta["size"]:
            self._part = memoryview(self._next())
            self._at += len(self._part)
        n = min(len(buffer), len(self._part))
        memoryview(buffer).cast("B")[:n] = self._part[:n]
        self._part = self._part[n:]
        return n

    def _next(self) -> bytes:
        end = min(self._at + PART_BYTES, self._meta["size"])
        options: Any = {"range": (self._at, end)}
        if self._meta["e_tag"]:
            options["if_match"] = self._meta["e_tag"]
        try:
            data = bytes(self._get(self._store, self._place.key, options=options).bytes())
        except Exception as error:  # noqa: BLE001  (as above)
            _told(error, self._path)
        if len(data) != end - self._at:
            raise InputError(
                "the object ended too early", where=self._path,
                why=f"{self._at + len(data):,} of {self._meta['size']:,} bytes came",
            )  # fmt: skip
        return data


def _told(error: Exception, path: str) -> NoReturn:
    """Say in a line what a store answered; never what it was asked with."""
    text = str(error)
    name = type(error).__name__
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    number = int(status[1]) if status else 0
    why = " ".join(part for part in (status and status[1], code and code[1]) if part) or None
    access = "name credentials as for the provider's own tools, in the environment or a profile"
    if code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound"):
        raise InputError("there is no such bucket", where=path, why=why) from None
    if "169.254.169.254" in text or "metadata.google.internal" in text or (
        "credential" in text.lower() and not number
    ):  # fmt: skip
        public = "; for a public bucket say AWS_SKIP_SIGNATURE=true"
        raise InputError(
            "no credentials were found for this store", where=path,
            help=access + (public if STORES[scheme_of(path) or ""] == "s3" else ""),
        ) from None  # fmt: skip
    if "Account must be specified" in text:
        raise InputError(
            "the address names no account", where=path,
            help="set AZURE_STORAGE_ACCOUNT_NAME, or write "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        ) from None  # fmt: skip
    if number == 301 or "configured region" in text:
        raise InputError(
            "the bucket lies in another region", where=path, why=why, help="say which: AWS_REGION"
        ) from None
    if name in ("PermissionDeniedError", "UnauthenticatedError") or number in (401, 403):
        raise InputError("access is refused", where=path, why=why, help=access) from None
    if isinstance(error, FileNotFoundError) or number == 404:
        raise InputError("there is no such object", where=path, why=why) from None
    if name == "PreconditionError" or number == 412:
        raise InputError("the object was written anew while it was read", where=path) from None
    if "Connect" in text or "timed out" in text.lower() or "Timeout" in text:
        raise InputError(
            "the store does not answer", where=path, why=_line(error),
            help="is the endpoint right, and the network there?",
        ) from None  # fmt: skip
    raise InputError("the object cannot be read", where=path, why=why or _line(error)) from None


def _line(error: BaseException) -> str:
    """The first line of an error, without the queries of addresses in it (they may be signed)."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"\?[^\s\"')]*", "?…", first)[:300]


def open_object(path: str) -> io.BufferedReader:
    """Open an object of a store as a stream of its bytes.

    Raises
    ------
    InputError
        If it is not there or may not be read; if it changes, while reading.
    """
    return io.BufferedReader(_Object(path), 2**20)
