"""A page is made once, and nobody waits for another one."""

import threading
from pathlib import Path

import pytest

from tests.support.report_journals import write
from tests.support.ui_serving import ask, rows, serving
from turnout.ui.single_flight import Once


def test_contract_who_asks_for_one_waits_for_that_one_alone() -> None:
    once: Once[str] = Once(4)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait()
        return "slow"

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(once.get("slow", slow))) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    assert once.get("other", lambda: "other") == "other"
    assert found == []
    go_on.set()
    for thread in threads:
        thread.join()
    assert found == ["slow"] * 3


def test_contract_what_failed_is_tried_again() -> None:
    once: Once[str] = Once(4)
    with pytest.raises(MemoryError):
        once.get("page", lambda: "x" * (1 << 62))
    assert once.get("page", lambda: "made") == "made"


def test_contract_only_the_last_few_are_kept() -> None:
    once: Once[int] = Once(2)
    for key in (1, 2, 3):
        assert once.get(key, lambda key=key: key) == key  # type: ignore[misc]
    assert once.get(3, lambda: -3) == 3
    assert once.get(1, lambda: -1) == -1


def test_error_a_page_that_cannot_be_made_is_a_message_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "good")
    write(tmp_path / "huge", study="huge")
    from turnout.ui import server as module

    real = module.report_page  # type: ignore[attr-defined]

    def make(folders: list[Path]) -> object:
        if folders[0].name == "huge":
            raise MemoryError("Unable to allocate 9.00 GiB")
        return real(folders)

    monkeypatch.setattr(module, "report_page", make)
    with serving(tmp_path) as server:
        answer = ask(server, "/show?run=huge")
        assert answer.status == 500
        assert "This cannot be shown (MemoryError: Unable to allocate 9.00 GiB)" in answer.text
        assert ask(server, "/show?run=good").status == 200
        assert set(rows(ask(server, "/"))) == {"good", "huge"}
