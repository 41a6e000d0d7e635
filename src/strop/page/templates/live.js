// What is under way in the folders of a page that is served: progress, losses, judges, failures.
// Names and reasons come from files: they reach the page as text only.
"use strict";
(() => {
  const { element, button, drawn, harmless, live } = window.strop;
  const part = document.getElementById("under-way");
  if (!live || !part) return;

  const cards = new Map(); // folder -> the elements of its card
  const points = new Map(); // folder -> losses
  const counted = new Map(); // event and folder -> lines
  let version = live.version;

  const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  const many = (value) => value.toLocaleString("en");

  function duration(seconds) {
    if (seconds < 90) return `${Math.ceil(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${digits(seconds / 3600)} h` : `${digits(seconds / 86400)} days`;
  }

  function cardOf(folder) {
    if (cards.has(folder.number)) return cards.get(folder.number);
    const made = element("article", "folder");
    made.id = "folder-" + folder.number;
    const head = element("h3");
    if (live.index) {
      const link = element("a", "", harmless(folder.name));
      link.href = folder.number + "/";
      const pick = element("input");
      pick.type = "checkbox";
      pick.value = folder.number;
      pick.setAttribute("aria-label", "Side by side: " + harmless(folder.name));
      pick.addEventListener("change", beside);
      head.append(pick, " ", link);
    } else head.append(harmless(folder.name));
    const card = {
      made, state: element("span", "state"), bar: element("progress"), says: element("p", "facts"),
      failures: element("ul", "failures"), lines: element("details"), curve: element("div"),
      command: element("div", "copied"), cells: element("details"),
    };
    head.append(" ", card.state);
    card.bar.setAttribute("aria-label", "Done of " + harmless(folder.name));
    made.append(head, card.bar, card.says, card.failures, card.command, card.lines, card.curve, card.cells);
    card.lines.hidden = card.cells.hidden = true;
    cards.set(folder.number, card);
    part.append(made);
    return card;
  }

  function showFolder(folder) {
    const card = cardOf(folder);
    card.made.hidden = !live.index && folder.state === "finished" && !folder.failures.length;
    card.state.textContent = folder.state;
    card.state.className = "state " + folder.state.replace(" ", "-");
    card.bar.hidden = folder.asked === null || folder.state === "finished";
    card.bar.max = folder.asked || 1;
    card.bar.value = Math.min(folder.done, card.bar.max);
    const said = [`${folder.kind || "folder"}: ${many(folder.done)}` +
      (folder.asked === null ? "" : ` of ${many(folder.asked)}`) + ` ${folder.unit}`];
    if (folder.rate) said.push(`${digits(folder.rate)} a second`);
    if (folder.left) said.push(`${duration(folder.left)} to go`);
    if (folder.state === "under way" && folder.asked !== null && folder.done >= folder.asked)
      said.push("scoring or writing the result");
    card.says.textContent = said.join(" · ");
    card.failures.replaceChildren(...folder.failures.map((one) =>
      element("li", "", `${harmless(one.where)}: ${harmless(one.why)}` + (one.count > 1 ? ` (${one.count} times)` : ""))));
    showCommand(card, folder);
    showCells(card, folder);
  }

  function showCommand(card, folder) {
    const wanted = folder.state === "stopped" && folder.command ? folder.command : "";
    if (card.command.dataset.command === wanted) return;
    card.command.dataset.command = wanted;
    card.command.replaceChildren();
    if (!wanted) return;
    const copy = button("Copy", () => {}, "copy"), text = element("pre");
    text.tabIndex = 0;
    text.append(element("code", "", harmless(wanted)));
    card.command.append(element("p", "facts", "This continues it:"), element("div", "copied"));
    card.command.lastChild.append(text, copy);
    window.strop.setUpAll(card.command);
  }

  function showCells(card, folder) {
    card.cells.hidden = folder.cells.length < 2;
    if (card.cells.hidden) return;
    if (!card.cells.firstChild) card.cells.append(element("summary"), element("ul", "cells"));
    const whole = folder.cells.filter((one) => one.done >= one.asked).length;
    card.cells.firstChild.textContent = `${whole} of ${folder.cells.length} cells are complete`;
    const list = card.cells.lastChild;
    folder.cells.forEach((one, i) => {
      const line = list.children[i] || list.appendChild(element("li"));
      const text = `${harmless(one.label)}: ${many(one.done)} of ${many(one.asked)}`;
      if (line.textContent !== text) line.textContent = text;
    });
    while (list.children.length > folder.cells.length) list.lastChild.remove();
  }

  function showLines(folder, name, lines) {
    counted.set(`${name} ${folder}`, lines);
    const card = cards.get(folder);
    if (!card) return;
    const all = ["judgments", "grades"].flatMap((one) => counted.get(`${one} ${folder}`) || []);
    if (!card.lines.firstChild) card.lines.append(element("summary"), element("ul"));
    card.lines.hidden = !all.length;
    card.lines.open ||= all.length < 4;
    card.lines.firstChild.textContent = all.length === 1 ? "1 line of judges and grades" : `${all.length} lines of judges and grades`;
    card.lines.lastChild.replaceChildren(...all.map((line) => element("li", "", line)));
  }

  // Losses against steps: training as a line, held out with its interval.
  const WIDE = 640, HIGH = 220, LEFT = 48, LOW = 26;
  function showCurve(folder) {
    const card = cards.get(folder), all = points.get(folder) || [];
    if (!card || all.length < 2) return;
    const ends = all.flatMap((one) => [one.low ?? one.loss, one.high ?? one.loss]);
    const last = Math.max(...all.map((one) => one.step)), top = Math.max(...ends), bottom = Math.min(...ends);
    const x = (step) => LEFT + (WIDE - LEFT - 8) * step / Math.max(1, last);
    const y = (loss) => 8 + (HIGH - LOW - 8) * (top - loss) / Math.max(1e-9, top - bottom);
    const svg = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", tabindex: "0", class: "curve" });
    svg.append(drawn("title", {}, "Loss in nats per token, by step"));
    for (const loss of [bottom, (bottom + top) / 2, top]) {
      svg.append(drawn("line", { x1: LEFT, x2: WIDE - 8, y1: y(loss), y2: y(loss), class: "grid" }));
      svg.append(drawn("text", { x: LEFT - 6, y: y(loss) + 4, "text-anchor": "end" }, digits(loss)));
    }
    svg.append(drawn("text", { x: WIDE - 8, y: HIGH - 6, "text-anchor": "end" }, `step ${many(last)}`));
    const train = all.filter((one) => one.kind === "train"), held = all.filter((one) => one.kind !== "train");
    svg.append(drawn("polyline", { points: train.map((one) => `${x(one.step)},${y(one.loss)}`).join(" "), class: "train" }));
    for (const one of held) {
      if (one.low !== undefined)
        svg.append(drawn("line", { x1: x(one.step), x2: x(one.step), y1: y(one.low), y2: y(one.high), class: "held" }));
      svg.append(drawn("circle", { cx: x(one.step), cy: y(one.loss), r: 3.5, class: "held" }));
    }
    const says = element("p", "facts curve-says");
    const tell = (one) => {
      says.textContent = (one.kind === "train" ? "Training" : "Held out") + `, step ${many(one.step)}: ${one.loss.toFixed(4)} nats per token` +
        (one.low === undefined ? "" : ` [${one.low.toFixed(4)}, ${one.high.toFixed(4)}]`);
    };
    let at = all.length - 1;
    tell(all[at]);
    const nearest = (event) => {
      const box = svg.getBoundingClientRect(), step = ((event.clientX - box.left) / box.width * WIDE - LEFT) / (WIDE - LEFT - 8) * last;
      at = all.reduce((best, one, i) => Math.abs(one.step - step) < Math.abs(all[best].step - step) ? i : best, 0);
      tell(all[at]);
    };
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, Home: -all.length, End: all.length }[event.key];
      if (!move) return;
      event.preventDefault();
      at = Math.max(0, Math.min(all.length - 1, at + move));
      tell(all[at]);
    });
    const focused = card.curve.contains(document.activeElement);
    card.curve.replaceChildren(element("p", "legend", "Loss in nats per token: training (line), held out (points, 95% intervals)"), svg, says);
    if (focused) svg.focus();
  }

  // Several folders beside each other: the page of all that are ticked.
  const together = element("p", "together");
  function beside() {
    const picked = [...part.querySelectorAll("input:checked")].map((one) => one.value);
    together.replaceChildren();
    if (picked.length > 1) {
      const link = element("a", "", `Show these ${picked.length} side by side`);
      link.href = picked.join("+") + "/";
      together.append(link);
    }
  }

  // The server made another page: what of it is different takes the place of what is here.
  async function replaceParts() {
    const answer = await fetch("./");
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = document.getElementById("main"), next = made.getElementById("main");
    const kept = (one) => one.id === "under-way" || "keep" in one.dataset;
    let place = part;
    const here = new Map([...now.children].map((one) => [one.id || one.className, one]));
    const wanted = new Set();
    for (const one of [...next.children]) {
      const key = one.id || one.className;
      wanted.add(key);
      if (one.id === "under-way") continue;
      const old = here.get(key), text = one.outerHTML;
      if (old && (kept(old) || sources.get(key) === text)) { place = old; continue; }
      sources.set(key, text);
      if (old) old.replaceWith(one); else place.after(one);
      place = one;
      document.dispatchEvent(new CustomEvent("strop:replaced", { detail: { element: one } }));
    }
    for (const [key, one] of here) if (!wanted.has(key) && !kept(one)) one.remove();
    const bar = document.querySelector("body > nav"), other = made.querySelector("body > nav");
    if (bar && other) bar.replaceChildren(...other.childNodes);
    else if (other) document.querySelector("header.top").after(other);
  }
  // As the server wrote the parts: other scripts begin when the document is ready, after this one.
  const sources = new Map([...document.getElementById("main").children].map((one) => [one.id || one.className, one.outerHTML]));

  const lost = element("p", "warning");
  lost.textContent = "The server does not answer: what you see is as it was last. `strop view` starts it again.";
  lost.hidden = true;
  part.append(...(live.index ? [] : [element("h2", "", "Under way")]), lost, together);
  part.classList.toggle("index", Boolean(live.index));

  function listen(events, name, act) {
    events.addEventListener(name, (event) => {
      const said = JSON.parse(event.data);
      act(said);
      document.dispatchEvent(new CustomEvent("strop:" + name, { detail: said }));
    });
  }

  const events = new EventSource("events");
  events.addEventListener("open", () => { lost.hidden = true; });
  events.addEventListener("error", () => { lost.hidden = false; part.hidden = false; });
  listen(events, "progress", (said) => {
    said.folders.forEach(showFolder);
    part.hidden = lost.hidden && ![...cards.values()].some((card) => !card.made.hidden);
  });
  listen(events, "training", (said) => {
    points.set(said.folder, [...(points.get(said.folder) || []).slice(0, said.from), ...said.points]);
    showCurve(said.folder);
  });
  listen(events, "judgments", (said) => showLines(said.folder, "judgments", said.series.map((one) =>
    `${harmless(one.name)}: ${many(one.done)} of ${many(one.asked)} groups` + (one.failed ? `, ${many(one.failed)} failed` : ""))));
  listen(events, "grades", (said) => showLines(said.folder, "grades", said.cells.map((one) =>
    `${harmless(one.label)} ${harmless(one.sampler)}: ${many(one.right)} right of ${many(one.graded)} graded, ${many(one.asked)} asked`)));
  listen(events, "outputs", () => {});
  listen(events, "changed", async (said) => {
    if (live.index || said.version === version) return;
    version = said.version;
    if (live.waiting) location.reload();
    else await replaceParts();
  });
})();
