// The console's one script: what is live, the filter, keys, dialogs, calls of the admin API, and the editor. Pages can be read without it.

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const csrf = one('meta[name="csrf"]')?.content;

// The pages of this server are the only HTML that is ever parsed.
const policy = window.trustedTypes?.createPolicy("weir", { createHTML: (text) => text });
const parsed = (text) => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// === saying ===

let silence;
function say(text, bad = false) {
  const said = one("#said");
  clearTimeout(silence);
  said.classList.toggle("bad", bad);
  said.textContent = text;
  silence = setTimeout(() => { said.textContent = ""; }, bad ? 12000 : 5000);
}

// What is to be said on the next page.
function sayNext(text) { sessionStorage.setItem("say", text); }
const left = sessionStorage.getItem("say");
if (left) {
  sessionStorage.removeItem("say");
  say(left);
}

// === calls ===

function signIn() {
  location.assign("/sign-in?to=" + encodeURIComponent(location.pathname + location.search));
}

// A field of HTTP takes bytes, and a text may hold anything.
const asBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

async function call(method, url, { headers = {}, body } = {}) {
  if (csrf) headers["x-weir-csrf"] = csrf;
  const response = await fetch(url, { method, headers, body, redirect: "error" });
  if (response.status === 401) signIn();
  const answer = await response.json().catch(() => ({}));
  return { ok: response.ok, status: response.status, answer, etag: response.headers.get("etag") };
}

const refusal = ({ status, answer }) => [answer.detail ?? `refused: ${status}`, answer.text].filter(Boolean).join("\n");

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.call) return;
  event.preventDefault();
  const values = new FormData(form);
  const url = form.dataset.url.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values.get(name) ?? ""));
  const message = values.get("message");
  const button = event.submitter;
  if (button) button.disabled = true;
  try {
    const told = await call(form.dataset.call, url, { headers: message ? { "x-weir-message": asBytes(message) } : {} });
    if (!told.ok) return say(refusal(told), true);
    if (form.dataset.told) return tell(one("#" + form.dataset.told), told.answer);
    if (form.closest("dialog, [data-live]")) {
      form.closest("dialog")?.close();
      say(form.dataset.done);
      await refresh();
    } else {
      sayNext(form.dataset.done);
      if (form.dataset.then) location.assign(form.dataset.then);
      else location.reload();
    }
  } catch (error) {
    say(`The gateway does not answer: ${error.message}`, true);
  } finally {
    if (button) button.disabled = false;
  }
});

// What an answer says, and what is to be pasted elsewhere.
function tell(place, { text = "", yaml = "" }) {
  one("p", place).replaceChildren(...ticked(text));
  const paper = one("pre", place);
  paper.textContent = yaml;
  paper.hidden = !yaml;
  place.hidden = false;
  place.focus();
}

// === live ===

let paused = false;
let away = 0;
// Hides again what a filter has hidden, once new rows have come.
let filtered;

// By what something that can have the focus is found again.
const known = (element) => element.getAttribute("href") ?? element.form?.dataset.url ?? element.dataset.fillUrl ?? element.textContent;

// Asks for this page again, and takes over what shows the present. What somebody works in stays.
async function refresh() {
  const url = new URL(location.href);
  url.hash = "";
  const response = await fetch(url, { headers: { accept: "text/html", "x-weir-live": "1" }, redirect: "manual" });
  if (response.type === "opaqueredirect" || response.status === 401) return signIn();
  if (!response.ok) throw new Error(String(response.status));
  const page = parsed(await response.text());
  for (const old of all("[data-live]")) {
    const fresh = page.getElementById(old.id);
    const held = old.contains(document.activeElement) ? document.activeElement : null;
    const selection = getSelection();
    const selects = !selection.isCollapsed && old.contains(selection.anchorNode);
    if (!fresh || held?.matches("input, select, textarea") || selects || old.matches(":has(.pointed)")) continue;
    times(fresh);
    // What somebody has opened stays open.
    for (const details of all("details[id]", old)) {
      const again = one("#" + CSS.escape(details.id), fresh);
      if (again) again.open = details.open;
    }
    if (fresh.innerHTML === old.innerHTML) continue;
    old.replaceChildren(...fresh.childNodes);
    if (held) all(held.tagName, old).find((other) => known(other) === known(held))?.focus({ preventScroll: true });
  }
  filtered?.();
  const badges = all("nav [data-key]", page);
  all("nav [data-key]").forEach((link, at) => {
    if (badges[at] && link.innerHTML !== badges[at].innerHTML) link.replaceChildren(...badges[at].childNodes);
  });
}

