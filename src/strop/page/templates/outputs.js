// Outputs side by side. Texts are hostile: they reach the page as text nodes only, never as HTML.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const PAGE = 6; // rows shown at a time
  const REPEAT = 1, HIT = 2, CONTROL = 4; // what can be true of a character

  if (!$("browser-index")) return;
  const { element, option, number, codePoint, CONTROLS } = strop;
  const index = JSON.parse($("browser-index").textContent);
  const controls = $("controls");
  if (index.cells.length === 0) return say("There are no outputs in this report.");
  if (!("DecompressionStream" in window))
    return say("This browser cannot unpack the outputs (it lacks DecompressionStream). " +
      "Chrome 80, Safari 16.4, Firefox 113 and later can; `strop show RUN` prints them too.");

  let rows = PAGE; // how many rows are asked for
  let latest = 0; // a later request makes an earlier one void

  // Unpacking: base64 -> zlib -> JSON [[index, text, [values]], ...], once per generator.
  const opened = new Map();
  function outputs(cell) {
    if (!opened.has(cell)) opened.set(cell, unpack($("pack-" + cell).textContent));
    return opened.get(cell);
  }

  async function unpack(packed) {
    const list = await strop.unpack(packed);
    return list.map(([number, text, values]) => ({ number, text, values, lower: text.toLowerCase() }));
  }

  // Which words belong to a run of n words that occurs twice?
  const wordsOf = (text) => [...text.matchAll(/\S+/g)];
  const runAt = (words, i, n) => words.slice(i, i + n).map((w) => w[0]).join(" ");

  function countWithin(text, n) {
    const words = wordsOf(text), counts = new Map();
    for (let i = 0; i + n <= words.length; i++) {
      const run = runAt(words, i, n);
      counts.set(run, (counts.get(run) || 0) + 1);
    }
    return counts;
  }

  const across = new Map(); // "cell n" -> run -> in how many outputs
  function countAcross(cell, list, n) {
    const key = cell + " " + n;
    if (!across.has(key)) {
      const counts = new Map();
      for (const one of list)
        for (const run of countWithin(one.text, n).keys()) counts.set(run, (counts.get(run) || 0) + 1);
      across.set(key, counts);
    }
    return across.get(key);
  }

  function flagRepeats(flags, text, counts, n) {
    const words = wordsOf(text);
    for (let i = 0; i + n <= words.length; i++) {
      if (counts.get(runAt(words, i, n)) < 2) continue;
      const last = words[i + n - 1];
      flagRange(flags, words[i].index, last.index + last[0].length, REPEAT);
    }
  }

  function flagHits(flags, lower, wanted) {
    if (lower.length !== flags.length) return; // lower case changed the length: no marks
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length))
      flagRange(flags, at, at + wanted.length, HIT);
  }

  function flagRange(flags, from, to, flag) {
    for (let i = from; i < to; i++) flags[i] |= flag;
  }

  function textNodes(text, flags) {
    for (const found of text.matchAll(CONTROLS)) flags[found.index] |= CONTROL;
    const nodes = document.createDocumentFragment();
    for (let from = 0, to; from < text.length; from = to) {
      to = from + 1;
      while (to < text.length && flags[to] === flags[from]) to++;
      nodes.append(piece(text.slice(from, to), flags[from]));
    }
    return nodes;
  }

  function piece(text, flag) {
    if (flag & CONTROL) return element("span", "control", [...text].map(codePoint).join(""));
    if (flag & HIT) return element("mark", "hit", text);
    if (flag & REPEAT) return element("mark", "repeat", text);
    return document.createTextNode(text);
  }

  // What the controls say.
  function asked() {
    const bound = $("filter-bound").valueAsNumber;
    return {
      wanted: $("search").value.toLowerCase(),
      column: Number($("filter-column").value),
      keeps: Number.isNaN(bound) ? null
        : $("filter-direction").value === "most" ? (v) => v <= bound : (v) => v >= bound,
      order: $("order").value,
      mark: $("mark").value,
      run: Number($("run").value),
    };
  }

  function chosen(list, ask) {
    const kept = list.filter((one) => {
      if (ask.wanted && !one.lower.includes(ask.wanted)) return false;
      const value = one.values[ask.column];
      return ask.keeps === null || (value !== null && value !== undefined && ask.keeps(value));
    });
    if (ask.order === "number") return kept;
    const [column, direction] = ask.order.split(" ").map(Number);
    const known = (one) => one.values[column] !== null && one.values[column] !== undefined;
    // Outputs without a value come last, either way.
    return kept.sort((a, b) => known(b) - known(a) ||
      (known(a) ? direction * (a.values[column] - b.values[column]) : 0));
  }

  function card(side, one, counts, ask) {
    const made = element("article", "output " + side.name);
    const head = element("header");
    const title = element("h3", "", "#" + one.number);
    title.append(element("span", "who", " " + index.cells[side.cell].label));
    head.append(title);
    const facts = element("dl");
    index.columns.forEach((column, i) => {
      const fact = element("div");
      fact.title = column.help;
      fact.append(element("dt", "", column.label), element("dd", "", number(one.values[i], column.digits)));
      facts.append(fact);
    });
    head.append(facts);

    const flags = new Uint8Array(one.text.length);
    if (counts) flagRepeats(flags, one.text, counts, ask.run);
    if (ask.wanted) flagHits(flags, one.lower, ask.wanted);
    const body = element("div", "text");
    body.dir = "auto";
    body.append(one.text === "" ? element("span", "control", "empty") : textNodes(one.text, flags));
    made.append(head, body);
    return made;
  }

  // Long texts are cut by height; a button opens them, and a hit below the cut is brought into view.
  function fold(made) {
    const body = made.querySelector(".text");
    if (body.scrollHeight <= body.clientHeight + 4) return;
    const button = element("button", "unfold", "Whole text");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const open = made.classList.toggle("open");
      button.textContent = open ? "Less" : "Whole text";
      button.setAttribute("aria-expanded", String(open));
    });
    made.classList.add("long");
    made.append(button);
    const hit = body.querySelector(".hit");
    if (hit) body.scrollTop = Math.max(0, hit.offsetTop - body.offsetTop - 60);
  }

  async function show() {
    const mine = ++latest, ask = asked();
    const sides = [{ name: "a", cell: Number($("side-a").value) }, { name: "b", cell: Number($("side-b").value) }];
    let lists;
    try {
      lists = await Promise.all(sides.map((side) => outputs(side.cell)));
    } catch (error) {
      return say("The outputs inside this page are damaged: " + error.message);
    }
    if (mine !== latest) return;

    const kept = lists.map((list) => chosen(list, ask));
    const pairs = $("pairs"), cards = [];
    pairs.replaceChildren();
    for (let i = 0; i < Math.min(rows, Math.max(kept[0].length, kept[1].length)); i++)
      sides.forEach((side, s) => {
        const one = kept[s][i];
        if (!one) return pairs.append(element("div", "gap " + side.name));
        const counts = ask.mark === "within" ? countWithin(one.text, ask.run)
          : ask.mark === "across" ? countAcross(side.cell, lists[s], ask.run) : null;
        const made = card(side, one, counts, ask);
        pairs.append(made);
        cards.push(made);
      });
    cards.forEach(fold);

    const tell = (s) => `${kept[s].length} of ${lists[s].length}` + trimmed(sides[s].cell, lists[s].length);
    say(`Left: ${tell(0)} outputs. Right: ${tell(1)}.`);
    $("more").hidden = rows >= Math.max(kept[0].length, kept[1].length);
  }

  const trimmed = (cell, held) => held < index.cells[cell].n ? ` (${index.cells[cell].n} in the run)` : "";

  function say(text) {
    $("status").textContent = text;
  }

  // Setting up the controls.
  for (const [side, cell] of [["side-a", index.left], ["side-b", index.right]]) {
    strop.fillCells($(side), index.cells);
    $(side).value = String(cell);
  }
  $("order").append(option("number", "number"));
  index.columns.forEach((column, i) => {
    $("filter-column").append(option(String(i), column.label));
    $("order").append(option(i + " 1", column.label + " ↑"), option(i + " -1", column.label + " ↓"));
  });
  if (index.columns.length === 0) $("filter-column").closest("fieldset").hidden = true;

  const again = () => { rows = PAGE; show(); };
  let typing;
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.addEventListener("change", again);
  controls.addEventListener("input", (event) => {
    if (event.target.tagName !== "INPUT") return;
    clearTimeout(typing);
    typing = setTimeout(again, 150);
  });
  $("swap").addEventListener("click", () => {
    const a = $("side-a"), b = $("side-b");
    [a.value, b.value] = [b.value, a.value];
    again();
  });
  $("more").addEventListener("click", () => { rows += PAGE; show(); });
  strop.showOutputs = (id) => {
    const i = index.cells.findIndex((cell) => cell.id === id);
    if (i < 0) return;
    $("side-b").value = String(i);
    again();
    $("outputs").scrollIntoView();
  };
  strop.setUp.push((root) => {
    for (const link of root.querySelectorAll("a[data-cell]"))
      link.addEventListener("click", () => strop.showOutputs(link.dataset.cell));
  });
  controls.hidden = false;
  show();
})();
