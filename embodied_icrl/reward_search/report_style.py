"""The report's style sheet, its one script, and the policy that lets nothing else run."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { color-scheme: light dark;
  --page: #fbfbf9; --card: #ffffff; --ink: #1b2025; --faint: #5c6670; --rule: #dde0e3;
  --own: #1f5fbf; --human: #b4590a; --sparse: #6b7280; --total: #2d7a55; --best: #0b3f91;
  --added: #e3f5e8; --removed: #fbe7e5; --good: #1e7a45; --bad: #b3362d; --code: #f4f5f3; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171a; --card: #1b1f23; --ink: #e6e8ea; --faint: #9aa4ad; --rule: #343a40;
  --own: #7aaef5; --human: #f0a35c; --sparse: #9aa4ad; --total: #6cc597; --best: #b5d2ff;
  --added: #173524; --removed: #40201f; --good: #6cc597; --bad: #f08a80; --code: #101316; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 70rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .5rem 0; max-width: 44rem; }
.lead { font-size: 1.1rem; }
.faint { color: var(--faint); }
.warning { color: var(--bad); }
.chips { display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: .8rem 0;
  list-style: none; }
.chips li { border: 1px solid var(--rule); border-radius: 1rem; padding: .05rem .7rem;
  font-size: .85rem; background: var(--card); }
.chips li.warn { border-color: var(--bad); color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem;
  margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: .7rem .9rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.card span { display: block; font-size: .85rem; color: var(--faint); }
.panel { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: .8rem; margin: .8rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }
th button::after { content: " \\2195"; color: var(--faint); }
th[aria-sort=descending] button::after { content: " \\2193"; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
td.n, th.n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
td.id, td.key { white-space: nowrap; overflow-wrap: normal; }
td.why { min-width: 13rem; }
td.why span { display: block; }
td.why .reason { font-size: .85em; font-weight: 400; color: var(--faint); }
tr.best td { font-weight: 600; }
tr.human td:first-child, tr.human td.id { color: var(--human); }
tr.sparse td:first-child, tr.sparse td.id { color: var(--sparse); }
tfoot td { font-weight: 600; }
.status-refused, .status-failed { color: var(--bad); }
.status-trained { color: var(--good); }
.status-stopped, .status-waiting { color: var(--faint); }
a { color: var(--own); }
a:focus-visible, button:focus-visible, summary:focus-visible, pre:focus-visible,
.scroll:focus-visible { outline: 2px solid var(--own); outline-offset: 2px; }
nav { font-size: .9rem; }
nav a { margin-right: .9rem; white-space: nowrap; }
details { border: 1px solid var(--rule); border-radius: .6rem; background: var(--card);
  margin: .5rem 0; padding: 0 .9rem; }
summary { cursor: pointer; padding: .5rem 0; }
summary b { margin-right: .5rem; }
pre { background: var(--code); border: 1px solid var(--rule); border-radius: .4rem;
  padding: .7rem .8rem; margin: .5rem 0 .9rem; overflow-x: auto; overflow-wrap: normal;
  font: .82rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; tab-size: 4; }
pre.prose { white-space: pre-wrap; overflow-wrap: anywhere; }
pre span { display: block; min-height: 1.5em; min-width: max-content; margin: 0 -.8rem;
  padding: 0 .8rem; }
pre .added { background: var(--added); }
pre .removed { background: var(--removed); }
pre .place { color: var(--faint); }
code { font: .85em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
figure { margin: 0; }
figcaption { font-size: .85rem; }
.forest { display: grid; grid-template-columns: auto 320px 1fr; align-items: center;
  column-gap: 1rem; margin: 0; }
.forest dt { grid-column: 1; text-align: right; }
.forest dd { margin: 0; font-variant-numeric: tabular-nums; }
.forest .value { grid-column: 3; } .forest .mark { grid-column: 2; }
.forest { grid-auto-flow: dense; }
@media (max-width: 44rem) {
  .forest { grid-template-columns: auto 1fr; }
  .forest dt { text-align: left; } .forest .value { grid-column: 2; text-align: right; }
  .forest .mark { grid-column: 1 / 3; margin-bottom: .4rem; } }
.videos { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
  gap: .8rem; }
video { display: block; width: 100%; height: auto; border-radius: .6rem;
  border: 1px solid var(--rule); background: #000; }
.multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr));
  gap: .8rem; margin: .6rem 0 .9rem; }
.small figcaption b, .small figcaption span { display: block; }
svg { display: block; max-width: 100%; height: auto; }
svg.glyph { width: 140px; max-width: none; height: 16px; margin-top: .25rem; }
svg.curve { width: 100%; background: var(--code); border-radius: .4rem; margin-top: .2rem; }
svg.row { width: 320px; }
svg.chart { width: 100%; min-width: 34rem; max-width: 56rem; margin: 0 auto; }
svg text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink); }
svg text.tick { fill: var(--faint); }
svg text.strong { fill: var(--best); font-weight: 600; }
svg text.human { fill: var(--human); } svg text.sparse { fill: var(--sparse); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .bar { stroke-width: 3; stroke-linecap: round; opacity: .55; }
svg .thin { stroke-width: 1.5; }
svg .reference { stroke-width: 1.5; stroke-dasharray: 6 4; }
svg .soft { opacity: .45; }
svg .line.own, svg .bar.own { stroke: var(--own); } svg .dot.own { fill: var(--own); }
svg .line.human, svg .bar.human, svg .reference.human { stroke: var(--human); }
svg .dot.human { fill: var(--human); }
svg .line.sparse, svg .bar.sparse, svg .reference.sparse { stroke: var(--sparse); }
svg .dot.sparse { fill: var(--sparse); }
svg .line.total, svg .bar.total { stroke: var(--total); } svg .dot.total { fill: var(--total); }
svg .bar.best { stroke: var(--best); } svg .dot.best { fill: var(--best); }
svg .reference.faint { stroke: var(--faint); }
svg .dot.hollow { fill: var(--card); stroke: var(--own); stroke-width: 1.5; }
@media print { body { max-width: none; } details { break-inside: avoid; } }
"""

# Rows are sorted where they stand; without scripts the table is as it was written.
SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    if (cell.textContent === "") return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") === "descending";
      for (const other of cell.parentNode.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
      const order = (a, b) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        const difference = a - b;
        const result = Number.isNaN(difference) ? a.localeCompare(b) : difference;
        return up ? result : -result;
      };
      body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
    });
  });
}
const open = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
"""


def content_policy() -> str:
    """Content-Security-Policy: this style and this script by their hashes, videos, no network."""
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src 'sha256-{_hash(STYLE)}'",
            f"script-src 'sha256-{_hash(SCRIPT)}'",
            "media-src data: 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
