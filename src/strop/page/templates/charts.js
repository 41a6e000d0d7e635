// Charts that answer: values under the pointer and by keyboard, outputs by a click, equal entropy by a slider.
"use strict";
strop.setUp.push((root) => {
  const { element, drawn, number } = strop;
  const NEAR = 24; // pixels within which the pointer finds a value

  let bubble = document.getElementById("bubble");
  if (!bubble) {
    bubble = element("div", "bubble");
    bubble.id = "bubble";
    bubble.hidden = true;
    document.body.append(bubble);
  }

  function tell(mark) {
    const at = mark.getBoundingClientRect();
    bubble.textContent = mark.getAttribute("aria-label") + (mark.dataset.cell ? " (click: its outputs)" : "");
    bubble.hidden = false;
    const wide = bubble.offsetWidth, left = at.left + at.width / 2 - wide / 2;
    bubble.style.left = Math.max(6, Math.min(left, innerWidth - wide - 6)) + scrollX + "px";
    const above = at.top - bubble.offsetHeight - 8;
    bubble.style.top = (above > 40 ? above : at.bottom + 8) + scrollY + "px";
  }

  function setUp(figure) {
    const svg = figure.querySelector("svg"), marks = [...svg.querySelectorAll(".value")];
    if (!marks.length) return;
    let found = null;
    const find = (mark) => {
      if (found) found.classList.remove("found");
      found = mark;
      if (!mark) { bubble.hidden = true; return; }
      mark.classList.add("found");
      tell(mark);
    };
    svg.addEventListener("pointermove", (event) => {
      let best = null, least = NEAR;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        const far = Math.hypot(box.left + box.width / 2 - event.clientX, box.top + box.height / 2 - event.clientY);
        if (far < least) [best, least] = [mark, far];
      }
      find(best);
    });
    svg.addEventListener("pointerleave", () => find(null));
    svg.addEventListener("click", () => { if (found && found.dataset.cell) strop.showOutputs(found.dataset.cell); });
    for (const mark of marks) {
      mark.querySelector("title").remove(); // the bubble says it
      mark.addEventListener("focus", () => find(mark));
      mark.addEventListener("blur", () => find(null));
      mark.addEventListener("keydown", (event) => {
        if (event.key === "Escape") find(null);
        if ((event.key === "Enter" || event.key === " ") && mark.dataset.cell) {
          event.preventDefault();
          strop.showOutputs(mark.dataset.cell);
        }
      });
    }
    strop.roving(marks);
    const data = JSON.parse(figure.querySelector("script").textContent);
    for (const fold of figure.querySelectorAll(".values")) fold.append(strop.button("Save as CSV", () => save(figure)));
    data.panels.forEach((panel, p) => { if (isFrontier(panel)) frontier(figure, svg, data, panel, p); });
  }

  const isFrontier = (panel) => /^entropy/i.test(panel.labels[0]) && /^perplexity/i.test(panel.labels[1]);

  // Between two points of a frontier the logarithm of the perplexity is straight.
  function read(points, entropy) {
    for (let i = 1; i < points.length; i++) {
      const [x0, y0] = points[i - 1], [x1, y1] = points[i];
      if (entropy < x0 || entropy > x1) continue;
      const share = x1 === x0 ? 0 : (entropy - x0) / (x1 - x0);
      return Math.exp(Math.log(y0) + share * (Math.log(y1) - Math.log(y0)));
    }
    return null;
  }

  // The middle of the widest stretch that most lines have: there is something to read there.
  function mostCommon(ends) {
    const stops = [...new Set(ends.flat())].sort((a, b) => a - b);
    let best = stops[0], most = 0, widest = 0;
    stops.slice(1).forEach((to, i) => {
      const from = stops[i], middle = (from + to) / 2;
      const count = ends.filter(([a, b]) => a <= middle && middle <= b).length;
      if (count > most || (count === most && to - from > widest)) [best, most, widest] = [middle, count, to - from];
    });
    return best;
  }

  function place(panel, k, value) {
    const [from, to] = panel.limits.slice(2 * k, 2 * k + 2), [a, b] = panel.box.slice(2 * k, 2 * k + 2);
    const f = panel.log[k] ? Math.log : (v) => v;
    return a + (b - a) * (f(value) - f(from)) / (f(to) - f(from));
  }

  function frontier(figure, svg, data, panel, p) {
    const lines = new Map();
    const many = data.marks.some((m) => m[0] === p && m[4]);
    for (const [where, series, x, y, line, colour] of data.marks) {
      if (where !== p || (many && !line)) continue;
      if (!lines.has(series)) lines.set(series, { points: [], colour });
      lines.get(series).points.push([x, y]);
    }
    for (const [name, line] of lines) {
      line.points.sort((a, b) => a[0] - b[0]);
      if (line.points.length < 2) lines.delete(name);
    }
    if (lines.size < 2) return;
    const all = [...lines.values()].flatMap((line) => line.points.map((point) => point[0]));
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const box = figure.querySelector(".reading"), made = element("div", "equal");
    const label = element("label", "", "Read at equal entropy "), slider = element("input");
    Object.assign(slider, { type: "range", min: low, max: high, step: (high - low) / 200 });
    const ends = [...lines.values()].map((line) => [line.points[0][0], line.points[line.points.length - 1][0]]);
    slider.value = mostCommon(ends);
    label.append(slider);
    const table = element("div", "read");
    table.setAttribute("aria-live", "polite");
    const [, , bottom, top] = panel.box;
    const rule = drawn("line", { class: "rule", y1: bottom, y2: top });
    svg.querySelector(".marks").before(rule);
    const dots = [...lines.values()].map((line) => {
      const dot = drawn("circle", { class: "dot", r: 2.6, style: `fill: ${line.colour}` });
      svg.querySelector(".marks").before(dot);
      return dot;
    });

    function draw() {
      const entropy = Number(slider.value), x = place(panel, 0, entropy);
      rule.setAttribute("x1", x);
      rule.setAttribute("x2", x);
      slider.setAttribute("aria-valuetext", `entropy ${number(entropy, 4)}`);
      const found = [...lines].map(([name, line]) => [name, read(line.points, entropy)]);
      found.forEach(([, value], i) => {
        dots[i].toggleAttribute("hidden", value === null);
        if (value === null) return;
        dots[i].setAttribute("cx", x);
        dots[i].setAttribute("cy", place(panel, 1, value));
      });
      const list = element("dl");
      for (const [name, value] of found) {
        const fact = element("div");
        fact.append(element("dt", "", name), element("dd", "", value === null ? "not there" : number(value, 4)));
        list.append(fact);
      }
      table.replaceChildren(element("p", "", `${panel.title ? panel.title + ". " : ""}Perplexity at entropy ${number(entropy, 4)}:`), list);
      const equal = data.equal[p], [a, b] = found;
      if (equal && lines.size === 2 && a[1] !== null && b[1] !== null) table.append(element("p", "", band(equal, entropy)));
      else if (lines.size === 2 && a[1] !== null && b[1] !== null)
        table.append(element("p", "", `${a[0]} over ${b[0]}: ${number(a[1] / b[1], 3)} times, read off the lines, without an interval.`));
    }

    // What was measured with intervals: at the nearest entropy of the comparison's own.
    function band(equal, entropy) {
      let k = 0;
      equal.entropies.forEach((one, i) => { if (Math.abs(one - entropy) < Math.abs(equal.entropies[k] - entropy)) k = i; });
      const [value, least, most] = equal.ratios[k];
      return `Perplexity of ${equal.called[0]} over that of ${equal.called[1]} at entropy ${number(equal.entropies[k], 4)}, ` +
        `the nearest that was measured: ${number(value, 3)} [${number(least, 3)}, ${number(most, 3)}].`;
    }

    slider.addEventListener("input", draw);
    made.append(label, table);
    box.append(made);
    box.hidden = false;
    draw();
  }

  // As the CSV file beside the page: quoted where it must be, and nothing that a spreadsheet runs.
  function save(figure) {
    const quote = (text) => {
      const inert = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : text;
      return /[",\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
    };
    const lines = [...figure.querySelectorAll(".values tr")].map((row) => [...row.cells].map((cell) => quote(cell.textContent.trim())).join(","));
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = figure.dataset.name + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  root.querySelectorAll("figure.chart").forEach(setUp);
});
