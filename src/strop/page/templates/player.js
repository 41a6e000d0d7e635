// The player: outputs round by round, one or two in step, from what a run keeps of each token.
"use strict";
strop.setUp.push((root) => {
  const $ = (id) => document.getElementById(id);
  if (!root.querySelector("#player")) return;
  const { element, option, button, harmless } = strop;
  const index = JSON.parse($("browser-index").textContent);
  const sides = ["a", "b"], REVISIONS = 200;
  const known = new Map(); // "cell output" -> what is played
  let shown = []; // per side {one, spans, panel}
  let timer = null, latest = 0;

  if (!strop.live && !("DecompressionStream" in window)) return;

  async function played(cell, output) {
    const key = cell + " " + output;
    if (!known.has(key)) {
      if (strop.live) {
        const said = await strop.fetched("output", { cell: index.cells[cell].id, index: output });
        known.set(key, said.player);
      } else {
        const held = $("plays-" + cell), list = held ? await strop.unpack(held.textContent) : [];
        for (const one of list) known.set(cell + " " + one.index, one);
        if (!known.has(key)) known.set(key, null);
      }
    }
    return known.get(key);
  }

  const cellOf = (side) => Number($("play-" + side).value);
  const rounds = () => Math.max(1, ...shown.filter((one) => one.one).map((one) => one.one.rounds));

  // A panel's own round, where two have different numbers of them: the same share of the way.
  const roundOf = (one, at) => Math.round(at * one.rounds / rounds());

  async function show() {
    const mine = ++latest, output = $("play-output").valueAsNumber || 0;
    const wanted = sides.map(cellOf);
    let list;
    try {
      list = await Promise.all(wanted.map((cell) => cell < 0 ? null : played(cell, output)));
    } catch (error) {
      return say("The rounds cannot be read: " + error.message);
    }
    if (mine !== latest) return;
    const other = (s) => (list[1 - s] && list[s] && list[0].tokens.length === list[1].tokens.length ? list[1 - s] : null);
    shown = sides.map((side, s) => panel(side, wanted[s], output, list[s], other(s)));
    $("play-panels").replaceChildren(...shown.map((one) => one.panel));
    const at = $("play-at");
    at.max = rounds();
    at.value = rounds();
    draw();
    say(compared(wanted, list) + unknown(list));
  }

  function panel(side, cell, output, one, other) {
    const made = element("article", "output unmask " + side);
    if (cell < 0) return { panel: element("div", "gap " + side), one: null };
    const head = element("header"), title = element("h3", "", "#" + output);
    title.append(element("span", "who", " " + index.cells[cell].label));
    head.append(title, element("p", "count"));
    const body = element("div", "tokens");
    body.dir = "auto";
    made.append(head, body);
    const spans = [];
    if (!one) {
      body.append(element("span", "control", strop.live
        ? "Nothing is known of this output's rounds." : "This page holds no rounds of this output. strop view shows every output's."));
      return { panel: made, one: null };
    }
    const given = new Map(one.given), values = valuesOf(one);
    let into = body;
    one.tokens.forEach((token, i) => {
      if (given.has(i)) body.append(element("span", "given", harmless(given.get(i))));
      if (one.block && i % one.block === 0) {
        into = element("span", "block");
        into.title = `Block ${i / one.block + 1}`;
        body.append(into);
      }
      const span = element("span", "token", harmless(token));
      const past = values[i].slice(0, -1).filter((value) => value.text !== null);
      if (past.some((value) => value.round > 0)) span.classList.add("revised");
      if (one.wrong && i in one.wrong) span.classList.add("wrong");
      if (other && other.tokens[i] !== token) span.classList.add("differs");
      into.append(span);
      spans.push(span);
    });
    if (given.has(one.tokens.length)) body.append(element("span", "given", harmless(given.get(one.tokens.length))));
    if (one.wrong && Object.keys(one.wrong).length) {
      const fold = element("details", "fold"), list = element("ul");
      fold.append(element("summary", "", `${Object.keys(one.wrong).length} wrong, and what should stand there`), list);
      for (const [i, should] of Object.entries(one.wrong))
        list.append(element("li", "", `${harmless(one.tokens[i].trim())}: ${harmless(should)}`));
      made.append(fold);
    }
    made.append(...revisions(one, values));
    made.classList.add(one.noise === "uniform" ? "noisy" : one.noise === null ? "causal" : "masked");
    return { panel: made, one, spans, values };
  }

  // Per token, what stood there and since when: earlier values first, the last one at the end.
  function valuesOf(one) {
    const values = one.tokens.map(() => []);
    for (const [round, place, text, chance] of one.earlier || [])
      if (values[place]) values[place].push({ round, text, chance });
    one.tokens.forEach((text, i) => values[i].push({ round: one.changed[i], text, chance: one.chance ? one.chance[i] : null }));
    return values;
  }

  const since = ({ round, text, chance }) => (text === null ? "masked again" : `“${harmless(text.trim())}”`) +
    (round === 0 ? " from the start" : ` in round ${round}`) +
    (text !== null && chance !== null ? ` (probability ${likely(chance)})` : "");
  const likely = (chance) => chance >= 0.01 ? chance.toFixed(2) : chance.toExponential(1);

  function revisions(one, values) {
    if (one.earlier === null) return [element("p", "count", "What stood at these tokens before is not kept of this output.")];
    const revised = values.filter((value) => value.slice(0, -1).some((v) => v.text !== null && v.round > 0));
    if (!revised.length) return [];
    const fold = element("details", "fold revisions"), list = element("ul");
    fold.append(element("summary", "", `${revised.length} revised, and what stood there before`), list);
    fold.addEventListener("toggle", () => {
      if (list.childElementCount) return;
      list.append(...revised.slice(0, REVISIONS).map((value) => element("li", "", value.map(since).join(", then "))));
      if (revised.length > REVISIONS) list.append(element("li", "", `and ${revised.length - REVISIONS} more`));
    });
    return [fold];
  }

  // How much of the later colour a value has: by its round, or from probability 1 down to 1 in 1,000.
  function shade(value, one, byChance) {
    if (!byChance) return (value.round - 1) / Math.max(1, one.rounds - 1);
    return value.chance === null ? null : Math.min(1, -Math.log10(Math.max(value.chance, 1e-9)) / 3);
  }

  function draw() {
    const at = Number($("play-at").value);
    const byChance = $("play-colour").value === "chance";
    for (const { panel, one, spans, values } of shown) {
      if (!one) continue;
      const round = roundOf(one, at);
      let there = 0, open = -1;
      spans.forEach((span, i) => {
        const last = values[i].at(-1), value = values[i].findLast((one) => one.round <= round) || null;
        const here = value === last, seen = value !== null && value.text !== null;
        there += here;
        if (!here && open < 0) open = i;
        const text = harmless(seen ? value.text : last.text);
        if (span.textContent !== text) span.textContent = text;
        const mix = seen ? shade(value, one, byChance) : 0;
        span.style.setProperty("--late", (100 * Math.max(0, mix || 0)).toFixed(0) + "%");
        span.classList.toggle("unknown", mix === null);
        span.classList.toggle("hidden", !seen);
        span.classList.toggle("passing", seen && !here);
        span.classList.toggle("now", seen && value.round === round && round > 0);
        span.title = (seen ? since(value) : "not there yet") + (seen && !here ? "; will change" : "") +
          (here && one.wrong && i in one.wrong ? `; wrong, should be ${one.wrong[i]}` : "");
      });
      if (one.block)
        panel.querySelectorAll(".block").forEach((block, i) => block.classList.toggle("open", open >= 0 && i === Math.floor(open / one.block)));
      const what = one.noise === "uniform" ? "tokens have their last value" : one.noise === null ? "tokens are written" : "tokens stand";
      panel.querySelector(".count").textContent = `Round ${round} of ${one.rounds}: ${there} of ${one.tokens.length} ${what}` +
        (one.wrong ? `, ${Object.keys(one.wrong).length} wrong in the end` : "");
    }
    $("play-round").textContent = `Round ${at} of ${rounds()}`;
    const [from, to] = $("play-key").querySelectorAll("span");
    from.textContent = byChance ? "probability 1" : "first round";
    to.textContent = byChance ? "1 in 1,000 or less; not coloured: not known" : "last round";
    $("play-key").hidden = !shown.some(({ one }) => one);
  }

  // What a lower temperature would have changed: exact where both drew by the same random numbers.
  function compared([a, b], [one, other]) {
    if (!one || !other || a === b) return one || other ? "" : "Choose an output whose rounds are known.";
    const left = index.cells[a], right = index.cells[b];
    const why = left.point !== right.point ? "The two differ in more than their temperature."
      : left.exact && right.exact
        ? "Same seed, same output number, same random numbers at every token: every difference is the temperature's."
        : "Drawn step by step as the public code does: the two do not share random numbers.";
    if (one.tokens.length !== other.tokens.length) return why;
    const count = one.tokens.filter((token, i) => token !== other.tokens[i]).length;
    return `${count} of ${one.tokens.length} tokens differ (underlined with dots). ${why}`;
  }

  function unknown(list) {
    const none = list.filter((one) => one && !one.chance).length;
    if ($("play-colour").value !== "chance" || !none) return "";
    return " No probability is kept here: the sampler does not know it, or the output was drawn before runs kept it.";
  }

  function colder() {
    const a = cellOf("a"), cells = index.cells;
    const same = cells.map((one, i) => i).filter((i) => i !== a && cells[i].point === cells[a].point);
    if (!same.length) return say("No other temperature was drawn with this seed and these settings: strop sample --temperature 1.0,0.8 draws two.");
    const now = same.indexOf(cellOf("b"));
    $("play-b").value = String(same[(now + 1) % same.length]);
    show();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "Play";
  }

  function play() {
    if (timer) return stop();
    const at = $("play-at");
    if (Number(at.value) >= Number(at.max)) at.value = 0;
    draw();
    $("play").textContent = "Pause";
    timer = setInterval(() => {
      at.value = Number(at.value) + 1;
      draw();
      if (Number(at.value) >= Number(at.max)) stop();
    }, Number($("play-speed").value));
  }

  function say(text) {
    $("play-status").textContent = text;
  }

  const can = index.cells.map((_, i) => strop.live || $("plays-" + i));
  sides.forEach((side) => {
    if (side === "b") $("play-b").append(option("-1", "nothing"));
    strop.fillCells($("play-" + side), index.cells, (i) => can[i]);
  });
  const first = can[index.left] ? index.left : can.findIndex(Boolean);
  const cells = index.cells, sibling = cells.findIndex((one, i) => i !== first && can[i] && one.point === cells[first].point);
  $("play-a").value = String(first);
  $("play-b").value = String(sibling >= 0 ? sibling : can[index.right] && index.right !== first ? index.right : -1);
  $("play-output").max = strop.live ? "" : "7";
  $("player").addEventListener("submit", (event) => event.preventDefault());
  $("player").addEventListener("change", (event) => {
    if (event.target.tagName !== "SELECT" || event.target.id === "play-speed") return;
    if (event.target.id === "play-colour") {
      const list = shown.map(({ one }) => one);
      draw();
      return say(compared(sides.map(cellOf), list) + unknown(list));
    }
    stop();
    show();
  });
  $("play-output").addEventListener("input", () => { stop(); show(); });
  $("play-at").addEventListener("input", () => { stop(); draw(); });
  $("play").addEventListener("click", play);
  $("play-colder").addEventListener("click", colder);
  strop.unmask = (cell, output) => {
    $("play-a").value = String(cell);
    $("play-output").value = String(output);
    stop();
    show();
    $("unmasking").scrollIntoView();
  };
  strop.canUnmask = (cell, output) => Boolean(can[cell]) && (Boolean(strop.live) || output < 8);
  $("player").hidden = false;
  show();
});
