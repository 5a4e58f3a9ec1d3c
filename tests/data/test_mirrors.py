"""Where packages come from, as pip's files and the environment say."""

import os

import pytest

from qkv.data import mirrors
from qkv.data.mirrors import PUBLIC_INDEX, Place


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def addresses():
    return [(place.address, place.is_index) for place in mirrors.configured().places]


def test_nothing_configured_is_the_public_index():
    known = mirrors.configured()
    assert known.places == (Place(PUBLIC_INDEX, is_index=True),)
    assert (known.certificate, known.timeout, known.proxy, known.trusted_hosts) == (None, 15.0, None, ())


def test_pip_files_are_read(monkeypatch, tmp_path):
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://one.example/simple/\ntimeout = 42\nfind-links =\n    wheels\n    more/wheels\n"
        "cert = ca's.pem\n[install]\nextra-index-url = https://two.example/simple\n    https://three.example/simple\n"
        "trusted-host = two.example\n    three.example:8443\nproxy = http://proxy.example:3128\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    known = mirrors.configured()
    assert known.places == (
        Place("wheels", is_index=False),
        Place("more/wheels", is_index=False),
        Place("https://one.example/simple", is_index=True),
        Place("https://two.example/simple", is_index=True),
        Place("https://three.example/simple", is_index=True),
    )
    assert (known.certificate, known.timeout) == ("ca's.pem", 42.0)
    assert known.proxy == "http://proxy.example:3128"
    assert known.trusted_hosts == ("two.example", "three.example:8443")


def test_the_environment_overrides_the_files(monkeypatch, tmp_path):
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file.example/simple\n", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    assert addresses() == [("https://variable.example/simple", True)]
    assert mirrors.configured().timeout == 7.0


def test_uv_variables_replace_the_default_and_add_to_pip(monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    monkeypatch.setenv("UV_INDEX", "inner=https://inner.example/simple https://outer.example/simple")
    assert [address for address, _ in addresses()] == [
        "https://uv.example/simple",
        "https://inner.example/simple",
        "https://outer.example/simple",
    ]
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    assert addresses()[:2] == [("https://pip.example/simple", True), ("https://uv.example/simple", True)]


def test_no_index_leaves_the_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tmp_path.as_uri())
    assert addresses() == [(tmp_path.as_uri(), False)]


def test_local_places_come_first(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"https://far.example/simple {tmp_path.as_uri()}")
    assert [address for address, _ in addresses()] == [tmp_path.as_uri(), PUBLIC_INDEX, "https://far.example/simple"]


def test_a_machine_without_pip_still_reads_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    assert addresses() == [("https://variable.example/simple", True)]


def test_a_file_called_pip_in_the_working_folder_is_not_run(monkeypatch, tmp_path):
    ran = tmp_path / "ran"
    (tmp_path / "pip.py").write_text(f"open({str(ran)!r}, 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    mirrors.configured()
    assert not ran.exists()


def test_the_folder_of_a_place(tmp_path):
    spaced = tmp_path / "a 文件夹"
    assert Place(spaced.as_uri(), is_index=True).folder == spaced
    assert Place(str(spaced), is_index=False).folder == spaced
    assert Place("https://one.example/simple", is_index=True).folder is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:secret@one.example:8443/simple", "https://one.example:8443/simple"),
        ("https://one.example/simple", "https://one.example/simple"),
        ("some folder/wheels", "some folder/wheels"),
    ],
)
def test_a_place_is_shown_without_its_password(address, shown):
    assert str(Place(address, is_index=True)) == shown