const live = all("[data-live]").map((element) => Number(element.dataset.live));
if (live.length) {
  const every = Math.min(...live) * 1000;
  const again = async () => {
    if (!paused && document.visibilityState === "visible") {
      try {
        await refresh();
        if (away > 1) say("The gateway answers again.");
        away = 0;
      } catch {
        away += 1;
        if (away === 2) say("The gateway does not answer. What you see is what it last said.", true);
      }
    }
    setTimeout(again, every);
  };
  setTimeout(again, every);
}
one("#pause")?.addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "Go on" : "Pause";
});

// === times ===

function span(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([length]) => seconds >= length);
  if (first < 0) return "0 s";
  const [[length, unit], next] = [units[first], units[first + 1]];
  const rest = next && first < 2 ? Math.floor((seconds % length) / next[0]) : 0;
  return `${Math.floor(seconds / length)} ${unit}` + (rest ? ` ${rest} ${next[1]}` : "");
}

function times(root) {
  for (const time of all("time[datetime]", root)) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const seconds = Math.round((Date.now() - at) / 1000);
    const due = "due" in time.dataset;
    const text = seconds < 0 ? `${due ? "tried again " : ""}in ${span(-seconds)}` : due ? "is to be tried again" : seconds < 2 ? "now" : `${span(seconds)} ago`;
    if (!time.title) time.title = time.dateTime;
    if (time.textContent !== text) time.textContent = text;
  }
}
times(document);
setInterval(() => times(document), 1000);

// === the filter ===

const filter = one("[data-filter]");
if (filter) {
  const list = one(`#${filter.dataset.filter}`);
  const count = one("#count");
  const total = count?.textContent;
  const texts = new WeakMap();
  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of all("tbody tr", list)) {
      const fits = words.every((word) => textOf(row).includes(word));
      if (row.hidden === fits) row.hidden = !fits;
      shown += fits;
    }
    for (const group of all("details.group", list)) {
      group.hidden = !one("tbody tr:not([hidden])", group);
      if (words.length) group.open = true;
    }
    if (count) count.textContent = words.length ? `${shown.toLocaleString("en")} of ${total}` : total;
    one("#none").hidden = shown > 0;
    list.hidden = shown === 0;
  };
  const typed = () => {
    apply();
    const url = new URL(location.href);
    if (filter.name) {
      if (filter.value) url.searchParams.set(filter.name, filter.value);
      else url.searchParams.delete(filter.name);
      history.replaceState(null, "", url);
    }
  };
  filter.addEventListener("input", typed);
  filter.form.addEventListener("submit", (event) => event.preventDefault());
  filtered = apply;
  if (filter.value) apply();
}

// === dialogs ===

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) {
    const dialog = one("#" + opener.dataset.open);
    for (const place of all("[data-filled]", dialog)) place.textContent = opener.getAttribute(`data-fill-${place.dataset.filled}`);
    for (const form of all("[data-filled-url]", dialog)) form.dataset.url = opener.getAttribute(`data-fill-${form.dataset.filledUrl}`);
    dialog.showModal();
  }
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  if (event.target.matches("dialog")) event.target.close(); // beside it
});

// === the theme ===

one("#theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `weir_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  say(dark ? "Light." : "Dark.");
});

// === keys ===

