# SPDX-License-Identifier: Apache-2.0
"""tl.data.save under threads, processes, links, special files, full disks and kills: the old file or the new one, whole."""

import errno
import multiprocessing
import os
import resource
import secrets
import signal
import socket
import stat
import threading

import pytest
import torch

import torch_lod as tl

ROWS = 100_000
OLD, NEW = (tl.from_lengths(torch.full((ROWS, 4), n), [[ROWS - 1, 1]]) for n in (-1.0, -2.0))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "folder" / "x.safetensors"
    path.parent.mkdir()
    tl.data.save(OLD, path)
    return path


def number_in(path) -> float:
    """Of which tensor a file is; `load` compares the checksums."""
    x = tl.data.load(path)
    found = x.values().unique()
    assert x.lod == OLD.lod and x.shape == OLD.shape and len(found) == 1
    return float(found)


def parts(path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name != path.name]


def in_child(function, *args):
    """A process that runs a function, and ends with 0 if it returns."""
    child = multiprocessing.get_context("fork").Process(target=function, args=args)
    child.start()
    return child


def save_often(path, number: float, times: int, barrier) -> None:
    x = OLD.with_values(torch.full_like(OLD.values(), number))
    barrier.wait()
    for _ in range(times):
        tl.data.save(x, path)


def read_until(path, done) -> set[float]:
    """The numbers that a reader finds meanwhile."""
    found = set()
    while not done():
        found.add(number_in(path))
    return found | {number_in(path)}


def test_eight_threads_save_to_one_path(path):
    barrier, failed = threading.Barrier(8), []

    def save(number):
        try:
            save_often(path, number, 6, barrier)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(float(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    found = read_until(path, lambda: not any(thread.is_alive() for thread in threads))
    assert not failed and not parts(path) and found <= {-1.0, *range(8)}


def test_four_processes_with_one_process_id_save_to_one_path(path, monkeypatch):
    """As in containers, whose processes often have the id 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    barrier = multiprocessing.get_context("fork").Barrier(4)
    children = [in_child(save_often, path, float(i), 8, barrier) for i in range(4)]
    found = read_until(path, lambda: not any(child.exitcode is None for child in children))
    assert [child.exitcode for child in children] == [0] * 4 and not parts(path) and found <= {-1.0, *range(4)}


def test_no_symbolic_link_is_followed_but_that_of_the_target(path, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f"{path}.{os.getpid()}.part", path.parent / f".torch_lod-{'0' * 16}.part"):
        os.symlink(victim, name)
    tl.data.save(NEW, path)
    assert number_in(path) == -2 and not path.is_symlink() and victim.read_text() == "precious"
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0" * 16)  # even where the name is guessed
    with pytest.raises(FileExistsError):
        tl.data.save(OLD, path)
    assert number_in(path) == -2 and victim.read_text() == "precious" and len(parts(path)) == 2


def a_socket(name):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(name))


def a_device(name):
    try:
        os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        a_socket(name)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "a pipe"),
        (a_socket, "a socket"),
        (a_device, "a (device|socket)"),
        (os.mkdir, "a folder"),
    ],
    ids=["pipe", "socket", "device", "folder"],
)
def test_only_regular_files_are_replaced(path, monkeypatch, make, said):
    monkeypatch.chdir(path.parent)  # names of sockets are short
    make("special")
    os.symlink("special", "link")
    before = os.lstat("special")
    for name in ("special", "link"):
        with pytest.raises(
            ValueError, match=f"save: expected a regular file or nothing at {name}, got {said}"
        ) as raised:
            tl.data.save(NEW, name)
        assert isinstance(raised.value, tl.LoDError)
    after = os.lstat("special")
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino) and os.path.islink("link")
    assert sorted(parts(path)) == ["link", "special"]


def save_beyond_a_limit(path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        tl.data.save(NEW, path)
    except OSError as error:
        os._exit(error.errno)


def test_a_full_disk_leaves_the_old_file(path):
    child = in_child(save_beyond_a_limit, path)
    child.join()
    assert child.exitcode == errno.EFBIG
    assert number_in(path) == -1 and not parts(path)


def save_and_wait(path, name: str, call: int, reached) -> None:
    """Stops in a call of a function of os."""
    function, calls = getattr(os, name), []

    def waits(*args):
        calls.append(args)
        if len(calls) == call:
            os.write(reached, b"!")
            signal.pause()
        return function(*args)

    setattr(os, name, waits)
    tl.data.save(NEW, path)


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [("fsync", 1, -1), ("replace", 1, -1), ("fsync", 2, -2)],
    ids=["written", "synced", "renamed"],
)
def test_a_killed_process_leaves_the_old_file_or_the_new_one(path, name, call, expected):
    reached, reach = os.pipe()
    child = in_child(save_and_wait, path, name, call, reach)
    os.close(reach)
    assert os.read(reached, 1) == b"!"  # none if the child ended
    os.close(reached)
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL and number_in(path) == expected
    left = parts(path)
    assert len(left) == (expected == -1) and all(p.startswith(".torch_lod-") and p.endswith(".part") for p in left)
    tl.data.save(NEW, path)
    assert number_in(path) == -2 and parts(path) == left


def test_file_and_folder_are_synced_around_the_renaming(path, monkeypatch):
    done, fsync, replace = [], os.fsync, os.replace

    def sync(opened):
        done.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else os.fstat(opened).st_size)
        fsync(opened)

    def rename(*names):
        done.append("renamed")
        replace(*names)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    tl.data.save(NEW, path)
    assert done == [path.stat().st_size, "renamed", "folder"]


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    for name, error in (("none/x", FileNotFoundError), ("file/x", NotADirectoryError)):
        (tmp_path / "file").touch()
        with pytest.raises(error) as raised:
            tl.data.save(NEW, tmp_path / name)
        assert raised.value.filename == str(tmp_path / name)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_call_that_is_interrupted_leaves_no_part(path, monkeypatch, error):
    def interrupted(_):
        raise error

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(error):
        tl.data.save(NEW, path)
    assert number_in(path) == -1 and not parts(path)


def test_a_folder_that_cannot_be_read_can_be_written_to(path, monkeypatch):
    opened = os.open

    def refuses(name, *args, **kwargs):
        if os.path.isdir(name):
            raise PermissionError(errno.EACCES, "no", name)
        return opened(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuses)
    tl.data.save(NEW, path)
    assert number_in(path) == -2 and not parts(path)
