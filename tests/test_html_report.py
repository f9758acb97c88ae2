"""The report of a session: what it says, that nothing in it runs, that it stays small."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import llm_logs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from warpdeck.cli.app import run
from warpdeck.core.errors import UsageError
from warpdeck.sessions import html_elements as html
from warpdeck.sessions import html_lanes, html_plots, paths
from warpdeck.sessions.events import Event
from warpdeck.sessions.html_report import report, write_report
from warpdeck.sessions.launch import launch_run
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

RECORDINGS = Path(sys.modules["warpdeck.sessions"].__file__ or "").parents[1] / "kernels/softmax/recordings"
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section"),
    *("h1", "h2", "h3", "h4", "p", "b", "i", "small", "dl", "dt", "dd", "div", "span", "ul", "ol", "li"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "code", "pre", "a", "details", "summary"),
    *("figure", "figcaption", "svg", "g", "path", "text", "rect"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "name",
        "content",
        "http-equiv",
        "class",
        "id",
        "href",
        "title",
        "style",
        "tabindex",
    ),
    *("scope", "role", "aria-label", "viewBox", "d", "x", "y", "text-anchor", "transform", "width", "height"),
    *("fill", "font-family", "font-size", "textLength", "lengthAdjust", "xmlns"),
}
HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></code></style></title><script src=//evil.example/x.js></script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<svg/onload=alert(1)>",
    "<!--",
    "]]><iframe srcdoc='<script>1</script>'>",
    "javascript:alert(1)",
    "&lt;b&gt;&#x3c;script&#x3e;",
    "left \u202eright\u2066 \x00\x1b[31m \ud800",
]
FREE = {
    "idea",
    "summary",
    "verdict",
    "reason",
    "message",
    "text",
    "detail",
    "workload",
    "agent",
    "space",
    "clock",
}


def written(sessions: Path, events: list[Event], name: str = "made", **header: Any) -> Path:
    with SessionStore.create(sessions, name, {"workload": "row_sum", **header}) as store:
        store.append_many([(e.kind, e.data, e.t) for e in events])
        return store.folder


def parsed(text: str) -> Element:
    """By the algorithm that browsers have; raises for what isn't valid HTML."""
    return html5lib.HTMLParser(strict=False, namespaceHTMLElements=False).parse(text)


def elements(root: Element) -> Iterator[tuple[str, Element]]:
    for each in root.iter():
        if isinstance(each.tag, str):
            yield each.tag.rpartition("}")[2], each


def words(root: Element) -> str:
    return " ".join("".join(root.itertext()).split())


