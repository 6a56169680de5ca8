"""The report: its numbers, that no text in it becomes markup, and how browsers show it."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from embodied_icrl.common.errors import RunError
from embodied_icrl.reward_search import report as report_module
from embodied_icrl.reward_search.records import Candidate
from embodied_icrl.reward_search.report import render_report, write_report
from embodied_icrl.reward_search.report_charts import axis, curve
from embodied_icrl.reward_search.report_code import MAX_COMPARED_LINES, difference
from embodied_icrl.reward_search.report_data import Result, Video, failures, headline, lineage
from embodied_icrl.reward_search.report_html import element, interval, number, visible
from embodied_icrl.reward_search.report_score import human_normalised, score
from embodied_icrl.reward_search.report_tables import leaderboard

from .report_example import ATTACK, blank_file, example, trained

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Page(HTMLParser):
    """Tags with their attributes, and the texts between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(tmp_path, **changes) -> Page:
    return Page(render_report(example(**changes), tmp_path))


# --- numbers


def test_human_normalised_score():
    assert human_normalised(0.9, 0.8, 0.4) == pytest.approx(1.25)
    assert human_normalised(0.2, 0.8, 0.4) == pytest.approx(-0.5)
    # A human reward worse than the sparse one: better than both is still positive.
    assert human_normalised(0.9, 0.4, 0.8) == pytest.approx(0.25)
    assert human_normalised(0.5, 0.4, 0.4) is None
    assert human_normalised(0.5, math.inf, 0.4) is None


def test_headline_compares_what_was_measured_in_the_same_way():
    data = example()
    final = headline(data)
    assert final.final and list(final.results) == ["i3_s00", "human", "sparse"]
    assert final.results["i3_s00"].mean == 0.93
    assert final.normalised is not None
    assert final.normalised.mean == pytest.approx(0.79 / 0.72)
    # The human reward has no final training: all numbers are those of the search.
    partly = headline(dataclasses.replace(data, finals=(data.finals[0],)))
    assert not partly.final and partly.results["i3_s00"].mean == 0.88
    assert partly.normalised is not None
    assert partly.normalised.mean == pytest.approx(0.76 / 0.69)
    assert partly.normalised.low is None and "final trainings" in partly.normalised.reason


@pytest.mark.parametrize(
    ("best", "human", "sparse", "expected"),
    [
        # Nobody's seeds differ.
        ((0.9,) * 5, (0.8,) * 5, (0.4,) * 5, (1.25, 1.25, 1.25)),
        # Means of 5 values of which one is a 1 are binomial; the ends of the interval, 0.095% on
        # either side as Student's for 5 values, lie at 0 and at 4 of 5 drawn.
        ((0.0, 0.0, 0.0, 0.0, 1.0), (1.0,) * 5, (0.0,) * 5, (0.2, 0.0, 0.8)),
        # The same in the baselines alone: their noise counts.
        ((1.0,) * 5, (1.0, 1.0, 1.0, 1.0, 2.0), (0.0,) * 5, (1 / 1.2, 1 / 1.8, 1.0)),
        ((1.0,) * 5, (2.0,) * 5, (0.0, 0.0, 0.0, 0.0, 1.0), (0.8 / 1.8, 0.2 / 1.2, 0.5)),
        # A human reward worse than the sparse one.
        ((0.9,) * 5, (0.4,) * 5, (0.8,) * 5, (0.25, 0.25, 0.25)),
    ],
    ids=["certain", "best", "human", "sparse", "worse"],
)
def test_the_interval_of_the_score_counts_the_noise_of_all_three(best, human, sparse, expected):
    found = score(best, human, sparse)
    assert found is not None and found.reason == ""
    assert (found.mean, found.low, found.high) == pytest.approx(expected)
    assert score(best, human, sparse) == found


@pytest.mark.parametrize(
    ("seeds", "human", "reason"),
    [
        (4, 0.8, "takes 5 seeds"),
        (5, (0.3, 0.5, 0.3, 0.5, 0.6), "not clearly different"),
        (5, (0.5, 0.3, 0.5, 0.3, 0.2), "not clearly different"),
    ],
    ids=["few", "above", "below"],
)
def test_a_score_that_is_not_sure_says_why_instead_of_an_interval(seeds, human, reason, tmp_path):
    values = human if isinstance(human, tuple) else (human,) * seeds
    found = score((0.9,) * seeds, values, (0.4,) * seeds)
    assert found is not None and (found.low, found.high) == (None, None)
    assert reason in found.reason
    finals = tuple(
        Result(name, float(np.mean(seen)), None, None, tuple(seen))
        for name, seen in (
            ("i3_s00", (0.9,) * seeds),
            ("human", values),
            ("sparse", (0.4,) * seeds),
        )
    )
    assert found.reason in page(tmp_path, finals=finals).text


