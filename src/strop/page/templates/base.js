// What all scripts of the page share: setting up, elements, copying, tabs.
"use strict";
window.strop = (() => {
  const setUp = []; // functions of an element: called for the document and for whatever replaces a part
  const live = document.getElementById("live");

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const SVG = "http://www.w3.org/2000/svg";
  function drawn(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function option(value, text) {
    const made = element("option", "", text);
    made.value = value;
    return made;
  }

  // The generators as the options of a select, by checkpoint.
  function fillCells(select, cells, wanted) {
    const groups = new Map();
    cells.forEach((one, i) => {
      if (wanted && !wanted(i)) return;
      if (!groups.has(one.model)) {
        const group = document.createElement("optgroup");
        group.label = one.model;
        groups.set(one.model, group);
      }
      groups.get(one.model).append(option(String(i), one.label));
    });
    select.append(...groups.values());
  }

  function button(text, act, className) {
    const made = element("button", className || "", text);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }

  function number(value, digits) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return value.toExponential(digits - 1);
    return value.toLocaleString("en", { maximumSignificantDigits: digits, minimumSignificantDigits: Math.min(digits, 2) });
  }

  // Unpacking: base64 -> zlib -> JSON.
  async function unpack(packed) {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  async function fetched(address, asked) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(asked || {}))
      if (value !== null && value !== undefined && value !== "") query.set(name, value);
    const answer = await fetch(address + (query.size ? "?" + query : ""));
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error || answer.statusText);
    return said;
  }

  // What would move, hide or reorder text: shown as its code point.
  const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc]/g;
  const codePoint = (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  const harmless = (text) => text.replace(CONTROLS, codePoint);

  // Arrow keys move among elements of which one can be reached by Tab.
  function roving(list, move) {
    list.forEach((one, i) => {
      one.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        const to = step ? (i + step + list.length) % list.length
          : event.key === "Home" ? 0 : event.key === "End" ? list.length - 1 : -1;
        if (to < 0) return;
        event.preventDefault();
        list.forEach((other, k) => other.setAttribute("tabindex", k === to ? "0" : "-1"));
        list[to].focus();
        if (move) move(list[to], to);
      });
    });
  }

  setUp.push((root) => {
    for (const made of root.querySelectorAll(".copied")) {
      const copy = made.querySelector(".copy");
      copy.hidden = false;
      copy.addEventListener("click", async () => {
        copy.textContent = (await copied(made.querySelector("code").textContent)) ? "Copied" : "Select and copy";
        setTimeout(() => { copy.textContent = "Copy"; }, 1500);
      });
    }
    for (const tabs of root.querySelectorAll("[role=tablist]")) {
      const list = [...tabs.querySelectorAll("[role=tab]")];
      const choose = (chosen) => list.forEach((tab) => {
        tab.setAttribute("aria-selected", String(tab === chosen));
        tab.tabIndex = tab === chosen ? 0 : -1;
        document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
      });
      list.forEach((tab) => tab.addEventListener("click", () => choose(tab)));
      roving(list, choose);
      choose(list[0]);
    }
  });

  // A page from disk may not have the clipboard: then by a selection.
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = element("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // Keys that go through whatever stands in lists: outputs, groups as judged, answers.
  const KEYS = [
    ["j", "k", "next and previous output, group or answer", ".output"],
    ["w", "", "next wrong answer, or next group on which two judges differ", ".sought, .answer, .judgment"],
    ["↓", "↑", "next and previous text of a group, value of a figure, or form to copy", ".judgment, .value, [role=tab]"],
    ["m", "", "in a group, next text of the same mode", ".judgment"],
    ["o", "", "open or close the whole text", "#outputs"],
    ["0", "2", "rate the output that has the focus: 0, 1 or 2; again takes it back", ".rating"],
    ["/", "", "search", "#search"],
    ["[", "]", "previous and next part of the page", "nav a"],
    ["?", "", "this list", "body"],
  ];

  function showKeys() {
    const made = element("dialog", "keys"), list = element("dl");
    for (const [one, other, what, where] of KEYS) {
      if (!document.querySelector(where)) continue;
      const fact = element("div"), keys = element("dt");
      keys.append(element("kbd", "", one), ...(other ? [one === "0" ? " to " : " ", element("kbd", "", other)] : []));
      fact.append(keys, element("dd", "", what));
      list.append(fact);
    }
    const close = button("Close", () => made.close());
    made.setAttribute("aria-label", "Keys");
    made.append(element("h2", "", "Keys"), list, element("p", "facts", "Tab reaches every control, arrows move sliders and lists."), close);
    made.addEventListener("close", () => made.remove());
    document.body.append(made);
    made.showModal();
  }

  // The list that one is in, or else the first that can be seen.
  const LISTS = "#pairs, .groups";
  const cardsOf = (list) => [...list.querySelectorAll("article.output")];
  function listHere() {
    const lists = [...document.querySelectorAll(LISTS)].filter((one) => cardsOf(one).length);
    const focused = document.activeElement.closest("section");
    return document.activeElement.closest(LISTS) || lists.find((one) => focused && focused.contains(one)) ||
      lists.find((one) => one.getBoundingClientRect().bottom > 60) || lists[0];
  }

  function moreOf(list) {
    const found = (list.closest(".evidence") || list.closest("section")).querySelector("button.more-of-list");
    return found && !found.hidden ? found : null;
  }

  // To the next card that is wanted; what the list does not show yet is asked for.
  function goTo(list, from, by, wanted) {
    const cards = cardsOf(list);
    let to = from + by;
    while (to >= 0 && to < cards.length && !wanted(cards[to])) to += by;
    if (cards[to]) return cards[to].focus();
    const more = by > 0 && moreOf(list);
    if (!more) return;
    const come = new MutationObserver(() => {
      if (cardsOf(list).length <= cards.length) return;
      come.disconnect();
      goTo(list, to - 1, by, wanted);
    });
    come.observe(list, { childList: true });
    more.click();
  }

  function move(by, wanted) {
    const list = listHere();
    if (!list) return;
    const here = cardsOf(list).indexOf(document.activeElement.closest("article.output"));
    goTo(list, here < 0 && by < 0 ? 0 : here, by, wanted || (() => true));
  }

  function sameMode() {
    const row = document.activeElement.closest(".judgment tr");
    if (!row) return;
    const rows = [...row.parentElement.rows], at = rows.indexOf(row), mode = (one) => JSON.parse(one.dataset.modes)[0];
    const next = [...rows.slice(at + 1), ...rows.slice(0, at)].find((one) => mode(one) !== null && mode(one) === mode(row));
    if (!next) return;
    rows.forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
  }

  function toPart(by) {
    const parts = [...document.querySelectorAll("nav a")].map((a) => document.getElementById(a.hash.slice(1))).filter(Boolean);
    const tops = parts.map((one) => one.getBoundingClientRect().top);
    const to = by > 0 ? tops.findIndex((top) => top > 60) : tops.findLastIndex((top) => top < -5);
    if (to < 0) return;
    parts[to].tabIndex = -1;
    parts[to].focus({ preventScroll: true });
    parts[to].scrollIntoView();
  }

  const ACTS = {
    "?": showKeys, j: () => move(1), k: () => move(-1), w: () => move(1, (card) => card.classList.contains("sought")), m: sameMode,
    o: () => { const one = document.activeElement.closest("article.output"), open = one && one.querySelector(".unfold"); if (open) open.click(); },
    "/": () => { const search = document.getElementById("search"); if (search) search.focus(); },
    "[": () => toPart(-1), "]": () => toPart(1),
  };
  addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input:not([type=range]):not([type=checkbox]), select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !(event.key in ACTS)) return;
    event.preventDefault();
    ACTS[event.key]();
  });

  const setUpAll = (root) => setUp.forEach((one) => one(root));
  document.addEventListener("strop:replaced", (event) => setUpAll(event.detail.element));
  addEventListener("DOMContentLoaded", () => {
    markPlace();
    setUpAll(document);
    document.querySelector("header.top").append(button("Keys ?", showKeys, "small show-keys"));
  });

  // The part that one reads is marked in the navigation.
  function markPlace() {
    const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
    if (!("IntersectionObserver" in window) || !links.size) return;
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) {
        links.forEach((a, id) => a.toggleAttribute("aria-current", id === entry.target.id));
        const here = links.get(entry.target.id), bar = here && here.parentElement;
        if (bar) bar.scrollLeft = here.offsetLeft - bar.clientWidth / 2;
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    for (const id of links.keys()) {
      const part = document.getElementById(id);
      if (part) seen.observe(part);
    }
  }

  return {
    setUp, setUpAll, live: live ? JSON.parse(live.textContent) : null,
    element, fillCells, drawn, option, button, number, unpack, fetched, harmless, roving, CONTROLS, codePoint,
  };
})();
