"""Study files made to be large, deep, odd or greedy: one message, exit 2, nothing written."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.command import Turnout
from turnout.errors import ConfigError
from turnout.study import load_study
from turnout.study.file_limits import MOST_ARMS, MOST_BYTES, MOST_LEVELS, is_too_deep
from turnout.study.study import MOST_ROUNDS

STUDY = """\
    rounds = 1
    data = { use = "digits", clients = 4 }
    model = "softmax"
    local = { lr = 0.1, steps = 1 }
    """
DEEP = "Tables and lists may be nested at most 32 levels deep; these are deeper"
LONG = "A whole number must fit into 64 bits; this one does not"

BAD = {
    "lists in lists": ("a = " + "[" * 1000 + "]" * 1000, DEEP),
    "lists in lists that Python can still read": ("a = " + "[" * 100 + "]" * 100, DEEP),
    "tables in tables": ("a = " + "{a=" * 100 + "1" + "}" * 100, DEEP),
    "a dotted key": (".".join("a" * 200_000) + " = 1", DEEP),
    "a dotted key of quotes": (" . ".join(['"a"'] * 100_000) + " = 1", DEEP),
    "a dotted heading": ("[" + ".".join("a" * 100_000) + "]", DEEP),
    "many short headings": ("\n".join(f"[{'.'.join('ab'[i % 2] * i)}]" for i in range(1, 40)), DEEP),
    "a million digits": ("rounds = " + "9" * 1_000_000, LONG),
    "a million digits in sixteens": ("rounds = 0x" + "f" * 1_000_000, LONG),
    "one too many": (f"rounds = {2**63}", LONG),
    "a NUL": ("rounds = 1\0", "not valid TOML"),
    "a carriage return in a text": ('name = "a\\rb"', "A study's name also names its folder"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_error_an_absurd_file_is_one_message(turnout: Turnout, text: str, message: str) -> None:
    Path("study.toml").write_text(dedent(STUDY).replace("rounds = 1\n", "") + text, encoding="utf-8", newline="")
    said = turnout("run", "study.toml")
    assert said.code == 2
    assert message in said.err
    assert all(line.startswith("study.toml:") for line in said.err.splitlines())
    assert os.listdir() == ["study.toml"]


def test_error_the_line_of_a_number_that_is_too_long_is_told(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(dedent(STUDY) + "seeds = " + "1" * 5000 + "\nname = 'x'\n")
    with pytest.raises(ConfigError, match=r"study.toml:5: A whole number must fit"):
        load_study(file)


def test_error_what_is_no_file_is_refused_unread(turnout: Turnout) -> None:
    os.mkfifo("pipe")  # to open it would wait for a writer
    Path("folder").mkdir()
    Path("link").symlink_to("pipe")
    named = {"pipe": "a pipe", "link": "a pipe", "folder": "a folder", "/dev/zero": "a device"}
    for name, what in named.items():
        for command in ("check", "run"):
            said = turnout(command, name)
            assert (said.code, said.out) == (2, "")
            assert said.err == f"{name} must be a study file; it is {what}. Name the file itself.\n"


KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANsecret\n-----END PRIVATE KEY-----\n"
OTHERS = {
    "a private key": KEY.encode(),
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) + b"secret",
    "settings of a program": b"[default]\naccess_key = secret/word\n",
    "passwords": b"root:x:0:0:secret:/root:/bin/sh\n" * 3,
    "a letter": b"Dear secret,\nhow are you?\n",
    "TOML of something else": b'[secret]\ntoken = "secret"\n[secret.more]\nsecret = 1\n',
    "JSON": b'{"secret": "secret"}',
    "zeros": bytes(1000),
    "far too much": b"# secret\n" * (MOST_BYTES // 8),
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_error_a_file_of_something_else_is_not_repeated(turnout: Turnout, content: bytes) -> None:
    Path("other").write_bytes(content)
    said = turnout("check", "other")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("other:")
    assert len(said.err.splitlines()) == 1
    assert "secret" not in said.err


def test_contract_a_mark_and_line_ends_of_another_system_are_read(tmp_path: Path) -> None:
    text = dedent(STUDY).replace("\n", "\r\n")
    (tmp_path / "study.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_study(tmp_path / "study.toml").rounds == 1


def test_contract_the_deepest_that_is_allowed_is_read() -> None:
    deep: object = 1
    for _ in range(MOST_LEVELS):
        deep = [deep]
    assert not is_too_deep({"a": deep})
    assert is_too_deep({"a": [[deep]]})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"rounds = {10**18}", f"rounds >= 1 and <= {MOST_ROUNDS}, a whole number; got 1000000000000000000"),
        ("rounds = 1e308", "rounds to be a whole number; got 1e+308"),
        (f"seeds = {10**12}", "1 to 100000 seeds; got 1000000000000"),
        (f"seeds = [{2**62}, -1]", "whole numbers from 0 up"),
        ("data.clients = 1e308", "clients to be a whole number"),
    ],
)
def test_error_a_setting_beyond_reason_is_told(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(written(tmp_path), [line.replace(" ", "")])
    assert message in str(caught.value)


def written(folder: Path, more: str = "") -> Path:
    file = folder / "study.toml"
    file.write_text(dedent(STUDY) + more)
    return file


def test_error_more_arms_than_anyone_compares_are_refused(tmp_path: Path) -> None:
    arms = "".join(f"[[arm]]\nname = '{at}'\n" for at in range(MOST_ARMS + 1))
    with pytest.raises(ConfigError, match=f"at most {MOST_ARMS} arms; got {MOST_ARMS + 1}"):
        load_study(written(tmp_path, arms))


def test_error_arms_times_seeds_are_bounded(tmp_path: Path) -> None:
    arms = "".join(f"[[arm]]\nname = '{at}'\n" for at in range(11))
    with pytest.raises(ConfigError, match=r"study.toml:5: A study has at most 1000000 runs.* got 11 times 100000"):
        load_study(written(tmp_path, "seeds = 100000\n" + arms))


def test_error_a_hundred_problems_are_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(written(tmp_path, "\n".join(f"k{at} = 1" for at in range(5000))))
    assert len(str(caught.value).splitlines()) == 100


@pytest.mark.parametrize(
    ("flags", "needs"),
    [
        (['data={use="synthetic", clients=100000000}'], "Synthetic with 100,000,000 clients"),
        (['data={use="synthetic-iid", samples=1000000000}'], "SyntheticIid with 30 clients of about 1,000"),
        (['data={use="synthetic-on-demand", samples=1000000000}'], "SyntheticOnDemand with 1 clients of about"),
        (['data={use="linear-regression", dim=100000000}'], "LinearRegression with 60,000,000,600 numbers"),
        (['data={use="quadratics", clients=1000000, dim=100000000}', 'loss="quadratic"'], "Quadratics with 100,000,00"),
        (['model={use="mlp", hidden=[1000000, 10000000]}'], "This model, with one client's copy of it"),
        (['model={use="mlp", hidden=[100000000, 100000000]}'], "This model, with one client's"),
    ],
)
def test_error_memory_that_is_not_there_is_refused_with_the_number(
    turnout: Turnout, tmp_path: Path, flags: list[str], needs: str
) -> None:
    written(tmp_path)
    said = turnout("run", "study.toml", *(part for flag in flags for part in ("--set", flag)))
    assert said.code == 2
    assert said.err.startswith(needs)
    assert "GB of memory; this machine has" in said.err
    assert os.listdir() == ["study.toml"]


def test_contract_a_message_cannot_steer_the_terminal(turnout: Turnout, tmp_path: Path) -> None:
    written(tmp_path, '"\\u001b[2J\\u0007" = 1\n')
    said = turnout("check", "study.toml")
    assert said.code == 2
    assert "\\x1b[2J\\x07" in said.err
    assert "\x1b" not in said.err
