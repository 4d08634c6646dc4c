"""The snapshot file: round trips, refusals, and the loss by damage."""

import errno
import hmac
import os
import struct
import tempfile
import tracemalloc
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory import descriptors
from tests.persistence.snapshot_files import NAME, NEW, NOBODY, RECORDS, SECRET, parts, read, run, umask, write
from tests.runtime.forks import fork
from wheelcache.errors import SnapshotDamaged, SnapshotRefused, UnknownFormat
from wheelcache.persistence import snapshot_file
from wheelcache.persistence.snapshot_file import (
    END,
    HEADER,
    LENGTH,
    MAGIC,
    PREFIX,
    SIGNED,
    VERSION,
    SnapshotWriter,
    open_snapshot,
    refuse,
)

SECRETS = pytest.mark.parametrize("secret", [None, SECRET], ids=["unsigned", "signed"])


def refusal(path, secret=None):
    with pytest.raises(SnapshotRefused) as refused:
        open_snapshot(path, "cache", secret)
    return str(refused.value)


# Round trips.


@pytest.mark.deep
@SECRETS
@settings(max_examples=200)
@given(
    records=st.lists(st.binary(max_size=200)), header=st.dictionaries(st.text(), st.none() | st.floats(0) | st.text())
)
def test_what_is_written_is_read_in_order(secret, records, header):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        with SnapshotWriter(path, header | {"kind": "timers"}, secret) as writer:
            for record in records:
                writer.write(record)
        with open_snapshot(path, "timers", secret) as snapshot:
            assert snapshot.header == header | {"kind": "timers"}
            assert list(snapshot) == records
            assert list(snapshot) == records


@SECRETS
def test_records_longer_than_a_buffer_and_buffers_of_records_are_read_in_order(path, secret):
    records = [os.urandom(3 << 20), b"", *(b"%d" % number * 50 for number in range(20_000)), os.urandom(5 << 20)]
    assert read(write(path, records, secret), secret) == (records, None)


def test_the_bytes_are_those_that_the_module_describes(path, monkeypatch):
    salt = bytes(range(16))
    monkeypatch.setattr(os, "urandom", lambda size: salt[:size])
    text = b'{"kind": "cache", "name": "a"}'

    def file(flags, check):
        head = b"wheelcache snapshot\n" + struct.pack("<HH", 2, flags) + salt + struct.pack("<I", len(text)) + text
        check = check(head)
        first, second = (struct.pack("<I", size) for size in (3, 0))
        return b"".join(
            [
                head + check(struct.pack("<IQ", 0xFFFFFFFE, 0)),
                first + check(first + struct.pack("<Q", 0) + b"one") + b"one",
                second + check(second + struct.pack("<Q", 1)),
                b"\xff\xff\xff\xff" + check(b"\xff\xff\xff\xff" + struct.pack("<Q", 2)),
            ]
        )

    def by_crc(head):
        return lambda what: crc32(head + what).to_bytes(4, "little")

    def by_hmac(head):
        key = hmac.digest(sha256(SECRET).digest(), head, "sha256")
        return lambda what: hmac.digest(key, what, "sha256")[:16]

    assert write(path, [b"one", b""], name="a").read_bytes() == file(0, by_crc)
    assert write(path, [b"one", b""], SECRET, name="a").read_bytes() == file(1, by_hmac)


def test_a_record_too_long_for_its_length_word_is_an_error_and_the_others_are_kept(path):
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        # Never accessed, so it takes addresses but no memory.
        with pytest.raises(ValueError, match=f"a record must have fewer than {HEADER} bytes, not {HEADER}"):
            writer.write(bytes(HEADER))
        writer.write(b"two")
    assert read(path) == ([b"one", b"two"], None)


def test_a_header_that_cannot_be_json_is_an_error_before_there_is_any_file(tmp_path, path):
    with pytest.raises(TypeError):
        SnapshotWriter(path, {"kind": "cache", "name": object()}, None)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_the_old_file_reads_it_to_the_end_while_it_is_replaced(path):
    old = [os.urandom(100_000) for _ in range(50)]
    write(path, old)
    with open_snapshot(path, "cache", None) as snapshot:
        records = iter(snapshot)
        assert next(records) == old[0]
        write(path, NEW)
        assert list(records) == old[1:]
    assert read(path) == (NEW, None)


# Refused files.


def link(path):
    path.symlink_to(write(path.with_name("elsewhere")))


def of_mode(mode):
    return lambda path: write(path).chmod(mode)


NO_FILE = "must be a file, not a link to one"
FOR_ALL = "must be writable by its owner only, but its mode is"


