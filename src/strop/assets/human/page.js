"use strict";
// Texts are shown with textContent only: whatever they hold stays text.
const data = JSON.parse(document.getElementById("data").textContent);
const key = "strop-human:" + data.plan;
const byId = (id) => document.getElementById(id);
const GRADES = [0, 1, 2], SURE = ["high", "medium", "low"];
let state = { name: "", at: 0, version: 0, sheets: {} };
let kept = true;

const say = (text) => { byId("message").textContent = text; };
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const blank = () => ({ valid: null, grades: {}, mode: null, hybrid: false });

// One answer as this page writes it, from whatever a file or the browser's store holds.
function cleanOutput(one) {
  const made = blank();
  if (!isObject(one)) return made;
  if (typeof one.valid === "boolean") made.valid = one.valid;
  for (const name of data.dimensions) {
    const grade = isObject(one.grades) ? one.grades[name] : undefined;
    if (GRADES.includes(grade)) made.grades[name] = grade;
  }
  if (data.letters.includes(one.mode)) made.mode = one.mode;
  made.hybrid = one.hybrid === true;
  return made;
}

// A whole state, or null if it is none. Groups that this page does not show are kept: another page
// of the same plan may show them.
function clean(saved) {
  if (!isObject(saved) || !isObject(saved.sheets)) return null;
  const made = { name: typeof saved.name === "string" ? saved.name.slice(0, 80) : "",
    at: Number.isInteger(saved.at) ? saved.at : 0,
    version: Number.isInteger(saved.version) ? saved.version : 0, sheets: {} };
  for (const [id, sheet] of Object.entries(saved.sheets)) {
    if (!isObject(sheet)) continue;
    const outputs = {};
    for (const [label, one] of Object.entries(isObject(sheet.outputs) ? sheet.outputs : {})) {
      outputs[label] = cleanOutput(one);
    }
    const confidence = SURE.includes(sheet.confidence) ? sheet.confidence : null;
    made.sheets[id] = { outputs, confidence };
  }
  return made;
}

// What the browser keeps, by whichever tab it was written; null if there is nothing.
function stored() {
  let raw = null;
  try {
    raw = localStorage.getItem(key);
    if (raw === null) return null;
    const found = clean(JSON.parse(raw));
    if (found) return found;
  } catch (error) {
    if (raw === null) { kept = false; return null; }
  }
  try {
    localStorage.setItem(key + ":unreadable", raw);  // not ours to throw away
  } catch (error) {
    kept = false;
  }
  return null;
}

// Take over what another tab has written since; true if there was anything.
function pull() {
  const newer = stored();
  if (!newer || newer.version <= state.version) return false;
  state = { ...newer, at: state.at };
  return true;
}

function keep() {
  state.version += 1;
  try {
    localStorage.setItem(key, JSON.stringify(state));
  } catch (error) {
    kept = false;
  }
  if (!kept) say("This browser keeps nothing: download before you close the page.");
}

// Every change is made to the newest state and to nothing but its own answer, so that a tab that
// has slept overwrites one answer at most: the one that was clicked.
function change(make) {
  const newer = pull();
  make();
  keep();
  if (newer) showAll();
  else refresh();
}

// What was answered about a sheet, by label; made on first use.
function answers(sheet) {
  if (!state.sheets[sheet.id]) state.sheets[sheet.id] = { outputs: {}, confidence: null };
  return state.sheets[sheet.id];
}

function output(sheet, label) {
  const outputs = answers(sheet).outputs;
  if (!outputs[label]) outputs[label] = blank();
  return outputs[label];
}

function complete(one) {
  if (!one || one.valid === null) return false;
  if (!one.valid) return true;
  const graded = data.dimensions.every((name) => one.grades[name] !== undefined);
  return graded && (!data.modes || one.mode !== null);
}

