"""`turnout reproduce`: what it lists, how it exits, that it continues, and the page made of what it found."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Turnout
from turnout.cli import reproduce as command
from turnout.errors import ConfigError
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.reproduce import SCALES, About, Claim, Statement, above, exactly, reproduce, shipped, shipped_named
from turnout.reproduce.page import (
    PAGE,
    RESULTS,
    START,
    finding,
    page,
    read_results,
    summary,
    with_summary,
    without_result,
)
from turnout.reproduce.page import main as write_page
from turnout.reproduce.reading import final
from turnout.reproduce.shipped import Shipped
from turnout.study import Study

ROOT = Path(__file__).parents[2]
NAMES = (
    "client-drift",
    "cyclic",
    "fedexp",
    "fednova-table",
    "impossibility",
    "power-of-choice",
    "ruan-fig5",
    "ruan-table3",
    "ruan-table4",
    "ruan-table5",
)


def claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """An identity, and a claim that holds."""
    one = np.abs(final(loaded["study"], "one") - final(loaded["study"], "same"))
    return [
        exactly(Statement(id="same", text="two arms agree", paper="0"), one),
        above(Statement(id="main", text="accuracy above minus two", paper="yes"), final(loaded["study"], "one"), -2.0),
    ]


def wrong_claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """An identity, and a claim that cannot hold."""
    accuracy = final(loaded["study"], "one")
    return [claims(loaded)[0], above(Statement(id="main", text="accuracy above two", paper="2"), accuracy, 2.0)]


def open_claims(loaded: Mapping[str, Loaded]) -> list[Claim]:
    """A claim that no number of seeds settles: the sign alternates."""
    accuracy = final(loaded["study"], "one")
    signs = np.where(np.arange(len(accuracy)) % 2 == 0, 1.0, -1.0)
    return [above(Statement(id="main", text="signs", paper="0"), signs * accuracy)]


@pytest.fixture
def small(tmp_path: Path) -> Shipped:
    """A study of a second."""
    file = tmp_path / "small.toml"
    file.write_text(
        'rounds = 3\nseeds = 4\ndata = { use = "digits", clients = 6 }\nmodel = "softmax"\n'
        'local = { lr = 0.1, batch_size = 16, epochs = 1 }\n[[arm]]\nname = "one"\n[[arm]]\nname = "same"\n'
    )
    scales: dict[str, tuple[str, ...]] = {"smoke": ("rounds=1",), "small": (), "paper": ()}
    about = About(paper="A paper", what="What.", primary=(("main",),), small="1 s", scales=scales)
    return Shipped(name="small", file=file, about=about, claims=claims)


def ship(monkeypatch: pytest.MonkeyPatch, study: Shipped) -> None:
    monkeypatch.setattr(command, "shipped_named", lambda name: study)


def test_contract_the_list_says_what_there_is(turnout: Turnout) -> None:
    said = turnout("reproduce", "--json")
    rows = json.loads(said.out)
    assert said.code == 0
    assert {*NAMES} <= {row["name"] for row in rows}
    assert all(set(row) == {"name", "paper", "what", "needs", "small"} for row in rows)
    listed = turnout("reproduce")
    assert listed.code == 0
    assert all(any(line.startswith(f"{row['name']} ") for line in listed.out.splitlines()) for row in rows)


def test_golden_a_study_whose_claims_hold_exits_0(
    turnout: Turnout, small: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, small)
    said = turnout("reproduce", "small")
    assert (said.code, said.err) == (0, "")
    lines = [line.split() for line in said.out.splitlines()]
    assert ["primary", "claim", "paper", "ours", "interval", "verdict"] in lines
    assert any(line[:4] == ["accuracy", "above", "minus", "two"] and line[-1] == "held" for line in lines)
    assert ["two", "arms", "agree", "0", "0", "–", "exact"] in lines
    assert "primary claims: 1 held; 4 seeds, scale small;" in said.out
    folder = Path("runs/reproduce/small-small")
    assert (folder / "study" / "report.html").is_file()
    found = json.loads((folder / "result.json").read_text())
    assert found["verdicts"] == {"held": 1, "contradicted": 0, "not settled": 0, "not tested": 0}
    assert sorted(set(load(folder / "study").runs["seed"])) == [100, 101, 102, 103]  # fresh ones


def test_golden_a_claim_that_is_contradicted_exits_3(
    turnout: Turnout, small: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, replace(small, claims=wrong_claims))
    said = turnout("reproduce", "small", "--scale", "smoke", "--seeds", "3", "--out", "here", "--json")
    found = json.loads(said.out)
    assert said.code == 3
    assert [claim["verdict"] for claim in found["claims"]] == [None, "contradicted"]
    assert (found["seeds"], found["runs"], found["scale"]) == (3, 6, "smoke")
    assert found["command"] == "turnout reproduce small --scale smoke --seeds 3"


def test_golden_a_claim_that_is_not_settled_exits_4_and_says_what_would_settle_it(
    turnout: Turnout, small: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, replace(small, claims=open_claims))
    said = turnout("reproduce", "small")
    assert said.code == 4
    assert "not settled: signs: 4 seeds show an effect of " in said.out
    assert "primary claims: 1 not settled; 4 seeds, scale small;" in said.out


def test_golden_one_seed_tests_nothing_and_exits_4(
    turnout: Turnout, small: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, small)
    said = turnout("reproduce", "small", "--seeds", "1")
    assert said.code == 4
    assert "primary claims: 1 not tested; 1 seeds" in said.out


def test_contract_seeds_are_added_until_the_claims_are_settled_or_the_most_are_run(
    small: Shipped, tmp_path: Path
) -> None:
    more = replace(small, about=replace(small.about, most=9))
    settled = reproduce(more, "small", tmp_path / "settled")
    assert (settled.seeds, settled.looks, settled.most) == (4, (4,), 9)
    cells: list[int] = []
    unsettled = replace(more, claims=open_claims)
    result = reproduce(unsettled, "small", tmp_path / "open", on_cell=lambda _, __, seeds: cells.append(seeds))
    assert cells == [4, 6, 9]
    assert (result.seeds, result.looks, result.exit_code) == (9, (4, 6, 9), 4)
    again = reproduce(unsettled, "small", tmp_path / "open")
    assert [claim.as_dict() for claim in again.claims] == [claim.as_dict() for claim in result.claims]
    assert again.looks == result.looks
    fixed = reproduce(more, "small", tmp_path / "fixed", seeds=3)
    assert (fixed.seeds, fixed.most) == (3, 3)


def test_contract_a_study_that_is_stopped_has_the_result_of_the_looks_before(small: Shipped, tmp_path: Path) -> None:
    unsettled = replace(small, about=replace(small.about, most=9), claims=open_claims)

    def stop(cell: str, study: Study, seeds: int) -> None:
        if seeds > 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(unsettled, "small", tmp_path, on_cell=stop)
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (found["seeds"], found["looks"], found["most"]) == (4, [4], 9)
    assert found["verdicts"]["not settled"] == 1
    assert reproduce(unsettled, "small", tmp_path).looks == (4, 6, 9)


def test_identity_a_study_that_was_run_is_not_run_again(small: Shipped, tmp_path: Path) -> None:
    first = reproduce(small, "smoke", tmp_path / "out")
    kept = (tmp_path / "out" / "seconds.json").read_text()
    again = reproduce(small, "smoke", tmp_path / "out")
    assert (tmp_path / "out" / "seconds.json").read_text() == kept
    assert again.claims == first.claims
    assert sum(first.seconds.values()) > 0


def test_error_data_that_is_missing_exits_2_and_names_the_folder(
    turnout: Turnout, small: Shipped, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
    (tmp_path / "empty").mkdir()
    text = small.file.read_text().replace('use = "digits"', f'use = "mnist", folder = "{tmp_path / "empty"}"')
    small.file.write_text(text)
    ship(monkeypatch, small)
    said = turnout("reproduce", "small")
    assert said.code == 2
    assert "empty" in said.err


def test_contract_the_list_fits_the_terminal(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = turnout("reproduce")
    assert max(map(len, said.out.splitlines())) <= 80
    text = " ".join(said.out.split())
    for study in shipped().values():
        assert f"{study.name} {study.about.small} {study.about.what} {study.about.paper}." in text


def test_error_an_unknown_study_or_scale_exits_2_and_says_what_there_is(turnout: Turnout) -> None:
    said = turnout("reproduce", "client-drft")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("There is no shipped study 'client-drft'. Did you mean client-drift?")
    said = turnout("reproduce", "client-drift", "--scale", "tiny")
    assert said.code == 2
    assert "There is no scale 'tiny'." in said.err
    assert "Choose smoke, small or paper." in said.err


def test_error_a_study_without_a_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="has the scales smoke, small, paper; got smoke, small"):
        About(paper="a", what="b", primary=(), small="c", scales={"smoke": (), "small": ()})


def test_error_more_than_six_primary_claims_are_refused() -> None:
    scales = dict.fromkeys(SCALES, ())
    with pytest.raises(ConfigError, match="at most 6 primary claims; got 7"):
        About(paper="a", what="b", primary=(("1", "2", "3", "4"), ("5", "6", "7")), small="c", scales=scales)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", SCALES)
def test_contract_every_cell_of_every_scale_is_a_study(name: str, scale: str) -> None:
    study = shipped_named(name)
    studies = study.studies(scale)
    assert set(studies) == set(study.about.cells)
    assert len({each.name for each in studies.values()}) == len(studies)
    assert scale == "smoke" or all(len(each.all_seeds) >= 5 for each in studies.values())


def test_golden_only_its_own_cells_change_more_at_paper_scale() -> None:
    about = About(
        paper="a",
        what="b",
        primary=(),
        small="c",
        scales={"smoke": (), "small": (), "paper": ("rounds=7",)},
        cells={"one": (), "two": ()},
        larger={"two": ("rounds=9",)},
    )
    study = replace(shipped_named("client-drift"), about=about)
    small, paper = study.studies("small"), study.studies("paper", seeds=4)
    assert {name: each.rounds for name, each in paper.items()} == {"one": 7, "two": 9}
    assert small["two"].rounds == small["one"].rounds not in (7, 9)
    assert all(len(each.all_seeds) == 4 for each in paper.values())


def test_error_a_cell_that_is_not_there_cannot_be_larger() -> None:
    with pytest.raises(ConfigError, match="has no cell three"):
        About(paper="a", what="b", primary=(), small="c", scales=dict.fromkeys(SCALES, ()), larger={"three": ()})


def test_contract_a_study_has_a_file_and_a_module() -> None:
    folder = ROOT / "src" / "turnout" / "reproduce" / "studies"
    assert {file.stem for file in folder.glob("*.toml")} == {file.stem for file in folder.glob("[!_]*.py")}
    assert set(shipped()) == {file.stem.replace("_", "-") for file in folder.glob("*.toml")}


def test_contract_the_page_is_what_the_results_say() -> None:
    results = read_results(ROOT / RESULTS)
    pending = without_result(results)
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(results, pending)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert START in readme
    assert with_summary(readme, summary(results, pending)) == readme
    assert {result["name"] for result in results} <= set(shipped())


def test_contract_every_result_has_five_seeds_at_small_scale_or_better_and_says_what_was_found() -> None:
    results = read_results(ROOT / RESULTS)
    assert results
    for result in results:
        assert result["seeds"] >= 5, result["name"]
        assert result["scale"] in ("small", "paper"), result["name"]
        assert result["found"], result["name"]


def test_contract_no_claim_is_held_without_a_test() -> None:
    for result in read_results(ROOT / RESULTS):
        for claim in result["claims"]:
            if claim["verdict"] in ("held", "contradicted"):
                assert claim["kind"] == "tested", claim["id"]
                assert claim["corrected_p"] < 0.05, claim["id"]
                assert claim["low"] > claim["than"] or claim["high"] < claim["than"], claim["id"]


def test_golden_studies_without_a_result_are_named_and_texts_are_those_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "cyclic.json").write_text(json.dumps({"name": "cyclic", "verdicts": {}, "found": "", "paper": "old"}))
    (result,) = read_results(tmp_path)
    about = shipped()["cyclic"].about
    assert (result["paper"], result["found"]) == (about.paper, about.found)
    assert set(without_result([result])) == set(shipped()) - {"cyclic"}
    assert page([], ["fedexp", "phones"]).endswith("\nWithout a result so far: fedexp, phones.\n")


def test_golden_a_page_of_one_result(tmp_path: Path, small: Shipped) -> None:
    reproduce(replace(small, claims=wrong_claims), "small", tmp_path / "out")
    write_page([str(tmp_path / "out" / "result.json")], tmp_path)
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert (tmp_path / RESULTS / "small.json").is_file()
    assert "| [small](#small) | A paper | small, 4 | – | 1 | – | – | Contradicted: accuracy above two. |" in text
    assert "| two arms agree | 0 | 0 | – | exact |" in text
    assert "| accuracy above two | 2 | 0." in text
    assert "| **contradicted** |" in text
    assert "`turnout reproduce small --scale small`: 8 runs, 4 seeds, " in text
    (row,) = [line for line in summary(read_results(tmp_path / RESULTS)).splitlines() if "small" in line]
    link = "[small](docs/reproductions.md#small)"
    assert row == f"| {link} | A paper | small, 4 | – | 1 | – | – | Contradicted: accuracy above two. |"


def test_golden_a_page_says_what_would_settle_a_claim(tmp_path: Path, small: Shipped) -> None:
    about = replace(small.about, most=6, caveat="Too small.", found="Signs alternate.")
    reproduce(replace(small, claims=open_claims, about=about), "small", tmp_path / "out")
    write_page([str(tmp_path / "out" / "result.json")], tmp_path)
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "| – | – | 1 | – | Signs alternate. |" in text
    assert "## small { #small }\n\n**Too small.**\n\nWhat. A paper." in text
    assert "- *Not settled*: signs: 6 seeds show an effect of " in text
    assert "6 seeds (looks at 4, 6 of at most 6)" in text


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (["held", "held"], "All 2 main claims are held."),
        (["not settled"] * 3, "These seeds settle none of the 3 main claims."),
        (["held", None, "contradicted", "held"], "Held: claim 0; claim 3. Contradicted: claim 2."),
        ([None], "No primary claim."),
    ],
)
def test_golden_what_was_found_in_one_sentence(verdicts: list[str | None], sentence: str) -> None:
    claims = [{"text": f"claim {place}", "verdict": verdict} for place, verdict in enumerate(verdicts)]
    assert finding({"found": "", "claims": claims}) == sentence
    assert finding({"found": "It was so.", "claims": claims}) == "It was so."


def test_error_results_of_an_earlier_format_are_named(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"name": "old", "claims": []}')
    with pytest.raises(ConfigError, match=r"needs results with four verdicts; old\.json in .* Run these studies again"):
        read_results(tmp_path)