const keysOn = one("#keys-on");
if (keysOn) {
  keysOn.checked = localStorage.getItem("keys") !== "off";
  keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));
}
let lead = 0;
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, textarea, select");
  if (event.key === "Escape" && typing && !one("dialog[open]")) event.target.blur();
  if (!keysOn?.checked || typing || event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
  if (Date.now() - lead < 1500) {
    lead = 0;
    const link = one(`nav [data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
      return;
    }
  }
  if (event.key === "g") lead = Date.now();
  if (event.key === "?") one("#help").showModal();
  if (event.key === "/") {
    const field = one("#filter") ?? one("#url");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  }
});

// === charts ===

// Shows the values at a share of the width: under a pointer or a finger, or where the arrow keys have come to.
function point(plot, share) {
  for (const other of all(".plot.pointed")) if (other !== plot) unpoint(other);
  const figure = plot.closest(".chart");
  const keys = all(".key", figure);
  const length = Math.max(...keys.map((key) => key.dataset.values.split("|").length));
  const at = Math.round(Math.min(1, Math.max(0, share)) * (length - 1));
  for (const key of keys) {
    const bold = one("b", key);
    key.dataset.last ??= bold.textContent;
    bold.textContent = key.dataset.values.split("|")[at] ?? "–";
  }
  const back = (length - 1 - at) * Number(figure.dataset.step);
  one(".when", figure).textContent = back ? `${span(back)} ago` : "now";
  plot.classList.add("pointed");
  plot.dataset.at = at;
  one(".cursor", plot).setAttribute("d", `M${(at / Math.max(1, length - 1)) * 600} 0V100`);
  return length;
}
function unpoint(plot) {
  const figure = plot.closest(".chart");
  plot.classList.remove("pointed");
  delete plot.dataset.at;
  one(".cursor", plot).setAttribute("d", "");
  one(".when", figure).textContent = "";
  for (const key of all(".key", figure)) one("b", key).textContent = key.dataset.last;
}
for (const kind of ["pointermove", "pointerdown"]) {
  document.addEventListener(kind, (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot) return all(".plot.pointed").forEach(unpoint);
    const box = plot.getBoundingClientRect();
    point(plot, (event.clientX - box.left) / box.width);
  });
}
document.addEventListener("keydown", (event) => {
  const plot = event.target.closest?.(".plot");
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!plot || !step) return;
  event.preventDefault();
  const length = one(".key", plot.closest(".chart")).dataset.values.split("|").length;
  point(plot, (Number(plot.dataset.at ?? length - 1) + step) / Math.max(1, length - 1));
});
document.addEventListener("focusout", (event) => {
  const plot = event.target.closest?.(".plot.pointed");
  if (plot) unpoint(plot);
});
document.documentElement.addEventListener("pointerleave", () => all(".plot.pointed").forEach(unpoint));

// === the editor ===

// How long after the last key the text is checked.
const PAUSE = 350;
// Longer texts are shown in one colour.
const COLOURED = 200_000;

function editor(form) {
  const text = one("#text"), ink = one(".ink"), gutter = one(".gutter"), save = one("#save");
  const [verdict, told] = [one("#verdict"), one("#told")];
  const first = text.value;
  let marks = new Map(), due, turn = 0, saved = false;

  function lines() {
    const value = text.value;
    const coloured = value.length <= COLOURED;
    form.classList.toggle("plain-ink", !coloured);
    if (coloured) ink.replaceChildren(...value.split("\n").flatMap((line) => [...colours(line), "\n"]));
    const number = value.split("\n").length;
    const pieces = [];
    let plain = "";
    for (let line = 1; line <= number; line += 1) {
      if (marks.has(line)) {
        if (plain) pieces.push(plain);
        plain = "";
        pieces.push(make("b", { class: marks.get(line) }, String(line)));
      } else plain += `${line}\n`;
    }
    gutter.replaceChildren(...pieces, plain);
    grow(number);
    scroll();
  }

  // As high as the text, within bounds; beside the rest, as high as the window lets it be.
  function grow(number) {
    const beside = matchMedia("(min-width: 1180px)").matches;
    const high = beside ? innerHeight - 170 : Math.min(number * 20 + 30, innerHeight * 0.6);
    one(".paper").style.height = `${Math.max(260, high)}px`;
  }

  function scroll() {
    ink.scrollTop = gutter.scrollTop = text.scrollTop;
    ink.scrollLeft = text.scrollLeft;
  }

  function judge(kind, words) {
    verdict.className = `verdict ${kind}`;
    one("span", verdict).textContent = words;
  }

  const options = () => {
    const query = ["watch", "confirm"].map((name) => [name, form.elements[name]?.value]).filter(([, value]) => value);
    return new URLSearchParams(query);
  };

  async function ask(method, url) {
    const headers = { "content-type": "application/yaml", "if-match": `"${form.dataset.etag}"` };
    const message = form.elements.message.value;
    if (message) headers["x-weir-message"] = asBytes(message);
    return call(method, url, { headers, body: text.value });
  }

  function goTo(line) {
    const start = text.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
    text.scrollTop = Math.max(0, (line - 6) * 20);
  }

  function problems(diagnostics = []) {
    const ours = (d) => d.line && (d.file === form.dataset.file || /\(request\)$/.test(d.file ?? ""));
    marks = new Map(diagnostics.filter(ours).map((d) => [d.line, d.severity]));
    // What was wrong before elsewhere, and only might be, is told by Config.
    const items = diagnostics.filter((d) => d.severity === "error" || ours(d)).map((d) => {
      const item = make("li", { class: d.severity });
      if (ours(d)) {
        const button = make("button", { type: "button" }, `Line ${d.line}`);
        button.addEventListener("click", () => goTo(d.line));
        item.append(button);
      } else if (d.file) item.append(make("code", {}, `${d.file}:${d.line} `));
      item.append(...ticked(d.message));
      if (d.hint) item.append(make("small", {}, ...ticked(d.hint)));
      return item;
    });
    return items.length ? [make("ul", { class: "problems" }, ...items)] : [];
  }

  function differences({ differences = [], more = 0 }) {
    const items = differences.map(({ path, before, after }) => {
      const sign = before === undefined ? "+" : after === undefined ? "−" : "~";
      const [gone, come] = [before, after].map((value) => (value === undefined ? [] : yaml(value)));
      // Lines that both begin or end with stand once.
      let head = 0, tail = 0;
      while (head < Math.min(gone.length, come.length) && gone[head] === come[head]) head += 1;
      while (tail < Math.min(gone.length, come.length) - head && gone[gone.length - 1 - tail] === come[come.length - 1 - tail]) tail += 1;
      const line = (kind, mark) => (text) => make("span", { class: kind }, `${mark} ${text}\n`);
      const sides = [
        ...gone.slice(0, head).map(line("same", " ")),
        ...gone.slice(head, gone.length - tail).map(line("gone", "−")),
        ...come.slice(head, come.length - tail).map(line("new", "+")),
        ...gone.slice(gone.length - tail).map(line("same", " ")),
      ];
      return make("li", {}, make("h3", {}, make("span", { class: "sign" }, sign), " ", make("code", {}, path)), make("pre", { class: "code", tabindex: "0" }, ...sides));
    });
    if (more) items.push(make("li", {}, `… and ${more} more`));
    return items.length ? [make("ul", { class: "diff" }, ...items)] : [];
  }

  function touches({ routes = [], exchanges = 0, listeners = [], connections = 0 }) {
    const words = [];
    if (routes.length) words.push(`${routes.length} route${routes.length > 1 ? "s" : ""} with ${exchanges} exchange${exchanges === 1 ? "" : "s"} under way`);
    if (listeners.length) words.push(`${listeners.length} listener${listeners.length > 1 ? "s" : ""} with ${connections} connection${connections === 1 ? "" : "s"}`);
    return words.length ? `It touches ${words.join(" and ")}.` : "";
  }

  async function check() {
    const mine = ++turn;
    if (text.value === first) {
      judge("", "Nothing has changed.");
      told.replaceChildren();
      marks = new Map();
      save.disabled = true;
      return lines();
    }
    let answered;
    try {
      answered = await ask("POST", "/api/v1/managed:check");
    } catch (error) {
      return judge("bad", `The gateway does not answer: ${error.message}`);
    }
    if (mine !== turn) return; // a later question is under way
    const { status, answer } = answered;
    const ok = answered.ok && !answer.errors;
    const list = problems(answer.diagnostics);
    save.disabled = !ok;
    if (ok) {
      const things = answer.things ?? [];
      judge(list.length ? "warn" : "well", things.length ? `Good. ${things.length} thing${things.length > 1 ? "s" : ""} would change. ${touches(answer.touched ?? {})}` : "Good. It says the same as before; only the text changes.");
      told.replaceChildren(...list, ...differences(answer));
    } else {
      const number = (answer.diagnostics ?? []).filter((d) => d.severity === "error").length;
      const why = status === 412 ? "Somebody has changed it since you opened it: copy your text, and open it again." : answer.detail ?? `refused: ${status}`;
      judge("bad", number ? `${number} mistake${number > 1 ? "s" : ""}. Nothing has changed.` : why);
      told.replaceChildren(...list);
    }
    lines();
  }

  text.addEventListener("input", () => {
    save.disabled = true;
    lines();
    clearTimeout(due);
    due = setTimeout(check, PAUSE);
  });
  text.addEventListener("scroll", scroll);
  text.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
      event.preventDefault();
      form.requestSubmit();
    }
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      const before = text.value.slice(0, text.selectionStart).split("\n").pop();
      const indent = before.match(/^ */)[0] + (/:\s*$/.test(before) ? "  " : "");
      if (!indent) return;
      event.preventDefault();
      text.setRangeText(`\n${indent}`, text.selectionStart, text.selectionEnd, "end");
      text.dispatchEvent(new Event("input"));
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (text.value === first) return say("Nothing has changed.");
    clearTimeout(due);
    turn += 1;
    save.disabled = true;
    try {
      const answered = await ask("PUT", `/api/v1/managed?${options()}`);
      if (!answered.ok) return check();
      saved = true;
      const number = answered.answer.number;
      sayNext(number ? `Revision ${number} runs.` : "Saved. What runs is the same.");
      location.assign(number ? "/history" : "/config");
    } catch (error) {
      save.disabled = false;
      say(`The gateway does not answer: ${error.message}`, true);
    }
  });
  window.addEventListener("beforeunload", (event) => {
    if (!saved && text.value !== first) event.preventDefault();
  });
  lines();
}

// A value as lines of YAML, as the pages of the gateway show it.
function yaml(value, indent = 0) {
  const pad = "  ".repeat(indent);
  const plain = (text) => /^[\p{L}\p{N}_./][\p{L}\p{N}_./\-*$:@+%]*$/u.test(text) && !text.endsWith(":") && Number.isNaN(Number(text)) && !/^(true|false|null|yes|no|on|off)$/.test(text);
  const scalar = (item) => (typeof item === "string" && plain(item) ? item : JSON.stringify(item));
  const simple = (item) => item === null || typeof item !== "object" || Object.keys(item).length === 0;
  const short = (item) => (Array.isArray(item) && item.length > 0 ? `[${item.map(scalar).join(", ")}]` : scalar(item));
  const flat = (item) => simple(item) || (Array.isArray(item) && item.every(simple));
  if (flat(value)) return [pad + short(value)];
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      const [first, ...rest] = yaml(item, indent + 1);
      return [`${pad}- ${first.trimStart()}`, ...rest];
    });
  }
  return Object.entries(value).flatMap(([key, item]) => (flat(item) ? [`${pad}${scalar(key)}: ${short(item)}`] : [`${pad}${scalar(key)}:`, ...yaml(item, indent + 1)]));
}

// A text in which names stand between backticks.
const ticked = (text) => text.split("`").map((piece, at, all) => (at % 2 && at < all.length - 1 ? make("code", {}, piece) : piece));

// The colours of a line of YAML. It is for the eye only: who decides what a line means is the gateway.
function colours(line) {
  const found = /^(\s*(?:- )*)([\w.$"'/*~-]+)(:)(?=\s|$)(.*)$/.exec(line);
  const [indent, key, colon, rest] = found ? found.slice(1) : [line.match(/^\s*(?:- )*/)[0], "", "", line.replace(/^\s*(?:- )*/, "")];
  const out = [indent];
  if (key) out.push(make("span", { class: "k" }, key), colon);
  const comment = /(^|\s)#.*$/.exec(rest.replace(/"(?:[^"\\]|\\.)*"|'[^']*'/g, (text) => "x".repeat(text.length)));
  const value = comment ? rest.slice(0, comment.index) : rest;
  for (const piece of value.split(/("(?:[^"\\]|\\.)*"|'[^']*')/)) {
    if (/^["']/.test(piece)) out.push(make("span", { class: /\*\*\*\d/.test(piece) ? "m" : "s" }, piece));
    else out.push(piece);
  }
  if (comment) out.push(make("span", { class: "c" }, rest.slice(comment.index)));
  return out;
}

const form = one("#editor");
if (form) editor(form);