function done(sheet) {
  const mine = state.sheets[sheet.id];
  return Boolean(mine && mine.confidence) && sheet.labels.every((l) => complete(mine.outputs[l]));
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A question with a few answers: radio buttons that look like keys.
function question(title, name, options, chosen, pick, meaning) {
  const set = element("fieldset", {}, element("legend", { textContent: title }));
  if (meaning) set.dataset.meaning = meaning;
  for (const [value, text, hotkey] of options) {
    const input = element("input", { type: "radio", name, checked: value === chosen });
    input.dataset.key = hotkey;
    input.setAttribute("aria-label", title + ": " + text);
    input.addEventListener("change", () => pick(value));
    set.append(element("label", { className: "choice" }, input,
      element("span", { textContent: text })));
  }
  return set;
}

function tick(title, checked, pick) {
  const set = element("fieldset", {}, element("legend", { textContent: "Hybrid" }));
  const input = element("input", { type: "checkbox", checked });
  input.dataset.key = "m";
  input.addEventListener("change", () => pick(input.checked));
  set.append(element("label", { className: "choice" }, input,
    element("span", { textContent: title })));
  return set;
}

// What would reorder or hide a text stands there by its code point: people read what is there.
const UNSEEN = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc])/;
const codePoint = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
const shown = (text) => text.split(UNSEEN).map((piece, place) =>
  place % 2 ? element("span", { className: "unseen", textContent: codePoint(piece) }) : piece);

function card(sheet, position) {
  const label = sheet.labels[position];
  const one = output(sheet, label);
  const text = element("pre", { className: "text" });
  sheet.texts[position].forEach((part, place) => {
    if (place) text.append(element("span", { className: "boundary", textContent: data.boundary }));
    text.append(...shown(part));
  });
  text.tabIndex = 0;
  const box = element("section", { className: "card" },
    element("h2", { textContent: "Text " + (position + 1) + " · " + label }), text);
  box.dataset.label = label;
  const radio = (field) => sheet.id + ":" + label + ":" + field;
  const put = (write) => (value) => change(() => write(output(sheet, label), value));
  box.append(question("Is it usable text?", radio("valid"),
    [[true, "Yes", "y"], [false, "No: invalid", "x"]], one.valid,
    put((mine, value) => { mine.valid = value; })));
  for (const name of data.dimensions) {
    const set = question(name[0].toUpperCase() + name.slice(1), radio(name),
      GRADES.map((grade) => [grade, String(grade), String(grade)]), one.grades[name],
      put((mine, value) => { mine.grades[name] = value; }), name);
    set.dataset.needsValid = "1";
    box.append(set);
  }
  if (data.modes) {
    const modes = question("Mode", radio("mode"),
      data.letters.map((letter) => [letter, letter, letter.toLowerCase()]), one.mode,
      put((mine, value) => { mine.mode = value; }));
    const mixed = tick("belongs to two modes equally", one.hybrid,
      put((mine, value) => { mine.hybrid = value; }));
    modes.dataset.needsValid = mixed.dataset.needsValid = mixed.dataset.rare = "1";
    box.append(modes, mixed);
  }
  return box;
}

function show() {
  const sheet = data.sheets[state.at];
  byId("texts").replaceChildren(...sheet.labels.map((_, position) => card(sheet, position)));
  byId("task").hidden = sheet.task === null;
  byId("task").querySelector("pre").textContent = sheet.task === null ? "" : sheet.task;
  const title = data.modes ? "How sure are you of the modes?" : "How sure are you of the grades?";
  byId("whole").replaceChildren(question(title, sheet.id + ":confidence",
    [["high", "High", "h"], ["medium", "Medium", "m"], ["low", "Low", "l"]],
    answers(sheet).confidence,
    (value) => change(() => { answers(sheet).confidence = value; })));
  byId("previous").disabled = state.at === 0;
  byId("next").disabled = state.at === data.sheets.length - 1;
  refresh();
}

function showAll() {
  byId("name").value = state.name;
  show();
}

// "A: texts 1, 4": which texts have which mode so far.
function modesSoFar(sheet) {
  const places = {};
  sheet.labels.forEach((label, position) => {
    const one = output(sheet, label);
    if (one.valid && one.mode) (places[one.mode] = places[one.mode] || []).push(position + 1);
  });
  return Object.keys(places).sort().map((letter) => letter + ": " +
    (places[letter].length > 1 ? "texts " : "text ") + places[letter].join(", ")).join("; ");
}