@pytest.mark.parametrize(
    ("make", "message", "exchanged"),
    [
        (link, NO_FILE, f"cannot be opened: {os.strerror(errno.ELOOP)}"),
        (os.mkfifo, NO_FILE, NO_FILE),
        (Path.mkdir, NO_FILE, NO_FILE),
        (of_mode(0o620), f"{FOR_ALL} 620", f"{FOR_ALL} 620"),
        (of_mode(0o602), f"{FOR_ALL} 602", f"{FOR_ALL} 602"),
    ],
    ids=["a link", "a pipe", "a directory", "its group may write", "all may write"],
)
def test_what_is_no_file_or_others_may_write_is_refused_without_waiting(path, monkeypatch, make, message, exchanged):
    make(path)
    assert refusal(path) == f"{path} {message}"
    # It replaces a good file after that was checked.
    found = write(path.with_name("good")).stat()
    monkeypatch.setattr(os, "lstat", lambda path, **options: found)
    assert refusal(path) == f"{path} {exchanged}"


def test_a_file_that_others_may_only_read_is_not_refused_and_none_is_no_refusal(path):
    with pytest.raises(FileNotFoundError):
        open_snapshot(path, "cache", None)
    with pytest.raises(FileNotFoundError):
        open_snapshot(path / "in no directory" / NAME, "cache", None)
    write(path).chmod(0o644)
    assert read(path) == (RECORDS, None)


def test_a_file_of_another_user_is_refused(path, monkeypatch):
    write(path)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert refusal(path) == f"{path} must belong to the user {owner + 1}, not to {owner}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away, and needs two users for that")
def test_root_refuses_a_file_that_was_given_away_and_another_user_one_that_it_cannot_even_open(path, open_folder):
    os.chown(write(path), NOBODY, NOBODY)
    assert refusal(path) == f"{path} must belong to the user 0, not to {NOBODY}"
    write(open_folder / NAME)
    (message,) = run("become_nobody(folder); print(read(path)[1])", open_folder)
    assert message == f"{open_folder / NAME} must belong to the user {NOBODY}, not to 0"


def test_a_file_that_cannot_be_opened_or_read_is_refused(path, monkeypatch):
    write(path)
    assert refusal(path / NAME) == f"{path / NAME} cannot be opened: Not a directory"

    class Failing:
        def read(self, size):
            raise OSError(errno.EIO, "Input/output error")

        def close(self):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda file, *_: os.close(file) or Failing())
        assert refusal(path) == f"{path} cannot be read: Input/output error"


@pytest.mark.parametrize("content", [b"", b"x" * 10_000, MAGIC[:-1]])
def test_a_file_that_is_no_snapshot_is_refused(path, content):
    with umask(0o077):
        path.write_bytes(content)
    assert refusal(path) == f"{path} is not a snapshot of wheelcache"
    assert path.read_bytes() == content


@pytest.mark.parametrize(("version", "flags"), [(0, 0), (VERSION + 1, 0), (9, 8), (VERSION, SIGNED << 1)])
def test_a_file_in_a_format_that_is_not_known_is_refused_and_stays(path, version, flags, caplog):
    data = write(path).read_bytes()
    path.write_bytes(MAGIC + struct.pack("<HH", version, flags) + data[len(MAGIC) + 4 :])
    what = f"(version {version}, flags {flags:#x})"
    with pytest.raises(UnknownFormat) as refused:
        open_snapshot(path, "cache", None)
    reason = f"{path} has an unknown format {what}; this wheelcache reads version {VERSION}"
    assert str(refused.value) == reason
    refuse("the cache 'mine'", path, refused.value)
    assert caplog.messages == [f"A snapshot is not loaded by the cache 'mine': {reason}."]
    assert path.exists()


@pytest.mark.parametrize(
    ("written", "secret", "message"),
    [
        ({"kind": "timers"}, None, "is a snapshot of the kind 'timers', not 'cache'"),
        ({"secret": SECRET}, None, "is signed, and there is no secret to check it with"),
        # With CRCs, which need no secret, instead of the signature.
        ({}, SECRET, "is not signed, but the secret requires a signature"),
        ({"secret": SECRET}, b"another", "was signed with another secret, or is damaged"),
        ({"secret": SECRET, "records": []}, b"another", "was signed with another secret, or is damaged"),
    ],
)
def test_another_kind_or_secret_is_known_before_the_first_record(path, written, secret, message):
    assert refusal(write(path, **written), secret) == f"{path} {message}"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xff",
        b"[" * 100_000,
        b"1" * 10_000,
        b"[]",
        b"{}",
        b'{"kind": 1}',
        b'{"kind": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
    ids=lambda text: f"{text[:12]} {len(text)}",
)
def test_a_header_that_was_never_written_so_is_damaged_though_its_check_is_right(path, text):
    head = PREFIX.pack(MAGIC, VERSION, 0, bytes(16), len(text)) + text
    with umask(0o077):
        path.write_bytes(head + crc32(head + struct.pack("<IQ", HEADER, 0)).to_bytes(4, "little"))
    assert refusal(path) == f"{path} has a damaged header"


