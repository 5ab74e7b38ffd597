"""One large file of the Hub, known beforehand by its size and hash: found on this machine, or fetched.

After a cut huggingface_hub begins anew (2.4), so the bytes are read here, with its addresses, tokens and errors, and go
on where they ended. Importing this module loads nothing.
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

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        size: bytes. sha256: of them.
    """

    repository: str
    name: str
    revision: str
    size: int
    sha256: str

    @property
    def place(self) -> Path:
        """Where it is fetched to, and where somebody without a network may put it."""
        return cache_folder() / "models" / self.name

    @property
    def here(self) -> Path | None:
        """Where it lies on this machine, by its size: in our cache or huggingface_hub's; None where it does not."""
        from huggingface_hub import try_to_load_from_cache

        found = (self.place, try_to_load_from_cache(self.repository, self.name, revision=self.revision))
        return next((Path(path) for path in found if path and _size(Path(path)) == self.size), None)

    def fetched(self) -> Path:
        """Where it lies, whole by its hash; fetched where it is missing or damaged. Of several processes one fetches.

        Raises:
            ValueError: it cannot be fetched, or what came is another file; one sentence that says where to put it.
            OSError: the cache cannot be written.
            progress.Cancelled: the listener of this start gave up; what came stays for the next time.
        """
        with one_process_at_a_time(self.name):
            found = self.here
            if found is not None and weights_sha256(found) == self.sha256:
                return found
            with progress.step(progress.FETCH), writing(self.place):
                self._fetch()
        return self.place

    def _fetch(self) -> None:
        part = self.place.with_name(f"{self.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        done = _size(part)
        if done != self.size:
            self._read_into(part, done if done < self.size else 0)
        if file_sha256(part) != self.sha256:
            part.unlink()
            raise ValueError(
                f"What came for {self.repository}/{self.name} is not the expected file (sha256 {self.sha256[:12]}…); "
                "start again to fetch it anew."
            )
        part.replace(self.place)

    def _read_into(self, part: Path, first: int) -> None:
        """Reads the bytes from `first` on into a file that has those before."""
        with part.open("r+b" if first else "wb") as file, closing(self._pieces(first)) as pieces:
            for position, piece in pieces:
                if position != file.tell():
                    file.seek(position)
                    file.truncate()
                file.write(piece)
                progress.tell(progress.FETCH, min(1.0, file.tell() / self.size), self.size)

    def _pieces(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Where each piece belongs, and its bytes; from the beginning where the server knows no ranges.

        Raises:
            ValueError: the Hub refuses, cannot be reached, or the connection broke.
        """
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        try:
            with one_sentence("target model", self.repository, "file"):
                url = hf_hub_url(self.repository, self.name, revision=self.revision)
                # A compressed answer would have other lengths
                headers = build_hf_headers() | {"Accept-Encoding": "identity", "Range": f"bytes={first}-"}
                with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
                    hf_raise_for_status(response)
                    position = first if response.status_code == HTTPStatus.PARTIAL_CONTENT else 0
                    for piece in response.iter_bytes(_PIECE):
                        yield position, piece
                        position += len(piece)
        except ValueError as error:
            raise ValueError(
                f"{error} Without a network, put {self.name} ({self.size:,} bytes) into {self.place.parent}."
            ) from error


def _size(path: Path) -> int:
    """Of a file, in bytes; 0 where there is none."""
    with suppress(OSError):
        return path.stat().st_size
    return 0