// What the grades of the question at hand mean, in the rubric's words.
function explain(event) {
  const set = event.target.closest && event.target.closest("fieldset");
  const scale = set && data.scales[set.dataset.meaning];
  if (!scale) return;
  const words = [element("b", { textContent: set.dataset.meaning }), ": " + scale.about];
  scale.grades.forEach((meaning, grade) => {
    words.push(" ", element("b", { textContent: String(grade) }), " " + meaning);
  });
  byId("meaning").replaceChildren(...words);
}

function refresh() {
  const sheet = data.sheets[state.at];
  const finished = data.sheets.filter(done).length;
  byId("where").textContent = "Group " + (state.at + 1) + " of " + data.sheets.length;
  byId("progress").value = finished;
  byId("done").textContent = finished + " done";
  for (const box of byId("texts").children) {
    const one = output(sheet, box.dataset.label);
    box.classList.toggle("whole", complete(one));
    for (const set of box.querySelectorAll("fieldset[data-needs-valid]")) {
      set.disabled = one.valid !== true;
    }
  }
  byId("whole").classList.toggle("whole", Boolean(answers(sheet).confidence));
  const modes = data.modes ? modesSoFar(sheet) : "";
  byId("modes").textContent = modes && "Modes so far: " + modes;
}

function go(place) {
  pull();
  state.at = Math.min(Math.max(place, 0), data.sheets.length - 1);
  keep();
  showAll();
  scrollTo(0, 0);
}

// The reply of one sheet in the very form that the profile's schema asks of any judge.
function reply(sheet) {
  const mine = answers(sheet);
  return {
    outputs: sheet.labels.map((label) => {
      const one = mine.outputs[label];
      const graded = { id: label, valid: one.valid };
      for (const name of data.dimensions) graded[name] = one.valid ? one.grades[name] : 0;
      if (data.modes) {
        graded.mode = one.valid ? one.mode : null;
        graded.hybrid = one.valid && one.hybrid;
      }
      return graded;
    }),
    confidence: mine.confidence,
  };
}

function download() {
  pull();
  if (!state.name.trim()) {
    say("Please give your name or initials first: the file is yours, and not anybody's.");
    byId("name").focus();
    return;
  }
  const finished = data.sheets.filter(done);
  const replies = {};
  for (const sheet of finished) replies[sheet.id] = reply(sheet);
  const document_ = {
    kind: data.kind, format: data.format, plan: data.plan, profile: data.profile,
    name: state.name.trim(), replies, draft: state,
  };
  const blob = new Blob([JSON.stringify(document_, null, 1)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(blob) });
  const who = state.name.trim().replace(/[^A-Za-z0-9_-]+/g, "-") || "human";
  link.download = "judgments-" + who + ".json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say("Saved " + finished.length + " of " + data.sheets.length + " groups to " + link.download +
    ". Unfinished groups are kept as a draft inside.");
}

// The state that a downloaded file holds: its draft, or else what its finished groups say.
function fromFile(saved) {
  if (!isObject(saved) || saved.kind !== data.kind) throw new Error("it holds no judgments");
  if (saved.plan !== data.plan) throw new Error("it belongs to another plan");
  const draft = clean(saved.draft);
  if (draft) return draft;
  if (!isObject(saved.replies)) throw new Error("it holds neither a draft nor judgments");
  const sheets = {};
  for (const [id, said] of Object.entries(saved.replies)) {
    if (!isObject(said) || !Array.isArray(said.outputs)) throw new Error("group " + id + " is broken");
    const outputs = {};
    for (const one of said.outputs) {
      if (isObject(one) && typeof one.id === "string") outputs[one.id] = { ...one, grades: one };
    }
    sheets[id] = { outputs, confidence: said.confidence };
  }
  return clean({ name: saved.name, at: 0, sheets });
}

const started = (sheet) => Boolean(sheet) && (sheet.confidence !== null ||
  Object.values(sheet.outputs).some((one) => one.valid !== null));

