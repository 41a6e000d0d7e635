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

  const setUpAll = (root) => setUp.forEach((one) => one(root));
  document.addEventListener("strop:replaced", (event) => setUpAll(event.detail.element));
  addEventListener("DOMContentLoaded", () => { markPlace(); setUpAll(document); });

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
