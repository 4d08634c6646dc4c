"""The file that records survive a restart in: what is refused, what damage costs, what a writer that fails leaves."""

import errno
import fcntl
import gc
import hmac
import json
import os
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripts import FORKING
from tests.waiting import THREADS, until
from wheelcache.errors import SnapshotDamaged, SnapshotRefused, UnknownFormat
from wheelcache.persistence import snapshot_file
from wheelcache.persistence.snapshot_file import (
    CRC,
    END,
    HEADER,
    LENGTH,
    MAC_BYTES,
    MAGIC,
    PREFIX,
    SIGNED,
    VERSION,
    SnapshotWriter,
    open_snapshot,
    refuse,
    remove_leftovers,
    set_aside,
)

NAME = "default.snapshot"
SECRET = b"a secret"
OTHER_SECRET = b"another secret"
RECORDS = [b"one", b"", b"three" * 3, b"\0" * 9, b"one"]
OLD, NEW = [b"old"] * 3, [b"new"] * 40
NOBODY = 65534

SECRETS = pytest.mark.parametrize("secret", [None, SECRET], ids=["unsigned", "signed"])

PRELUDE = f"""
import errno, fcntl, os, signal, stat, sys
from itertools import count
from pathlib import Path
from tests.persistence.test_snapshot_file import *

def become_nobody(folder):
    # After the imports, which nobody else may be allowed.
    if os.geteuid() == 0:
        os.chown(folder, {NOBODY}, {NOBODY})
        os.setuid({NOBODY})

folder = Path(sys.argv[1])
path = folder / NAME
"""


