// Outputs side by side. Texts are hostile: they reach the page as text nodes only, never as HTML.
"use strict";
strop.setUp.push((root) => {
  const $ = (id) => document.getElementById(id);
  const { element, option, button, number, codePoint, CONTROLS } = strop;
  const PAGE = 6; // rows shown at a time
  const REPEAT = 1, HIT = 2, CONTROL = 4; // what can be true of a character

  if (root.id === "browser-index" && strop.relist) return strop.relist(JSON.parse(root.textContent));
  if (!root.querySelector || !root.querySelector("#outputs")) {
    links(root);
    return;
  }
  let index = JSON.parse($("browser-index").textContent);
  const controls = $("controls");
  if (!strop.live && !("DecompressionStream" in window))
    return say("This browser cannot unpack the outputs (it lacks DecompressionStream). " +
      "Chrome 80, Safari 16.4, Firefox 113 and later can; `strop show RUN` prints them too.");

  let latest = 0; // a later request makes an earlier one void
  let sides = []; // what is shown, per side: {name, cell, rows, next, kept, held}
  let alone = null; // one output that was linked to: its number
  const ratings = new Map(); // "cell number" -> 0, 1 or 2

  const seen = ([number, text, values]) => ({ number, text, values, lower: text.toLowerCase() });

  // Unpacking: once per generator.
  const opened = new Map();
  function outputs(cell) {
    if (!opened.has(cell)) opened.set(cell, strop.unpack($("pack-" + cell).textContent).then((list) => list.map(seen)));
    return opened.get(cell);
  }

  // The next outputs of a side, from inside the page or from the server.
  async function more(side, ask, count) {
    if (strop.live) {
      const said = alone !== null ? await single(side) : await strop.fetched("outputs", {
        cell: index.cells[side.cell].id, after: side.next === undefined ? -1 : side.next, n: count, search: ask.wanted,
        repeats: ask.only === "repeats" ? ask.run : "", unlike: ask.only === "different" ? index.cells[side.other].id : "",
        ...(ask.bound === null ? {} : { column: ask.column, bound: ask.bound, direction: ask.direction }),
        order: ask.order === "number" ? "" : ask.order,
      });
      return { ...side, rows: side.rows.concat(said.rows.map(seen)), next: said.next, kept: said.kept, held: said.held };
    }
    const list = await outputs(side.cell), others = ask.only === "different" ? await outputs(side.other) : [];
    const kept = chosen(list, ask, side.cell, new Map(others.map((one) => [one.number, one.text])));
    const end = side.rows.length + count;
    return { ...side, rows: kept.slice(0, end), next: end < kept.length ? end : null, kept: kept.length, held: list.length };
  }

  async function single(side) {
    const said = await strop.fetched("output", { cell: index.cells[side.cell].id, index: alone });
    return { rows: [[said.index, said.text, said.values]], next: null, kept: 1, held: index.cells[side.cell].n };
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

  function countAcross(list, n) {
    const counts = new Map();
    for (const one of list)
      for (const run of countWithin(one.text, n).keys()) counts.set(run, (counts.get(run) || 0) + 1);
    return counts;
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
  const columnOf = (name) => index.columns.findIndex((column) => column.name === name);
  const BOUNDS = { guard: ["entropy", "most"], wrong: ["violations", "least", 1], failed: ["right", "most", 0.5] };

  function asked() {
    const bound = $("filter-bound").valueAsNumber;
    return {
      wanted: $("search").value.toLowerCase(),
      column: Number($("filter-column").value),
      bound: Number.isNaN(bound) ? null : bound,
      direction: $("filter-direction").value,
      only: $("only").value,
      order: $("order").value,
      mark: $("mark").value,
      run: Number($("run").value),
    };
  }

  // The bound that a choice under "Show" comes to; the server knows bounds only.
  function bounded(ask, cell) {
    const preset = BOUNDS[ask.only];
    if (!preset) return ask;
    const bound = ask.only === "guard" ? index.cells[cell].guard : preset[2];
    return { ...ask, column: columnOf(preset[0]), direction: preset[1], bound: bound === null ? -1 : bound };
  }

  function chosen(list, ask, cell, others) {
    const { column, bound, direction } = bounded(ask, cell);
    const kept = list.filter((one) => {
      if (alone !== null) return one.number === alone;
      if (ask.wanted && !one.lower.includes(ask.wanted)) return false;
      if (ask.only === "repeats" && ![...countWithin(one.text, ask.run).values()].some((times) => times > 1)) return false;
      if (ask.only === "different" && (!others.has(one.number) || others.get(one.number) === one.text)) return false;
      if (bound === null) return true;
      const value = one.values[column];
      return value !== null && value !== undefined && (direction === "most" ? value <= bound : value >= bound);
    });
    if (ask.order === "number") return kept;
    const [by, way] = ask.order.split(" ").map(Number);
    const known = (one) => one.values[by] !== null && one.values[by] !== undefined;
    // Outputs without a value come last, either way.
    return kept.sort((a, b) => known(b) - known(a) || (known(a) ? way * (a.values[by] - b.values[by]) : 0));
  }

  function card(side, one, counts, ask) {
    const cell = index.cells[side.cell], made = element("article", "output " + side.name);
    made.tabIndex = 0;
    const head = element("header"), title = element("h3"), link = element("a", "", "#" + one.number);
    link.href = `#output=${cell.id}-${one.number}`;
    link.title = "A link to this output";
    title.append(link, element("span", "who", " " + cell.label));
    head.append(title);
    const facts = element("dl");
    index.columns.forEach((column, i) => {
      const fact = element("div");
      fact.title = column.help;
      fact.append(element("dt", "", column.label), element("dd", "", number(one.values[i], column.digits)));
      facts.append(fact);
    });
    head.append(facts);
    const acts = element("div", "acts");
    if (strop.live && strop.live.ratings) acts.append(rating(made, cell, one));
    if (strop.canUnmask && strop.canUnmask(side.cell, one.number))
      acts.append(button("Unmask", () => strop.unmask(side.cell, one.number), "small"));
    made.append(head, textOf(one, counts, ask), acts);
    return made;
  }

  function textOf(one, counts, ask) {
    const flags = new Uint8Array(one.text.length);
    if (counts) flagRepeats(flags, one.text, counts, ask.run);
    if (ask.wanted) flagHits(flags, one.lower, ask.wanted);
    const body = element("div", "text");
    body.dir = "auto";
    body.append(one.text === "" ? element("span", "control", "empty") : textNodes(one.text, flags));
    return body;
  }

  // Ratings, 0 to 2: by buttons, or by keys while the output has the focus.
  function rating(made, cell, one) {
    const group = element("div", "rating"), key = cell.id + " " + one.number;
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Rate this output");
    const buttons = [0, 1, 2].map((value) => button(String(value), () => rate(value), "small"));
    const note = element("span", "rated");
    note.setAttribute("role", "status");
    const draw = () => buttons.forEach((b, value) => b.setAttribute("aria-pressed", String(ratings.get(key) === value)));
    async function rate(value) {
      const wanted = ratings.get(key) === value ? null : value;
      try {
        const answer = await fetch("ratings", {
          method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ cell: cell.id, index: one.number, value: wanted }),
        });
        const said = await answer.json();
        if (!answer.ok) throw new Error(said.error);
        if (said.value === null) ratings.delete(key); else ratings.set(key, said.value);
        note.textContent = said.value === null ? "taken back" : "kept";
      } catch (error) {
        note.textContent = "not kept: " + error.message;
      }
      draw();
    }
    made.addEventListener("keydown", (event) => {
      if (!["0", "1", "2"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      rate(Number(event.key));
    });
    draw();
    group.append("Rate ", ...buttons, note);
    return group;
  }

  // Long texts are cut by height; a button opens them, and a hit below the cut is brought into view.
  function fold(made, side, one) {
    const body = made.querySelector(".text"), cut = strop.live && one.text.endsWith("…") && one.text.length > 20000;
    if (!cut && body.scrollHeight <= body.clientHeight + 4) return;
    const open = button("Whole text", async () => {
      if (cut && !made.dataset.whole) {
        const said = await strop.fetched("output", { cell: index.cells[side.cell].id, index: one.number });
        body.replaceChildren(textNodes(said.text, new Uint8Array(said.text.length)));
        made.dataset.whole = "yes";
      }
      const now = made.classList.toggle("open");
      open.textContent = now ? "Less" : "Whole text";
      open.setAttribute("aria-expanded", String(now));
    }, "unfold");
    open.setAttribute("aria-expanded", "false");
    made.classList.add("long");
    made.append(open);
    const hit = body.querySelector(".hit");
    if (hit) body.scrollTop = Math.max(0, hit.offsetTop - body.offsetTop - 60);
  }

  async function show(count = PAGE, added = false) {
    const mine = ++latest, ask = asked();
    const [left, right] = ["a", "b"].map((name) => Number($("side-" + name).value));
    const before = added ? sides : [{ name: "a", cell: left, other: right, rows: [] }, { name: "b", cell: right, other: left, rows: [] }];
    if (before.some((side) => !index.cells[side.cell])) return say("There are no outputs yet.");
    let now;
    try {
      now = await Promise.all(before.map((side) =>
        added && side.next === null ? side : more(side, bounded(ask, side.cell), count)));
    } catch (error) {
      return say((strop.live ? "The outputs could not be read: " : "The outputs inside this page are damaged: ") + error.message);
    }
    if (mine !== latest) return;
    sides = now;
    await draw(ask, mine);
  }

  async function draw(ask, mine) {
    const rows = sides.map((side) => side.rows);
    const across = [];
    if (ask.mark === "across")
      for (const side of sides) across.push(countAcross(strop.live ? side.rows : await outputs(side.cell), ask.run));
    if (mine !== latest) return;
    const pairs = $("pairs"), cards = [];
    pairs.replaceChildren();
    for (let i = 0; i < Math.max(rows[0].length, rows[1].length); i++)
      sides.forEach((side, s) => {
        const one = rows[s][i];
        if (!one) return pairs.append(element("div", "gap " + side.name));
        const counts = ask.mark === "within" ? countWithin(one.text, ask.run) : across[s] || null;
        const made = card(side, one, counts, ask);
        pairs.append(made);
        cards.push([made, side, one]);
      });
    cards.forEach((one) => fold(...one));
    const tell = (side) => `${side.kept === null ? "some" : side.kept} of ${side.held}` + trimmed(side);
    let words = `Left: ${tell(sides[0])} outputs. Right: ${tell(sides[1])}.`;
    if (sides.some((side) => side.kept === null)) words += " Not all were looked at: the search took too long.";
    say(words);
    if (alone !== null) $("status").append(" ", button("Show all", () => { alone = null; history.replaceState(null, "", "#outputs"); again(); }, "small"));
    $("more").hidden = sides.every((side) => side.next === null);
    heldOut();
  }

  // What people wrote, of the kind that the model learned from.
  function heldOut() {
    const text = index.held_out[index.cells[sides[0].cell].group], place = $("held-out");
    if (place.dataset.text === text) return;
    place.dataset.text = text;
    place.replaceChildren();
    if (!text) return;
    const made = element("article", "output held"), body = element("div", "text");
    body.dir = "auto";
    body.append(textNodes(text, new Uint8Array(text.length)));
    made.append(element("h3", "", "For comparison, a held-out text"), body);
    place.append(made);
  }

  const trimmed = (side) => strop.live || side.held >= index.cells[side.cell].n ? "" : ` (${index.cells[side.cell].n} in the run)`;

  function say(text) {
    $("status").textContent = text;
  }

  // Setting up the controls.
  function fill() {
    for (const [side, cell] of [["side-a", index.left], ["side-b", index.right]]) {
      const before = $(side).value === "" ? null : (strop.ids || [])[Number($(side).value)];
      const place = before === null ? -1 : index.cells.findIndex((one) => one.id === before);
      $(side).replaceChildren();
      strop.fillCells($(side), index.cells);
      $(side).value = String(place >= 0 ? place : cell);
    }
    strop.ids = index.cells.map((one) => one.id);
    const order = $("order").value, column = $("filter-column").value, only = $("only").value;
    $("order").replaceChildren(option("number", "number"));
    $("filter-column").replaceChildren();
    index.columns.forEach((one, i) => {
      $("filter-column").append(option(String(i), one.label));
      $("order").append(option(i + " 1", one.label + " ↑"), option(i + " -1", one.label + " ↓"));
    });
    const shows = [["all", "all"], ["different", "pairs that differ"], ["repeats", "with repeats"]];
    if (columnOf("entropy") >= 0 && index.cells.some((one) => one.guard !== null)) shows.push(["guard", "below the guard"]);
    if (columnOf("violations") >= 0) shows.push(["wrong", "with mistakes"]);
    if (columnOf("right") >= 0) shows.push(["failed", "wrong answers"]);
    $("only").replaceChildren(...shows.map((one) => option(...one)));
    for (const [id, value] of [["order", order], ["filter-column", column], ["only", only]])
      if (value && [...$(id).options].some((one) => one.value === value)) $(id).value = value;
    $("filter-column").closest("fieldset").hidden = index.columns.length === 0;
  }

  // A served page has new generators, or more outputs of them.
  strop.relist = (said) => { index = said; fill(); show(); };
  document.addEventListener("strop:outputs", (event) => {
    const counts = event.detail.counts;
    index.cells.forEach((one) => { if (one.id in counts) one.n = counts[one.id]; });
    const shown = sides.some((side) => index.cells[side.cell] && index.cells[side.cell].id in counts);
    // Who is reading further down is left alone; otherwise what is new appears by itself.
    if (shown && sides.every((side) => side.rows.length <= PAGE) && !document.activeElement.closest("#pairs")) show();
  });

  const again = () => { alone = null; show(); };
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
  $("more").addEventListener("click", () => show(PAGE, true));

  strop.showOutputs = (id) => {
    const i = index.cells.findIndex((cell) => cell.id === id);
    if (i < 0) return;
    // Beside it the standard sampler of the same budget.
    const one = index.cells[i];
    const plain = index.cells.findIndex((cell) => cell.standard && cell.steps === one.steps && cell.group === one.group);
    if (plain >= 0 && plain !== i) $("side-a").value = String(plain);
    $("side-b").value = String(i);
    again();
    $("outputs").scrollIntoView();
  };

  function links(part) {
    for (const link of part.querySelectorAll ? part.querySelectorAll("a[data-cell]") : [])
      link.addEventListener("click", () => strop.showOutputs(link.dataset.cell));
  }

  // A permalink: #output=CELL-NUMBER.
  function linked() {
    const found = /^#output=([0-9a-f]+)-(\d+)$/.exec(location.hash);
    if (!found) return false;
    const i = index.cells.findIndex((cell) => cell.id === found[1]);
    if (i < 0) return false;
    $("side-a").value = String(i);
    alone = Number(found[2]);
    show();
    $("outputs").scrollIntoView();
    return true;
  }
  addEventListener("hashchange", linked);

  fill();
  links(root);
  controls.hidden = false;
  if (strop.live && strop.live.ratings)
    strop.fetched("ratings").then((said) => {
      for (const [cell, i, value] of said.ratings) ratings.set(cell + " " + i, value);
      if (sides.length) show();
    }, () => {});
  if (!linked()) show();
});
