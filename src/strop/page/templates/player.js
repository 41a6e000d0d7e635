// The player: outputs round by round, one or two in step, from what a run keeps of each token.
"use strict";
strop.setUp.push((root) => {
  const $ = (id) => document.getElementById(id);
  if (!root.querySelector("#player")) return;
  const { element, option, button, harmless } = strop;
  const index = JSON.parse($("browser-index").textContent);
  const sides = ["a", "b"];
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
    say(compared(wanted, list));
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
    const given = new Map(one.given);
    let into = body;
    one.tokens.forEach((token, i) => {
      if (given.has(i)) body.append(element("span", "given", harmless(given.get(i))));
      if (one.block && i % one.block === 0) {
        into = element("span", "block");
        into.title = `Block ${i / one.block + 1}`;
        body.append(into);
      }
      const span = element("span", "token", harmless(token));
      span.style.setProperty("--late", (100 * (one.changed[i] - 1) / Math.max(1, one.rounds - 1)).toFixed(0) + "%");
      span.title = one.changed[i] === 0 ? "there from the start" : `stands since round ${one.changed[i]}`;
      if (one.wrong && i in one.wrong) {
        span.classList.add("wrong");
        span.title += `; wrong, should be ${one.wrong[i]}`;
      }
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
    made.classList.add(one.noise === "uniform" ? "noisy" : one.noise === null ? "causal" : "masked");
    return { panel: made, one, spans };
  }

  function draw() {
    const at = Number($("play-at").value);
    for (const { panel, one, spans } of shown) {
      if (!one) continue;
      const round = roundOf(one, at);
      let there = 0, open = -1;
      one.changed.forEach((changed, i) => {
        const here = changed <= round;
        there += here;
        if (!here && open < 0) open = i;
        spans[i].classList.toggle("hidden", !here);
        spans[i].classList.toggle("now", here && changed === round && round > 0);
      });
      if (one.block)
        panel.querySelectorAll(".block").forEach((block, i) => block.classList.toggle("open", open >= 0 && i === Math.floor(open / one.block)));
      const what = one.noise === "uniform" ? "tokens have their last value" : one.noise === null ? "tokens are written" : "tokens stand";
      panel.querySelector(".count").textContent = `Round ${round} of ${one.rounds}: ${there} of ${one.tokens.length} ${what}` +
        (one.wrong ? `, ${Object.keys(one.wrong).length} wrong in the end` : "");
    }
    $("play-round").textContent = `Round ${at} of ${rounds()}`;
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