def start(script, *args, command=()):
    return subprocess.Popen(
        [*command, sys.executable, *FORKING, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script, *args, command=()):
    process = start(script, *args, command=command)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, out + error
    assert error == ""
    return out.splitlines()


def write(path, records=RECORDS, secret=None, kind="cache", **header):
    with SnapshotWriter(path, {"kind": kind, **header}, secret) as writer:
        for record in records:
            writer.write(record)
    return path


def read(path, secret=None, kind="cache"):
    """The good records, and why there are no more, if there should be."""
    records = []
    try:
        with open_snapshot(path, kind, secret) as snapshot:
            # What came before an exception is there.
            records.extend(snapshot)
    except SnapshotRefused as refused:
        return records, str(refused)
    return records, None


def refusal(path, secret=None, kind="cache"):
    with pytest.raises(SnapshotRefused) as refused:
        open_snapshot(path, kind, secret)
    return str(refused.value)


def parts(data, secret=None):
    """The header, the records and the end of a file, each as it is there."""
    check = CRC.size if secret is None else MAC_BYTES
    first = PREFIX.size + PREFIX.unpack_from(data)[-1] + check
    found, at = [data[:first]], first
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        size = LENGTH.size + check + (0 if length == END else length)
        found.append(data[at : at + size])
        at += size
    return found


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def room(size):
    """No file of this process may become longer than ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def path(tmp_path):
    """Where a snapshot may be, and nothing else is."""
    return tmp_path / NAME


@pytest.fixture
def unbuffered(monkeypatch):
    """Each record is written at once."""
    monkeypatch.setattr(snapshot_file, "BUFFER_BYTES", 2)


# What is written is read.


@pytest.mark.deep
@SECRETS
@settings(max_examples=200, deadline=None)
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
def test_without_records_it_is_a_snapshot_too(path, secret):
    assert read(write(path, [], secret), secret) == ([], None)


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
        # Never touched, so it takes addresses and no memory.
        with pytest.raises(ValueError, match=f"a record has less than {HEADER} bytes, not {HEADER}"):
            writer.write(bytes(HEADER))
        writer.write(b"two")
    assert read(path) == ([b"one", b"two"], None)


def test_a_header_that_cannot_be_json_is_an_error_before_there_is_any_file(tmp_path, path):
    with pytest.raises(TypeError):
        SnapshotWriter(path, {"kind": "cache", "name": object()}, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0, 0o022, 0o277, 0o777], ids=oct)
def test_the_file_is_its_owners_only_whatever_the_umask(path, mask):
    with umask(mask), SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        (temporary,) = path.parent.iterdir()
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == ([b"one"], None)


def test_there_is_nothing_new_until_all_of_it_is_there(path, unbuffered):
    write(path, OLD)
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        for record in NEW:
            writer.write(record)
            assert read(path) == (OLD, None)
    assert read(path) == (NEW, None)
    assert list(path.parent.iterdir()) == [path]


def test_who_reads_the_old_one_reads_it_to_the_end_while_it_is_replaced(path):
    old = [os.urandom(100_000) for _ in range(50)]
    write(path, old)
    with open_snapshot(path, "cache", None) as snapshot:
        records = iter(snapshot)
        assert next(records) == old[0]
        write(path, NEW)
        assert list(records) == old[1:]
    assert read(path) == (NEW, None)


# What is refused.


def test_if_there_is_none_it_is_no_refusal(path):
    with pytest.raises(FileNotFoundError):
        open_snapshot(path, "cache", None)
    with pytest.raises(FileNotFoundError):
        open_snapshot(path / "in no directory" / NAME, "cache", None)


def test_a_symbolic_link_is_refused(path):
    path.symlink_to(write(path.with_name("elsewhere")))
    assert refusal(path) == f"{path} must be a file, and no link to one"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_without_waiting(path, make):
    make(path)
    assert refusal(path) == f"{path} must be a file, and no link to one"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "must be a file, and no link to one"),
        (lambda path: path.symlink_to(path.with_name("elsewhere")), f"cannot be opened: {os.strerror(errno.ELOOP)}"),
        (lambda path: write(path).chmod(0o666), "must be for its owner only to write, not have the mode 666"),
    ],
    ids=["a pipe", "a link", "a file that others may write"],
)
def test_what_is_exchanged_after_it_was_looked_at_is_refused_without_waiting(path, monkeypatch, make, message):
    found = write(path.with_name("elsewhere")).stat()
    make(path)
    monkeypatch.setattr(os, "lstat", lambda path, **options: found)
    assert refusal(path) == f"{path} {message}"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777], ids=oct)
def test_a_file_that_others_may_write_is_refused(path, mode):
    write(path).chmod(mode)
    assert refusal(path) == f"{path} must be for its owner only to write, not have the mode {mode:o}"


def test_a_file_that_others_may_only_read_is_not_refused(path):
    write(path).chmod(0o644)
    assert read(path) == (RECORDS, None)


def test_a_file_of_another_user_is_refused(path, monkeypatch):
    write(path)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert refusal(path) == f"{path} must belong to the user {owner + 1}, not to {owner}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_was_given_away_is_refused_even_by_root(path):
    os.chown(write(path), NOBODY, NOBODY)
    assert refusal(path) == f"{path} must belong to the user 0, not to {NOBODY}"


@pytest.fixture
def open_folder():
    """A directory to which the way is open for anybody, as to those of pytest it isn't."""
    folder = tempfile.mkdtemp()
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_file_of_another_user_that_cannot_even_be_opened_is_refused_for_its_owner(open_folder):
    write(open_folder / NAME)
    (message,) = run("become_nobody(folder); print(refusal(path))", open_folder)
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


def test_a_device_that_fails_in_the_middle_costs_the_tail(path):
    records = [bytes([number]) * 100_000 for number in range(50)]
    with open_snapshot(write(path, records), "cache", None) as snapshot:
        found = iter(snapshot)
        assert [next(found) for _ in range(3)] == records[:3]
        # Of a directory nothing can be read.
        directory = os.open(path.parent, os.O_RDONLY)
        os.dup2(directory, snapshot._file.fileno())
        os.close(directory)
        rest = []
        with pytest.raises(SnapshotDamaged, match=r"after \d+ good records: the next cannot be read, Is a directory"):
            rest.extend(found)
    assert rest == records[3 : 3 + len(rest)]


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 10_000, b"\0" * 10_000, MAGIC[:-1]])
def test_a_file_that_is_no_snapshot_is_refused(path, content):
    with umask(0o077):
        path.write_bytes(content)
    assert refusal(path) == f"{path} is no snapshot of wheelcache"
    assert path.read_bytes() == content


