"""Texts on their way through a build: blocks of documents in the build's own folder.

A source is read once. What it held waits in packed blocks of a bounded size, so that the slow
part of the work divides evenly over any number of processes whatever the files were, starts again
where it was, and never meets a source that has changed meanwhile.
"""

import struct
from dataclasses import dataclass, field

import zstandard
from etils import epath

from bert_lamb.data.building.storage import DamagedWorkError, replacing

_HEADER = struct.Struct("<QII")
_LEVEL = 1  # the fastest: a block is read once


@dataclass(frozen=True)
class Piece:
    """A document, or one part of a long one, in a block.

    Attributes:
        number: of the document in its unit of reading; its parts share it.
        part: 0 for the first part.
        text: its lines divided by line feeds.
    """

    number: int
    part: int
    text: str


@dataclass(frozen=True)
class Block:
    """What a block holds.

    Attributes:
        file: its path.
        first: number of the document that its first piece belongs to.
        last: number of the document that its last piece belongs to.
        pieces: how many.
        chars: characters of text.
    """

    file: str
    first: int
    last: int
    pieces: int
    chars: int


@dataclass
class BlockWriter:
    """Writes pieces to blocks of about `limit` characters, FOLDER/NAME-00000.zst and so on."""

    folder: epath.Path
    name: str
    limit: int
    blocks: list[Block] = field(default_factory=list)
    _waiting: list[Piece] = field(default_factory=list)
    _chars: int = 0

    def add(self, piece: Piece) -> None:
        """Appends a piece."""
        self._waiting.append(piece)
        self._chars += len(piece.text)
        if self._chars >= self.limit:
            self.close()

    def close(self) -> None:
        """Writes what waits."""
        if not self._waiting:
            return
        file = self.folder / f"{self.name}-{len(self.blocks):05d}.zst"
        with (
            replacing(file) as raw,
            zstandard.ZstdCompressor(_LEVEL, write_checksum=True).stream_writer(
                raw, closefd=False
            ) as out,
        ):
            for piece in self._waiting:
                data = piece.text.encode()
                out.write(_HEADER.pack(piece.number, piece.part, len(data)))
                out.write(data)
        first, last = self._waiting[0].number, self._waiting[-1].number
        self.blocks.append(Block(str(file), first, last, len(self._waiting), self._chars))
        self._waiting, self._chars = [], 0


def read_block(block: Block) -> list[Piece]:
    """Returns the pieces of a block in order.

    Raises:
        DamagedWorkError: if the file is not what was written.
    """
    pieces: list[Piece] = []
    try:
        with (
            epath.Path(block.file).open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as stream,
        ):
            while header := stream.read(_HEADER.size):
                number, part, size = _HEADER.unpack(header)
                pieces.append(Piece(number, part, stream.read(size).decode()))
    except (FileNotFoundError, zstandard.ZstdError, struct.error, ValueError) as error:
        raise DamagedWorkError(block.file) from error
    # The reader takes the end of a file that was cut for the end of the text.
    if (len(pieces), sum(len(piece.text) for piece in pieces)) != (block.pieces, block.chars):
        raise DamagedWorkError(block.file)
    return pieces
