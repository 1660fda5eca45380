"""The JSON of a step, written by hand: there is one per step, and a step may take little time."""

from __future__ import annotations

from binascii import b2a_base64
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from .entries import StepEntry, hex_text
from .short_names import short

__all__ = ["step_text"]


def step_text(sequence: int, entry: StepEntry) -> bytes:
    """Return what ``dump_json`` makes of a step and its number, without building the object.

    Args:
        sequence: number of the record.
        entry: the step.
    """
    text = f'{{"n":{sequence},"k":"step","s":{entry.step}'
    if entry.loss is not None:
        text += f',"l":"{hex_text(entry.loss)}"'
    if entry.batch is not None:
        batch = entry.batch
        written = quoted(batch) if isinstance(batch, str) else f"[{','.join(map(str, batch))}]"
        text += f',"i":{written}'
    if entry.signals:
        signals = [f'{quoted(name)}:"{hex_text(one)}"' for name, one in entry.signals.items()]
        text += f',"x":{{{",".join(signals)}}}'
    if entry.digests:
        digests = [f"{_key(name)}:{quoted(one)}" for name, one in entry.digests.items()]
        text += f',"d":{{{",".join(digests)}}}'
    if entry.vectors:
        vectors = [
            f'{_key(name)}:"{b2a_base64(packed, newline=False).decode("ascii")}"'
            for name, packed in entry.vectors.items()
        ]
        text += f',"v":{{{",".join(vectors)}}}'
    return (text + "}").encode("ascii")


@lru_cache(maxsize=1024)
def _key(name: str) -> str:
    return quoted(short(name))
