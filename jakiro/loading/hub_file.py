"""A large file of the Hub with known size and checksum: found on this machine, or downloaded.

huggingface_hub (2.4) restarts an interrupted download, so the bytes are requested here with its addresses, tokens and
errors, and a download continues where it ended. Importing this module loads nothing.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from jakiro import progress
from jakiro.loading.checksums import weights_sha256
from jakiro.loading.incompatibilities import one_sentence
from jakiro.system import cache_folder, file_sha256, one_process_at_a_time, writing

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        size: number of bytes.
        sha256: checksum of its bytes.
    """

    repository: str
    name: str
    revision: str
    size: int
    sha256: str

    @property
    def download_path(self) -> Path:
        """Path of the download, to which a user without a network may copy the file."""
        return cache_folder() / "models" / self.name

    @property
    def cached_path(self) -> Path | None:
        """Path of the file in the cache of Jakiro or huggingface_hub, or None. Only the size is checked."""
        from huggingface_hub import try_to_load_from_cache

        paths = (self.download_path, try_to_load_from_cache(self.repository, self.name, revision=self.revision))
        return next((Path(path) for path in paths if path and _size(Path(path)) == self.size), None)

    def fetch(self) -> Path:
        """Return the path of the file, downloaded if it is missing or corrupted. If several processes start, one does.

        Raises:
            ValueError: the file cannot be downloaded, or the download is another file.
            OSError: the cache cannot be written.
            progress.Cancelled: the listener ended the start; the downloaded bytes are kept.
        """
        with one_process_at_a_time(self.name):
            path = self.cached_path
            if path is not None and weights_sha256(path) == self.sha256:
                return path
            with progress.step(progress.FETCH), writing(self.download_path):
                self._download()
        return self.download_path

    def _download(self) -> None:
        part = self.download_path.with_name(f"{self.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        num_bytes = _size(part)
        if num_bytes != self.size:
            self._download_into(part, num_bytes if num_bytes < self.size else 0)
        if file_sha256(part) != self.sha256:
            part.unlink()
            raise ValueError(
                f"The download of {self.repository}/{self.name} is not the expected file (sha256 {self.sha256[:12]}…); "
                "start again to repeat it."
            )
        part.replace(self.download_path)

    def _download_into(self, part: Path, start: int) -> None:
        """Write the bytes from `start` on to a file that contains the earlier ones."""
        with part.open("r+b" if start else "wb") as file, closing(self._chunks(start)) as chunks:
            for position, chunk in chunks:
                if position != file.tell():
                    file.seek(position)
                    file.truncate()
                file.write(chunk)
                progress.tell(progress.FETCH, min(1.0, file.tell() / self.size), self.size)

    def _chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) from `start` on, or from 0 if the server supports no ranges.

        Raises:
            ValueError: the Hub rejects the request or cannot be reached, or the connection broke.
        """
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        try:
            with one_sentence("target model", self.repository, "file"):
                url = hf_hub_url(self.repository, self.name, revision=self.revision)
                # A compressed response would have another length
                headers = build_hf_headers() | {"Accept-Encoding": "identity", "Range": f"bytes={start}-"}
                with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
                    hf_raise_for_status(response)
                    position = start if response.status_code == HTTPStatus.PARTIAL_CONTENT else 0
                    for chunk in response.iter_bytes(_CHUNK_BYTES):
                        yield position, chunk
                        position += len(chunk)
        except ValueError as error:
            raise ValueError(
                f"{error} Without a network, put {self.name} ({self.size:,} bytes) into {self.download_path.parent}."
            ) from error


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return 0
