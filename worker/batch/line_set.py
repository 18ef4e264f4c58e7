"""A set of line numbers, a bit for each line up to the highest."""


class LineSet:
    """Which lines of the input have been dealt with."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = 0

    def add(self, number: int) -> bool:
        """Put a number in; False if it was there."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(max(place + 1 - len(self._bits), len(self._bits))))
        if self._bits[place] & bit:
            return False
        self._bits[place] |= bit
        self._count += 1
        return True

    def __contains__(self, number: int) -> bool:
        place = number >> 3
        return place < len(self._bits) and bool(self._bits[place] & 1 << (number & 7))

    def __len__(self) -> int:
        return self._count
