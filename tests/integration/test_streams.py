"""Settlements and dead letters, on a real Valkey: what is read, what is dropped, what is put back."""

from itertools import islice
from typing import Any

import pytest
import redis

from tasks.job import GenerateJob
from tests.integration.settled import bury, settle
from worker.keys import Keys
from worker.streams import (
    NoGroups,
    delete_letter,
    find_letter,
    follow_settlements,
    last_settlements,
    newest_letters,
    replay_letter,
    settlement_groups,
    settlements_after,
    trim_settlements,
)

KEYS = Keys("speedinfer")
QUEUE = "speedinfer:jobs:acme/model-1"


def settle_many(client: redis.Redis, count: int) -> list[str]:
    """Settle jobs numbered from 0; return the entries' ids."""
    return [settle(client, numbered(n)) for n in range(count)]


def numbered(number: int) -> GenerateJob:
    """The job of this number."""
    return GenerateJob(job_id=f"j-{number}", model="acme/model-1", prompt="Hi", max_tokens=4)


def read_by(client: redis.Redis, group: str, count: int) -> list[bytes]:
    """Read settlements with a consumer group; return their ids, to be acknowledged."""
    found: Any = client.xreadgroup(group, "reader", {KEYS.settlements: ">"}, count=count)
    entries = found[KEYS.settlements.encode()][0] if isinstance(found, dict) else found[0][1]
    return [entry[0] for entry in entries]


def left(client: redis.Redis) -> list[str]:
    """The job ids that are still in the settlement queue."""
    return [settled.job_id for settled in last_settlements(client, KEYS, 1000)]


class TestReadingSettlements:
    def test_the_newest_are_given_oldest_first(self, valkey: redis.Redis) -> None:
        """They read as they happened."""
        settle_many(valkey, 5)
        found = last_settlements(valkey, KEYS, 2)
        assert [each.job_id for each in found] == ["j-3", "j-4"]
        assert found[0].status == "succeeded"
        assert found[0].result["usage"]["total_tokens"] == 7

    def test_reading_goes_on_after_an_id(self, valkey: redis.Redis) -> None:
        """The entry with the id itself is not given again."""
        ids = settle_many(valkey, 4)
        assert [each.stream_id for each in settlements_after(valkey, KEYS, ids[1], 10)] == ids[2:]

    def test_following_gives_every_settlement_after_an_id_once(self, valkey: redis.Redis) -> None:
        """More than one read's worth comes in order and without gaps."""
        ids = settle_many(valkey, 250)
        followed = list(islice(follow_settlements(valkey, KEYS, ids[9]), 240))
        assert [each.stream_id for each in followed] == ids[10:]

    def test_a_queue_without_settlements_is_empty(self, valkey: redis.Redis) -> None:
        """A stream that was never written is no error."""
        assert last_settlements(valkey, KEYS, 5) == []
        assert settlement_groups(valkey, KEYS) == []


