// What is under way in the folders of a page that is served: progress, judges, grades, failures.
// Names and reasons come from files: they reach the page as text only.
"use strict";
(() => {
  const { element, button, harmless, live } = window.strop;
  const part = document.getElementById("under-way");
  if (!live || !part) return;

  const cards = new Map(); // folder -> the elements of its card
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
      failures: element("ul", "failures"), lines: element("details"),
      command: element("div", "copied"), cells: element("details"),
    };
    head.append(" ", card.state);
    card.bar.setAttribute("aria-label", "Done of " + harmless(folder.name));
    made.append(head, card.bar, card.says, card.failures, card.command, card.lines, card.cells);
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

  // What a reader has unfolded stays so.
  function keepOpen(old, one) {
    const title = (fold) => fold.querySelector("summary")?.textContent;
    const open = new Set([...old.querySelectorAll("details[open]")].map(title));
    one.querySelectorAll("details").forEach((fold) => { fold.open ||= open.has(title(fold)); });
  }

  let postponed = null; // a part that is not replaced while the focus is in it
  document.addEventListener("focusout", () => setTimeout(() => {
    if (!postponed || postponed.contains(document.activeElement)) return;
    postponed.querySelector(".newer").remove();
    postponed = null;
    replaceParts();
  }));

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
      if (old && old.contains(document.activeElement)) { // somebody is at work there
        if (!postponed) old.prepend(element("p", "newer", "There are newer numbers. They appear when you leave this part."));
        postponed = place = old;
        continue;
      }
      sources.set(key, text);
      if (old) keepOpen(old, one);
      if (old) old.replaceWith(one); else place.after(one);
      place = one;
      document.dispatchEvent(new CustomEvent("strop:replaced", { detail: { element: one } }));
    }
    for (const [key, one] of here) if (!wanted.has(key) && !kept(one)) one.remove();
    const head = (page) => [...page.querySelectorAll("header.top > :not(button)")];
    head(document).forEach((one) => one.remove());
    document.querySelector("header.top").prepend(...head(made));
    document.title = made.title;
    const bar = document.querySelector("body > nav"), other = made.querySelector("body > nav");
    if (bar && other) bar.replaceChildren(...other.childNodes);
    else if (other) document.querySelector("header.top").after(other);
  }
  // As the server wrote the parts: other scripts begin when the document is ready, after this one.
  const sources = new Map([...document.getElementById("main").children].map((one) => [one.id || one.className, one.outerHTML]));

  const lost = element("p", "warning");
  lost.textContent = "The server does not answer: what you see is as it was last. `strop view` starts it again.";
  lost.hidden = true;
  part.append(...(live.index ? [] : [element("h2", "", "Progress")]), lost, together);
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