def headings(root: Element) -> list[str]:
    return ["".join(each.itertext()) for name, each in elements(root) if name == "h2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run on the recording that ships."""
    home = tmp_path_factory.mktemp("report")
    spec = RunSpec("softmax", agent="random", device="recorded:h200", sizes=(1024, 4096), steps=60, seed=3)
    launched = launch_run(spec, name="recorded-run", sessions=home)
    assert launched.wait(120) == 0
    return launched.folder


def test_a_real_run_is_told_whole(finished: Path) -> None:
    root = parsed(report(finished))
    text = words(root)
    with SessionStore.open(finished) as store:
        state = store.state()
    result = state.result
    assert result is not None
    assert headings(root) == [
        "Protocol",
        "Result",
        "Sizes",
        "Progress",
        "Leaderboard",
        "Knobs",
        "Heatmap",
    ]
    assert "Recorded: nothing was measured for this session; recorded on NVIDIA H200" in text
    assert "Provisional" not in text
    best = result["best"]
    assert f"{best['speedup']:.3f}×" in text
    assert f"{best['speedup_ci'][0]:.3f} to {best['speedup_ci'][1]:.3f}" in text
    assert all(f"{case['vendor_ratio']:.3f}×" in text for case in result["cases"] if case["vendor_ratio"])
    assert ", ".join(f"{n} {status}" for status, n in state.counts.items()) in text
    drawn = {str(each.get("class")): str(each.get("d")) for name, each in elements(root) if name == "path"}
    assert {"curve chance", "level vendor", "level floor", "band best", "line best"} <= drawn.keys()
    # A random search's expectation rises to the right, and the best lies within its interval.
    chance = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", drawn["curve chance"])]
    assert len(chance) > 20 and chance == sorted(chance, reverse=True)
    assert "random search, expected" in text and "torch.softmax 1." in text
    board = next(each for name, each in elements(root) if each.get("id") == "leaderboard")
    rows = [each for name, each in elements(board) if name == "tr"][1:]
    assert len(rows) == len(state.leaderboard)
    marked = [row for row in rows if row[1].text == "="]
    assert len(marked) == (len(state.tied) if len(state.tied) > 1 else 0)


def test_nothing_is_fetched_and_nothing_runs(finished: Path) -> None:
    text = report(finished)
    policy = next(e.get("content") for n, e in elements(parsed(text)) if e.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not re.search(r"url\(|@import|\bsrc=", text)
    hosts = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert hosts <= {"http://www.w3.org/2000/svg"}  # the name of a namespace
    assert_harmless(parsed(text))


def assert_harmless(root: Element) -> None:
    for name, each in elements(root):
        assert name in ELEMENTS, name
        for key, value in each.attrib.items():
            assert str(key).rpartition("}")[2] in ATTRIBUTES, key
            assert not str(key).endswith("xmlns") or value == "http://www.w3.org/2000/svg"
            assert key != "href" or re.fullmatch(r"#attempt-\d+", value)
            assert key != "style" or re.fullmatch(r"width:[\d.]+%", value)


def hostile(value: Any, text: str, key: str = "") -> Any:
    """The same data with a hostile text in every place for words."""
    if isinstance(value, Mapping):
        return {
            (f"{text}{k}" if key == "config" else k): hostile(v, text, "value" if key == "config" else k)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [hostile(each, text, key) for each in value]
    if isinstance(value, str) and key in {*FREE, "name", "value", "driver"}:
        return f"{value}{text}"
    return value


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_text(isolated_home: Path, text: str) -> None:
    events = [e._replace(data=hostile(e.data, text)) for e in llm_logs.llm_events()]
    events.append(Event(len(events) + 1, events[-1].t, "message", {"level": "warning", "text": text}))
    folder = written(paths.home().sessions, events, command=f"warpdeck tune {text}")
    llm_logs.write_sources(folder)
    for file in (folder / "artifacts").rglob("*.cu"):
        file.write_text(file.read_text() + text.encode("utf-8", "replace").decode(), encoding="utf-8")
    target = write_report(folder, isolated_home)
    root = parsed(target.read_text(encoding="utf-8"))
    assert_harmless(root)
    assert {"Attempts", "Messages"} <= set(headings(root))
    expected = " ".join(html.visible(text).split())
    assert words(root).count(expected) >= 8


def test_what_would_reorder_or_hide_is_shown(isolated_home: Path) -> None:
    assert html.visible("a\u202eb\x1b[0m\u200b\ud800") == r"a\u202eb\u001b[0m\u200b\ud800"
    assert html.render("line\nnext\tcolumn × µ") == "line\nnext\tcolumn × µ"


@given(st.text())
def test_any_text_comes_back_from_the_parser(text: str) -> None:
    root = parsed(f"<!DOCTYPE html><body>{html.tag('p', text, title=text)}</body>")
    shown = html.visible(text.replace("\r\n", "\n"))
    paragraph = next(each for name, each in elements(root) if name == "p")
    assert "".join(paragraph.itertext()) == shown
    assert paragraph.get("title") == shown
    assert len(list(paragraph)) == 0


def test_attempts_have_their_changes(isolated_home: Path) -> None:
    folder = written(paths.home().sessions, llm_logs.llm_events())
    llm_logs.write_sources(folder)
    root = parsed(report(folder))
    second = next(each for _, each in elements(root) if each.get("id") == "attempt-2")
    added = ["".join(e.itertext()) for _, e in elements(second) if e.get("class") == "add"]
    removed = ["".join(e.itertext()) for _, e in elements(second) if e.get("class") == "del"]
    assert any("warp_sum" in line for line in added) and any("One thread a row" in line for line in removed)
    assert "Not ended" in words(root)
    first = next(each for _, each in elements(root) if each.get("id") == "attempt-1")
    assert "straight from the definition" in words(first)


def test_a_source_outside_the_session_is_not_read(isolated_home: Path) -> None:
    secret = isolated_home / "secret.cu"
    secret.write_text("the secret")
    events = [
        e._replace(data={**e.data, "source": "../../secret.cu"}) if e.kind == "attempt" else e
        for e in llm_logs.llm_events()
    ]
    folder = written(paths.home().sessions, events)
    (folder / "artifacts/linked.wdtrace").symlink_to(secret)
    text = report(folder)
    assert "the secret" not in text and "Timeline" not in headings(parsed(text))


def test_an_emulated_run_shows_no_times(isolated_home: Path) -> None:
    root = parsed(report(written(paths.home().sessions, llm_logs.ladder_events(llm_logs.CPU))))
    text = words(root)
    assert "Emulated on the CPU: results are right or wrong" in text
    assert "Leaderboard" not in headings(root) and "speedup over the baseline" not in text


def test_a_trace_and_a_profile_that_the_session_holds(finished: Path, isolated_home: Path) -> None:
    folder = isolated_home / "with"
    shutil.copytree(finished, folder)
    shutil.copy(RECORDINGS / "h200-softmax-classic-1024.wdtrace", folder / "artifacts/best.wdtrace")
    shutil.copy(RECORDINGS / "h200-softmax-classic-1024.counters.json.gz", folder / "artifacts")
    (folder / "artifacts/broken.counters.json.gz").write_bytes(b"nothing")
    root = parsed(report(folder))
    assert {"Timeline", "Counters"} <= set(headings(root))
    text = words(root)
    assert "128 of 16 CTAs" in text and "of the memory roof" in text and "latency bound" in text
    roof = next(e for n, e in elements(root) if n == "figure" and "Roofline" in words(e))
    assert "DRAM 4.45 TB/s measured" in words(roof) and "to gain" in words(roof)
    (dram,) = [e.get("d") for n, e in elements(roof) if n == "path" and e.get("class") == "curve roof"]
    slope = [tuple(map(float, pair.split())) for pair in str(dram)[1:].split("L")]
    assert len(slope) == 3 and slope[0][1] > slope[1][1] == slope[2][1]  # up to the ridge, then level
    lanes = next(each for _, each in elements(root) if each.get("class") == "lanes")
    assert [e.text for n, e in elements(lanes) if n == "title"][1:] == [
        "load",
        "wait",
        "reduce",
        "compute",
        "store",
    ]
    assert_harmless(root)


def test_lanes_show_the_innermost_stage() -> None:
    from warpdeck.core.tracing import read

    timeline = read(RECORDINGS / "h200-softmax-classic-1024.wdtrace")
    slices = timeline.slices
    row = int(slices.row[0])
    which = np.flatnonzero((slices.row == row) & (slices.kind == 0))
    cover = html_lanes.innermost(timeline, which, timeline.span_ns)
    centres = (np.arange(html_lanes.COLUMNS) + 0.5) * timeline.span_ns / html_lanes.COLUMNS
    for centre, stage in zip(centres, cover, strict=True):
        inside = which[(slices.start_ns[which] <= centre) & (centre < slices.end_ns[which])]
        expected = -1 if not len(inside) else slices.stage[inside[np.argmax(slices.depth[inside])]]
        assert stage == expected


def test_a_long_session_stays_small(isolated_home: Path) -> None:
    count = 20_000
    columns = {
        "step": list(range(1, count + 1)),
        "reward": np.random.default_rng(0).normal(size=count).tolist(),
        "speedup": np.random.default_rng(1).lognormal(size=count).tolist(),
        "best_speedup": list(np.linspace(1, 3, count)),
    }
    long = Event(10**6, llm_logs.START + 1e4, "steps", columns)
    events = llm_logs.llm_events()
    huge = "x" * 1_000_000
    more = [Event(0, llm_logs.START + 1e4, "message", {"level": "info", "text": huge})] * 3
    text = report(written(paths.home().sessions, [*events, long, *more]))
    assert len(text.encode()) < 700_000
    assert "(1,000,000 characters)" in text


@given(arrays(np.float64, st.integers(1, 3000), elements=st.floats(-1e3, 1e3)))
def test_stairs_lose_no_extreme(y: np.ndarray) -> None:
    """However many points share a column, the path reaches the least and the greatest of all."""
    path = html_plots.stairs(np.linspace(0, 50, len(y)), y)
    heights = [float(v) for v in re.findall(r"(?:V|M[-\d.]+ )(-?[\d.]+)", path)]
    assert min(heights) == pytest.approx(y.min(), abs=0.11) and max(heights) == pytest.approx(
        y.max(), abs=0.11
    )
    assert heights[-1] == pytest.approx(y[-1], abs=0.11)
    assert len(path) < 60 * 501


def test_a_plot_of_a_million_points_is_bounded_and_keeps_outliers() -> None:
    x = np.arange(1_000_000)
    y = np.random.default_rng(0).uniform(1, 2, len(x))
    y[123_456] = 9.0
    picture = html_plots.plot("t", [html_plots.Layer.of("dots", "each", "each", x, y)])
    assert len(picture) < 400_000
    root = parsed(str(picture))
    dots = next(e.get("d") for n, e in elements(root) if n == "path" and "dots" in str(e.get("class")))
    places = [tuple(map(float, pair)) for pair in re.findall(r"M([\d.]+) ([\d.]+)h0", str(dots))]
    top = min(places, key=lambda place: place[1])
    across = html_plots.LEFT + 0.123456 * (html_plots.WIDTH - html_plots.LEFT - html_plots.RIGHT)
    assert top[0] == pytest.approx(across, abs=2) and sorted(p[1] for p in places)[1] > top[1] + 100


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=200))
def test_a_band_is_between_its_edges(ends: list[tuple[float, float]]) -> None:
    """The picture's least and greatest heights are those of all edges, and all is inside of the axes."""
    low, high = np.array([min(e) for e in ends]), np.array([max(e) for e in ends])
    band = html_plots.Layer.of("band", "95%", "best", np.arange(len(ends)), low, high)
    path = next(
        str(e.get("d"))
        for _, e in elements(parsed(str(html_plots.plot("t", [band]))))
        if e.get("class") == "band best"
    )
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert min(heights) >= html_plots.TOP and max(heights) <= html_plots.HEIGHT - html_plots.BOTTOM
    if np.ptp([low.min(), high.max()]) > 1e-6:
        room = html_plots.HEIGHT - html_plots.TOP - html_plots.BOTTOM
        assert max(heights) - min(heights) == pytest.approx(room / 1.08, abs=0.5)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_round_and_within(low: float, span: float) -> None:
    found = html_plots.ticks(low, low + span)
    assert len(found) <= html_plots.TICKS + 1
    slack = span * 1e-6 + abs(low) * 1e-12
    assert all(low - slack <= tick <= low + span + slack for tick in found)
    assert found == sorted(found)


def test_a_damaged_session_is_told(isolated_home: Path) -> None:
    event = Event(
        1, llm_logs.START, "start", {"workload": "w", "agent": "a", "cases": [{"name": 1, "params": 3}]}
    )
    odd = Event(
        2, llm_logs.START, "evaluation", {"candidate": "c", "variant": "v", "config": 3, "status": "odd"}
    )
    folder = written(paths.home().sessions, [event, odd])
    with pytest.raises(UsageError, match="session made is damaged"):
        report(folder)


def test_the_command_writes_it(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "r.html"
    assert run(["sessions", "export", str(finished), "--html", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.read_text(encoding="utf-8") == report(finished)
    assert run(["sessions", "export", str(finished), "--html", "-"]) == 0
    assert capsys.readouterr().out.strip() == target.read_text(encoding="utf-8").strip()
    assert run(["sessions", "export", str(finished), "--html", str(tmp_path / "no/r.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert run(["sessions", "export", str(finished), "--html", str(target), "--csv"]) == 2
    assert "exclude each other" in capsys.readouterr().err