@pytest.mark.parametrize(("version", "flags"), [(0, 0), (VERSION + 1, 0), (9, 8), (VERSION, SIGNED << 1)])
def test_a_file_in_a_format_that_is_not_known_is_refused_and_stays(path, version, flags, caplog):
    data = write(path).read_bytes()
    path.write_bytes(MAGIC + struct.pack("<HH", version, flags) + data[len(MAGIC) + 4 :])
    what = f"(version {version}, flags {flags:#x})"
    with pytest.raises(UnknownFormat) as refused:
        open_snapshot(path, "cache", None)
    reason = f"{path} is in a format {what} that this wheelcache does not know, of version {VERSION}"
    assert str(refused.value) == reason
    refuse("the cache 'mine'", path, refused.value)
    assert caplog.messages == [f"A snapshot is not loaded by the cache 'mine': {reason}."]
    assert path.exists()


def test_another_kind_is_refused(path):
    message = refusal(write(path, kind="timers"))
    assert message == f"{path} is a snapshot of the kind 'timers', not 'cache'"


def test_a_signed_file_is_refused_where_there_is_no_secret(path):
    message = refusal(write(path, secret=SECRET))
    assert message == f"{path} is signed, and there is no secret to check it with"


def test_an_unsigned_file_is_refused_where_there_is_a_secret(path):
    message = refusal(write(path), SECRET)
    assert message == f"{path} is not signed, and there is a secret that it has to be signed with"


@pytest.mark.parametrize("records", [RECORDS, []], ids=["records", "no records"])
def test_a_wrong_secret_is_known_before_the_first_record(path, records):
    message = refusal(write(path, records, SECRET), OTHER_SECRET)
    assert message == f"{path} was signed with another secret, or is damaged"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xff",
        b"[" * 100_000,
        b"1" * 10_000,
        b"null",
        b"[]",
        b"{}",
        b'{"kind": 1}',
        b'{"kind": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
    ids=lambda text: f"{text[:12]} {len(text)}",
)
@SECRETS
def test_a_header_that_was_never_written_so_is_damaged_though_its_check_is_right(path, text, secret):
    head = PREFIX.pack(MAGIC, VERSION, 0 if secret is None else SIGNED, bytes(16), len(text)) + text
    with umask(0o077):
        path.write_bytes(head + snapshot_file._sealing(head, secret)(HEADER, 0, b""))
    assert refusal(path, secret) == f"{path} has a damaged header"


@SECRETS
def test_nothing_is_allocated_that_the_file_has_not(path, secret):
    whole = write(path, RECORDS, secret).read_bytes()
    header, first, *_ = parts(whole, secret)
    huge = LENGTH.pack(END - 2)
    damages = [header[: PREFIX.size - 4] + huge + header[PREFIX.size :], header + huge + first[4:], header + huge]
    tracemalloc.start()
    try:
        for damaged in damages:
            path.write_bytes(damaged)
            records, message = read(path, secret)
            assert records == []
            assert "damaged" in message
        assert tracemalloc.get_traced_memory()[1] < 3 * snapshot_file.BUFFER_BYTES
    finally:
        tracemalloc.stop()


def test_no_descriptor_stays_open_whatever_is_refused_or_fails(path):
    # What other tests have left closes when it is collected.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        refusal(write(path), SECRET)
        refusal(write(path, kind="timers"))
        path.chmod(0o666)
        refusal(path)
        with pytest.raises(ZeroDivisionError), SnapshotWriter(path, {"kind": "cache"}, None):
            raise ZeroDivisionError
    assert len(os.listdir("/proc/self/fd")) == before


# Damage.


@SECRETS
def test_wherever_it_was_cut_off_all_records_before_are_read_and_what_is_lost_is_said(path, secret):
    data = write(path, RECORDS, secret).read_bytes()
    header, *rest = parts(data, secret)
    assert len(rest) == len(RECORDS) + 1
    for size in range(len(data)):
        path.write_bytes(data[:size])
        records, message = read(path, secret)
        if size < len(header):
            assert records == []
            assert message.startswith(f"{path} ")
        else:
            whole = sum(len(b"".join(rest[:number])) <= size - len(header) for number in range(1, len(rest)))
            assert records == RECORDS[:whole]
            assert message.startswith(f"{path} is damaged after {whole} good records: ")