FAILED = Result("i3_s00", None, None, None, (0.91, 0.95), "failed", "no step within 60 s")


def test_a_best_reward_whose_final_training_failed_is_shown_with_the_reason(tmp_path):
    finals = (FAILED, *example().finals[1:])
    numbers = headline(example(finals=finals))
    assert not numbers.final and numbers.failed == (FAILED,)
    assert numbers.results["i3_s00"].mean == 0.88
    shown = page(tmp_path, finals=finals)
    warning = "The final trainings of best: i3_s00 failed: no step within 60 s; 2 seeds finished"
    assert f"{warning} (0.910, 0.950)." in shown.text
    assert "therefore from the search's own short trainings" in shown.text
    assert [p for p in shown.all("p") if p.get("class") == "warning"]
    assert "i3_s00 – 0.910, 0.950 failed no step within 60 s" in shown.text


def test_a_baseline_whose_final_training_failed_takes_part_in_no_number(tmp_path):
    lost = Result("human", None, None, None, (), "failed", "nan at step 3")
    text = page(tmp_path, finals=(example().finals[0], lost, example().finals[2])).text
    assert "of human-written failed: nan at step 3; no seed finished." in text
    assert headline(example(finals=(example().finals[0], lost))).results["human"].mean == 0.81


def test_trainings_that_went_well_warn_of_nothing(tmp_path):
    assert not [p for p in page(tmp_path).all("p") if p.get("class") == "warning"]


def test_what_is_missing_is_said_with_its_reason(tmp_path):
    text = page(
        tmp_path,
        no_video="nothing can be drawn",
        correlation=None,
        no_correlation="weights are torn",
        terms=None,
        no_terms="terms_run=runs/x: another task",
    ).text
    assert "No film: nothing can be drawn" in text
    assert "human-written reward: not known: weights are torn" in text
    assert "is not known yet: terms_run=runs/x: another task" in text


def test_what_a_films_pictures_lack_is_said_beside_it(tmp_path):
    video = Video(blank_file(tmp_path / "film.mp4", 10), "both")
    shown = page(tmp_path, videos=(video,), video_note="drawn without shadows: install EGL")
    assert "drawn without shadows: install EGL" in shown.text and shown.all("video")


def test_a_baseline_that_failed_half_way_is_no_baseline():
    data = example(finals=())
    human = dataclasses.replace(data.candidates[0], status="failed")
    data = dataclasses.replace(data, candidates=(human, *data.candidates[1:]))
    assert "human" not in headline(data).results
    assert headline(data).normalised is None


def test_an_unfinished_training_ranks_below_the_finished_ones(tmp_path):
    data = example()
    early = trained("i9_s00", 9, 0.99, status="stopped")
    shown = Page(str(leaderboard(dataclasses.replace(data, candidates=(*data.candidates, early)))))
    ids = [cell["data-sort"] for cell in shown.all("td") if cell.get("class") == "id"]
    statuses = {candidate.id: candidate.status for candidate in (*data.candidates, early)}
    order = [statuses[name] for name in ids]
    assert order[0] == "trained" and order.index("stopped") > order.count("trained") - 1
    assert ids.index("i9_s00") == order.index("stopped")


def test_failures_are_grouped_by_what_they_have_in_common():
    groups = failures(example().candidates)
    assert [c.id for c in groups["refused", "import"]] == ["i1_s02", "i2_s03"]
    assert next(iter(groups)) == ("refused", "import")
    assert sum(map(len, groups.values())) == 5


def test_lineage_ends_at_the_first_and_survives_circles():
    assert [c.id for c in lineage(example(), "i3_s00")] == ["i1_s01", "i2_s00", "i3_s00"]
    circle = (
        trained("i1_s00", 1, 0.1, parent="i2_s00"),
        trained("i2_s00", 2, 0.2, parent="i1_s00"),
    )
    assert len(lineage(example(candidates=circle), "i2_s00")) == 2
    assert lineage(example(), None) == []


@given(st.floats(-1e300, 1e300))
def test_numbers_are_short_and_close(value):
    text = number(value)
    assert len(text) <= 12
    read = float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))
    assert read == pytest.approx(value, rel=0.051, abs=5e-4)


def test_missing_numbers_are_dashes():
    assert number(None) == "–" and interval(None, 0.1, 0.2) == "–"
    assert interval(0.5, None, None) == "0.500"


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=9))
def test_axes_hold_their_values_and_their_ticks(values):
    made = axis(values, 10.0, 90.0)
    assert all(10 <= made(value) <= 90 for value in values)
    assert len(made.ticks()) <= 12
    assert all(10 - 1e-6 <= made(tick) <= 90 + 1e-6 for tick in made.ticks())


# --- content


