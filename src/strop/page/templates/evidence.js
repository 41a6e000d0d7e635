// What judges said of groups, and what answers tasks got.
"use strict";
strop.setUp.push((root) => {
  const { element, option, button, number, harmless, unpack } = strop;
  const GROUPS = 3, ANSWERS = 12; // shown at a time

  function labelled(text, control) {
    const made = element("label", "", text + " ");
    made.append(control);
    control.setAttribute("aria-label", text); // the options are no part of its name
    return made;
  }

  function chooser(entries, act) {
    const made = element("select");
    entries.forEach(([value, text]) => made.append(option(value, text)));
    made.addEventListener("change", act);
    return made;
  }

  function words(text) {
    const made = element("div", "text", harmless(text));
    made.dir = "auto";
    return made;
  }

  // ------------------------------------------------------------------ judgments

  function judged(place, data) {
    const first = chooser(data.judges.map((name, i) => [String(i), harmless(name)]), reset);
    const second = chooser([["-1", "nobody"], ...data.judges.map((name, i) => [String(i), harmless(name)])], reset);
    if (data.judges.length > 1) second.value = "1";
    const cells = [...new Set(data.groups.map((one) => one.cell))];
    const cell = chooser([["", "all"], ...cells.map((one) => [one, harmless(one)])], reset);
    const only = chooser([["all", "all groups"], ["apart", "disagreements"], ["failed", "failures"]], reset);
    const bar = element("div", "controls how"), status = element("p", "status"), list = element("div", "groups");
    status.setAttribute("role", "status");
    bar.append(labelled("Judge", first), labelled("Beside", second), labelled("Generator", cell), labelled("Show", only));
    const more = button("Show more", () => { shown += GROUPS; draw(); }, "more-of-list");
    place.append(bar, status, list, more);
    let shown = GROUPS;
    function reset() { shown = GROUPS; draw(); }

    function draw() {
      const judges = [Number(first.value), Number(second.value)].filter((i, k) => i >= 0 && (k === 0 || i !== Number(first.value)));
      const pair = [...judges].sort((a, b) => a - b).join(" "), apart = (one) => one.apart[pair] || 0;
      let rows = data.groups.filter((one) => !cell.value || one.cell === cell.value);
      if (judges.length > 1) rows.sort((a, b) => apart(b) - apart(a));
      if (only.value === "apart") rows = rows.filter((one) => apart(one) > 0);
      if (only.value === "failed") rows = rows.filter((one) => judges.some((i) => one.said[i] && one.said[i].failed));
      const held = data.total > data.groups.length ? ` The page holds ${data.groups.length} of ${data.total}.` : "";
      status.textContent = `${rows.length} groups${judges.length > 1 ? ", those on which the judges agree least first" : ""}.${held}`;
      list.replaceChildren(...rows.slice(0, shown).map((one) => group(one, judges, apart(one) > 0)));
      more.hidden = rows.length <= shown;
    }

    function group(one, judges, differ) {
      const made = element("article", "output judgment" + (differ ? " sought" : ""));
      made.tabIndex = 0;
      made.append(element("h3", "", `${harmless(one.cell)}, group ${one.group + 1} of partition ${one.partition + 1}`));
      const table = element("table"), head = element("tr");
      head.append(...["Text", ...judges.map((i) => harmless(data.judges[i]))].map((text) => {
        const th = element("th", "words", text);
        th.scope = "col";
        return th;
      }));
      table.append(element("thead"), element("tbody"));
      table.tHead.append(head);
      one.texts.forEach(([index, text], row) => {
        const line = element("tr"), cellOf = element("th", "words");
        line.tabIndex = row ? -1 : 0;
        line.dataset.modes = JSON.stringify(judges.map((i) => modeOf(one.said[i], row)));
        cellOf.scope = "row";
        cellOf.append(element("span", "who", `#${index}`), words(text));
        line.append(cellOf, ...judges.map((i) => grade(one.said[i], row, one.said[i] && one.said[i].grades)));
        judges.forEach((i, k) => { line.cells[k + 1].dataset.judge = harmless(data.judges[i]); });
        table.tBodies[0].append(line);
      });
      strop.roving([...table.tBodies[0].rows]);
      const scroll = element("div", "scroll");
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", "The group as it was judged");
      scroll.append(table);
      made.append(scroll);
      judges.forEach((i) => {
        const said = one.said[i];
        if (!said) return;
        const who = harmless(data.judges[i]);
        if (said.failed) made.append(element("p", "warning", `${who}: no verdict (${said.failed}). ${harmless(said.detail)}`));
        else made.append(element("p", "facts", `${who}: ` + (said.confidence ? `${names(said.grades).length} modes, confidence ${said.confidence}.`
          : `${said.grades.filter(Boolean).length} of ${said.grades.length} rated.`)));
        if (said.reply) {
          const fold = element("details", "fold"), pre = element("pre");
          pre.append(element("code", "", harmless(said.reply)));
          pre.tabIndex = 0;
          fold.append(element("summary", "", `The words of ${who}`), pre);
          made.append(fold);
        }
      });
      return made;
    }

    const names = (grades) => [...new Set(grades.filter(Boolean).map((one) => one[2]).filter((mode) => mode !== null))];
    const modeOf = (said, row) => (said && said.grades && said.grades[row] ? said.grades[row][2] : null);

    function grade(said, row, grades) {
      const made = element("td", "grade words");
      if (!grades || !grades[row]) { made.textContent = "–"; return made; }
      const [valid, scores, mode, hybrid] = grades[row];
      if (!valid) { made.textContent = "invalid"; return made; }
      const place = names(grades).indexOf(mode), sum = scores.reduce((a, b) => a + b, 0);
      if (mode === null) { made.append(element("b", "", `rated ${scores[0]} of 2`)); return made; }
      const chip = element("span", `mode mode-${place % 8}`, `mode ${harmless(mode)}${hybrid ? " (hybrid)" : ""}`);
      made.append(chip, element("b", "", ` ${sum} of ${2 * scores.length}`), element("small", "", scores.map((one, i) => `${data.dimensions[i]} ${one}`).join(", ")));
      return made;
    }
    draw();
  }

  // ------------------------------------------------------------------ tasks

  function tasks(place, data) {
    const setting = chooser(data.settings.map((one, i) => [String(i), harmless(one.label)]), reset);
    const filter = chooser(data.filters.map((one) => [one, one]), reset);
    const only = chooser([["all", "all"], ["wrong", "wrong only"], ["right", "right only"]], reset);
    const search = element("input");
    search.type = "search";
    search.addEventListener("input", reset);
    const bar = element("div", "controls how"), status = element("p", "status"), list = element("div", "groups");
    status.setAttribute("role", "status");
    bar.append(labelled("Setting", setting), ...(data.filters.length > 1 ? [labelled("Answer by", filter)] : []),
      labelled("Show", only), labelled("Search", search));
    const more = button("Show more", () => { shown += ANSWERS; draw(); }, "more-of-list");
    place.append(bar, status, list, more);
    let shown = ANSWERS;
    function reset() { shown = ANSWERS; draw(); }

    function draw() {
      const one = data.settings[Number(setting.value)], by = filter.value, wanted = search.value.toLowerCase();
      if (!one) { status.textContent = "Nothing is graded yet."; return; }
      const right = (row) => row.outcomes[by] === "passed";
      const all = one.rows, rows = all.filter((row) => (only.value === "all" || right(row) === (only.value === "right")) &&
        (!wanted || (row.response + data.problems[row.id].question).toLowerCase().includes(wanted)));
      status.textContent = `${rows.length} of ${all.length} responses, ${all.filter(right).length} of them right.` +
        (one.n > all.length ? ` The page holds the first ${all.length} of ${one.n}.` : "");
      list.replaceChildren(...rows.slice(0, shown).map((row) => {
        const made = element("article", "output answer " + (right(row) ? "right" : "sought"));
        made.tabIndex = 0;
        const problem = data.problems[row.id], found = row.answers[by];
        made.append(element("h3", "", `${right(row) ? "✓ right" : "✗ " + row.outcomes[by]} · ${harmless(row.id)}${row.seed === null ? "" : `, seed ${row.seed}`}`), words(problem.question),
          element("h4", "", "Response"), words(row.response || "(empty)"));
        const facts = element("dl");
        for (const [name, value] of [["found", found === null ? "no answer" : found], ["expected", problem.expected]]) {
          const fact = element("div");
          fact.append(element("dt", "", name), element("dd", "", harmless(String(value))));
          facts.append(fact);
        }
        made.append(facts);
        const said = row.said[by] || {};
        if (said.detail) made.append(element("p", "why", harmless(said.detail)));
        if (said.printed) made.append(element("h4", "", "The program printed"), words(said.printed));
        return made;
      }));
      more.hidden = rows.length <= shown;
    }
    draw();
  }

  for (const place of root.querySelectorAll(".evidence")) {
    const packed = place.querySelector("script");
    if (!("DecompressionStream" in window)) { place.append(element("p", "status", "This browser cannot unpack this part.")); continue; }
    unpack(packed.textContent).then((data) => (place.classList.contains("judged") ? judged : tasks)(place, data),
      (error) => place.append(element("p", "status", "This part of the page is damaged: " + error.message)));
  }
});
