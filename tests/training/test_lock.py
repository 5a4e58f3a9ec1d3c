"""One writer for a run folder."""

import os
import subprocess
import sys

import pytest

from qkv.errors import UserError
from qkv.training import lock

HOLD = (
    "import sys, time; from pathlib import Path; from qkv.training.lock import own; held = own(Path(sys.argv[1])); "
    "print(1, flush=True); time.sleep(60)"
)


def test_a_second_writer_is_refused_and_told_which_process_holds_the_folder(tmp_path):
    held = lock.own(tmp_path)
    with pytest.raises(UserError, match=rf"another process.* is training into .*{tmp_path.name}"):
        lock.own(tmp_path)
    held.release()
    lock.own(tmp_path).release()


@pytest.mark.slow
def test_a_killed_process_holds_nothing(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == b"1"
    with pytest.raises(UserError, match=f"process {holder.pid}" if os.name == "posix" else "another process"):
        lock.own(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    lock.own(tmp_path).release()