// The answers of a group in one order, whoever wrote them first.
function spelled(sheet) {
  const rows = Object.entries(sheet.outputs).filter(([, one]) => one.valid !== null);
  const flat = rows.map(([label, one]) => [label, one.valid, ...(one.valid
    ? [data.dimensions.map((name) => one.grades[name]), one.mode, one.hybrid] : [])]);
  return JSON.stringify([flat.sort(), sheet.confidence]);
}

async function load(event) {
  const file = event.target.files[0];
  if (!file) return;
  try {
    const loaded = fromFile(JSON.parse(await file.text()));
    pull();
    const groups = Object.entries(loaded.sheets).filter(([, sheet]) => started(sheet));
    const other = groups.filter(([id, sheet]) => started(state.sheets[id]) &&
      spelled(state.sheets[id]) !== spelled(sheet)).map(([id]) => id);
    const replace = other.length > 0 && confirm("This browser holds other answers to " +
      other.length + " of the " + groups.length + " groups in the file. OK replaces them by the " +
      "file's; Cancel keeps them and adds the other groups.");
    for (const [id, sheet] of groups) {
      if (replace || !other.includes(id)) state.sheets[id] = sheet;
    }
    if (!state.name.trim() || replace) state.name = loaded.name || state.name;
    go(groups.length ? loaded.at : state.at);
    say("Continued from " + file.name + ": " + groups.length + " groups" + (other.length && !replace
      ? ", of which " + other.length + " kept the answers of this browser." : "."));
  } catch (error) {
    say("This file cannot be continued: " + error.message + ".");
  }
  event.target.value = "";
}

// Keys answer the question that has the focus, then the focus goes on to the next question. The
// rare answer "mixed" is passed over; its key works anywhere in its card.
function questions() {
  return [...document.querySelectorAll("#texts fieldset, #whole fieldset")]
    .filter((set) => !set.disabled && !set.dataset.rare);
}

function focusOn(set) {
  if (set) (set.querySelector("input:checked") || set.querySelector("input")).focus();
}

function jump(step) {
  const boxes = [...byId("texts").children, byId("whole")];
  const here = boxes.findIndex((box) => box.contains(document.activeElement));
  const box = boxes[Math.min(Math.max(here + step, 0), boxes.length - 1)];
  box.scrollIntoView({ block: "start" });
  focusOn(box.querySelector("fieldset"));
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("#name")) return;
  const pressed = event.key.toLowerCase();
  const box = document.activeElement && document.activeElement.closest(".card");
  const set = document.activeElement && document.activeElement.closest("fieldset") ||
    box && box.querySelector("fieldset");
  const at = ':not(:disabled) > .choice > input[data-key="' + CSS.escape(pressed) + '"]';
  const choice = set && (set.querySelector(at) || box.querySelector("[data-rare]" + at));
  if (choice) {
    event.preventDefault();
    choice.click();
    const all = questions();
    if (set.contains(choice)) focusOn(all[all.indexOf(set) + 1] || set);
  } else if (pressed === "j" || pressed === "k") {
    jump(pressed === "j" ? 1 : -1);
  } else if (pressed === "n" || pressed === "p") {
    go(state.at + (pressed === "n" ? 1 : -1));
    focusOn(questions()[0]);
  }
}

const before = stored();
byId("help").open = before === null;  // a first visit begins with the rules
if (before) state = before;
state.at = Math.min(Math.max(state.at, 0), data.sheets.length - 1);
addEventListener("storage", (event) => {
  if (event.key === key && pull()) showAll();
});
byId("name").addEventListener("input", (event) => {
  const name = event.target.value;
  pull();
  state.name = name;
  keep();
});
document.addEventListener("focusin", explain);
document.addEventListener("mouseover", explain);
byId("previous").addEventListener("click", () => go(state.at - 1));
byId("next").addEventListener("click", () => go(state.at + 1));
byId("open").addEventListener("click", () => {
  const after = data.sheets.findIndex((sheet, i) => i > state.at && !done(sheet));
  const any = data.sheets.findIndex((sheet) => !done(sheet));
  if (any < 0) say("All groups are done: download your judgments.");
  else go(after < 0 ? any : after);
});
byId("download").addEventListener("click", download);
byId("load").addEventListener("change", load);
document.addEventListener("keydown", press);
showAll();
