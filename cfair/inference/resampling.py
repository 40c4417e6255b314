"""What all replicates share: reproducible random streams, and labels in random order.

The same seed gives the same replicates for any number of jobs: random numbers belong to blocks of
replicates, not to workers. They are dealt to rows in the canonical order of `rows.Rows`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
T = TypeVar("T")
S = TypeVar("S", "Stream", "StreamGroup")

#: Replicates that share a random stream; fixed, so that batches and workers change no number.
STREAM = 25


@dataclass(frozen=True)
class Stream:
    """A block of replicates and the seed of its random numbers.

    Attributes
    ----------
    first, last : int
        Replicates first..last-1.
    seed : SeedSequence
    """

    first: int
    last: int
    seed: np.random.SeedSequence

    @property
    def size(self) -> int:
        """Number of replicates."""
        return self.last - self.first

    def generator(self) -> np.random.Generator:
        """A fresh generator, always in the same state."""
        return np.random.default_rng(self.seed)


def seed_entropy(seed: int | np.random.SeedSequence | np.random.Generator | None) -> int:
    """One whole number that stands for a seed, so that a result can print it.

    Parameters
    ----------
    seed : int, SeedSequence, Generator or None
        None takes fresh entropy from the operating system; a Generator gives its next integer.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `seed` is none of these, or negative.
    """
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    if isinstance(seed, np.random.SeedSequence):
        return int(seed.generate_state(1, np.uint32)[0])
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(
            "seed must be a whole number >= 0, a numpy SeedSequence or Generator, or None, "
            f"not {seed!r}."
        )
    return int(seed)


def streams(seed: int, purpose: int, n_replicates: int) -> list[Stream]:
    """Cut replicates into blocks, each with a seed of its own.

    Parameters
    ----------
    seed : int
    purpose : int
        Keeps, say, permutations and bootstrap independent under one seed.
    n_replicates : int

    Returns
    -------
    list of Stream
    """
    return [
        Stream(
            first,
            min(first + STREAM, n_replicates),
            np.random.SeedSequence(seed, spawn_key=(purpose, first // STREAM)),
        )
        for first in range(0, n_replicates, STREAM)
    ]


@dataclass(frozen=True)
class StreamGroup:
    """Blocks of replicates that are worked on together, each with random numbers of its own.

    Attributes
    ----------
    streams : tuple of Stream
    """

    streams: tuple[Stream, ...]

    @property
    def size(self) -> int:
        """Number of replicates."""
        return sum(stream.size for stream in self.streams)


def stream_groups(blocks: Sequence[Stream], together: int) -> list[StreamGroup]:
    """Group blocks of replicates, whatever the number of workers.

    Parameters
    ----------
    blocks : sequence of Stream
    together : int
        Blocks in a group.

    Returns
    -------
    list of StreamGroup
    """
    return [
        StreamGroup(tuple(blocks[first : first + together]))
        for first in range(0, len(blocks), together)
    ]


def run_streams(
    work: Callable[[S], T],
    blocks: Sequence[S],
    *,
    n_jobs: int | None = 1,
    progress: bool = False,
    label: str = "replicates",
    processes: bool = False,
) -> Iterator[T]:
    """Do the work of every block, in order, on one or several workers.

    Parameters
    ----------
    work : callable of a Stream, or of a StreamGroup
    blocks : sequence of these
    n_jobs : int or None, default 1
        As in joblib; ``joblib.parallel_config`` is respected.
    progress : bool, default False
        Show a bar when it takes longer than a second.
    label : str
        Text beside the bar.
    processes : bool, default False
        Prefer processes, as for learners. The arrays work without the interpreter lock, so threads
        are preferred otherwise.

    Yields
    ------
    the results, in the order of the blocks
    """
    results: Iterator[T]
    if n_jobs == 1:
        results = (work(block) for block in blocks)
    else:
        from joblib import Parallel, delayed

        prefer = "processes" if processes else "threads"
        parallel = Parallel(n_jobs=n_jobs, prefer=prefer, return_as="generator")
        results = parallel(delayed(work)(block) for block in blocks)
    if not progress:
        yield from results
        return
    from tqdm import tqdm

    with tqdm(total=sum(b.size for b in blocks), desc=label, delay=1.0, leave=False) as bar:
        for block, result in zip(blocks, results, strict=True):
            bar.update(block.size)
            yield result


def label_type(n_groups: int) -> type[np.unsignedinteger[Any]]:
    """Smallest unsigned integer type that holds the group codes.

    Parameters
    ----------
    n_groups : int

    Returns
    -------
    type
    """
    return np.uint8 if n_groups <= 256 else np.uint16


def shuffled_labels(labels: Integers, n_replicates: int, rng: np.random.Generator) -> Integers:
    """Random permutations of labels.

    Parameters
    ----------
    labels : (n,) array of unsigned int
        At most 16 bits.
    n_replicates : int
    rng : Generator

    Returns
    -------
    (n_replicates, n) array of the type of `labels`
    """
    result = np.empty((n_replicates, len(labels)), dtype=labels.dtype)
    if len(labels) <= _SORT_UP_TO:
        _shuffle_by_sorting(labels, result, rng)
    else:
        _shuffle_by_filling(labels, result, rng)
    return result


_SORT_UP_TO = 100_000
_REFILL_FROM = 20_000


def _shuffle_by_sorting(labels: Integers, result: Integers, rng: np.random.Generator) -> None:
    """Sort random keys that carry the label in their low bits.

    Sorting integers is vectorised in numpy, so this is several times faster than a shuffle. Two
    rows with the same random bits are not put in random order; with at least 28 random bits for
    20,000 rows, or 48 for more, less than one pair in a replicate is expected to be such.
    """
    n = len(labels)
    bits = int(labels.max()).bit_length() if n else 0
    key: type[np.unsignedinteger[Any]] = np.uint64
    if n <= 20_000 and bits <= 4:
        key = np.uint32
    mask = key(2**bits - 1)
    low = labels.astype(key)
    # A few replicates at a time: enough to spare numpy's overhead, few enough to stay in cache.
    together = max(1, 50_000 // max(1, n))
    for first in range(0, len(result), together):
        rows = result[first : first + together]
        keys = _random_bits(rows.shape, key, rng)
        keys &= ~mask
        keys |= low
        keys.sort(axis=1)
        keys &= mask
        rows[:] = keys


def _random_bits(
    shape: tuple[int, int], key: type[np.unsignedinteger[Any]], rng: np.random.Generator
) -> Integers:
    """Fill integers with random bits."""
    size = shape[0] * shape[1]
    if key is np.uint32 and size % 2 == 0 and sys.byteorder == "little":
        # the same numbers as below, as halves of 64 bits: twice as fast
        drawn = rng.integers(0, 2**64 - 1, size=size // 2, dtype=np.uint64, endpoint=True)
        return drawn.view(np.uint32).reshape(shape)
    return rng.integers(0, np.iinfo(key).max, size=shape, dtype=key, endpoint=True)


def _shuffle_by_filling(labels: Integers, result: Integers, rng: np.random.Generator) -> None:
    """Give most rows an independent label, and shuffle only what is left over.

    A labelling with the right counts whose law does not change when rows are exchanged is a uniform
    permutation. So each row takes a label from one random byte, by a table that fills each group to
    a little below its size; a draw that overfills a group is drawn again.
    """
    n = len(labels)
    sizes = np.bincount(labels)
    entries = byte_shares(sizes)
    free = len(sizes)
    table = np.full(256, free, dtype=np.uint16 if free > 255 else labels.dtype)
    table[: entries.sum()] = np.repeat(np.arange(len(sizes)), entries)
    for row in result:
        while True:
            drawn = table[
                rng.integers(0, 2**64, size=-(-n // 8), dtype=np.uint64).view(np.uint8)[:n]
            ]
            left = sizes - np.bincount(drawn, minlength=free + 1)[:free]
            if (left >= 0).all():
                break
        drawn[drawn == free] = shuffled_rest(left, rng)
        row[:] = drawn


def byte_shares(sizes: Integers) -> NDArray[np.intp]:
    """How many of the 256 bytes stand for each group, so that groups are hardly ever overfilled.

    Parameters
    ----------
    sizes : (K,) array of int

    Returns
    -------
    (K,) array of int
        Five standard deviations below the share of the group.
    """
    n = max(1, int(sizes.sum()))
    share = sizes / n
    aim = np.maximum(sizes - 5 * np.sqrt(n * share * (1 - share)), 0) / n
    return np.floor(256 * aim).astype(np.intp)


def shuffled_rest(left: Integers, rng: np.random.Generator) -> Integers:
    """Labels that are left over, in random order.

    Parameters
    ----------
    left : (K,) array of int
        How many of each.
    rng : Generator

    Returns
    -------
    (sum of left,) array of int
    """
    rest = np.repeat(np.arange(len(left)), left).astype(label_type(len(left)))
    shuffled = np.empty_like(rest[None])
    # the keys of more rows have 64 bits and take twice as long as filling once more
    if len(rest) > _REFILL_FROM:
        _shuffle_by_filling(rest, shuffled, rng)
    else:
        _shuffle_by_sorting(rest, shuffled, rng)
    return shuffled[0].astype(np.intp)