@SECRETS
def test_any_byte_that_changed_costs_the_records_from_there_on_and_none_before(path, secret):
    data = write(path, RECORDS, secret).read_bytes()
    header, *rest = parts(data, secret)
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        whole = max(sum(len(header) + len(b"".join(rest[:number])) <= at for number in range(1, len(rest))), 0)
        records, message = read(path, secret)
        assert records == RECORDS[:whole]
        assert message is not None


positions = st.floats(0, 1, exclude_max=True)
corruptions = st.lists(
    st.tuples(st.just("flip"), positions, st.integers(0, 7))
    | st.tuples(st.just("insert"), positions, st.binary(min_size=1, max_size=40))
    | st.tuples(st.just("delete"), positions, st.integers(1, 40))
    | st.tuples(st.just("overwrite"), positions, st.binary(min_size=1, max_size=40))
    | st.tuples(st.just("double"), positions, st.integers(1, 40)),
    min_size=1,
    max_size=4,
)


def corrupted(data, changes):
    for how, position, what in changes:
        at = int(position * len(data))
        if how == "flip":
            data = data[:at] + bytes([data[at] ^ 1 << what]) + data[at + 1 :] if data else data
        elif how == "insert":
            data = data[:at] + what + data[at:]
        elif how == "delete":
            data = data[:at] + data[at + what :]
        elif how == "overwrite":
            data = data[:at] + what + data[at + len(what) :]
        else:
            data = data[: at + what] + data[at:]
    return data


@pytest.mark.deep
@SECRETS
@settings(max_examples=500, deadline=None)
@given(records=st.lists(st.binary(max_size=60), max_size=8), changes=corruptions)
def test_after_any_corruption_what_is_read_is_what_came_first_and_something_is_said(secret, records, changes):
    """Without a secret the odds that this fails are 1 in 2**32 for each of the examples."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / NAME, records, secret)
        whole = path.read_bytes()
        data = corrupted(whole, changes)
        path.write_bytes(data)
        found, message = read(path, secret)
        assert found == records[: len(found)]
        assert (message is None) == (data == whole)
        assert message is not None or found == records


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


def test_what_comes_after_the_end_is_damage_though_all_records_are_good(path):
    with write(path).open("ab") as file:
        file.write(b"more")
    assert read(path) == (RECORDS, f"{path} is damaged after {len(RECORDS)} good records: 4 bytes follow its end")


def test_a_signature_that_was_taken_off_is_refused(path):
    """With CRCs, which anybody can make, in its place."""
    signed = write(path, RECORDS, SECRET).read_bytes()
    unsigned = write(path).read_bytes()
    assert len(signed) > len(unsigned)
    records, message = read(path, SECRET)
    assert records == []
    assert "is not signed" in message


# What a writer that fails leaves.


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_an_exception_while_it_is_written_leaves_the_old_one_and_nothing_else(path, error, unbuffered):
    write(path, OLD)

    def new():
        yield b"new"
        raise error

    with pytest.raises(error):
        write(path, new())
    assert read(path) == (OLD, None)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("buffer", [2, 1 << 20], ids=["when written to", "when left"])
@pytest.mark.parametrize("size", [0, 10, 200, 300])
def test_a_full_disk_leaves_the_old_one_and_nothing_else(path, size, buffer, monkeypatch):
    monkeypatch.setattr(snapshot_file, "BUFFER_BYTES", buffer)
    write(path, OLD)
    with room(size), pytest.raises(OSError, match="File too large"):
        write(path, NEW)
    assert read(path) == (OLD, None)
    assert list(path.parent.iterdir()) == [path]


def test_a_full_file_system_leaves_the_old_one_and_nothing_else(tmp_path):
    command = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c"]
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}"
    if not shutil.which("unshare") or subprocess.run([*command, mount], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    assert run(
        """
        write(path, OLD)
        try:
            write(path, [bytes(1000)] * 1000)
        except OSError as error:
            print(error.strerror)
        print(read(path) == (OLD, None), *os.listdir(folder))
        """,
        tmp_path,
        command=[*command, f'{mount} && exec "$@"', "sh"],
    ) == ["No space left on device", f"True {NAME}"]


def test_what_could_not_be_written_is_written_once_there_is_room(path, unbuffered):
    """Whoever goes on after the error doesn't get a file with a hole in it."""
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        with room(150), pytest.raises(OSError, match="File too large"):
            writer.write(b"two" * 100)
        writer.write(b"three")
    assert read(path) == ([b"one", b"two" * 100, b"three"], None)


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_a_device_that_fails_leaves_the_old_one_and_nothing_else(path, name, monkeypatch):
    write(path, OLD)

    def fail(*args, **options):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write(path, NEW)
    assert read(path) == (OLD, None)
    assert list(path.parent.iterdir()) == [path]


