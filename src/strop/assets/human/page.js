"use strict";
// Texts are shown with textContent only: whatever they hold stays text.
const data = JSON.parse(document.getElementById("data").textContent);
const key = "strop-human:" + data.plan;
const byId = (id) => document.getElementById(id);
let state = { name: "", at: 0, sheets: {} };
let kept = true;

function restore() {
  try {
    const saved = JSON.parse(localStorage.getItem(key));
    if (saved && saved.sheets) state = saved;
  } catch (error) {
    kept = false;
  }
}

function keep() {
  try {
    localStorage.setItem(key, JSON.stringify(state));
  } catch (error) {
    kept = false;
  }
  if (!kept) say("This browser keeps nothing: download before you close the page.");
}

const say = (text) => { byId("message").textContent = text; };

// What was answered about a sheet, by label; made on first use.
function answers(sheet) {
  if (!state.sheets[sheet.id]) state.sheets[sheet.id] = { outputs: {}, confidence: null };
  return state.sheets[sheet.id];
}

function output(sheet, label) {
  const outputs = answers(sheet).outputs;
  if (!outputs[label]) outputs[label] = { valid: null, grades: {}, mode: null, hybrid: false };
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
function question(title, name, options, chosen, pick) {
  const set = element("fieldset", {}, element("legend", { textContent: title }));
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
  const set = element("fieldset", {}, element("legend", { textContent: "Mixed" }));
  const input = element("input", { type: "checkbox", checked });
  input.dataset.key = "m";
  input.addEventListener("change", () => pick(input.checked));
  set.append(element("label", { className: "choice" }, input,
    element("span", { textContent: title })));
  return set;
}

function card(sheet, position) {
  const label = sheet.labels[position];
  const one = output(sheet, label);
  const text = element("pre", { className: "text", textContent: sheet.texts[position] });
  text.tabIndex = 0;
  const box = element("section", { className: "card" },
    element("h2", { textContent: "Text " + (position + 1) + " · " + label }), text);
  box.dataset.label = label;
  const radio = (field) => sheet.id + ":" + label + ":" + field;
  const changed = () => { keep(); refresh(); };
  box.append(question("Is it usable text?", radio("valid"),
    [[true, "Yes", "y"], [false, "No: invalid", "x"]], one.valid,
    (value) => { one.valid = value; changed(); }));
  for (const name of data.dimensions) {
    const set = question(name[0].toUpperCase() + name.slice(1), radio(name),
      [0, 1, 2].map((grade) => [grade, String(grade), String(grade)]), one.grades[name],
      (value) => { one.grades[name] = value; changed(); });
    set.dataset.needsValid = "1";
    box.append(set);
  }
  if (data.modes) {
    const modes = question("Mode", radio("mode"),
      data.letters.map((letter) => [letter, letter, letter.toLowerCase()]), one.mode,
      (value) => { one.mode = value; changed(); });
    const mixed = tick("belongs to two modes equally", one.hybrid,
      (value) => { one.hybrid = value; changed(); });
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
    answers(sheet).confidence, (value) => { answers(sheet).confidence = value; keep(); refresh(); }));
  byId("previous").disabled = state.at === 0;
  byId("next").disabled = state.at === data.sheets.length - 1;
  refresh();
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
}

function go(place) {
  state.at = Math.min(Math.max(place, 0), data.sheets.length - 1);
  keep();
  show();
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

async function load(event) {
  const file = event.target.files[0];
  if (!file) return;
  try {
    const saved = JSON.parse(await file.text());
    if (saved.plan !== data.plan) throw new Error("it belongs to another plan");
    state = saved.draft;
    byId("name").value = state.name;
    go(state.at);
    say("Continued from " + file.name + ".");
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

restore();
state.at = Math.min(Math.max(state.at | 0, 0), data.sheets.length - 1);
byId("name").value = state.name;
byId("name").addEventListener("input", (event) => { state.name = event.target.value; keep(); });
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
show();
