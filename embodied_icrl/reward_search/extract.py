"""The reward function in an answer of a language model: from prose and code blocks to source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.reward_search.facade import BUILTIN_NAMES

MAIN = "compute_reward"
MAX_FILE = 4 * 2**20  # bytes
MAX_SOURCE = 20_000  # characters: the static layer refuses longer code anyway

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_CODE_LINE = re.compile(
    r"(def |import |from \w+ import |@|#|\)|\]|\}|[A-Za-z_]\w*\s*(:[^=]+)?=[^=])"
)


class NoCode(ValueError):
    """An answer holds no function `compute_reward`; the message says what was found instead."""


def read_reward(path: str | Path) -> str:
    """Python from a .py file; from any other text, what `extract_reward` finds in it.

    Raises:
        ConfigError: the file can't be read, or is no text of a reasonable size.
        NoCode: a text holds no reward.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or "can't be read"
        raise ConfigError(f"{path}: {reason}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    if len(data) > MAX_FILE:
        raise ConfigError(f"{path}: more than {MAX_FILE} bytes, that is no reward")
    return text if path.suffix == ".py" else extract_reward(text)


def extract_reward(answer: str) -> str:
    """The source of `compute_reward` with the helpers it needs.

    The last code block that defines it counts (a later version replaces an earlier one); helpers
    that it lacks come from the other blocks. Without any fence, the lines that look like code do.

    Raises:
        NoCode: no block defines the function.
    """
    blocks = list(_fenced_blocks(answer))
    if not any(_defines_main(block) for block in blocks):
        unfenced = _unfenced_code(answer)
        if unfenced is None:
            found = f"{len(blocks)} code blocks" if blocks else "no code"
            raise NoCode(f"no function {MAIN}(state) in the answer ({found})")
        return unfenced
    main = max(index for index, block in enumerate(blocks) if _defines_main(block))
    others = [block for index, block in enumerate(blocks) if index != main]
    return _with_helpers(blocks[main], others)


def _fenced_blocks(answer: str) -> Iterator[str]:
    """The contents of ``` and ~~~ fences; one that the answer's end cuts off counts too."""
    start, fence = -1, ""
    for match in _FENCE.finditer(answer):
        if start < 0:
            start, fence = match.end() + 1, match.group(1)
        elif match.group(1).startswith(fence) and not match.group(2):
            yield _dedented(answer[start : match.start()])
            start = -1
    if start >= 0:
        yield _dedented(answer[start:])


def _dedented(block: str) -> str:
    """Without the indentation that a list in Markdown gives to all lines."""
    lines = block.rstrip().splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    cut = min(indents, default=0)
    return "\n".join(line[cut:] for line in lines) + "\n"


def _defines_main(block: str) -> bool:
    return re.search(rf"^def {MAIN}\s*\(", block, re.MULTILINE) is not None


def _unfenced_code(answer: str) -> str | None:
    """The stretch of lines around the function that look like top-level code."""
    lines = answer.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith(f"def {MAIN}")), None)
    if at is None:
        return None
    first = last = at
    while first > 0 and _looks_like_code(lines[first - 1]):
        first -= 1
    while last + 1 < len(lines) and _looks_like_code(lines[last + 1]):
        last += 1
    return "\n".join(lines[first : last + 1]).strip() + "\n"


def _looks_like_code(line: str) -> bool:
    return not line.strip() or line[0] in " \t" or _CODE_LINE.match(line) is not None


def _with_helpers(source: str, others: Sequence[str]) -> str:
    """`source` behind the definitions of other blocks that it uses but doesn't have."""
    tree = _parsed(source)
    if tree is None:
        return source
    statements = {name: segment for block in others for name, segment in _top_level(block).items()}
    needed: list[str] = []
    wanted = _missing(tree)
    while wanted:
        found = [name for name in sorted(wanted) if name in statements and name not in needed]
        needed += found
        texts = "\n".join(statements[name] for name in found)
        wanted = _missing(_parsed(texts) or ast.Module([], []))
    order = [name for name in statements if name in needed]
    return "".join(f"{text}\n\n" for text in dict.fromkeys(statements[n] for n in order)) + source


def _top_level(block: str) -> dict[str, str]:
    """Functions and constants of a block by name, as text."""
    tree = _parsed(block)
    found: dict[str, str] = {}
    for node in tree.body if tree is not None else []:
        text = ast.get_source_segment(block, node) or ""
        if isinstance(node, ast.FunctionDef):
            found[node.name] = text
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            found.update({name.id: text for name in names})
    return found


def _missing(tree: ast.Module) -> set[str]:
    """Names that code uses and defines nowhere."""
    used: set[str] = set()
    bound = {"np", "numpy", "math", *BUILTIN_NAMES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return used - bound


def _parsed(source: str) -> ast.Module | None:
    if len(source) > MAX_SOURCE:
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
