"""Print a code block of a Markdown file, exactly as a reader sees it.

Usage: readme.py FILE LANGUAGE NUMBER      (NUMBER counts the blocks of that language from 1)
"""

import re
import sys


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced code blocks of one language."""
    fence = re.compile(rf"^```{re.escape(language)}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return fence.findall(text)


def main(path: str, language: str, number: str) -> None:
    """Print the block, or exit with a message where there is none of that number."""
    with open(path, encoding="utf-8") as file:
        found = blocks(file.read(), language)
    if not 1 <= int(number) <= len(found):
        sys.exit(f"{path} has {len(found)} blocks of {language}, not a number {number}")
    print(found[int(number) - 1], end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