def test_the_page_has_what_a_reader_needs(tmp_path):
    data = example()
    text = page(tmp_path).text
    for candidate in data.candidates:
        assert text.count(candidate.id) >= 2  # in the leaderboard and below
    for words in (
        data.description, data.sandbox, data.command, "0.930 [0.890, 0.960]", "1.097",
        "0.090 above the best of the search without a model",
        "0.125 in human-normalised score", "Their intervals overlap", "0.910, 0.930, 0.950",
        "Pearson 0.710", "Spearman 0.830",
        "openai: a-model (language model)", "no result within 30 s", "clock decided",
        "A person's words to iteration 3", "task.horizon", "budget was 1, in", "270,000",
    ):  # fmt: skip
        assert words in text, words
    rows = page(tmp_path).all("tr")
    assert sum(row.get("class") == "best" for row in rows) == 1


def test_terms_are_never_presented_as_a_language_model(tmp_path):
    text = page(tmp_path, proposer="terms", language_model=False, terms=None).text
    assert "terms (no language model)" in text and "No language model took part" in text
    assert "(language model)" not in text and "language model's" not in text


def test_a_replay_says_so(tmp_path):
    text = page(tmp_path, proposer="replay", language_model=False).text
    assert "come from a transcript" in text and "language model's" not in text


def test_a_worse_model_is_said_to_be_worse(tmp_path):
    text = page(tmp_path, terms=Result("i1_s00", 0.99)).text
    assert "0.060 below the best of the search without a model" in text


def test_short_trainings_are_not_compared_with_final_ones(tmp_path):
    shown = page(tmp_path, finals=()).text
    assert "is not known yet" in shown and "best of terms" not in shown
    assert "From the search's own short trainings" in shown


def test_what_has_no_interval_is_not_said_to_have_one(tmp_path):
    one = tuple(Result(result.id, 0.0, per_seed=(0.0,)) for result in example().finals)
    bare = tuple(dataclasses.replace(c, low=None, high=None) for c in example().candidates)
    text = page(tmp_path, finals=one, candidates=bare).text
    assert "95% interval" not in text
    assert "human-normalised score: none" in text


def test_a_weak_sandbox_is_marked(tmp_path):
    chips = page(tmp_path, sandbox="weak: limits").all("li")
    assert any(chip.get("class") == "warn" for chip in chips)
    assert not any(chip.get("class") == "warn" for chip in page(tmp_path).all("li"))


@pytest.mark.parametrize(
    "changes",
    [
        {"candidates": ()},
        {"candidates": (trained("human", 0, 0.8),)},
        {"candidates": (Candidate("i1_s00", 1),), "best": "i1_s00", "status": "running"},
        {"candidates": (trained("i1_s00", 1, 0.0), trained("i1_s01", 1, 0.0)), "best": "i1_s00"},
        {"candidates": (trained("i1_s00", 1, -1e9),), "best": "i1_s00"},
        {"candidates": (trained("i1_s00", 1, 1e300), trained("i1_s01", 1, -1e300))},
        {"best": "not there", "finals": ()},
    ],
    ids=["none", "baseline", "waiting", "equal", "negative", "huge", "lost"],
)
def test_any_state_of_a_search_has_a_report(changes, tmp_path):
    empty = {"best": None, "finals": (), "costs": (), "settings": {}, "reflections": {}}
    assert "Reward search" in page(tmp_path, **{**empty, **changes}).text


@given(st.lists(st.floats() | st.sampled_from([1e308, -1e308, 5e-324]), max_size=12))
def test_any_curve_can_be_drawn(values):
    drawn = Page(curve("x", [float(i) for i in range(len(values))], values))
    for shape in drawn.tags:
        for text in shape[1].values():
            assert "nan" not in (text or "") and "inf" not in (text or "")


def test_differences_show_what_was_added_and_removed():
    lines = Page(difference("a\nb\nc\n", "a\nB\nc\n")).all("span")
    assert [line.get("class") for line in lines] == ["place", None, "removed", "added", None]
    assert "same" in difference("a", "a")
    long = "x\n" * (MAX_COMPARED_LINES + 1)
    assert "Too long" in difference(long, "y\n" * 3)


def test_small_videos_lie_in_the_page_and_large_ones_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "MAX_EMBEDDED", 100)
    folder = tmp_path / "videos"
    folder.mkdir()
    videos = (
        Video(blank_file(folder / "small.mp4", 10), "small"),
        Video(blank_file(folder / "a large one.mp4", 1000), "large"),
        Video(folder / "missing.mp4", "missing"),
    )
    shown = page(tmp_path, videos=videos)
    small, large = [video["src"] or "" for video in shown.all("video")]
    assert small.startswith("data:video/mp4;base64,")
    assert large == "videos/a%20large%20one.mp4"
    assert "missing.mp4 can't be read" in shown.text


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
    path = write_report(example(), tmp_path / "new" / "report.html")
    before = path.read_bytes()
    assert len(before) < 300_000
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't write the report"):
        write_report(example(), tmp_path / "file" / "report.html")