def test_where_there_is_a_directory_of_its_name_it_is_an_error_and_nothing_is_left(path):
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write(path)
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        write(path / "missing" / NAME)


def test_in_a_directory_that_may_not_be_written_it_is_an_error_and_nothing_changes(open_folder):
    """Not as root, who may."""
    assert run(
        """
        become_nobody(folder)
        write(path, OLD)
        folder.chmod(0o500)
        try:
            write(path, NEW)
        except OSError as error:
            print(error.strerror)
        print(set_aside(path), read(path) == (OLD, None), *os.listdir(folder))
        folder.chmod(0o700)
        """,
        open_folder,
    ) == ["Permission denied", f"None True {NAME}"]


def test_whoever_is_killed_at_any_step_leaves_the_old_one_or_the_new_one_and_the_next_writer_cleans_up(tmp_path):
    """Each child is killed at one call later than the one before; a write is torn in the middle."""
    steps = run(
        """
        from wheelcache.persistence import snapshot_file

        snapshot_file.BUFFER_BYTES = 256
        real_write = os.write

        def until_killed(at):
            left = at

            def counted(name, function):
                def call(*args, **options):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        if name == "write":
                            real_write(args[0], bytes(args[1])[: len(args[1]) // 2])
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*args, **options)
                return call

            for name in ("listdir", "open", "fchmod", "write", "fsync", "replace", "unlink", "close"):
                setattr(os, name, counted(name, getattr(os, name)))
            fcntl.flock = counted("flock", fcntl.flock)
            write(path, NEW, SECRET)

        for at in count():
            write(path, OLD, SECRET)
            assert os.listdir(folder) == [NAME]
            pid = os.fork()
            if pid == 0:
                until_killed(at)
                os._exit(0)
            end = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            records, message = read(path, SECRET)
            state = {tuple(OLD): "old", tuple(NEW): "new"}[tuple(records)]
            print(end, state, message, len(os.listdir(folder)) - 1)
            if end == 0:
                break
        """,
        tmp_path,
    )
    killed, last = [tuple(line.split()) for line in steps[:-1]], steps[-1]
    assert last == "0 new None 0"
    assert {(end, message) for end, _, message, _ in killed} == {("-9", "None")}
    # Nothing yet, a temporary file beside the old one, the new one alone; in this order, and nothing else.
    states = [(state, left) for _, state, _, left in killed]
    assert [states[0], *(new for old, new in pairwise(states) if new != old)] == [
        ("old", "0"),
        ("old", "1"),
        ("new", "0"),
    ]
    assert len(killed) > 12


# Temporary files, and others who write.


def test_leftovers_of_the_dead_are_removed_and_nothing_that_only_looks_like_them(path):
    dead = path.with_name(f"{NAME}.{'0' * 16}.tmp")
    others = [f"{NAME}.tmp", f"{NAME}.refused", f"{NAME}.{'g' * 16}.tmp", f"x{dead.name}", f"{dead.name}x", "a b"]
    for name in [dead.name, *others, NAME.replace(".", "x") + dead.name[len(NAME) :]]:
        path.with_name(name).touch()
    before = set(path.parent.iterdir())
    write(path)
    assert set(path.parent.iterdir()) == before - {dead} | {path}


def test_a_leftover_that_cannot_be_removed_hinders_nobody(path):
    path.with_name(f"{NAME}.{'0' * 16}.tmp").mkdir()
    path.with_name(f"{NAME}.{'1' * 16}.tmp").symlink_to("missing")
    assert read(write(path)) == (RECORDS, None)
    assert len(list(path.parent.iterdir())) == 3


