"""Texts of others on the terminal: a label, a path or an error could hold escape sequences, which the terminal would obey."""


def visible(text: str) -> str:
    """The text with control characters as their codes, such as \\x1b; new lines and tabs stay."""
    return "".join(character if character in "\n\t" or not _controls(character) else _code(character) for character in text)


def _controls(character: str) -> bool:
    number = ord(character)
    # C0, DEL and C1; marks that reorder the text around them; halves of surrogates, which cannot be printed
    return number < 32 or 127 <= number < 160 or number in _REORDERING or 0xD800 <= number <= 0xDFFF


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


_REORDERING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
