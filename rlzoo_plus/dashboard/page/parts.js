"use strict";
// Parts of pages. Texts of runs become text nodes and attributes, never HTML.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (d) return `${d}d${String(h).padStart(2, "0")}h`;
  if (h) return `${h}h${String(m).padStart(2, "0")}m`;
  return m ? `${m}m${String(Math.round(seconds) % 60).padStart(2, "0")}s` : `${Math.round(seconds)}s`;
}

function when(seconds) {
  if (!seconds) return "-";
  const date = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

function badge(run) {
  return el("span", { class: `state ${run.state}`, title: run.reason || run.state }, run.state);
}

function runLink(run, text = run.name) {
  return el("a", { href: `#/run/${run.id}`, title: run.path, class: "run" }, text);
}

function starButton(run, after) {
  const button = el("button", { class: "star", "aria-label": `star ${run.name}`, "aria-pressed": String(run.star), disabled: !LIVE }, run.star ? "★" : "☆");
  button.addEventListener("click", async () => {
    run.star = !run.star;
    button.textContent = run.star ? "★" : "☆";
    button.setAttribute("aria-pressed", String(run.star));
    await save(run);
    after?.();
  });
  return button;
}

async function save(run) {
  try {
    await writeNotes(run);
    say("Saved");
  } catch (error) {
    say(error.message, true);
  }
}

function say(text, isError = false) {
  const node = document.getElementById("status");
  node.textContent = text;
  node.classList.toggle("error", isError);
}

function select(label, value, options, onChange) {
  const box = el("select", { "aria-label": label, onchange: () => onChange(box.value) });
  for (const option of options) {
    const [name, text] = Array.isArray(option) ? option : [option, option];
    box.append(el("option", { value: name, selected: name === value }, text));
  }
  return el("label", { class: "control" }, el("span", {}, label), box);
}

function check(label, value, onChange) {
  const box = el("input", { type: "checkbox", checked: value, onchange: () => onChange(box.checked) });
  return el("label", { class: "control check" }, box, el("span", {}, label));
}

// A list of names to tick, with a filter above it.
function picker(label, names, chosen, onChange) {
  const list = el("div", { class: "list" });
  const boxes = names.map((name) => {
    const box = el("input", { type: "checkbox", value: name, checked: chosen.includes(name) });
    box.addEventListener("change", () => onChange([...list.querySelectorAll("input:checked")].map((each) => each.value)));
    const row = el("label", {}, box, ` ${name}`);
    list.append(row);
    return [name, row];
  });
  const filter = el("input", { type: "search", placeholder: "filter", "aria-label": `filter ${label}` });
  filter.addEventListener("input", () => {
    for (const [name, row] of boxes) row.hidden = !name.toLowerCase().includes(filter.value.toLowerCase());
  });
  const head = el("summary", {}, label);
  return el("details", { class: "picker" }, head, el("div", { class: "drop" }, filter, list));
}

// A table whose heads sort. Columns: id, name, value(row), optional cell(row), isRight.
function table(columns, rows, options = {}) {
  const sort = options.sort || "";
  const [by, isDown] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  const column = by && columns.find((each) => each.id === by);
  let sorted = rows;
  if (column) {
    const sign = isDown ? -1 : 1;
    sorted = [...rows].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
    });
  }
  const heads = columns.map((each) => {
    const mark = each.id === by ? (isDown ? " ↓" : " ↑") : "";
    const button = el("button", { title: each.title || each.name }, each.name + mark);
    if (options.onSort) button.addEventListener("click", () => options.onSort(each.id === by && !isDown ? `-${by}` : each.id));
    const order = each.id === by ? (isDown ? "descending" : "ascending") : "none";
    return el("th", { scope: "col", "aria-sort": order, class: each.isRight ? "right" : null }, each.id && options.onSort ? button : each.name);
  });
  const limit = options.limit || 100;
  const body = el("tbody");
  const fill = (from, to) => {
    for (const row of sorted.slice(from, to)) {
      const cells = columns.map((each) => {
        const content = each.cell ? each.cell(row) : number(each.value(row), 5);
        return el("td", { class: each.isRight ? "right" : null }, content);
      });
      body.append(el("tr", { class: row.rowClass, "data-id": row.id }, cells));
    }
  };
  fill(0, limit);
  const node = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": options.label || "table" },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  const box = el("div", {}, node);
  if (sorted.length > limit) {
    const more = el("button", { class: "more" }, `Show all ${sorted.length} rows`);
    more.addEventListener("click", () => {
      fill(limit, sorted.length);
      more.remove();
    });
    box.append(more);
  }
  return box;
}

function bars(shares) {
  const entries = Object.entries(shares);
  if (!entries.length) return el("p", { class: "faint" }, "Importance needs at least four finished runs that differ in their values.");
  return el("div", { class: "bars" }, entries.map(([name, share]) => el("div", {},
    el("span", { class: "name", title: name }, name.replace("algo.hyperparams.", "")),
    el("meter", { value: share, min: 0, max: 1, "aria-label": name }),
    el("span", { class: "right" }, `${(100 * share).toFixed(1)} %`))));
}

// A chart that is drawn once it comes into view.
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    entry.target.draw();
  }
}, { rootMargin: "200px" });

function chartBox(title, draw) {
  const plot = el("div", { class: "plot" });
  const box = el("figure", { class: "chart" }, el("figcaption", {}, title), plot);
  box.draw = async () => {
    try {
      plot.textContent = "";
      const problem = await draw(plot);
      if (problem) plot.append(el("p", { class: "faint" }, problem));
    } catch (error) {
      plot.append(el("p", { class: "error" }, error.message));
    }
  };
  seen.observe(box);
  return box;
}

// The names of groups with the look of their curves; a click hides one in all charts.
function legend(groups, hidden, update) {
  return el("div", { class: "legend", role: "group", "aria-label": "curves" }, groups.map((group) => {
    const { color: stroke, dash } = look(group.look);
    const line = svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke, "stroke-width": 3, "stroke-dasharray": { solid: "none", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" }[dash] });
    const button = el("button", { "aria-pressed": String(!hidden.has(group.name)), title: group.name }, svg("svg", { viewBox: "0 0 26 10", width: 26, height: 10 }, line), ` ${group.name}`, el("span", { class: "faint" }, ` ${group.members.length > 1 ? `${group.members.length} runs` : ""}`));
    button.addEventListener("click", () => {
      if (!hidden.delete(group.name)) hidden.add(group.name);
      update();
    });
    return button;
  }));
}

function notesEditor(run, after) {
  if (!LIVE) {
    const texts = [run.tags.length ? `Tags: ${run.tags.join(", ")}. ` : "", run.note];
    return texts.join("") ? el("p", { class: "note" }, texts) : el("span");
  }
  const tags = el("input", { value: run.tags.join(", "), placeholder: "tags, with commas", "aria-label": "tags" });
  const note = el("textarea", { placeholder: "a note", rows: 2, "aria-label": "note" });
  note.value = run.note;
  const keep = async () => {
    run.tags = tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    run.note = note.value;
    await save(run);
    after?.();
  };
  tags.addEventListener("change", keep);
  note.addEventListener("change", keep);
  return el("div", { class: "notes" }, starButton(run, after), tags, note);
}

function copyable(text) {
  const button = el("button", {}, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = "Copied";
  });
  return el("div", { class: "command" }, el("code", {}, text), button);
}