def test_the_temporary_file_of_a_writer_that_lives_is_left_alone_here_and_in_another_process(path):
    with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
        writer.write(b"one")
        remove_leftovers(path)
        write(path, OLD)
        assert run("remove_leftovers(path); print(len(os.listdir(folder)))", path.parent) == ["2"]
    assert read(path) == ([b"one"], None)
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed_once_its_children_that_have_its_lock_are_gone(path):
    process = start(
        """
        with SnapshotWriter(path, {"kind": "cache"}, None) as writer:
            if os.fork() == 0:
                print("up", flush=True)
                sys.stdin.read()
                os._exit(0)
            signal.pause()
        """,
        path.parent,
    )
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.wait()
    remove_leftovers(path)
    assert len(list(path.parent.iterdir())) == 1
    process.communicate(timeout=10)
    assert until(lambda: remove_leftovers(path) or not list(path.parent.iterdir()))


def test_a_writer_whose_file_is_taken_for_a_dead_ones_before_it_is_locked_makes_another(path, monkeypatch):
    lock, made = fcntl.flock, []

    def late(file, how):
        """The others are always first, twice: once they are done, once about to remove it."""
        monkeypatch.setattr(fcntl, "flock", lock)
        made.extend(path.parent.iterdir())
        if len(made) == 1:
            remove_leftovers(path)
            monkeypatch.setattr(fcntl, "flock", late)
            return lock(file, how)
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", late)
    write(path, NEW)
    assert len(set(made)) == 2
    assert read(path) == (NEW, None)
    remove_leftovers(path)
    assert list(path.parent.iterdir()) == [path]


def test_many_who_write_the_same_at_once_leave_one_whole_snapshot_and_nothing_else(path, together, unbuffered):
    assert together(lambda number: write(path, [b"%d" % number] * 20, SECRET)) == [path] * THREADS
    records, message = read(path, SECRET)
    assert message is None
    assert len(records) == 20
    assert len(set(records)) == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_child_of_a_fork_cannot_write_or_end_or_remove_what_its_parent_writes(tmp_path):
    assert run(
        """
        def in_child(work):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)

        writer = SnapshotWriter(path, {"kind": "cache"}, None)
        with writer:
            writer.write(b"one")
            in_child(lambda: writer.__exit__(None, None, None))
            in_child(lambda: writer.__exit__(SystemExit, SystemExit(), None))
            in_child(lambda: writer.write(bytes(2 << 20)))
            print(len(os.listdir(folder)))
            writer.write(b"two")
        print(*read(path), *os.listdir(folder))
        """,
        tmp_path,
    ) == [
        f"{tmp_path / NAME} is being written by a parent of this process, which may not",
        f"{tmp_path / NAME} is being written by a parent of this process, which may not",
        "1",
        f"[b'one', b'two'] None {NAME}",
    ]


# Set aside.


def test_a_file_that_was_refused_is_kept_and_only_the_last_one(path):
    aside = path.with_name(f"{NAME}.refused")
    for content in (b"first", b"second"):
        path.write_bytes(content)
        assert set_aside(path) == aside
        assert aside.read_bytes() == content
        assert list(path.parent.iterdir()) == [aside]


def test_what_is_no_file_stays_where_it_is(path):
    assert set_aside(path) is None
    for make in (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("missing")):
        make(path)
        assert set_aside(path) is None
        assert [each.name for each in path.parent.iterdir()] == [NAME]
        (Path.rmdir if path.is_dir() else Path.unlink)(path)


def test_a_file_that_cannot_be_set_aside_stays(path):
    path.with_name(f"{NAME}.refused").mkdir()
    assert set_aside(write(path)) is None
    assert read(path) == (RECORDS, None)


def test_the_header_may_say_what_json_can(path):
    header = {"kind": "cache", "name": "naïve \ud800", "saved_at": 1.7e9, "nested": {"list": [1, None, True]}}
    with SnapshotWriter(path, header, None):
        pass
    with open_snapshot(path, "cache", None) as snapshot:
        assert snapshot.header == header == json.loads(json.dumps(header))
