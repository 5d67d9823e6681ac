"""Files on other machines: gs://, s3://, az://, hf:// through etils, http:// and https://."""

import http.client
import io
import urllib.error
import urllib.request
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from etils import epath

from bert_lamb.data.errors import DataError, last_line

_PACKAGES = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs", "hf": "huggingface_hub"}
_TIMEOUT_SECONDS = 30.0


def is_remote(path: str) -> bool:
    """Whether `path` is an address rather than a local path."""
    return "://" in path


def local_path(path: str) -> str:
    """Returns the local path of a file:// address, and any other path as it is.

    Raises:
        DataError: for a file:// address of another machine.
    """
    if not path.lower().startswith("file://"):
        return path
    parts = urlsplit(path, allow_fragments=False)
    if parts.netloc not in ("", "localhost"):
        raise DataError(
            f"source {path!r}: names a file of the machine {parts.netloc!r}; a local file has "
            f"three slashes (file:///{parts.netloc}{parts.path})"
        )
    # A question mark is part of a file's name.
    return unquote(parts.path + (f"?{parts.query}" if parts.query else ""))


def open_remote(path: str) -> BinaryIO:
    """Opens an address for reading bytes.

    Raises:
        DataError: if it cannot be reached, or this kind of address needs a package that is absent.
    """
    if _is_http(path):
        return io.BufferedReader(_HttpReader(path))
    try:
        return io.BufferedReader(_CloudReader(epath.Path(path).open("rb")))
    except Exception as error:
        raise _unreadable(path, error) from error


def remote_size(path: str) -> int:
    """Returns the size of a remote file in bytes; 0 where a web server does not say."""
    if _is_http(path):
        with _open_url(path) as response:
            return int(response.headers.get("Content-Length") or 0)
    try:
        return int(epath.Path(path).stat().length)
    except Exception as error:
        raise _unreadable(path, error) from error


def find_remote(pattern: str, recursive: bool) -> tuple[list[str], bool]:
    """Returns (the files an address stands for, unsorted; whether it is a folder).

    Args:
        pattern: an address, with * and ? in its last part, or of a folder.
        recursive: look into the folders of a folder, too.

    Raises:
        DataError: if it cannot be reached.
    """
    if _is_http(pattern):
        with _open_url(pattern):
            return [pattern], False
    try:
        path = epath.Path(pattern)
        if path.is_dir():
            found = path.glob("**/*") if recursive else path.iterdir()
            return [str(p) for p in found if p.is_file()], True
        if path.exists():
            return [pattern], False
        return [str(p) for p in path.parent.glob(path.name) if p.is_file()], False
    except Exception as error:  # each file system of fsspec has exceptions of its own
        raise _unreadable(pattern, error) from error


def _unreadable(path: str, error: Exception) -> DataError:
    scheme = path.partition("://")[0]
    said = last_line(error)
    package = _PACKAGES.get(scheme)
    if package is None:
        known = ", ".join(f"{name}://" for name in (*_PACKAGES, "https", "file"))
        return DataError(
            f"source {path!r}: this kind of address cannot be read here; use one of {known}, or "
            "copy the text to a local folder"
        )
    if isinstance(error, ImportError):
        return DataError(
            f"source {path!r}: {scheme}:// needs the package {package} ({said}); run `pip install "
            f"{package}`, or copy the text to a local folder"
        )
    return DataError(
        f"source {path!r}: cannot be read ({type(error).__name__}: {said}); check the address and "
        "your access to it, or copy the text to a local folder"
    )


def _is_http(path: str) -> bool:
    return path.lower().startswith(("http://", "https://"))


def _open_url(url: str) -> Any:
    try:
        return urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or error
        code = f"status {error.code}, " if isinstance(error, urllib.error.HTTPError) else ""
        raise DataError(
            f"source {url!r}: cannot be fetched ({code}{reason}); check the address and the "
            "network, or fetch it by other means and name the local file"
        ) from error


class _CloudReader(io.RawIOBase):
    """A file of fsspec, whose file systems have exceptions of their own for a lost connection."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _HttpReader(io.RawIOBase):
    """The body of a web address; a connection that ends early is an error, not the end."""

    def __init__(self, url: str) -> None:
        self._response = _open_url(url)
        length = self._response.headers.get("Content-Length")
        self._left = int(length) if length else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = int(self._response.readinto(buffer))
        except http.client.HTTPException as error:
            raise OSError(f"the connection broke: {error!r}") from error
        if self._left is not None:
            self._left -= size
            if not size and self._left > 0:
                raise OSError(f"the connection ended {self._left} bytes early; try again")
        return size

    def close(self) -> None:
        self._response.close()
        super().close()