class TestTrimming:
    def test_without_a_group_nothing_is_dropped(self, valkey: redis.Redis) -> None:
        """Nobody has acknowledged anything, so that is refused."""
        settle_many(valkey, 3)
        with pytest.raises(NoGroups):
            trim_settlements(valkey, KEYS)
        assert len(left(valkey)) == 3

    def test_an_empty_settlement_queue_has_nothing_to_drop(self, valkey: redis.Redis) -> None:
        """It is no error to trim before the first job has ended."""
        assert trim_settlements(valkey, KEYS).dropped == 0

    def test_what_every_group_acknowledged_is_dropped(self, valkey: redis.Redis) -> None:
        """The slowest group decides."""
        settle_many(valkey, 6)
        for group, done in (("billing", 5), ("audit", 2)):
            valkey.xgroup_create(KEYS.settlements, group, id="0")
            valkey.xack(KEYS.settlements, group, *read_by(valkey, group, done))
        trimmed = trim_settlements(valkey, KEYS)
        assert (trimmed.dropped, trimmed.left) == (2, 4)
        assert left(valkey) == ["j-2", "j-3", "j-4", "j-5"]

    def test_what_was_read_and_not_acknowledged_stays_with_all_after_it(self, valkey: redis.Redis) -> None:
        """A reader that died between reading and acknowledging finds its entries again."""
        settle_many(valkey, 6)
        valkey.xgroup_create(KEYS.settlements, "billing", id="0")
        ids = read_by(valkey, "billing", 5)
        valkey.xack(KEYS.settlements, "billing", ids[0], ids[2], ids[3], ids[4])
        trimmed = trim_settlements(valkey, KEYS)
        assert left(valkey) == ["j-1", "j-2", "j-3", "j-4", "j-5"]
        assert trimmed.kept_from == ids[1].decode()

    def test_a_group_that_has_read_nothing_holds_everything(self, valkey: redis.Redis) -> None:
        """A reader that is about to start loses nothing."""
        settle_many(valkey, 3)
        valkey.xgroup_create(KEYS.settlements, "late", id="0")
        valkey.xgroup_create(KEYS.settlements, "done", id="0")
        valkey.xack(KEYS.settlements, "done", *read_by(valkey, "done", 3))
        assert trim_settlements(valkey, KEYS).dropped == 0
        assert len(left(valkey)) == 3

    def test_the_last_entry_goes_too_when_all_is_acknowledged(self, valkey: redis.Redis) -> None:
        """Nothing is kept that no group needs, and what comes later is still read."""
        settle_many(valkey, 3)
        valkey.xgroup_create(KEYS.settlements, "billing", id="0")
        valkey.xack(KEYS.settlements, "billing", *read_by(valkey, "billing", 3))
        assert (trim_settlements(valkey, KEYS).dropped, left(valkey)) == (3, [])
        settle(valkey, numbered(9))
        assert len(read_by(valkey, "billing", 3)) == 1

    def test_many_are_dropped_in_several_steps_to_the_very_entry(
        self, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Steps drop whole blocks of the stream; the last one drops what is left within a block."""
        monkeypatch.setattr("worker.streams._TRIM_AT_ONCE", 200)
        pipe = valkey.pipeline()
        for number in range(1234):
            pipe.xadd(KEYS.settlements, {"job_id": str(number), "result": "{}"})
        pipe.execute()
        valkey.xgroup_create(KEYS.settlements, "billing", id="0")
        valkey.xack(KEYS.settlements, "billing", *read_by(valkey, "billing", 1001))
        assert trim_settlements(valkey, KEYS).dropped == 1001
        assert left(valkey)[0] == "1001"

    def test_ids_are_compared_as_numbers_of_any_size(self, valkey: redis.Redis) -> None:
        """An id of many digits is later than one of few, also where a float could not tell the two apart."""
        ids = ["9-1", "10-9", "10-10", "10-18446744073709551613", "10-18446744073709551614"]
        for stream_id in ids:
            valkey.xadd(KEYS.settlements, {"job_id": stream_id, "result": "{}"}, id=stream_id)
        for last_read in ids:
            valkey.xgroup_create(KEYS.settlements, f"at {last_read}", id=last_read)
        # An entry is kept where its id is too large to be counted on from.
        for slowest, kept in zip(ids, (ids[1:], ids[2:], ids[3:], ids[3:], ids[4:]), strict=True):
            trim_settlements(valkey, KEYS)
            assert left(valkey) == kept
            valkey.xgroup_destroy(KEYS.settlements, f"at {slowest}")

    def test_groups_are_shown_with_what_they_owe(self, valkey: redis.Redis) -> None:
        """Unacknowledged and unread entries are counted per group."""
        settle_many(valkey, 5)
        valkey.xgroup_create(KEYS.settlements, "billing", id="0")
        read_by(valkey, "billing", 2)
        (group,) = settlement_groups(valkey, KEYS)
        assert (group.name, group.consumers, group.unacknowledged, group.lag) == ("billing", 1, 2, 3)


class TestDeadLetters:
    def test_the_newest_are_listed_first_and_page_by_page(self, valkey: redis.Redis) -> None:
        """More than one page is read where more are asked for."""
        ids = [bury(valkey, b"\xff%d" % n) for n in range(25)]
        found = newest_letters(valkey, KEYS, 23)
        assert [letter.stream_id for letter in found] == ids[:1:-1]
        assert (found[0].raw, found[0].reason, found[0].queue) == (b"\xff24", "not_json", QUEUE)
        assert len(newest_letters(valkey, KEYS, 100)) == 25

    def test_a_replay_puts_the_bytes_at_the_back_of_the_queue(self, valkey: redis.Redis) -> None:
        """Jobs that wait go first, and not a byte is changed."""
        valkey.lpush(QUEUE, b"waiting")
        letter_id = bury(valkey, b"\x00\xffraw")
        assert replay_letter(valkey, KEYS, letter_id, QUEUE)
        assert valkey.lrange(QUEUE, 0, -1) == [b"\x00\xffraw", b"waiting"]
        assert find_letter(valkey, KEYS, letter_id) is None

    def test_a_replay_sent_twice_replays_once(self, valkey: redis.Redis) -> None:
        """A repeat after a lost reply finds nothing to replay."""
        letter_id = bury(valkey, b"raw")
        assert replay_letter(valkey, KEYS, letter_id, QUEUE)
        assert not replay_letter(valkey, KEYS, letter_id, QUEUE)
        assert valkey.llen(QUEUE) == 1

    def test_a_letter_without_its_bytes_is_kept(self, valkey: redis.Redis) -> None:
        """What cannot be replayed is not deleted either."""
        letter_id = valkey.xadd(KEYS.dead_letters, {"reason": "not_json"})
        assert isinstance(letter_id, bytes)
        with pytest.raises(redis.ResponseError, match="no field raw"):
            replay_letter(valkey, KEYS, letter_id.decode(), QUEUE)
        assert valkey.xlen(KEYS.dead_letters) == 1

    def test_a_deleted_letter_is_gone(self, valkey: redis.Redis) -> None:
        """Deleting says whether there was anything to delete."""
        letter_id = bury(valkey, b"raw")
        assert delete_letter(valkey, KEYS, letter_id)
        assert not delete_letter(valkey, KEYS, letter_id)
