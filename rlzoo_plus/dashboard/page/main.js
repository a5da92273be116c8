"use strict";
// Which page is shown, and when it is asked for again.

const PAUSE_MS = { reading: 700, running: 3000, still: 10000 };
let everything = null, page = null, version = "";

function chosenLink() {
  const ids = route().query.get("sel") || route().query.get("ids") || "";
  const count = ids ? ids.split(",").length : 0;
  document.getElementById("chosen").textContent = count ? ` (${count})` : "";
  document.querySelector("[data-page=compare]").href = count ? `#/compare?ids=${ids}` : "#/compare";
}

async function show() {
  const main = document.getElementById("main");
  const { page: name, id } = route();
  const makers = { home, runs: runsPage, run: runPage, compare: comparePage, study: studyPage };
  try {
    page = await (Object.hasOwn(makers, name) ? makers[name] : home)(everything, id);
  } catch (error) {
    page = el("p", { class: "error" }, error.message);
  }
  main.replaceChildren(page);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = main.querySelector("h1")?.textContent;
  document.title = title ? `${title} - rlzoo-plus` : "rlzoo-plus";
  chosenLink();
}

// What a page does when runs have changed: nothing if they are not among its own.
function onlyIfNew(ownRuns, update) {
  let before = JSON.stringify(ownRuns());
  return () => {
    const now = JSON.stringify(ownRuns());
    if (now === before) return;
    before = now;
    update();
  };
}

async function refresh() {
  let pause = PAUSE_MS.still;
  try {
    const all = await load("runs", true);
    if (all.left) pause = PAUSE_MS.reading;
    else if (all.runs.some((run) => run.state === "running")) pause = PAUSE_MS.running;
    say(all.left ? `${all.left} runs are still to be read ...` : "");
    const now = JSON.stringify(all.runs) + all.left;
    if (now !== version) {
      const isFirst = everything === null;
      version = now;
      // What somebody writes or points at stays.
      const isWriting = ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement?.tagName)
        || document.querySelector(".chart:hover, svg.parallel:hover, .picker[open], dialog");
      if (isFirst || !isWriting) {
        const wasReading = everything?.left;
        everything = prepared(all, everything);
        document.getElementById("place").textContent = all.place;
        // The first chart need not wait for it then.
        if (isFirst) setTimeout(withPlotly, 300);
        if (isFirst || wasReading || !page?.update) await keepingPlace(show);
        else page.update();
      } else {
        version = "";
      }
    }
  } catch (error) {
    say(everything ? "The server does not answer." : error.message, true);
  }
  if (LIVE) setTimeout(refresh, document.hidden ? PAUSE_MS.still : pause);
}

async function keepingPlace(act) {
  const { scrollY } = window;
  const open = [...document.querySelectorAll("main details")].map((node) => node.open);
  await act();
  const nodes = [...document.querySelectorAll("main details")];
  if (nodes.length === open.length) nodes.forEach((node, i) => (node.open = open[i]));
  window.scrollTo(0, scrollY);
}

const KEYS = {
  "/": ["search", () => document.getElementById("search")?.focus()],
  h: ["first page", () => (location.hash = "#/")],
  r: ["runs", () => (location.hash = "#/runs")],
  c: ["compare what is selected", () => document.querySelector("[data-page=compare]").click()],
  j: ["next row", () => step(1)],
  k: ["row before", () => step(-1)],
  x: ["select the row", () => row()?.querySelector("input[type=checkbox]")?.click()],
  s: ["star the row or run", () => (row() || document).querySelector(".star")?.click()],
  "?": ["these keys", help],
};
let at = null;

function row() {
  return at === null ? null : document.querySelector(`tbody tr[data-id="${CSS.escape(at)}"]`);
}

function step(by) {
  const rows = [...document.querySelectorAll("main tbody tr")];
  if (!rows.length) return;
  const next = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(row()) + by))];
  document.querySelector("tr.at")?.classList.remove("at");
  at = next.dataset.id;
  next.classList.add("at");
  next.querySelector("a")?.focus();
}

function help() {
  const box = el("dialog", {}, el("h2", {}, "Keys"), el("dl", {}, Object.entries(KEYS).flatMap(([key, [text]]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
    el("p", { class: "faint" }, "In charts: drag to zoom, double-click to see all, click a name to hide a curve."), el("form", { method: "dialog" }, el("button", {}, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

document.addEventListener("keydown", (event) => {
  const isTyping = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox";
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS) || document.querySelector("dialog")) return;
  event.preventDefault();
  KEYS[event.key][1]();
});
document.getElementById("help").addEventListener("click", help);
window.addEventListener("hashchange", async () => {
  window.scrollTo(0, 0);
  zooms.clear();
  if (everything) await show();
  document.getElementById("main").focus({ preventScroll: true });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => everything && show());
refresh();