@pytest.mark.alone
@SECRETS
def test_nothing_is_allocated_that_the_file_has_not(path, secret):
    whole = write(path, RECORDS, secret).read_bytes()
    header, first, *_ = parts(whole, secret)
    huge = LENGTH.pack(END - 2)
    damages = [header[: PREFIX.size - 4] + huge + header[PREFIX.size :], header + huge + first[4:], header + huge]

    def peak():
        tracemalloc.start()
        for damaged in damages:
            path.write_bytes(damaged)
            records, message = read(path, secret)
            assert records == []
            assert "damaged" in message
        assert tracemalloc.get_traced_memory()[1] < 3 * snapshot_file.BUFFER_BYTES

    # In a process without the threads that other tests have left.
    assert fork(peak)


@pytest.mark.alone
def test_no_descriptor_stays_open_whatever_is_refused_or_fails(path):
    for _ in range(10):
        refusal(write(path), SECRET)
        refusal(write(path, kind="timers"))
        path.chmod(0o666)
        refusal(path)
        with pytest.raises(ZeroDivisionError), SnapshotWriter(path, {"kind": "cache"}, None):
            raise ZeroDivisionError
    # Only in this directory: threads that other tests have left open their own files.
    assert descriptors(f"{path.parent}/") == {}


# Damage.


@pytest.mark.alone
def test_a_device_that_fails_in_the_middle_costs_the_tail(path):
    records = [bytes([number]) * 100_000 for number in range(50)]
    with open_snapshot(write(path, records), "cache", None) as snapshot:
        found = iter(snapshot)
        assert [next(found) for _ in range(3)] == records[:3]
        # Reading a directory fails.
        (file,) = descriptors(f"{path.parent}/")
        directory = os.open(path.parent, os.O_RDONLY)
        os.dup2(directory, file)
        os.close(directory)
        rest = []
        with pytest.raises(SnapshotDamaged, match=r"after \d+ good records: the next cannot be read, Is a directory"):
            rest.extend(found)
    assert rest == records[3 : 3 + len(rest)]


@SECRETS
@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_wherever_it_is_damaged_all_records_before_are_read_and_none_after(path, secret, damage):
    data = write(path, RECORDS, secret).read_bytes()
    header, *rest = parts(data, secret)
    ends = [len(header) + len(b"".join(rest[:number])) for number in range(1, len(rest))]
    for at in range(len(data)):
        path.write_bytes(data[:at] + (b"" if damage == "cut off" else bytes([data[at] ^ 0x40]) + data[at + 1 :]))
        whole = sum(end <= at for end in ends)
        records, message = read(path, secret)
        assert records == RECORDS[:whole]
        expected = "" if at < len(header) else f"is damaged after {whole} good records: "
        assert message.startswith(f"{path} {expected}")


@SECRETS
def test_records_that_changed_places_or_come_twice_or_are_left_out_are_not_believed(path, secret):
    header, one, two, three, end = parts(write(path, [b"1", b"2", b"3"], secret).read_bytes(), secret)
    for order, whole in [
        ([two, one, three, end], 0),
        ([one, three, two, end], 1),
        ([one, one, two, three, end], 1),
        ([one, two, three, three, end], 3),
        ([one, two, end], 2),
        ([two, three, end], 0),
        ([end], 0),
        ([one, two, three, end, end], 3),
        ([one, two, three, end, one], 3),
    ]:
        path.write_bytes(header + b"".join(order))
        records, message = read(path, secret)
        assert records == [b"1", b"2", b"3"][:whole]
        assert message.startswith(f"{path} is damaged after {whole} good records: ")


@SECRETS
def test_nothing_of_another_file_is_believed_though_it_was_written_the_same(path, secret):
    ours, others = (parts(write(path, RECORDS, secret).read_bytes(), secret) for _ in range(2))
    for number in range(1, len(ours)):
        path.write_bytes(b"".join([*ours[:number], others[number], *ours[number + 1 :]]))
        records, message = read(path, secret)
        assert records == RECORDS[: number - 1]
        assert message.startswith(f"{path} is damaged after {number - 1} good records: the next does not match")
