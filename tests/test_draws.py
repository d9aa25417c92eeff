"""Counted random numbers: the published generator, and nothing but (seed, step, stream, index)."""

import pytest
import torch

from gatewise import draws


def words(seed: int, step: int, stream: int, index: int) -> list[int]:
    return [int(word) for word in draws.philox(seed, step, stream, torch.tensor([index]))]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(counter, key, expected):
    index, stream, low, high = counter
    step = torch.tensor(low | high << 32 if high < 2**31 else (low | high << 32) - 2**64)
    assert words(key[0] | key[1] << 32, step, stream, index) == list(expected)


def test_every_part_of_the_counter_matters():
    base = words(1, 2, 3, 4)
    others = [words(2, 2, 3, 4), words(1, 3, 3, 4), words(1, 2, 4, 4), words(1, 2, 3, 5), words(1 + 2**40, 2, 3, 4)]
    assert all(base != other for other in others)


def test_an_index_draws_the_same_alone_and_among_others():
    many = draws.philox(7, 8, 9, torch.arange(100))
    assert [int(word[42]) for word in many] == words(7, 8, 9, 42)


def test_numbers_below_a_size_are_even():
    first = draws.philox(0, 0, 0, torch.arange(70_000))[0]
    counts = torch.bincount(draws.below(first, 7), minlength=7)
    assert counts.sum() == 70_000
    assert (counts - 10_000).abs().max() < 500


def test_a_permutation_holds_every_number_once():
    order = draws.permutation(3, 1, draws.PERMUTATION, 1_001, torch.device("cpu"))
    assert torch.equal(order.sort().values, torch.arange(1_001))
    assert not torch.equal(order, draws.permutation(3, 2, draws.PERMUTATION, 1_001, torch.device("cpu")))
