"""Where an answer stands in its context, although its place may be given wrongly.

A model must never learn a span whose text is not the answer. An offset that is only counted in
other units, or off by a few characters, is mended; any other fault takes the answer out of
training and is counted. The evaluation compares texts and does not look at places.
"""

from bert_lamb.squad.dataset import Answer

NEAR = 8  # characters; farther away the same words may be another mention

EMPTY = "text is empty"
OUTSIDE = "answer_start is outside of the context, not used"
OTHER_CASE = "answer_start points to the text in other letter case, not used"
MISMATCH = "answer_start does not point to the text, not used"
IN_BYTES = "answer_start counts UTF-8 bytes, mended"
IN_UTF16 = "answer_start counts UTF-16 units, mended"
MOVED = f"answer_start is off by at most {NEAR} characters, mended"


def locate(context: str, text: str, start: int) -> Answer:
    """Returns the answer with the place where its text stands.

    Args:
        context: the raw context.
        text: of the answer.
        start: where the data set says it begins, in characters (code points).
    """
    if not text.strip():
        return Answer(text, -1, EMPTY)
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    for encoding, unit, fault in (("utf-16-le", 2, IN_UTF16), ("utf-8", 1, IN_BYTES)):
        place = _decoded_length(context, start * unit, encoding)
        if place >= 0 and context.startswith(text, place):
            return Answer(text, place, fault)
    places = [p for p in range(start - NEAR, start + NEAR + 1) if p >= 0]
    near = [p for p in places if context.startswith(text, p)]
    if near:
        return Answer(text, min(near, key=lambda p: abs(p - start)), MOVED)
    if not 0 <= start < len(context):
        return Answer(text, -1, OUTSIDE)
    same = context[start : start + len(text)].casefold() == text.casefold()
    return Answer(text, -1, OTHER_CASE if same else MISMATCH)


def _decoded_length(context: str, size: int, encoding: str) -> int:
    """Returns how many characters the first `size` bytes of a context are; -1 if no whole ones."""
    data = context.encode(encoding, "surrogatepass")
    if context.isascii() or not 0 <= size <= len(data):
        return -1
    try:
        return len(data[:size].decode(encoding, "surrogatepass"))
    except UnicodeDecodeError:
        return -1