# --- untrusted texts


def hostile(text: str):
    """A report in which every untrusted text is this one."""
    candidates = (
        trained("human", 0, 0.8),
        trained("i1_s00", 1, 0.5, source=f"first\n{text}", names=(text,), reason=text),
        trained("i2_s00", 2, 0.6, source="second", parent="i1_s00"),
        Candidate("i2_s01", 2, "failed", f"reason: {text}", text),
    )
    return example(
        description=text, proposer=text, candidates=candidates, best="i2_s00",
        finals=(Result("i2_s00", None, status="failed", reason=text),),
        no_video=text, correlation=None, no_correlation=text, terms=None, no_terms=text,
        reflections={1: text}, feedback={1: text}, settings={"key": text}, command="x " + text,
    )  # fmt: skip


ANY_TEXT = st.text(
    st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1
)


@settings(max_examples=25)
@given(ANY_TEXT | st.sampled_from([ATTACK, "</pre></style><b>", "]]>", "<!--", "&lt;", "\ud800"]))
def test_no_text_changes_the_structure_of_the_page(text):
    made = render_report(hostile(text), report_module.Path("."))
    made.encode("utf-8")
    plain = Page(render_report(hostile("text"), report_module.Path(".")))
    assert [tag for tag, _ in Page(made).tags] == [tag for tag, _ in plain.tags]


def test_nothing_is_loaded_and_only_our_script_is_there(tmp_path):
    shown = page(tmp_path)
    assert len(shown.all("script")) == 1 and "src" not in shown.all("script")[0]
    for tag, attributes in shown.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:video/mp4;base64,"))
    policy = next(meta["content"] for meta in shown.all("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy


def test_texts_show_what_they_are_made_of():
    assert visible("a\u202eb\x00\ud800") == "a\\u202eb\\x00\\ud800"
    assert visible("a\tb\n") == "a\tb\n"
    assert "more characters" in visible("x" * 10**6)
    assert element("a", "<", href='"><x>') == '<a href="&quot;&gt;&lt;x&gt;">&lt;</a>'


# --- in a browser


@pytest.fixture
def browse(tmp_path):
    """Shows a page; returns its document after scripts ran, and its picture."""
    if BROWSER is None:
        pytest.skip("no chromium here: make system-deps")

    def show(text: str, width: int = 1200, *options: str) -> tuple[Page, np.ndarray]:
        file, picture = tmp_path / "page.html", tmp_path / "page.png"
        file.write_text(text, encoding="utf-8")
        picture.unlink(missing_ok=True)
        command = [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1600", *options,
            f"--screenshot={picture}", "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
        with Image.open(picture) as image:
            return Page(done.stdout), np.array(image.convert("RGB"))

    return show


def title(shown: Page) -> str:
    """What stands in the document's own title, the first one."""
    at = [text for text in shown.texts if text.strip()]
    return at[0]


@pytest.mark.timeout(400)  # a browser may start slowly
def test_a_browser_shows_it_in_light_and_dark(browse, tmp_path):
    text = render_report(example(), tmp_path)
    shown, light = browse(text)
    assert title(shown) == "Reward search: planar_reach"
    assert len(shown.all("button")) >= 7  # made by the script: it may run
    dark = browse(text, 1200, "--blink-settings=preferredColorScheme=0")[1]
    assert light.mean() > 200 and dark.mean() < 80
    for picture in (light, dark):
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 200
        rows = np.ptp(picture.astype(int), axis=(1, 2)) > 60  # lines of pixels with something
        assert rows.mean() > 0.3


@pytest.mark.timeout(400)  # a browser may start slowly
def test_a_script_that_slipped_through_does_not_run(browse, tmp_path):
    slipped = render_report(example(), tmp_path).replace("</main>", f"{ATTACK}</main>")
    assert title(browse(slipped)[0]) == "Reward search: planar_reach"
    unguarded = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", slipped)
    assert title(browse(unguarded)[0]) == "owned"


@pytest.mark.timeout(400)  # a browser may start slowly
def test_a_phone_need_not_scroll_sideways(browse, tmp_path):
    wide = trained("i1_s00", 1, 0.5, reason="x" * 500, source="y" * 500 + "\n")
    data = example(description="z" * 300, command="w" * 300)
    data = dataclasses.replace(data, candidates=(*data.candidates[3:], wide))
    text = render_report(data, tmp_path).replace("<details", "<details open")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    probe = "<script>document.title = document.documentElement.scrollWidth - innerWidth</script>"
    shown, picture = browse(text.replace("</body>", f"{probe}</body>"), 400)
    assert picture.shape[1] == 400
    assert title(shown) == "0"
